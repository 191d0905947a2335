package restore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/bulk"
)

var (
	createOptions = metav1.CreateOptions{FieldManager: "somebody"}
	getOptions    = metav1.GetOptions{}
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

func TestUpdate(t *testing.T) {
	w := newWorld(t, "update")
	w.live("differs", "{size: 1, color: red, args: [a]}")
	w.live("equal", "{size: 1, replicas: 1, mode: auto}")
	w.widget("differs", "{size: 2, replicas: 1, mode: auto, args: [a, b]}")
	w.widget("equal", "{size: 1, replicas: 1, mode: auto}")
	before := w.get("equal").GetResourceVersion()
	r := w.restore(t.Context())
	w.want(r, map[string]Result{"differs": WasConfigured, "equal": WasUnchanged})
	want := map[string]any{"size": int64(2), "replicas": int64(1), "mode": "auto", "args": []any{"a", "b"}}
	if diff := cmp.Diff(want, w.get("differs").Object["spec"]); diff != "" {
		t.Error(diff)
	}
	if w.get("equal").GetResourceVersion() != before {
		t.Error("what is equal was written")
	}
	w.want(w.restore(t.Context()), map[string]Result{"differs": WasUnchanged, "equal": WasUnchanged})
}

func TestUpdateSaves(t *testing.T) {
	w := newWorld(t, "saves")
	w.live("a", "{size: 1, color: red}")
	w.widget("a", "{size: 2, replicas: 1, mode: auto}")
	w.cluster.before = func(string, map[string]any) error {
		content, err := os.ReadFile(w.opts.Saver.Path())
		if err != nil || !strings.Contains(string(content), "color: red") {
			t.Errorf("it is written before it is saved: %v", err)
		}
		return nil
	}
	r := w.restore(t.Context())
	w.want(r, map[string]Result{"a": WasConfigured})
	info, err := os.Stat(r.Saved)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the file is for others too: %s", info.Mode())
	}
}

// Somebody changes the object between our read and our write: it is read and compared again.
func TestUpdateRace(t *testing.T) {
	w := newWorld(t, "race")
	w.live("a", "{size: 1}")
	w.widget("a", "{size: 2, replicas: 1, mode: auto}")
	var once atomic.Bool
	w.cluster.before = func(string, map[string]any) error {
		if once.Swap(true) {
			return nil
		}
		live := w.get("a")
		live.SetLabels(map[string]string{"by": "somebody"})
		_, err := w.widgets().Update(t.Context(), live, metav1.UpdateOptions{})
		return err
	}
	outcomes := w.want(w.restore(t.Context()), map[string]Result{"a": HasFailed})
	if reason := outcomes["a"].Reason; !strings.Contains(reason, "metadata.labels.by") || !strings.Contains(reason, "run again") {
		t.Errorf("the reason is %q", reason)
	}
	if got := w.get("a"); got.GetLabels()["by"] != "somebody" || got.Object["spec"].(map[string]any)["size"] != int64(1) {
		t.Errorf("somebody's change was overwritten: %v", got.Object)
	}
	w.want(w.restore(t.Context()), map[string]Result{"a": WasConfigured})
}

// What the plan does not list is not changed.
func TestUpdateUnplanned(t *testing.T) {
	w := newWorld(t, "unplanned")
	w.live("changed", "{size: 1}")
	w.live("remade", "{size: 1}")
	w.live("settled", "{size: 1}")
	w.live("gone", "{size: 1}")
	for _, name := range []string{"changed", "remade", "settled", "gone"} {
		w.widget(name, "{size: 2, replicas: 1, mode: auto}")
	}
	s := w.snapshot()
	plan := w.plan(s)
	w.edit("changed", func(spec map[string]any) { spec["color"] = "red" })
	w.edit("settled", func(spec map[string]any) { spec["size"] = int64(2) })
	for _, name := range []string{"remade", "gone"} {
		if err := w.widgets().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.live("remade", "{size: 1}")
	outcomes := w.want(w.execute(t.Context(), s, plan), map[string]Result{
		"changed": HasFailed, "remade": HasFailed, "settled": WasUnchanged, "gone": HasFailed,
	})
	for name, words := range map[string]string{"changed": "spec.color", "remade": "made again", "gone": "deleted"} {
		if reason := outcomes[name].Reason; !strings.Contains(reason, words) {
			t.Errorf("%s: %q, want %q in it", name, reason, words)
		}
	}
}

func (w *world) edit(name string, f func(spec map[string]any)) {
	w.t.Helper()
	live := w.get(name)
	f(live.Object["spec"].(map[string]any))
	if _, err := w.widgets().Update(w.t.Context(), live, metav1.UpdateOptions{FieldManager: "somebody"}); err != nil {
		w.t.Fatal(err)
	}
}

// Dropped and redacted fields keep their live values, in items of lists too; where an item cannot
// be told, nothing is written.
func TestUpdateKeepsShaped(t *testing.T) {
	w := newWorld(t, "shaped")
	w.files[".crmirror.yaml"] = `apiVersion: crmirror.dev/v1alpha1
kind: Tree
format: 1
cluster: test
clusterUID: x
rules:
- resources: ["*"]
  drop: [.spec.legacy, ".spec.ports[*].note", ".spec.args[*]"]
`
	w.live("a", "{size: 1, legacy: kept, ports: [{port: 1, note: kept, name: old}, {port: 2}]}")
	w.widget("a", "{size: 2, replicas: 1, mode: auto, ports: [{port: 3, protocol: TCP}, {port: 1, protocol: TCP, name: new}]}")
	w.live("whole", "{size: 1, args: [a]}")
	w.widget("whole", "{size: 2, replicas: 1, mode: auto, args: [b]}")
	w.live("item", "{size: 1, ports: [{port: 1, note: kept}]}")
	w.widget("item", "{size: 1, replicas: 1, mode: auto, ports: []}")
	outcomes := w.want(w.restore(t.Context()), map[string]Result{"a": WasConfigured, "whole": InConflict, "item": InConflict})
	for name, field := range map[string]string{"whole": "spec.args", "item": "spec.ports"} {
		if reason := outcomes[name].Reason; !strings.Contains(reason, field) {
			t.Errorf("%s: %q, want %s in it", name, reason, field)
		}
	}
	spec := w.get("a").Object["spec"].(map[string]any)
	ports := map[any]map[string]any{}
	for _, port := range spec["ports"].([]any) {
		ports[port.(map[string]any)["port"]] = port.(map[string]any)
	}
	if spec["legacy"] != "kept" || spec["size"] != int64(2) || len(ports) != 2 || ports[int64(1)]["note"] != "kept" || ports[int64(1)]["name"] != "new" {
		t.Errorf("spec is %v", spec)
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

// A restore that is interrupted finishes what is under way and says what is left.
func TestInterrupted(t *testing.T) {
	w := newWorld(t, "interrupted")
	const n = 200
	for i := range n {
		w.widget(fmt.Sprintf("w%d", i), "{size: 1, replicas: 1, mode: auto}")
	}
	ctx, cancel := context.WithCancel(t.Context())
	w.opts.Progress = func(p Progress) {
		if p.Done == 20 {
			cancel()
		}
	}
	r := w.restore(ctx)
	totals := r.Totals()
	if !r.Interrupted || r.Complete() || totals[WasCreated] < 20 || totals[WasLeft] == 0 || totals[WasCreated]+totals[WasLeft] != n {
		t.Fatalf("interrupted %v, %v", r.Interrupted, totals)
	}
	w.opts.Progress = nil
	again := w.restore(t.Context())
	if got := again.Totals(); got[WasUnchanged]+got[WasCreated] != n || got[WasCreated] != totals[WasLeft] {
		t.Errorf("the second run: %v, want %d created", got, totals[WasLeft])
	}
}

// What the server, or what lies between, does to some requests.
func TestTransientErrors(t *testing.T) {
	w := newWorld(t, "transient")
	const n = 50
	want := map[string]Result{}
	for i := range n {
		name := fmt.Sprintf("w%d", i)
		w.widget(name, "{size: 1}", "status: {ready: true}")
		want[name] = WasCreated
	}
	var requests atomic.Int64
	spoil := func(kind string) error {
		switch requests.Add(1) % 7 {
		case 1:
			return fmt.Errorf("%s: %w", kind, apply.ErrUncertain)
		case 2:
			return &apply.Rejected{Verdict: apply.Unavailable, Message: "too many requests", Retry: true, RetryAfter: time.Millisecond}
		case 3:
			return &apply.Rejected{Verdict: apply.NoKind, Message: "not yet", Retry: true}
		}
		return nil
	}
	w.cluster.before = func(string, map[string]any) error { return spoil("before") }
	w.cluster.after = func(string, map[string]any) error {
		if requests.Add(1)%5 == 0 {
			return apply.ErrUncertain
		}
		return nil
	}
	w.want(w.restore(t.Context()), want)
	for name := range want {
		if live := w.get(name); live.Object["status"] == nil {
			t.Errorf("%s has no status", name)
		}
	}
}

// What fails for longer than patience is given up, and harms no other kind.
func TestGivenUp(t *testing.T) {
	w := newWorld(t, "given-up")
	w.opts.Patience = time.Second
	w.widget("a", "{size: 1}")
	w.widget("b", "{size: 2}")
	w.cluster.before = func(_ string, obj map[string]any) error {
		if obj["spec"].(map[string]any)["size"] == int64(1) {
			return &apply.Rejected{Verdict: apply.Failing, Message: "nobody there", Retry: true}
		}
		return nil
	}
	outcomes := w.want(w.restore(t.Context()), map[string]Result{"a": HasFailed, "b": WasCreated})
	if reason := outcomes["a"].Reason; !strings.Contains(reason, "nobody there") {
		t.Errorf("the reason is %q", reason)
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
	w.opts.ReleaseOwnership = true
	w.live("old", "{size: 1}")
	w.widget("new", "{size: 2}", "status: {ready: true}")
	w.widget("old", "{size: 2, replicas: 1, mode: auto}")
	w.want(w.restore(t.Context()), map[string]Result{"new": WasCreated, "old": WasConfigured})
	for _, name := range []string{"new", "old"} {
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
