package restore

import (
	"context"
	"fmt"
	"strings"
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

// setStatus is a controller's.
func (w *world) setStatus(name string) {
	w.t.Helper()
	live := w.get(name)
	live.Object["status"] = map[string]any{"ready": false}
	if _, err := w.widgets().UpdateStatus(w.t.Context(), live, metav1.UpdateOptions{FieldManager: "controller"}); err != nil {
		w.t.Fatal(err)
	}
}
