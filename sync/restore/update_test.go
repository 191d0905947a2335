package restore

import (
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/sync"
)

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

// A planned field gets another value between our read and our write: that one is saved too.
func TestUpdateSavesAgain(t *testing.T) {
	w := newWorld(t, "saves-again")
	w.live("a", "{size: 1}")
	w.widget("a", "{size: 2, replicas: 1, mode: auto}")
	var once atomic.Bool
	w.cluster.before = func(string, map[string]any) error {
		if !once.Swap(true) {
			w.edit("a", func(spec map[string]any) { spec["size"] = int64(5) })
		}
		return nil
	}
	r := w.restore(t.Context())
	w.want(r, map[string]Result{"a": WasConfigured})
	content, err := os.ReadFile(r.Saved)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"  size: 1\n", "  size: 5\n"} {
		if strings.Count(string(content), line) != 1 {
			t.Errorf("%q is not saved once:\n%s", line, content)
		}
	}
}

// No answer came to our write, and somebody changes another field before we look: it stays.
func TestUpdateUnsure(t *testing.T) {
	w := newWorld(t, "unsure")
	for _, name := range []string{"changed", "ours"} {
		w.live(name, "{size: 1}")
		w.widget(name, "{size: 2, replicas: 1, mode: auto}")
	}
	w.cluster.after = func(_ string, obj map[string]any) error {
		if obj["metadata"].(map[string]any)["name"] == "changed" {
			w.edit("changed", func(spec map[string]any) { spec["color"] = "red" })
		}
		return apply.ErrUncertain
	}
	outcomes := w.want(w.restore(t.Context()), map[string]Result{"changed": HasFailed, "ours": WasConfigured})
	wantText(t, outcomes["changed"].Reason, "spec.color", "run again")
	if got := w.get("changed").Object["spec"].(map[string]any)["color"]; got != "red" {
		t.Errorf("somebody's color is %v now", got)
	}
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

// Of redacted fields the live values stay, and what else differs is written, the status too. What the
// cluster has no value of is blocked.
func TestUpdateKeepsRedacted(t *testing.T) {
	w := newWorld(t, "redacted")
	color, err := kube.ParseFieldPath(".spec.color")
	if err != nil {
		t.Fatal(err)
	}
	w.opts.RedactKey = []byte("a key")
	shape := kube.Shape{Status: true, RedactKey: w.opts.RedactKey, Redact: []kube.FieldPath{color}}
	tree := sync.NewTree("lab", kube.Selection{Select: []kube.Rule{{Resources: []string{"*"}, Shape: shape}}})
	tree.ClusterUID = "old"
	marker, err := tree.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	w.files[sync.MarkerName] = string(marker)
	w.live("a", "{size: 1, color: red}")
	w.live("lacks", "{size: 1}")
	w.live("only", "{size: 2, color: red}")
	for name, status := range map[string]string{"a": "status: {ready: true}\n", "lacks": "", "only": ""} {
		w.widget(name, "{size: 2, replicas: 1, mode: auto, color: blue}", status)
		obj, err := kube.Decode([]byte(w.files[sync.PathOf(w.key(name))]))
		if err != nil {
			t.Fatal(err)
		}
		content, err := kube.Encode(obj, &shape)
		if err != nil {
			t.Fatal(err)
		}
		w.files[sync.PathOf(w.key(name))] = string(content)
	}
	r := w.restore(t.Context())
	outcomes := w.want(r, map[string]Result{"a": WasConfigured, "lacks": WasBlocked, "only": InConflict})
	for name, o := range outcomes {
		if text := o.Reason + strings.Join(o.Notes, ""); !strings.Contains(text, "spec.color") {
			t.Errorf("%s: got %q, want the field in it", name, text)
		}
	}
	want := func(when string) {
		t.Helper()
		got := w.get("a")
		if spec := got.Object["spec"].(map[string]any); spec["color"] != "red" || spec["size"] != int64(2) {
			t.Errorf("%s: got %v, want size 2 and the color as it was", when, spec)
		}
		if status, _ := got.Object["status"].(map[string]any); status["ready"] != true {
			t.Errorf("%s: status is %v", when, got.Object["status"])
		}
	}
	want("with the key")

	w.edit("a", func(spec map[string]any) { spec["size"] = int64(3) })
	w.opts.RedactKey = nil
	w.want(w.restore(t.Context()), map[string]Result{"a": WasConfigured, "lacks": WasBlocked, "only": WasUnchanged})
	want("without the key")
}
