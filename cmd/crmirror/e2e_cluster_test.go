package main_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/crmirror/crmirror/gitstore/gittest"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/sync"
)

var (
	crds       = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	issuers    = schema.GroupVersionResource{Group: "certs.example.dev", Version: "v1", Resource: "issuers"}
)

// corpusGroups are the groups that the lab's first cluster is loaded with.
var corpusGroups = []string{"certs.example.dev", "backup.example.dev"}

func client(t *testing.T, cluster int) dynamic.Interface {
	t.Helper()
	c, err := dynamic.NewForConfig(world.lab.Clusters[cluster].Config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// cluster returns what git should hold of the custom resources of those groups
// on the lab's first cluster: path → content, with their CRDs and Namespaces.
func cluster(t *testing.T, groups ...string) map[string]string {
	t.Helper()
	c := client(t, 0)
	files := map[string]string{}
	add := func(resource schema.GroupVersionResource, obj *unstructured.Unstructured) {
		content, err := kube.Encode(obj, &kube.Shape{})
		if err != nil {
			t.Fatalf("encode %s %s: %v", resource.GroupResource(), obj.GetName(), err)
		}
		files[sync.PathOf(kube.Key{
			Group: resource.Group, Resource: resource.Resource, Namespace: obj.GetNamespace(), Name: obj.GetName(),
		})] = string(content)
	}
	holding := map[string]bool{}
	for _, crd := range list(t, c, crds) {
		resource := storage(t, &crd)
		if !slices.Contains(groups, resource.Group) {
			continue
		}
		add(crds, &crd)
		for _, obj := range list(t, c, resource) {
			add(resource, &obj)
			holding[obj.GetNamespace()] = true
		}
	}
	for _, namespace := range list(t, c, namespaces) {
		if holding[namespace.GetName()] {
			add(namespaces, &namespace)
		}
	}
	return files
}

// storage returns the resource that a CRD defines, at its storage version.
func storage(t *testing.T, crd *unstructured.Unstructured) schema.GroupVersionResource {
	t.Helper()
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		if version := v.(map[string]any); version["storage"] == true {
			return schema.GroupVersionResource{Group: group, Version: version["name"].(string), Resource: plural}
		}
	}
	t.Fatalf("CRD %s stores no version", crd.GetName())
	return schema.GroupVersionResource{}
}

func list(t *testing.T, c dynamic.Interface, resource schema.GroupVersionResource) []unstructured.Unstructured {
	t.Helper()
	found, err := c.Resource(resource).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return found.Items
}

// diff compares what a branch holds below a folder ("" for the whole tree), read
// through a second clone, with what it should; "" means equal. .crmirror.yaml is
// left out.
func diff(t *testing.T, repository, branch, folder string, want map[string]string) string {
	t.Helper()
	root := filepath.Join(gittest.Clone(t, "file://"+repository, "--depth=1", "--branch="+branch), folder)
	got := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.Name() == ".git" {
			return fs.SkipDir
		}
		if entry.IsDir() || entry.Name() == sync.MarkerName {
			return nil
		}
		content, err := os.ReadFile(path)
		got[strings.TrimPrefix(path, root+"/")] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return cmp.Diff(want, got)
}

// patch merges a JSON patch into an issuer of the corpus.
func patch(t *testing.T, namespace, name, body string) {
	t.Helper()
	_, err := client(t, 0).Resource(issuers).Namespace(namespace).
		Patch(t.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{FieldManager: "a-person"})
	if err != nil {
		t.Fatal(err)
	}
}

// widgets is a kind of its own for one test, in a namespace of its own.
type widgets struct {
	t         *testing.T
	client    dynamic.Interface
	group     string
	namespace string
}

// newWidgets makes a namespace and the names for a kind, widgets.GROUP.
func newWidgets(t *testing.T, group string) *widgets {
	t.Helper()
	return &widgets{t: t, client: client(t, 0), group: group, namespace: world.lab.Clusters[0].Namespace(t)}
}

// install creates the CRD, waits until it is served, and removes it with the test.
func (w *widgets) install() *widgets {
	w.t.Helper()
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets." + w.group},
		"spec": map[string]any{
			"group": w.group, "scope": "Namespaced",
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object", "x-kubernetes-preserve-unknown-fields": true,
				}},
			}},
		},
	}}
	if _, err := w.client.Resource(crds).Create(w.t.Context(), crd, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		err := w.client.Resource(crds).Delete(context.WithoutCancel(w.t.Context()), crd.GetName(), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			w.t.Errorf("delete CRD: %v", err)
		}
	})
	eventually(w.t, "CRD to be served", func() error {
		_, err := w.in().List(w.t.Context(), metav1.ListOptions{})
		return err
	})
	return w
}

func (w *widgets) in() dynamic.ResourceInterface {
	return w.client.Resource(schema.GroupVersionResource{Group: w.group, Version: "v1", Resource: "widgets"}).Namespace(w.namespace)
}

func (w *widgets) create(name string, size int64) {
	w.t.Helper()
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": w.group + "/v1", "kind": "Widget",
		"metadata": map[string]any{"name": name, "namespace": w.namespace},
		"spec":     map[string]any{"size": size, "color": "green"},
	}}
	if _, err := w.in().Create(w.t.Context(), obj, metav1.CreateOptions{FieldManager: "a-person"}); err != nil {
		w.t.Fatal(err)
	}
}

// patch merges a JSON patch into a widget.
func (w *widgets) patch(name, body string) {
	w.t.Helper()
	_, err := w.in().Patch(w.t.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{FieldManager: "a-person"})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *widgets) delete(name string) {
	w.t.Helper()
	if err := w.in().Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// file returns where git has a widget.
func (w *widgets) file(name string) string {
	return "namespaces/" + w.namespace + "/widgets." + w.group + "/" + name + ".yaml"
}
