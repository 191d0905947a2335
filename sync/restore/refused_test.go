package restore

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube/apply"
)

// What may not be asked is told, and the rest of the plan goes on; only a server that does not answer ends it.
func TestPlanRefused(t *testing.T) {
	const crd, ns, a, b = "customresourcedefinitions.apiextensions.k8s.io widgets.example.com: ", "namespaces shop: ",
		"widgets.example.com shop/a: ", "widgets.example.com shop/b: "
	for what, c := range map[string]struct {
		verbs []string
		told  string
	}{
		"discovery":   {[]string{crd + "blocked", ns + "blocked", a + "blocked", b + "blocked"}, "serves cannot be told"},
		"crds":        {[]string{crd + "unchanged", ns + "unchanged", a + "unchanged", b + "create"}, "cannot be listed"},
		"permissions": {[]string{crd + "unchanged", ns + "unchanged", a + "unchanged", b + "create"}, "cannot be asked"},
	} {
		w := shop(t)
		w.live(namespaceText("shop"))
		w.live(widgetCRD("v1"))
		w.live(widget("shop", "a", "1"))
		w.refused[what] = &apply.Rejected{Verdict: apply.Forbidden, Message: "no way"}
		plan := w.plan(Options{})
		w.wantVerbs(plan, c.verbs...)
		if !slices.ContainsFunc(plan.Findings, func(f Finding) bool { return strings.Contains(f.Text, c.told) && strings.Contains(f.Text, "no way") }) {
			t.Errorf("%s: findings %+v, want it told", what, plan.Findings)
		}
		if v := w.verify(Options{}); what == "discovery" && (v.Same() || v.Differences[0].State != Unknown) {
			t.Errorf("%s: %+v, want it unknown", what, v.Differences)
		}
		s, err := ReadSnapshot(t.Context(), w, gitstore.Hash{1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.refused[what] = &apply.Rejected{Verdict: apply.Unavailable, Message: "gone"}
		if _, err := Make(t.Context(), s, w, &Options{}); err == nil || !strings.Contains(err.Error(), "gone") {
			t.Errorf("%s: got %v, want an error from a server that is gone", what, err)
		}
	}
}

// A group of which it is not known what is served may be there: nothing of it is created unseen.
func TestPlanUndiscovered(t *testing.T) {
	w := shop(t)
	w.served.Failed = map[schema.GroupVersion]error{{Group: "example.com", Version: "v1"}: errors.New("nobody there")}
	plan := w.plan(Options{})
	a := w.action(plan, "widgets.example.com shop/a")
	if a.Verb != Blocked || plan.Complete() {
		t.Errorf("got %s, complete %v; want it blocked", a.Verb, plan.Complete())
	}
	wantText(t, a.Reason, "example.com/v1 cannot be told", "nobody there")
}
