package informer_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/kubetest"
)

// cluster is a real API server as a test changes it.
type cluster struct {
	t      *testing.T
	config *rest.Config
	client dynamic.Interface
}

func connect(t *testing.T, config *rest.Config) cluster {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return cluster{t: t, config: config, client: client}
}

// widgets is a kind of its own for one test: widgets.<group>.
type widgets struct {
	cluster
	group   string
	version string
}

func (w widgets) resource() schema.GroupResource {
	return schema.GroupResource{Group: w.group, Resource: "widgets"}
}

func (w widgets) name() string { return w.resource().String() }

func (w widgets) key(namespace, name string) kube.Key {
	return kube.Key{Group: w.group, Resource: "widgets", Namespace: namespace, Name: name}
}

func (w widgets) in(namespace string) dynamic.ResourceInterface {
	return w.client.Resource(w.resource().WithVersion(w.version)).Namespace(namespace)
}

func (c cluster) crds() dynamic.ResourceInterface {
	return c.client.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
}

// crd is the definition of widgets with the given versions, the first of which is
// the storage version.
func crd(group string, versions ...string) *unstructured.Unstructured {
	var list []any
	for n, v := range versions {
		list = append(list, map[string]any{
			"name": v, "served": true, "storage": n == 0,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{
				"type": "object", "x-kubernetes-preserve-unknown-fields": true,
			}},
		})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced", "versions": list,
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
		},
	}}
}

// install creates the kind and waits until it is served.
func (c cluster) install(group string, versions ...string) widgets {
	c.t.Helper()
	if len(versions) == 0 {
		versions = []string{"v1"}
	}
	if _, err := c.crds().Create(c.t.Context(), crd(group, versions...), metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	w := widgets{cluster: c, group: group, version: versions[0]}
	poll(c.t, "CRD to be served", func(ctx context.Context) error {
		_, err := w.in("default").List(ctx, metav1.ListOptions{})
		return err
	})
	c.t.Cleanup(func() { w.uninstall(context.WithoutCancel(c.t.Context())) })
	return w
}

// uninstall deletes the CRD and waits until it is gone.
func (w widgets) uninstall(ctx context.Context) {
	w.t.Helper()
	err := w.crds().Delete(ctx, w.name(), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		w.t.Errorf("delete CRD: %v", err)
	}
	pollWith(ctx, w.t, "CRD to be deleted", func(ctx context.Context) error {
		_, err := w.crds().Get(ctx, w.name(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("still there"), err)
	})
}

// create creates a widget with those labels ("a=b").
func (w widgets) create(namespace, name string, labels ...string) {
	w.t.Helper()
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": w.group + "/" + w.version, "kind": "Widget",
		"metadata": map[string]any{"name": name, "namespace": namespace},
		"spec":     map[string]any{"size": int64(1)},
	}}
	obj.SetLabels(labelSet(labels))
	if _, err := w.in(namespace).Create(w.t.Context(), obj, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// label replaces the labels of a widget.
func (w widgets) label(namespace, name string, labels ...string) {
	w.t.Helper()
	obj, err := w.in(namespace).Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	obj.SetLabels(labelSet(labels))
	if _, err := w.in(namespace).Update(w.t.Context(), obj, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w widgets) delete(namespace, name string) {
	w.t.Helper()
	if err := w.in(namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func labelSet(labels []string) map[string]string {
	set := map[string]string{}
	for _, l := range labels {
		name, value, _ := strings.Cut(l, "=")
		set[name] = value
	}
	return set
}

// poll calls until there is no error.
func poll(t *testing.T, what string, call func(context.Context) error) {
	t.Helper()
	pollWith(t.Context(), t, what, call)
}

func pollWith(ctx context.Context, t *testing.T, what string, call func(context.Context) error) {
	t.Helper()
	kubetest.Poll(ctx, t, patience, what, call)
}
