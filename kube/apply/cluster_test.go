package apply_test

import (
	"context"
	"encoding/json"
	"os"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/kubetest"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

func TestMain(m *testing.M) { kubetest.Main(m) }

// widgets is a kind of its own for one test, in a namespace of its own, as other
// people and tools see it.
type widgets struct {
	t         *testing.T
	config    *rest.Config
	client    dynamic.Interface
	group     string
	namespace string
}

func install(t *testing.T, name string) *widgets {
	t.Helper()
	return installWith(t, name, nil)
}

// installWith installs the kind with another definition.
func installWith(t *testing.T, name string, edit func(crd string) string) *widgets {
	t.Helper()
	server := kubetest.Shared(t)
	config := rest.CopyConfig(server.Config)
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	w := &widgets{t: t, config: config, client: client, namespace: server.Namespace(t)}
	w.group = name + "." + w.namespace + ".dev" // another one each time, for go test -count
	kubetest.InstallWidgets(t, client, w.group, w.namespace, edit)
	return w
}

func (w *widgets) crds() dynamic.ResourceInterface {
	return w.client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
}

func (w *widgets) resource(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: w.group, Version: version, Resource: "widgets"}
}

func (w *widgets) in(version string) dynamic.ResourceInterface {
	return w.client.Resource(w.resource(version)).Namespace(w.namespace)
}

func (w *widgets) key(name string) kube.Key {
	return kube.Key{Group: w.group, Resource: "widgets", Namespace: w.namespace, Name: name}
}

// object is a widget with that spec, given as YAML.
func (w *widgets) object(name, spec string) *unstructured.Unstructured {
	w.t.Helper()
	obj := decode(w.t, "spec: "+spec)
	obj.SetAPIVersion(w.group + "/v1")
	obj.SetKind("Widget")
	obj.SetName(name)
	obj.SetNamespace(w.namespace)
	return obj
}

// create creates a widget as that manager.
func (w *widgets) create(manager, name, spec string) *unstructured.Unstructured {
	w.t.Helper()
	obj, err := w.in("v1").Create(w.t.Context(), w.object(name, spec), metav1.CreateOptions{FieldManager: manager})
	if err != nil {
		w.t.Fatal(err)
	}
	return obj
}

// tryApply applies a widget server-side as that manager.
func (w *widgets) tryApply(manager, name, spec string, force bool) (*unstructured.Unstructured, error) {
	return w.in("v1").Apply(w.t.Context(), name, w.object(name, spec), metav1.ApplyOptions{FieldManager: manager, Force: force})
}

// patch merges a patch, given as YAML, as that manager.
func (w *widgets) patch(manager, name, patch string) *unstructured.Unstructured {
	w.t.Helper()
	content, err := yaml.YAMLToJSON([]byte(patch))
	if err != nil {
		w.t.Fatal(err)
	}
	obj, err := w.in("v1").Patch(w.t.Context(), name, types.MergePatchType, content, metav1.PatchOptions{FieldManager: manager})
	if err != nil {
		w.t.Fatal(err)
	}
	return obj
}

func (w *widgets) get(name string) *unstructured.Unstructured {
	w.t.Helper()
	obj, err := w.in("v1").Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return obj
}

func (w *widgets) delete(name string) {
	w.t.Helper()
	if err := w.in("v1").Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *widgets) gone(name string) bool {
	w.t.Helper()
	_, err := w.in("v1").Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
	return err != nil
}

func decode(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	content, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	if err := json.Unmarshal(content, &obj.Object); err != nil {
		t.Fatal(err)
	}
	// Integers are int64 in what a server answers.
	obj.Object = integers(obj.Object).(map[string]any)
	return obj
}

func integers(v any) any {
	switch t := v.(type) {
	case float64:
		if t == float64(int64(t)) {
			return int64(t)
		}
	case []any:
		for i := range t {
			t[i] = integers(t[i])
		}
	case map[string]any:
		for k := range t {
			t[k] = integers(t[k])
		}
	}
	return v
}

// poll calls until there is no error.
func poll(t *testing.T, what string, call func(context.Context) error) {
	t.Helper()
	kubetest.Poll(t.Context(), t, patience, what, call)
}

func write(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
