package sync

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
)

// errNotOurs says that a file's path or content does not make it one of ours.
var errNotOurs = errors.New("not a file of ours")

// index counts the files of ours in a tree, by resource and by namespace. It
// holds no paths: those are in the git store.
type index struct {
	files      gitstore.Files // the tree
	resources  map[schema.GroupResource]int
	namespaces map[string]int // mirrored objects in it; the Namespace's own file does not count
}

func newIndex() *index {
	return &index{resources: map[schema.GroupResource]int{}, namespaces: map[string]int{}}
}

func (x *index) add(path string)    { x.count(path, 1) }
func (x *index) remove(path string) { x.count(path, -1) }

func (x *index) count(path string, by int) {
	key, _, err := KeyOf(path)
	if err != nil {
		return
	}
	x.resources[key.GroupResource()] += by
	if key.Namespace != "" {
		x.namespaces[key.Namespace] += by
	}
}

// known is the number of files whose path makes them ours.
func (x *index) known() int {
	total := 0
	for _, n := range x.resources {
		total += n
	}
	return total
}

// clone copies the counts, for a plan that is not carried out yet.
func (x *index) clone() *index {
	return &index{files: x.files, resources: maps.Clone(x.resources), namespaces: maps.Clone(x.namespaces)}
}

// follow returns the counts of the present head.
func (x *index) follow(repo *gitstore.Store) *index {
	c := x.clone()
	repo.Changes(x.files, func(path string, was, is gitstore.Hash) {
		switch {
		case was.IsZero():
			c.add(path)
		case is.IsZero():
			c.remove(path)
		}
	})
	c.files = repo.Files()
	return c
}

// keyAt returns the key that a path stands for. Where the path is cut, since the
// name is too long for a file system, the content tells.
func (m *Mirror) keyAt(ctx context.Context, path string) (kube.Key, error) {
	key, cut, err := KeyOf(path)
	if err != nil || !cut {
		return key, err
	}
	content, err := m.readFile(ctx, path)
	if err != nil {
		return kube.Key{}, err
	}
	key, _, err = decodeAt(path, content)
	return key, err
}

// decodeAt reads a file that lies at a path, and the key that content and path agree
// on. The error is errNotOurs when they do not, or when there is no object in it.
func decodeAt(path string, content []byte) (kube.Key, *unstructured.Unstructured, error) {
	obj, err := kube.Decode(content)
	if err != nil {
		return kube.Key{}, nil, fmt.Errorf("%s: %w: %w", path, errNotOurs, err)
	}
	key, err := KeyOfFile(path, obj.GroupVersionKind().Group, obj.GetNamespace(), obj.GetName())
	if err != nil {
		return kube.Key{}, nil, fmt.Errorf("%w: %w", errNotOurs, err)
	}
	return key, obj, nil
}

// readFile returns the content of a file at the present head.
func (m *Mirror) readFile(ctx context.Context, path string) ([]byte, error) {
	h, ok := m.repo.Lookup(path)
	if !ok {
		return nil, fmt.Errorf("read %s: no such file in %s", path, m.repo.Head())
	}
	return m.repo.Read(ctx, h)
}

// ours checks that content names key. It returns the reason when it does not: a
// file at our path with other content is a person's, and is never written or
// deleted (DESIGN 4), only reported.
func (m *Mirror) ours(key kube.Key, content []byte) error {
	obj, err := kube.Decode(content)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotOurs, err)
	}
	gvk := obj.GroupVersionKind()
	if gvk.Group != key.Group || obj.GetNamespace() != key.Namespace || obj.GetName() != key.Name {
		return fmt.Errorf("%w: it holds %s %s/%s", errNotOurs, gvk.GroupKind(), obj.GetNamespace(), obj.GetName())
	}
	if kind, _, ok := m.cluster.Kind(key.GroupResource()); ok && kind != gvk.Kind {
		return fmt.Errorf("%w: it holds a %s, not a %s", errNotOurs, gvk.Kind, kind)
	}
	return nil
}

// governed tells whether the present rules select the object that content holds.
// A file whose object they do not select is an orphan: the rules changed, not the object.
func (m *Mirror) governed(key kube.Key, content []byte) (bool, error) {
	obj, err := kube.Decode(content)
	if err != nil {
		return false, err
	}
	gr := key.GroupResource()
	switch {
	case m.opts.CRDs && gr == crdResource && !m.named(gr):
		_, selected := m.opts.Rules.Resource(crdNames(key.Name), true)
		return selected, nil
	case m.follows(key):
		return true, nil
	}
	_, ok := m.ruleOf(obj, gr)
	return ok, nil
}

// ruleOf returns the rule that governs an object as it lies in git. Whether its
// resource is a custom one its CRD tells, which lies in git too; without one,
// the group does.
func (m *Mirror) ruleOf(obj *unstructured.Unstructured, gr schema.GroupResource) (*kube.Rule, bool) {
	crd := kube.Key{Group: crdResource.Group, Resource: crdResource.Resource, Name: gr.String()}
	if _, ok := m.repo.Lookup(PathOf(crd)); !ok {
		return m.opts.Rules.Governs(obj, gr)
	}
	rules, selected := m.opts.Rules.Resource(gr, true)
	if !selected {
		return nil, false
	}
	return rules.Governs(obj)
}

// named tells whether a rule names a built-in resource, so that it is mirrored
// for its own sake and not for what stands on it.
func (m *Mirror) named(gr schema.GroupResource) bool {
	_, named := m.opts.Rules.Resource(gr, false)
	return named
}

var (
	crdResource       = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	namespaceResource = schema.GroupResource{Resource: "namespaces"}
)

// crdNames returns the resource that a CRD of that name defines: its name is
// always <plural>.<group>.
func crdNames(name string) schema.GroupResource { return schema.ParseGroupResource(name) }
