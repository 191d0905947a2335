package restore

import (
	"slices"
	"strings"
	"testing"

	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/kubetest"
	"github.com/crmirror/crmirror/sync"
)

// What the server would refuse is blocked in the plan, with what stands on it, and nothing is stored.
func TestRehearse(t *testing.T) {
	w := newEmptyWorld(t, "rehearse")
	kubetest.InstallWidgets(t, w.dynamic, w.group, w.namespace, func(crd string) string {
		const size = "size: {type: integer}"
		return strings.ReplaceAll(crd, size, `size: {type: integer, x-kubernetes-validations: [{rule: "self < 5", message: too big for us}]}`)
	})
	w.live("updated", "{size: 1, replicas: 1, mode: auto}")
	w.live("spoilt", "{size: 1, replicas: 1, mode: auto}")
	w.widget("updated", "{size: 2, replicas: 1, mode: auto}")
	w.widget("spoilt", "{size: 9, replicas: 1, mode: auto}")
	w.widget("good", "{size: 1}", "metadata.ownerReferences: ["+w.owner("updated")+"]")
	w.widget("bad", "{size: 9}")
	w.widget("child", "{size: 1}", "metadata.ownerReferences: ["+w.owner("bad")+"]")
	w.widget("busy", "{size: 1}")
	elsewhere := w.key("far")
	elsewhere.Namespace = "far-" + w.namespace
	w.files[sync.PathOf(elsewhere)] = "apiVersion: " + w.group + "/v1\nkind: Widget\nmetadata: {name: far, namespace: " + elsewhere.Namespace + "}\nspec: {size: 9}\n"
	w.files[sync.PathOf(namespaceKey(elsewhere.Namespace))] = "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + elsewhere.Namespace + "}\n"
	w.cluster.before = func(_ string, obj map[string]any) error {
		if obj["metadata"].(map[string]any)["name"] == "busy" {
			return &apply.Rejected{Verdict: apply.Failing, Message: "nobody there", Retry: true}
		}
		return nil
	}
	s := w.snapshot()
	plan := w.plan(s)
	w.opts.Saver, w.opts.ReleaseOwnership = nil, true
	before := w.get("updated").GetResourceVersion()
	if err := Rehearse(t.Context(), s, w.cluster, plan, &w.opts.Options); err != nil {
		t.Fatal(err)
	}
	want := map[string]Verb{"good": Create, "bad": Blocked, "child": Blocked, "updated": Update, "spoilt": Blocked, "busy": Create, "far": Create, elsewhere.Namespace: Create}
	for i := range plan.Actions {
		a := &plan.Actions[i]
		if a.Verb != want[a.Key.Name] {
			t.Errorf("%s: %s %s, want %s", a.Key, a.Verb, a.Reason, want[a.Key.Name])
		}
		switch a.Key.Name {
		case "bad", "spoilt":
			wantText(t, a.Reason, "the server refuses it", "too big for us")
		case "child":
			wantText(t, a.Reason, w.key("bad").String(), "see there")
		case "busy":
			wantText(t, strings.Join(a.Notes, ""), "as things are", "nobody there")
		}
	}
	if plan.Complete() || len(plan.Actions) != len(want) {
		t.Errorf("%d actions, complete %v", len(plan.Actions), plan.Complete())
	}
	if !slices.ContainsFunc(plan.Findings, func(f Finding) bool { return f.What == "server" && strings.Contains(f.Text, "not asked about 2 of") }) {
		t.Errorf("findings %+v, want it told that the server was not asked about far and child", plan.Findings)
	}
	w.want(w.restoreNothing(s), map[string]Result{"good": WasLeft, "bad": WasLeft, "child": WasLeft, "updated": WasLeft, "spoilt": WasLeft, "busy": WasLeft,
		"far": WasLeft, elsewhere.Namespace: WasLeft})
	if now := w.get("updated").GetResourceVersion(); now != before {
		t.Error("an object was written")
	}
}

// restoreNothing plans anew, and reports what would be left.
func (w *world) restoreNothing(s *Snapshot) *Report {
	w.t.Helper()
	return newReport(w.plan(s), false)
}
