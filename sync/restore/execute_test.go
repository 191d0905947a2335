package restore

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/crmirror/crmirror/kube/bulk"
)

func TestExecuteCreates(t *testing.T) {
	w := newWorld(t, "creates")
	w.widget("one", "{size: 1}", "metadata.labels: {a: b}", "metadata.finalizers: [x.io/y]")
	w.widget("two", "{size: 2}", "status: {ready: true}")
	want := map[string]Result{"one": WasCreated, "two": WasCreated}
	r := w.restore(t.Context())
	w.want(r, want)
	if !r.Complete() {
		t.Error("the report says that something is left")
	}
	one, two := w.get("one"), w.get("two")
	if one.GetLabels()["a"] != "b" || len(one.GetFinalizers()) != 1 {
		t.Errorf("metadata is %v", one.Object["metadata"])
	}
	if diff := cmp.Diff(map[string]any{"ready": true}, two.Object["status"]); diff != "" {
		t.Errorf("status: %s", diff)
	}
	// A finalizer of a controller that there is not would keep the namespace.
	one.SetFinalizers(nil)
	if _, err := w.widgets().Update(t.Context(), one, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestOwners(t *testing.T) {
	w := newWorld(t, "owners")
	w.live("outside", "{size: 0}")
	w.widget("child", "{size: 1}", "metadata.ownerReferences: ["+w.owner("parent")+", "+w.owner("dropped")+", "+w.owner("outside")+"]")
	w.widget("grandchild", "{size: 1}", "metadata.ownerReferences: ["+w.owner("child")+"]")
	w.widget("parent", "{size: 1}")
	w.want(w.restore(t.Context()), map[string]Result{"child": WasCreated, "grandchild": WasCreated, "parent": WasCreated})
	uids := func(name string) []string {
		var uids []string
		for _, r := range w.get(name).GetOwnerReferences() {
			uids = append(uids, string(r.UID))
		}
		return uids
	}
	uid := func(name string) string { return string(w.get(name).GetUID()) }
	if diff := cmp.Diff([]string{uid("parent"), uid("outside")}, uids("child")); diff != "" {
		t.Errorf("owners of child: %s", diff)
	}
	if diff := cmp.Diff([]string{uid("child")}, uids("grandchild")); diff != "" {
		t.Errorf("owners of grandchild: %s", diff)
	}
}

func TestOwnersMissing(t *testing.T) {
	w := newWorld(t, "missing")
	owned := func(name, by string) { w.widget(name, "{size: 1}", "metadata.ownerReferences: ["+w.owner(by)+"]") }
	w.widget("bad", "{size: many}")
	owned("child", "bad")
	owned("grandchild", "child")
	owned("orphan", "nobody")
	owned("egg", "hen")
	owned("hen", "egg")
	owned("omelette", "egg")
	r := w.restore(t.Context())
	outcomes := w.want(r, map[string]Result{
		"bad": HasFailed, "child": WasBlocked, "grandchild": WasBlocked, "orphan": WasCreated,
		"egg": WasBlocked, "hen": WasBlocked, "omelette": WasBlocked,
	})
	for name, words := range map[string]string{
		"bad": "spec.size", "child": "bad is not there", "grandchild": "bad is not there",
		"hen": "lead back to itself", "egg": "lead back to itself",
	} {
		if reason := outcomes[name].Reason; !strings.Contains(reason, words) {
			t.Errorf("%s: %q, want %q in it", name, reason, words)
		}
	}
	if r.Complete() {
		t.Error("the report says that all is there")
	}
	if notes := outcomes["orphan"].Notes; len(notes) != 1 || !strings.Contains(notes[0], "nobody") || w.get("orphan").GetOwnerReferences() != nil {
		t.Errorf("the orphan has the notes %q and the owners %v", notes, w.get("orphan").GetOwnerReferences())
	}
	// Put right and run again, it does what is left.
	w.widget("bad", "{size: 1}")
	w.widget("egg", "{size: 1}")
	w.opts.Existing = ExistingSkip
	w.want(w.restore(t.Context()), map[string]Result{
		"bad": WasCreated, "child": WasCreated, "grandchild": WasCreated, "orphan": WasSkipped,
		"egg": WasCreated, "hen": WasCreated, "omelette": WasCreated,
	})
}

// Owners that are being deleted, or were made again since the plan was made, are not taken.
func TestOwnersGo(t *testing.T) {
	w := newWorld(t, "owners-go")
	const spec = "{size: 1, replicas: 1, mode: auto}"
	w.widget("planned-going", spec)
	for _, name := range []string{"going", "planned-going", "remade"} {
		live := w.live(name, spec)
		live.SetFinalizers([]string{"x.io/y"})
		if _, err := w.widgets().Update(t.Context(), live, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.widget("of-"+name, spec, "metadata.ownerReferences: ["+w.owner(name)+"]")
	}
	w.opts.StripFinalizers = true
	s := w.snapshot()
	plan := w.plan(s)
	for _, name := range []string{"going", "planned-going", "remade"} {
		if err := w.widgets().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.release("remade")
	w.live("remade", spec)
	outcomes := w.want(w.execute(t.Context(), s, plan), map[string]Result{
		"planned-going": WasUnchanged, "of-going": WasBlocked, "of-planned-going": WasBlocked, "of-remade": WasBlocked,
	})
	wantText(t, outcomes["of-going"].Reason, "/going is being deleted")
	wantText(t, outcomes["of-planned-going"].Reason, "/planned-going is being deleted")
	wantText(t, outcomes["of-remade"].Reason, "/remade was deleted and made again")
	w.release("going")
	w.release("planned-going")
}

// release takes away the finalizers of a widget.
func (w *world) release(name string) {
	w.t.Helper()
	live := w.get(name)
	live.SetFinalizers(nil)
	if _, err := w.widgets().Update(w.t.Context(), live, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// What an owner owns is created though the owner, which is there, could not be made as git has it.
func TestOwnerDiffers(t *testing.T) {
	w := newWorld(t, "owner-differs")
	w.live("refused", "{size: 1}")
	w.live("remade", "{size: 1}")
	w.widget("refused", "{grade: middle}")
	w.widget("remade", "{size: 2}")
	w.widget("raced", "{size: 2}")
	owners := []string{"refused", "remade", "raced"}
	for _, owner := range owners {
		w.widget("of-"+owner, "{size: 1}", "metadata.ownerReferences: ["+w.owner(owner)+"]")
	}
	s := w.snapshot()
	plan := w.plan(s)
	w.live("raced", "{size: 1}")
	if err := w.widgets().Delete(t.Context(), "remade", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.live("remade", "{size: 1}")
	outcomes := w.want(w.execute(t.Context(), s, plan), map[string]Result{
		"refused": HasFailed, "of-refused": WasCreated,
		"raced": InConflict, "of-raced": WasCreated,
		"remade": HasFailed, "of-remade": WasBlocked,
	})
	wantText(t, outcomes["of-remade"].Reason, "/remade was deleted and made again")
	for _, owner := range []string{"refused", "raced"} {
		if refs := w.get("of-" + owner).GetOwnerReferences(); len(refs) != 1 || refs[0].UID != w.get(owner).GetUID() {
			t.Errorf("of-%s: owners %+v", owner, refs)
		}
	}
}

func TestRedactedIsNotSent(t *testing.T) {
	w := newWorld(t, "redacted")
	w.widget("a", `{secret: "crmirror-redacted:v1:abc"}`)
	w.widget("b", `{options: {"crmirror-redacted:v1:abc": x}}`)
	w.cluster.before = func(string, map[string]any) error {
		t.Error("it was sent")
		return nil
	}
	outcomes := w.want(w.restore(t.Context()), map[string]Result{"a": WasBlocked, "b": WasBlocked})
	if reason := outcomes["a"].Reason; !strings.Contains(reason, "spec.secret") {
		t.Errorf("the reason is %q", reason)
	}
	x := newExecutor(w.snapshot(), w.cluster, &Plan{}, w.opts)
	err := x.send(&job{action: &Action{}}, map[string]any{"spec": "crmirror-redacted:v1:abc"}, func() (bulk.Written, error) {
		t.Error("the last step sends it")
		return bulk.Written{}, nil
	})
	if err == nil {
		t.Error("the last step says nothing")
	}
}

// Somebody creates the object between plan and write.
func TestCreateExists(t *testing.T) {
	w := newWorld(t, "exists")
	w.widget("same", "{size: 1, replicas: 1, mode: auto}")
	w.widget("other", "{size: 1, replicas: 1, mode: auto}")
	s := w.snapshot()
	plan := w.plan(s)
	w.live("same", "{size: 1}")
	w.live("other", "{size: 2}")
	r := w.execute(t.Context(), s, plan)
	outcomes := w.want(r, map[string]Result{"same": WasUnchanged, "other": InConflict})
	if changes := outcomes["other"].Changes; len(changes) != 1 || changes[0].Field != "spec.size" {
		t.Errorf("the changes are %v", changes)
	}
}

func TestReleaseOwnership(t *testing.T) {
	w := newWorld(t, "release")
	w.widget("before", "{size: 2, replicas: 1, mode: auto}")
	w.want(w.restore(t.Context()), map[string]Result{"before": WasCreated})
	w.opts.ReleaseOwnership = true
	w.live("old", "{size: 1}")
	w.widget("new", "{size: 2, replicas: 1, mode: auto}", "status: {ready: true}")
	w.widget("old", "{size: 2, replicas: 1, mode: auto}")
	// The first run was interrupted before it released what it had created.
	w.want(w.restore(t.Context()), map[string]Result{"new": WasCreated, "old": WasConfigured, "before": WasUnchanged})
	versions := map[string]string{}
	for _, name := range []string{"new", "old", "before"} {
		versions[name] = w.get(name).GetResourceVersion()
	}
	w.want(w.restore(t.Context()), map[string]Result{"new": WasUnchanged, "old": WasUnchanged, "before": WasUnchanged})
	for _, name := range []string{"new", "old", "before"} {
		if w.get(name).GetResourceVersion() != versions[name] {
			t.Errorf("%s was written again", name)
		}
		obj := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": w.group + "/v1", "kind": "Widget", "metadata": map[string]any{"name": name}, "spec": map[string]any{"size": int64(3)},
		}}
		if _, err := w.widgets().Apply(t.Context(), name, obj, metav1.ApplyOptions{FieldManager: "kubectl"}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOtherCluster(t *testing.T) {
	w := newWorld(t, "other")
	s := w.snapshot()
	if _, err := Execute(t.Context(), s, w.cluster, &Plan{ClusterUID: "another"}, w.opts); !errors.Is(err, errOtherCluster) {
		t.Errorf("got %v, want %v", err, errOtherCluster)
	}
}
