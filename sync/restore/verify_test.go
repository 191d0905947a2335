package restore

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/sync"
)

// gadgets puts a CRD, a Namespace and objects into git: a kind with a status subresource ("gadgets") or
// without ("gizmos"), and a ConfigMap. All are as the mirror writes them.
func (w *world) gadgets(plural, kind, subresources, namespace string) {
	w.t.Helper()
	crd := fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.%[2]s}
spec:
  conversion: {strategy: None}
  group: %[2]s
  names: {kind: %[3]s, listKind: %[3]sList, plural: %[1]s, singular: %[4]s}
  scope: Namespaced
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        properties:
          spec: {properties: {size: {type: integer}}, type: object}
          status: {properties: {ready: {type: boolean}}, type: object}
        type: object
    served: true
    storage: true%[5]s
`, plural, w.group, kind, plural[:len(plural)-1], subresources)
	w.canonical(crdKey(schema.GroupResource{Group: w.group, Resource: plural}), crd)
	w.t.Cleanup(func() {
		crds := w.dynamic.Resource(crdResource.WithVersion("v1"))
		if err := crds.Delete(context.WithoutCancel(w.t.Context()), plural+"."+w.group, metav1.DeleteOptions{}); err != nil {
			w.t.Error(err)
		}
	})
	w.canonical(namespaceKey(namespace), fmt.Sprintf(`apiVersion: v1
kind: Namespace
metadata: {name: %[1]s, labels: {kubernetes.io/metadata.name: %[1]s}}
spec: {finalizers: [kubernetes]}
`, namespace))
	for i := range 3 {
		key := kube.Key{Group: w.group, Resource: plural, Namespace: namespace, Name: fmt.Sprintf("g%d", i)}
		w.canonical(key, fmt.Sprintf(`{apiVersion: %s/v1, kind: %s, metadata: {name: g%d, namespace: %s}, spec: {size: %d}, status: {ready: true}}`,
			w.group, kind, i, namespace, i))
	}
}

// canonical puts an object into git as the mirror writes it, status included.
func (w *world) canonical(key kube.Key, text string) {
	w.t.Helper()
	obj, err := kube.Decode([]byte(text))
	if err != nil {
		w.t.Fatal(err)
	}
	content, err := kube.Encode(obj, &kube.Shape{Status: true})
	if err != nil {
		w.t.Fatal(err)
	}
	w.files[sync.PathOf(key)] = string(content)
}

func (w *world) keepStatus() {
	w.files[".crmirror.yaml"] = `apiVersion: crmirror.dev/v1alpha1
kind: Tree
format: 1
cluster: test
clusterUID: x
rules:
- {resources: [namespaces, customresourcedefinitions.apiextensions.k8s.io]}
- {resources: ["*", configmaps], status: true}
`
}

func (w *world) verify() *Verification {
	w.t.Helper()
	v, err := Verify(w.t.Context(), w.snapshot(), w.cluster, &w.opts.Options)
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

// A cluster that has nothing: kinds, namespaces, objects and their status come back.
func TestExecuteEverything(t *testing.T) {
	w := newEmptyWorld(t, "everything")
	namespace := w.namespace + "-restored"
	w.keepStatus()
	w.gadgets("gadgets", "Gadget", "\n    subresources: {status: {}}", namespace)
	w.gadgets("gizmos", "Gizmo", "", namespace)
	w.canonical(kube.Key{Resource: "configmaps", Namespace: namespace, Name: "c"},
		fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: %s}, data: {a: b}}", namespace))
	before := w.verify()
	if before.Same() || before.Equal != 0 || len(before.Differences) != 10 {
		t.Errorf("before: %d equal, %d differences", before.Equal, len(before.Differences))
	}
	r := w.restore(t.Context())
	for _, o := range r.Outcomes {
		if o.Result != WasCreated {
			t.Errorf("%s: %s %s", o.Key, o.Result, o.Reason)
		}
	}
	v := w.verify()
	if !v.Same() || v.Equal != 10 || v.Objects != 10 {
		for _, d := range v.Differences {
			t.Logf("%s %s: %s %+v", d.State, d.Key, d.Reason, d.Changes)
		}
		t.Errorf("%d of %d equal", v.Equal, v.Objects)
	}
	var stages []Stage
	for _, s := range r.Stages {
		stages = append(stages, s.Stage)
	}
	if diff := cmp.Diff([]Stage{StageCRDs, StageServed, StageNamespaces, StageObjects}, stages); diff != "" {
		t.Error(diff)
	}
	if got := w.restore(t.Context()).Totals(); len(got) != 1 || got[WasUnchanged] != 10 {
		t.Errorf("the second run: %v", got)
	}
}

func TestVerify(t *testing.T) {
	w := newWorld(t, "verify")
	w.files[".crmirror.yaml"] = `apiVersion: crmirror.dev/v1alpha1
kind: Tree
format: 1
cluster: test
clusterUID: x
rules:
- {resources: ["*"], redact: [.spec.secret]}
`
	for _, name := range []string{"equal", "differs", "going", "extra", "extra-too"} {
		w.live(name, "{size: 1}")
	}
	w.live("redacted", "{size: 1, secret: abc}")
	w.live("digest", "{size: 1}")
	for _, name := range []string{"equal", "going", "missing"} {
		w.widget(name, "{size: 1, replicas: 1, mode: auto}")
	}
	w.widget("differs", "{size: 2, replicas: 1, color: red}")
	digest := "crmirror-redacted:v1:" + strings.Repeat("0", 64)
	w.widget("redacted", "{size: 1, replicas: 1, mode: auto, secret: '"+digest+"'}")
	w.widget("digest", "{size: 1, replicas: 1, mode: auto, secret: '"+digest+"'}")
	going := w.get("going")
	going.SetFinalizers([]string{"x.io/y"})
	if _, err := w.widgets().Update(t.Context(), going, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.widgets().Delete(t.Context(), "going", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	v := w.verify()
	got := map[string][]string{}
	for _, d := range v.Differences {
		got[d.Key.Name] = []string{string(d.State)}
		for _, c := range d.Changes {
			got[d.Key.Name] = append(got[d.Key.Name], c.Field+" "+c.Kind)
		}
	}
	want := map[string][]string{
		"missing": {"missing"},
		"going":   {"being deleted"},
		"differs": {"differs", "spec.color only in git", "spec.mode only in the cluster", "spec.size differs"},
		"digest":  {"differs", "spec.secret only in git"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if v.Same() || v.Equal != 2 || v.Objects != 6 {
		t.Errorf("%d of %d equal", v.Equal, v.Objects)
	}
	if diff := cmp.Diff([]NotCompared{{Key: w.key("redacted"), Fields: []string{"spec.secret"}}}, v.NotCompared); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]kube.Key{w.key("extra"), w.key("extra-too")}, v.Extra); diff != "" {
		t.Error(diff)
	}
	w.opts.Names = []string{"e*", "m*"}
	w.opts.Runs = []string{"widgets." + w.group}
	v = w.verify()
	if !v.Same() || v.Equal != 1 || v.Objects != 2 || len(v.Extra) != 2 || v.Differences[0].State != WouldRun {
		t.Errorf("of those selected: %+v", v)
	}
	going = w.get("going")
	going.SetFinalizers(nil)
	if _, err := w.widgets().Update(t.Context(), going, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// An interruption between an object and its status is made good by the next run, though what exists is
// not to be touched; but not over a status that a controller wrote since.
func TestStatusIsLeft(t *testing.T) {
	w := newWorld(t, "status")
	w.keepStatus()
	w.opts.Existing, w.opts.Saver = ExistingSkip, nil
	for _, name := range []string{"left", "written", "raced"} {
		w.widget(name, "{size: 1, replicas: 1, mode: auto}", "status: {ready: true}")
	}
	w.cluster.before = func(verb string, _ map[string]any) error {
		if verb == "status" {
			return &apply.Rejected{Verdict: apply.Forbidden, Message: "not this time"}
		}
		return nil
	}
	outcomes := w.want(w.restore(t.Context()), map[string]Result{"left": HasFailed, "written": HasFailed, "raced": HasFailed})
	if reason := outcomes["left"].Reason; reason != "created, but: forbidden: not this time" {
		t.Errorf("the reason is %q", reason)
	}
	w.setStatus("written")
	w.cluster.before = func(verb string, obj map[string]any) error {
		if name := obj["metadata"].(map[string]any)["name"].(string); name == "raced" && !hasWrittenStatus(w.get(name)) {
			w.setStatus(name)
		}
		return nil
	}
	outcomes = w.want(w.restore(t.Context()), map[string]Result{"left": WasConfigured, "written": WasSkipped, "raced": WasConfigured})
	if notes := outcomes["raced"].Notes; len(notes) != 1 || !strings.Contains(notes[0], "controller") {
		t.Errorf("the notes are %q", notes)
	}
	for name, ready := range map[string]bool{"left": true, "written": false, "raced": false} {
		if got := w.get(name).Object["status"].(map[string]any)["ready"]; got != ready {
			t.Errorf("%s: ready is %v", name, got)
		}
	}
}

// Where the status is no subresource, nothing tells who wrote it: it is a field as any other.
func TestStatusWithoutSubresource(t *testing.T) {
	w := newEmptyWorld(t, "plain-status")
	w.keepStatus()
	namespace := w.namespace + "-plain"
	w.gadgets("gizmos", "Gizmo", "", namespace)
	if got := w.restore(t.Context()).Totals(); got[WasCreated] != 5 {
		t.Fatalf("%v, want 5 created", got)
	}
	gizmos := w.dynamic.Resource(schema.GroupVersionResource{Group: w.group, Version: "v1", Resource: "gizmos"}).Namespace(namespace)
	live, err := gizmos.Get(t.Context(), "g1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	live.Object["status"] = map[string]any{"ready": false}
	key := kube.Key{Group: w.group, Resource: "gizmos", Namespace: namespace, Name: "g1"}
	owned := fmt.Sprintf("ownerReferences: [{apiVersion: %s/v1, kind: Gizmo, name: g0}]", w.group)
	w.canonical(key, fmt.Sprintf(`{apiVersion: %s/v1, kind: Gizmo, metadata: {name: g1, namespace: %s, %s}, spec: {size: 1}, status: {ready: true}}`,
		w.group, namespace, owned))
	g0, err := gizmos.Get(t.Context(), "g0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	live.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: w.group + "/v1", Kind: "Gizmo", Name: "g0", UID: g0.GetUID()}})
	if live, err = gizmos.Update(t.Context(), live, metav1.UpdateOptions{FieldManager: "controller"}); err != nil {
		t.Fatal(err)
	}
	w.opts.Existing = ExistingSkip
	w.opts.Names = []string{"g0", "g1", "g2"}
	w.want(w.restore(t.Context()), map[string]Result{"g0": WasUnchanged, "g1": WasSkipped, "g2": WasUnchanged})
	if now, err := gizmos.Get(t.Context(), "g1", metav1.GetOptions{}); err != nil || now.GetResourceVersion() != live.GetResourceVersion() {
		t.Errorf("it was written: %v, %v", now, err)
	}
	w.opts.Existing = ExistingUpdate
	r := w.restore(t.Context())
	w.want(r, map[string]Result{"g0": WasUnchanged, "g1": WasConfigured, "g2": WasUnchanged})
	content, err := os.ReadFile(r.Saved)
	if err != nil || !strings.Contains(string(content), "ready: false") {
		t.Errorf("the status was not saved: %v", err)
	}
}

// What is sent to write a status is the live object but for its status.
func TestStatusAlone(t *testing.T) {
	w := newWorld(t, "alone")
	w.keepStatus()
	w.live("a", "{size: 1}")
	w.widget("a", "{size: 2, replicas: 1, mode: auto}", "metadata.labels: {from: git}", "status: {ready: true}")
	w.widget("b", "{size: 3}", "status: {ready: true}")
	sent := 0
	w.cluster.before = func(verb string, obj map[string]any) error {
		if verb != "status" {
			return nil
		}
		sent++
		live := w.get(obj["metadata"].(map[string]any)["name"].(string))
		live.Object["status"] = map[string]any{"ready": true}
		if diff := cmp.Diff(live.Object, obj); diff != "" {
			t.Errorf("sent (-live +got):\n%s", diff)
		}
		return nil
	}
	w.opts.Concurrency = 1
	w.want(w.restore(t.Context()), map[string]Result{"a": WasConfigured, "b": WasCreated})
	if sent != 2 {
		t.Errorf("%d statuses were written, want 2", sent)
	}
}

// A controller writes the status just before an update does: that one is saved too, and fields that the
// plan does not list are left.
func TestStatusMoved(t *testing.T) {
	w := newWorld(t, "status-moved")
	w.keepStatus()
	for _, name := range []string{"a", "b"} {
		w.live(name, "{size: 1}")
		w.widget(name, "{size: 1, replicas: 1, mode: auto}", "status: {ready: true}")
	}
	w.setStatus("a")
	var a, b atomic.Bool
	w.cluster.before = func(_ string, obj map[string]any) error {
		switch name := obj["metadata"].(map[string]any)["name"]; {
		case name == "a" && !a.Swap(true):
			live := w.get("a")
			live.Object["status"] = map[string]any{}
			_, err := w.widgets().UpdateStatus(t.Context(), live, metav1.UpdateOptions{FieldManager: "controller"})
			return err
		case name == "b" && !b.Swap(true):
			w.edit("b", func(spec map[string]any) { spec["color"] = "red" })
		}
		return nil
	}
	r := w.restore(t.Context())
	outcomes := w.want(r, map[string]Result{"a": WasConfigured, "b": HasFailed})
	wantText(t, outcomes["b"].Reason, "spec.color", "run again")
	content, err := os.ReadFile(r.Saved)
	if err != nil || !strings.Contains(string(content), "ready: false") || !strings.Contains(string(content), "status: {}") {
		t.Errorf("not both of the controller's statuses were saved: %v\n%s", err, content)
	}
}

// setStatus is a controller's.
func (w *world) setStatus(name string) {
	w.t.Helper()
	live := w.get(name)
	live.Object["status"] = map[string]any{"ready": false}
	if _, err := w.widgets().UpdateStatus(w.t.Context(), live, metav1.UpdateOptions{FieldManager: "controller"}); err != nil {
		w.t.Fatal(err)
	}
}
