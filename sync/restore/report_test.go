package restore

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/sync"
)

// A commit is text in JSON, whoever reports it, by value or by pointer.
func TestCommitIsText(t *testing.T) {
	commit := Commit{0xab, 19: 0xcd}
	for name, v := range map[string]any{
		"plan": Plan{Commit: commit}, "report": Report{Commit: commit}, "verification": Verification{Commit: commit},
		"*plan": &Plan{Commit: commit}, "*report": &Report{Commit: commit}, "*verification": &Verification{Commit: commit},
	} {
		content, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Commit     string  `json:"commit"`
			ClusterUID *string `json:"clusterUID"`
		}
		if err := json.Unmarshal(content, &got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got.Commit != commit.String() || got.ClusterUID == nil {
			t.Errorf("%s: got %s, want the commit %s and the other fields", name, content, commit)
		}
	}
}

// Whatever keeps something that was asked for from being there keeps plan and report from being complete.
func TestComplete(t *testing.T) {
	for name, c := range map[string]struct {
		actions  []Action
		findings []Finding
		want     bool
	}{
		"nothing to do":        {[]Action{{Verb: Unchanged}}, nil, true},
		"would run again":      {[]Action{{Verb: Skip}}, nil, true},
		"differs":              {[]Action{{Verb: Skip, UID: "x"}}, nil, false},
		"blocked":              {[]Action{{Verb: Blocked}}, nil, false},
		"in conflict":          {[]Action{{Verb: Conflict, UID: "x"}}, nil, false},
		"behind its owner":     {[]Action{{Verb: Skip, Behind: true}}, nil, false},
		"a finding":            {[]Action{{Verb: Unchanged}}, []Finding{{What: "x"}}, true},
		"a fatal finding":      {[]Action{{Verb: Unchanged}}, []Finding{{What: "x", Fatal: true}}, false},
		"only a fatal finding": {nil, []Finding{{What: "x", Fatal: true}}, false},
	} {
		plan := &Plan{Actions: c.actions, Findings: c.findings}
		if got := plan.Complete(); got != c.want {
			t.Errorf("%s: the plan is complete: %v, want %v", name, got, c.want)
		}
		if got := newReport(plan, false).Complete(); got != c.want {
			t.Errorf("%s: the report is complete: %v, want %v", name, got, c.want)
		}
	}
}

// A file that holds no object has a finding without one; it concerns those who ask for what it may be.
func TestPlanCutFile(t *testing.T) {
	w := shop(t)
	w.git(namespaceText("other"), nil)
	w.git(widget("other", "c", "1"), nil)
	long := strings.Repeat("long.", 50) + "x"
	path := sync.PathOf(kube.Key{Group: "example.com", Resource: "widgets", Namespace: "shop", Name: long})
	w.file(path, "apiVersion: [\n")
	for name, c := range map[string]struct {
		opts Options
		want bool
	}{
		"everything":        {Options{}, false},
		"its namespace":     {Options{Namespaces: []string{"shop"}}, false},
		"a name":            {Options{Namespaces: []string{"shop"}, Names: []string{"a"}}, false},
		"another namespace": {Options{Namespaces: []string{"other"}}, true},
		"other resources":   {Options{Resources: []string{"namespaces"}}, true},
	} {
		plan := w.plan(c.opts)
		told := slices.ContainsFunc(plan.Findings, func(f Finding) bool { return f.What == path && f.Fatal })
		if plan.Complete() != c.want || told == c.want {
			t.Errorf("%s: complete %v, told %v; want %v, %v: %+v", name, plan.Complete(), told, c.want, !c.want, plan.Findings)
		}
	}
}

// What its owner, which would run again, holds back was asked for nonetheless.
func TestPlanBehindOwner(t *testing.T) {
	w := shop(t)
	w.git(widget("shop", "child", "1", "  ownerReferences:\n  - {apiVersion: argoproj.io/v1alpha1, kind: Workflow, name: build, uid: old}\n"), nil)
	w.serve("workflows.argoproj.io", "Workflow", true, "v1alpha1")
	w.git("apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: build, namespace: shop}\n", nil)
	plan := w.plan(Options{})
	if a := w.action(plan, "widgets.example.com shop/child"); a.Verb != Skip || !a.Behind || plan.Complete() {
		t.Errorf("got %s, behind %v, complete %v; want it skipped for its owner and not complete", a.Verb, a.Behind, plan.Complete())
	}
	if plan := w.plan(Options{Resources: []string{"workflows.argoproj.io"}}); !plan.Complete() {
		t.Errorf("named: %+v, want it complete", plan.Actions)
	}
}

// A selection that misses is no success.
func TestPlanSelectsNothing(t *testing.T) {
	w := shop(t)
	s, err := ReadSnapshot(t.Context(), w, gitstore.Hash{1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	team, err := labels.Parse("team=x")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		opts Options
		want []string
	}{
		{Options{Namespaces: []string{"shpo"}, Names: []string{"a"}}, []string{"--namespace shpo", "--names a"}},
		{Options{Resources: []string{"certificates.cert-manager.io"}}, []string{"--resources certificates.cert-manager.io"}},
		{Options{Selector: team}, []string{"--selector team=x"}},
	} {
		_, err := Make(t.Context(), s, w, &c.opts)
		if err == nil {
			t.Fatalf("%v: planned", c.want)
		}
		wantText(t, err.Error(), append(c.want, "has none")...)
		if _, err = Verify(t.Context(), s, w, &c.opts); err == nil {
			t.Fatalf("%v: verified", c.want)
		}
		wantText(t, err.Error(), c.want...)
	}
	for flag, opts := range map[string]Options{
		"--resources": {Resources: []string{"widgets.example.com", "*.example.org"}},
		"--namespace": {Namespaces: []string{"shop", "*.example.org"}},
		"--names":     {Names: []string{"a", "*.example.org"}},
	} {
		plan := w.plan(opts)
		told := slices.ContainsFunc(plan.Findings, func(f Finding) bool {
			return f.What == flag && f.Fatal && strings.Contains(f.Text, "*.example.org")
		})
		if !told || plan.Complete() {
			t.Errorf("%s: complete %v, findings %+v; want what matches nothing to be told", flag, plan.Complete(), plan.Findings)
		}
	}
}

// A mapping that maps nothing would have the live objects written instead of copies beside them.
func TestPlanMapsNothing(t *testing.T) {
	w := shop(t)
	w.git(namespaceText("other"), nil)
	w.live(namespaceText("shop"))
	w.live(widgetCRD("v1"))
	w.live(widget("shop", "a", "9"))
	broken := kube.Key{Group: "example.com", Resource: "widgets", Namespace: "broken", Name: strings.Repeat("long.", 50) + "x"}
	w.file(sync.PathOf(broken), "apiVersion: [\n")
	s, err := ReadSnapshot(t.Context(), w, gitstore.Hash{1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		opts Options
		want []string // none: it is planned
	}{
		"mistyped": {Options{MapNamespaces: map[string]string{"shpo": "x", "sho": "y"}}, []string{"shpo=x", "sho=y", "nothing in such a namespace"}},
		"a glob":   {Options{MapNamespaces: map[string]string{"sh*": "x"}}, []string{"sh*=x", "full name"}},
		"the other way round": {Options{MapNamespaces: map[string]string{"shop-test": "shop"}},
			[]string{"shop-test=shop", "called in git"}},
		"not selected": {Options{Namespaces: []string{"shop"}, MapNamespaces: map[string]string{"other": "x"}},
			[]string{"other=x", "nothing that is selected lies in it"}},
		"right":               {Options{Namespaces: []string{"shop"}, MapNamespaces: map[string]string{"shop": "x"}}, nil},
		"a Namespace alone":   {Options{Resources: []string{"namespaces"}, MapNamespaces: map[string]string{"other": "x"}}, nil},
		"a file of no object": {Options{MapNamespaces: map[string]string{"broken": "x"}}, nil},
	} {
		c.opts.Existing = ExistingUpdate
		_, planned := Make(t.Context(), s, w, &c.opts)
		_, verified := Verify(t.Context(), s, w, &c.opts)
		for verb, err := range map[string]error{"planned": planned, "verified": verified} {
			switch {
			case len(c.want) == 0 && err != nil:
				t.Errorf("%s: got %v, want it %s", name, err, verb)
			case len(c.want) > 0 && err == nil:
				t.Errorf("%s: %s, want an error", name, verb)
			case err != nil:
				wantText(t, err.Error(), c.want...)
			}
		}
	}
}
