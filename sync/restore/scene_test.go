package restore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing/filemode"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/yaml"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/bulk"
	"github.com/crmirror/crmirror/sync"
)

// scene is a commit and a cluster, both of data, for tests of planning.
type scene struct {
	t     *testing.T
	files map[string]gitstore.TreeFile
	blobs map[gitstore.Hash][]byte

	served    bulk.Served
	crds      map[schema.GroupResource]*apiextensionsv1.CustomResourceDefinition
	objects   map[schema.GroupResource][]*unstructured.Unstructured
	forbidden map[bulk.Access]bool
	ready     map[types.NamespacedName]bool
	unlisted  map[schema.GroupResource]error
	refused   map[string]error // what else is asked: "discovery", "crds", "permissions"
}

func newScene(t *testing.T) *scene {
	w := &scene{
		t: t, files: map[string]gitstore.TreeFile{}, blobs: map[gitstore.Hash][]byte{},
		served:    bulk.Served{Kinds: map[schema.GroupResource]bulk.Kind{}},
		crds:      map[schema.GroupResource]*apiextensionsv1.CustomResourceDefinition{},
		objects:   map[schema.GroupResource][]*unstructured.Unstructured{},
		forbidden: map[bulk.Access]bool{},
		ready:     map[types.NamespacedName]bool{},
		unlisted:  map[schema.GroupResource]error{},
		refused:   map[string]error{},
	}
	w.serve("namespaces", "Namespace", false, "v1")
	w.serve("configmaps", "ConfigMap", true, "v1")
	w.serve("secrets", "Secret", true, "v1")
	w.serve("customresourcedefinitions.apiextensions.k8s.io", "CustomResourceDefinition", false, "v1")
	return w
}

// serve makes the cluster serve a resource, without a CRD.
func (w *scene) serve(resource, kind string, namespaced bool, versions ...string) {
	gr := schema.ParseGroupResource(resource)
	k := bulk.Kind{Resource: gr, Kind: kind, Namespaced: namespaced}
	for _, v := range versions {
		k.Versions = append(k.Versions, bulk.Version{Name: v})
	}
	w.served.Kinds[gr] = k
}

// object reads YAML.
func (w *scene) object(text string) *unstructured.Unstructured {
	w.t.Helper()
	obj, err := kube.Decode([]byte(text))
	if err != nil {
		w.t.Fatalf("%v in:\n%s", err, text)
	}
	return obj
}

// resourceOf guesses the plural of a kind.
func resourceOf(obj *unstructured.Unstructured) schema.GroupResource {
	return schema.GroupResource{Group: obj.GroupVersionKind().Group, Resource: strings.ToLower(obj.GetKind()) + "s"}
}

// git puts an object into the commit as the mirror would, in a shape.
func (w *scene) git(text string, shape *kube.Shape) kube.Key {
	w.t.Helper()
	obj := w.object(text)
	content, err := kube.Encode(obj, shape)
	if err != nil {
		w.t.Fatal(err)
	}
	key := keyOf(resourceOf(obj).Resource, obj)
	w.file(sync.PathOf(key), string(content))
	return key
}

// file puts a file into the commit.
func (w *scene) file(path, content string) {
	blob := gitstore.BlobHash([]byte(content))
	w.blobs[blob] = []byte(content)
	w.files[path] = gitstore.TreeFile{Blob: blob, Mode: filemode.Regular}
}

// live puts an object into the cluster, and returns it.
func (w *scene) live(text string) *unstructured.Unstructured {
	w.t.Helper()
	obj := w.object(text)
	gr := resourceOf(obj)
	if obj.GetUID() == "" {
		obj.SetUID(types.UID("uid-" + obj.GetName()))
	}
	obj.SetResourceVersion("7")
	w.objects[gr] = append(w.objects[gr], obj)
	if gr == crdResource {
		crd := w.crd(text)
		crd.DeletionTimestamp = obj.GetDeletionTimestamp()
		of := schema.GroupResource{Group: crd.Spec.Group, Resource: crd.Spec.Names.Plural}
		w.crds[of] = crd
		w.serve(of.String(), crd.Spec.Names.Kind, crd.Spec.Scope == apiextensionsv1.NamespaceScoped, servedBy(crd)...)
	}
	return obj
}

func (w *scene) crd(text string) *apiextensionsv1.CustomResourceDefinition {
	w.t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(w.object(text).Object, crd); err != nil {
		w.t.Fatal(err)
	}
	return crd
}

// plan plans a restore of the commit into the cluster.
func (w *scene) plan(opts Options) *Plan {
	w.t.Helper()
	snapshot, err := ReadSnapshot(w.t.Context(), w, gitstore.Hash{1}, opts.RedactKey)
	if err != nil {
		w.t.Fatal(err)
	}
	plan, err := Make(w.t.Context(), snapshot, w, &opts)
	if err != nil {
		w.t.Fatal(err)
	}
	return plan
}

// verify compares the commit with the cluster.
func (w *scene) verify(opts Options) *Verification {
	w.t.Helper()
	snapshot, err := ReadSnapshot(w.t.Context(), w, gitstore.Hash{1}, opts.RedactKey)
	if err != nil {
		w.t.Fatal(err)
	}
	v, err := Verify(w.t.Context(), snapshot, w, &opts)
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

// verbs writes a plan as "key: verb", a line each.
func verbs(p *Plan) []string {
	var lines []string
	for i := range p.Actions {
		lines = append(lines, p.Actions[i].Key.String()+": "+string(p.Actions[i].Verb))
	}
	return lines
}

// wantVerbs compares the verbs of a plan.
func (w *scene) wantVerbs(p *Plan, want ...string) {
	w.t.Helper()
	if got := verbs(p); !slices.Equal(got, want) {
		w.t.Errorf("planned:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
		for i := range p.Actions {
			if a := &p.Actions[i]; a.Reason != "" {
				w.t.Logf("%s: %s", a.Key, a.Reason)
			}
		}
	}
}

// action returns the action of a plan about an object.
func (w *scene) action(p *Plan, key string) *Action {
	w.t.Helper()
	for i := range p.Actions {
		if p.Actions[i].Key.String() == key {
			return &p.Actions[i]
		}
	}
	w.t.Fatalf("nothing is planned for %s, only %v", key, verbs(p))
	return nil
}

// wantText wants words in a text.
func wantText(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("got %q, want %q in it", text, word)
		}
	}
}

// FilesAt, Read, Prefetch and Info make the scene a Repository.
func (w *scene) FilesAt(context.Context, gitstore.Hash) (map[string]gitstore.TreeFile, error) {
	return w.files, nil
}

func (w *scene) Read(_ context.Context, blob gitstore.Hash) ([]byte, error) {
	content, ok := w.blobs[blob]
	if !ok {
		return nil, gitstore.ErrMissing
	}
	return content, nil
}

func (w *scene) Prefetch(context.Context, []gitstore.Hash) error { return nil }

func (w *scene) Info(gitstore.Hash) (gitstore.CommitInfo, error) {
	return gitstore.CommitInfo{When: time.Unix(1_800_000_000, 0)}, nil
}

// ClusterUID and the following make the scene a Cluster.
func (w *scene) ClusterUID(context.Context) (string, error) { return "cluster-uid", nil }

func (w *scene) Discover(context.Context) (*bulk.Served, error) {
	return &w.served, w.refused["discovery"]
}

func (w *scene) CRDs(context.Context) (map[schema.GroupResource]*apiextensionsv1.CustomResourceDefinition, error) {
	if err := w.refused["crds"]; err != nil {
		return nil, err
	}
	return w.crds, nil
}

func (w *scene) List(_ context.Context, gvr schema.GroupVersionResource, namespace, _ string, fn func(*unstructured.Unstructured) error) (string, error) {
	kind, ok := w.served.Kinds[gvr.GroupResource()]
	if _, served := kind.Version(gvr.Version); !ok || !served {
		return "", fmt.Errorf("list %s: not served", gvr)
	}
	failed := w.unlisted[gvr.GroupResource()]
	for _, live := range w.objects[gvr.GroupResource()] {
		if namespace != "" && live.GetNamespace() != namespace {
			continue
		}
		live = live.DeepCopy()
		live.SetAPIVersion(gvr.GroupVersion().String())
		if err := fn(live); err != nil {
			return "", err
		}
	}
	if failed != nil {
		return "", failed // after some of it
	}
	return "7", nil
}

func (w *scene) Get(_ context.Context, gvr schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	for _, live := range w.objects[gvr.GroupResource()] {
		if live.GetName() == name && live.GetNamespace() == namespace {
			return live, nil
		}
	}
	return nil, apply.ErrNotFound
}

func (w *scene) Allowed(_ context.Context, accesses []bulk.Access) ([]bulk.Permission, error) {
	if err := w.refused["permissions"]; err != nil {
		return nil, err
	}
	answers := make([]bulk.Permission, len(accesses))
	for i, access := range accesses {
		answers[i].Allowed = !w.forbidden[access] && (access.Namespace != "" || !w.forbiddenSomewhere(access))
	}
	return answers, nil
}

// forbiddenSomewhere tells whether an access is not for all namespaces.
func (w *scene) forbiddenSomewhere(access bulk.Access) bool {
	for f := range w.forbidden {
		f.Namespace = ""
		if f == access {
			return true
		}
	}
	return false
}

func (w *scene) Endpoints(_ context.Context, service types.NamespacedName) (bool, error) {
	return w.ready[service], nil
}

func (w *scene) Type(context.Context, schema.GroupVersionKind) (typed.ParseableType, bool, error) {
	return typed.DeducedParseableType, false, nil
}

// widgetCRD is a CRD of widgets.example.com at versions; the first is stored.
func widgetCRD(versions ...string) string {
	crd := map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets.example.com"},
	}
	var list []any
	for i, v := range versions {
		list = append(list, map[string]any{"name": v, "served": true, "storage": i == 0, "schema": map[string]any{
			"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
				"spec": map[string]any{"type": "object", "properties": map[string]any{
					"size": map[string]any{"type": "integer", "minimum": 1},
					"name": map[string]any{"type": "string", "default": "plain"},
				}},
			}},
		}})
	}
	crd["spec"] = map[string]any{
		"group": "example.com", "scope": "Namespaced", "versions": list,
		"names": map[string]any{"plural": "widgets", "kind": "Widget", "singular": "widget", "listKind": "WidgetList"},
	}
	text, err := yaml.Marshal(crd)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// widget is a Widget in YAML, with what else it has.
func widget(namespace, name, size string, more ...string) string {
	return "apiVersion: example.com/v1\nkind: Widget\nmetadata:\n  name: " + name + "\n  namespace: " + namespace + "\n" +
		strings.Join(more, "") + "spec:\n  size: " + size + "\n"
}

func namespaceText(name string) string {
	return "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: " + name + "\n  labels:\n    kubernetes.io/metadata.name: " + name + "\n"
}

// webhook is a conversion by a Service.
func webhook(namespace, name string) *apiextensionsv1.CustomResourceConversion {
	return &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
		ClientConfig: &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{Namespace: namespace, Name: name}},
	}}
}
