package kubetest

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/crmirror/crmirror/kube"
)

// maxName is the longest name that the API server takes for most resources.
const maxName = 253

// placement gives every object an identity of its own.
type placement struct {
	mu    sync.Mutex
	taken map[kube.Key]bool
}

// place completes and, where it is taken, changes the object's identity, and
// strips what only a server sets, so that a create is accepted. The same files
// in the same order get the same identities.
func (p *placement) place(doc document, resource resource) kube.Key {
	stripServerFields(doc.Unstructured)
	if doc.GetName() == "" && doc.GetGenerateName() != "" {
		seed := fmt.Sprintf("%s/%s#%d", filepath.Base(filepath.Dir(doc.File)), filepath.Base(doc.File), doc.Index)
		doc.SetName(fmt.Sprintf("%s%.5x", doc.GetGenerateName(), sha256.Sum256([]byte(seed))))
	}
	switch {
	case !resource.namespaced:
		doc.SetNamespace("")
	case doc.GetNamespace() == "":
		doc.SetNamespace(metav1.NamespaceDefault)
	}
	return p.next(doc.Unstructured, kube.Key{
		Group:     resource.GVR.Group,
		Resource:  resource.GVR.Resource,
		Namespace: doc.GetNamespace(),
		Name:      doc.GetName(),
	})
}

// next takes the first free identity from key on: the same name in the next
// namespace ("shop", "shop-2", "shop-3", …), or, where no namespace can separate
// them, the next name.
func (p *placement) next(object *unstructured.Unstructured, key kube.Key) kube.Key {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := key
	for n := 2; p.taken[free]; n++ {
		suffix := fmt.Sprintf("-%d", n)
		if key.Namespace != "" {
			free.Namespace = key.Namespace + suffix
		} else {
			free.Name = key.Name[:min(len(key.Name), maxName-len(suffix))] + suffix
		}
	}
	p.taken[free] = true
	object.SetNamespace(free.Namespace)
	object.SetName(free.Name)
	return free
}

// stripServerFields removes the metadata that a server sets or refuses in a create.
func stripServerFields(object *unstructured.Unstructured) {
	for _, field := range []string{
		"resourceVersion", "uid", "creationTimestamp", "generation", "managedFields",
		"selfLink", "deletionTimestamp", "deletionGracePeriodSeconds",
	} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
}
