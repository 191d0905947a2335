package restore

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Objects whose owner was deleted and made anew, by the restore or by others, get its uid, and
// nothing else of them is touched; what differs besides only if that is asked for.
func TestRelink(t *testing.T) {
	w := newWorld(t, "relink")
	w.opts.Existing = ExistingSkip
	const spec = "{size: 1, replicas: 1, mode: auto}"
	owners, children := []string{"gone", "remade"}, []string{"of-gone", "of-remade"}
	for i, owner := range owners {
		w.widget(owner, spec)
		w.widget(children[i], spec, "metadata.ownerReferences: ["+w.owner(owner)+"]")
	}
	w.want(w.restore(t.Context()), map[string]Result{"gone": WasCreated, "remade": WasCreated, "of-gone": WasCreated, "of-remade": WasCreated})
	before := map[string]map[string]any{}
	for i, owner := range owners {
		before[children[i]] = w.get(children[i]).Object
		if err := w.widgets().Delete(t.Context(), owner, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.live("remade", spec)
	r := w.restore(t.Context())
	outcomes := w.want(r, map[string]Result{"gone": WasCreated, "remade": WasUnchanged, "of-gone": WasConfigured, "of-remade": WasConfigured})
	saved, err := os.ReadFile(r.Saved)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range children {
		if o := outcomes[name]; !strings.Contains(strings.Join(o.Notes, ""), "made anew") || len(o.Changes) != 1 {
			t.Errorf("%s: notes %q, changes %+v; want it told", name, o.Notes, o.Changes)
		}
		if !strings.Contains(string(saved), "name: "+name+"\n") {
			t.Errorf("%s was not saved", name)
		}
		got := w.get(name)
		if uid := w.get(owners[i]).GetUID(); len(got.GetOwnerReferences()) != 1 || got.GetOwnerReferences()[0].UID != uid {
			t.Errorf("%s: owners %+v, want uid %s", name, got.GetOwnerReferences(), uid)
		}
		for _, obj := range []map[string]any{before[name], got.Object} {
			metadata := obj["metadata"].(map[string]any)
			for _, field := range []string{"ownerReferences", "resourceVersion", "managedFields"} {
				delete(metadata, field)
			}
		}
		if diff := cmp.Diff(before[name], got.Object); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	w.want(w.restore(t.Context()), map[string]Result{"gone": WasUnchanged, "remade": WasUnchanged, "of-gone": WasUnchanged, "of-remade": WasUnchanged})

	// One that is updated gets it with what else is changed.
	if err := w.widgets().Delete(t.Context(), "gone", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.edit("of-gone", func(spec map[string]any) { spec["size"] = int64(9) })
	w.opts.Existing = ExistingUpdate
	w.want(w.restore(t.Context()), map[string]Result{"gone": WasCreated, "remade": WasUnchanged, "of-gone": WasConfigured, "of-remade": WasUnchanged})
	if got, uid := w.get("of-gone"), w.get("gone").GetUID(); got.GetOwnerReferences()[0].UID != uid || got.Object["spec"].(map[string]any)["size"] != int64(1) {
		t.Errorf("got %v, want uid %s and size 1", got.Object, uid)
	}
}

// Garbage collection deletes what refers to another uid than its owner has: it is not there for good.
func TestVerifyStaleOwner(t *testing.T) {
	w := shop(t)
	ref := "  ownerReferences:\n  - {apiVersion: example.com/v1, kind: Widget, name: a, uid: old}\n"
	w.git(widget("shop", "child", "1", ref), nil)
	w.live(namespaceText("shop"))
	w.live(widgetCRD("v1"))
	owner := w.live(widget("shop", "a", "1"))
	w.live(widget("shop", "b", "2"))
	child := w.live(widget("shop", "child", "1", ref))
	v := w.verify(Options{})
	if v.Same() || len(v.Differences) != 1 || v.Differences[0].State != Differs || v.Differences[0].Key.Name != "child" {
		t.Fatalf("got %+v, want the child to differ", v.Differences)
	}
	c := v.Differences[0].Changes
	wantText(t, c[0].Field+" "+c[0].Cause, "metadata.ownerReferences", "another uid", "garbage collection")
	w.git(widget("shop", "child", "2", ref), nil)
	if v := w.verify(Options{}); len(v.Differences) != 1 || len(v.Differences[0].Changes) != 2 {
		t.Errorf("with another difference: %+v, want both", v.Differences)
	}
	if a := w.action(w.plan(Options{}), "widgets.example.com shop/child"); a.Verb != Skip || len(a.Changes) != 2 {
		t.Errorf("got %s %+v, want it skipped, and both changes told", a.Verb, a.Changes)
	}
	owner.SetUID("old")
	child.Object["spec"].(map[string]any)["size"] = int64(2)
	if v := w.verify(Options{}); !v.Same() {
		t.Errorf("with the owner's uid: %+v", v.Differences)
	}
}
