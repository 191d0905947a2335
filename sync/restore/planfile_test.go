package restore

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
)

// saved saves a plan and reads it back.
func saved(t *testing.T, plan *Plan, opts Options) *SavedPlan {
	t.Helper()
	var file bytes.Buffer
	if err := plan.Save(&file, "https://git.example.com/x.git", "clusters/lab", &opts); err != nil {
		t.Fatal(err)
	}
	loaded, err := LoadPlan(&file)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

func TestPlanFile(t *testing.T) {
	selector, err := labels.Parse("team in (a,b)")
	if err != nil {
		t.Fatal(err)
	}
	opts := Options{Resources: []string{"widgets.example.com"}, MapNamespaces: map[string]string{"shop": "x"}, Selector: selector,
		Existing: ExistingUpdate, Runs: []string{}, RedactKey: []byte("a key")}
	loaded := saved(t, shop(t).plan(Options{}), opts)
	got, err := loaded.MadeWith([]byte("a key"))
	if err != nil {
		t.Fatal(err)
	}
	if got.Selector.String() != selector.String() {
		t.Errorf("selector: got %s, want %s", got.Selector, selector)
	}
	got.Selector = opts.Selector
	if diff := cmp.Diff(opts, *got, cmp.Comparer(func(a, b labels.Selector) bool { return a.String() == b.String() })); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
	if loaded.Repository != "https://git.example.com/x.git" || loaded.Path != "clusters/lab" || len(loaded.Objects) != 4 {
		t.Errorf("got %+v", loaded)
	}
}

func TestLoadPlanRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`{"apiVersion":"crmirror.dev/v1alpha1","kind":"RestorePlan","commit":"a","clusterUID":"b","surprise":1}`: "surprise",
		`{"apiVersion":"crmirror.dev/v9","kind":"RestorePlan","commit":"a","clusterUID":"b"}`:                    "crmirror.dev/v9",
		`{"apiVersion":"v1","kind":"List"}`:                                                                                                   "List",
		`{"apiVersion":"crmirror.dev/v1alpha1","kind":"RestorePlan"}`:                                                                         "missing",
		`{"apiVersion":"crmirror.dev/v1alpha1","kind":"RestorePlan","commit":"a","clusterUID":"b"} {}`:                                        "follows",
		`{"apiVersion":"crmirror.dev/v1alpha1","kind":"RestorePlan","commit":"a","clusterUID":"b","options":{"existing":"burn","runs":null}}`: "burn",
	} {
		if _, err := LoadPlan(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("LoadPlan(%s) = %v, want an error with %q", text, err, want)
		}
	}
}

func TestPin(t *testing.T) {
	w := shop(t)
	w.live(namespaceText("shop"))
	w.live(widgetCRD("v1"))
	b := w.live(widget("shop", "b", "3"))
	opts := Options{Existing: ExistingUpdate}
	file := saved(t, w.plan(opts), opts)
	pinned := func(opts Options) *Plan {
		t.Helper()
		plan := w.plan(opts)
		if err := Pin(plan, file); err != nil {
			t.Fatal(err)
		}
		return plan
	}
	w.wantVerbs(pinned(opts), "customresourcedefinitions.apiextensions.k8s.io widgets.example.com: unchanged", "namespaces shop: unchanged",
		"widgets.example.com shop/a: create", "widgets.example.com shop/b: update")

	b.SetResourceVersion("8")
	a := w.live(widget("shop", "a", "9"))
	plan := pinned(opts)
	for _, name := range []string{"a", "b"} {
		action := w.action(plan, "widgets.example.com shop/"+name)
		if action.Verb != Blocked {
			t.Errorf("%s: got %s, want blocked", name, action.Verb)
		}
		wantText(t, action.Reason, "moved since the plan", "make a new plan")
	}

	// What would be written now, and was not then.
	w.git(widget("shop", "later", "1"), nil)
	later := w.action(pinned(opts), "widgets.example.com shop/later")
	if later.Verb != Blocked {
		t.Errorf("got %s, want blocked: no plan said so", later.Verb)
	}

	// Carried out by now: nothing is left of it.
	a.Object["spec"] = map[string]any{"size": int64(1)}
	if action := w.action(pinned(opts), "widgets.example.com shop/a"); action.Verb != Unchanged {
		t.Errorf("got %s, want unchanged", action.Verb)
	}

	file.ClusterUID = "another"
	if err := Pin(plan, file); err == nil || !strings.Contains(err.Error(), "another") {
		t.Errorf("Pin to another cluster: %v", err)
	}
}

// The values of a Secret and of a redacted field are in no form of a plan.
func TestPlanHoldsNoSecret(t *testing.T) {
	w, key := redactedScene(t)
	w.live(namespaceText("shop"))
	w.live(widgetCRD("v1"))
	w.live(widget("shop", "s", "2") + "  password: other-one\n")
	w.live("apiVersion: v1\nkind: Secret\nmetadata: {name: core, namespace: shop}\ndata: {a: b3RoZXItb25l}\n")
	for _, opts := range []Options{{}, {RedactKey: key}, {RedactKey: key, Existing: ExistingUpdate}, {Existing: ExistingUpdate}} {
		plan := w.plan(opts)
		var all []string
		for _, a := range plan.Actions {
			for _, c := range a.Changes {
				all = append(all, c.Git, c.Cluster)
			}
		}
		file, err := json.Marshal(plan)
		if err != nil {
			t.Fatal(err)
		}
		text := string(file) + strings.Join(all, " ")
		for _, secret := range []string{"hunter2", "other-one", "b3RoZXItb25l", "aHVudGVyMg"} {
			if strings.Contains(text, secret) {
				t.Errorf("with %+v: %s is in the plan: %s", opts, secret, text)
			}
		}
		if a := w.action(plan, "widgets.example.com shop/s"); len(a.Changes) == 0 {
			t.Error("that something else differs is not seen")
		} else if !strings.Contains(string(file), `"blob":"`+a.Blob.String()) {
			t.Errorf("the blob is not in the JSON: %s", file)
		}
	}
}
