package restore

import (
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/bulk"
)

var widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}

func TestNewerCRD(t *testing.T) {
	version := func(name string, storage bool) apiextensionsv1.CustomResourceDefinitionVersion {
		return apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Served: true, Storage: storage}
	}
	crd := func(stored string, versions ...apiextensionsv1.CustomResourceDefinitionVersion) *definition {
		d := &definition{}
		d.Spec.Versions = versions
		if stored != "" {
			d.Status.StoredVersions = strings.Split(stored, ",")
		}
		return d
	}
	cluster := crd("", version("v1", true))
	cluster.Spec.Scope = apiextensionsv1.ClusterScoped
	for name, c := range map[string]struct {
		git, live *definition
		want      string
	}{
		"the same":            {crd("", version("v1", true)), crd("v1", version("v1", true)), ""},
		"git adds a version":  {crd("", version("v1", false), version("v2", true)), crd("v1", version("v1", true)), ""},
		"live has one more":   {crd("", version("v1", true)), crd("v1", version("v1", true), version("v2", false)), "newer: it has v2"},
		"live stored another": {crd("", version("v1", true)), crd("v1,v1beta1", version("v1", true), version("v1beta1", false)), "stores objects at v1beta1"},
		"live stores newer":   {crd("", version("v1beta1", true), version("v1", false)), crd("v1", version("v1beta1", false), version("v1", true)), "stores at v1, git's at v1beta1"},
		"another scope":       {crd("", version("v1", true)), cluster, "scope"},
	} {
		if got := newer(c.git, c.live); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q in it", name, got, c.want)
		}
	}
}

func TestPlanWebhook(t *testing.T) {
	const name = "widgets.example.com shop/a"
	w := newScene(t)
	w.live(namespaceText("shop"))
	w.git(widget("shop", "a", "1"), nil)
	w.live(widgetCRD("v1", "v2"))
	w.crds[widgets].Spec.Conversion = webhook("system", "convert")
	warning := func(p *Plan) Finding {
		t.Helper()
		i := slices.IndexFunc(p.Findings, func(f Finding) bool { return strings.Contains(f.Text, "conversion webhook") })
		if i < 0 {
			t.Fatalf("findings: %+v, want one about the webhook", p.Findings)
		}
		return p.Findings[i]
	}

	// The stored version is written without it.
	plan := w.plan(Options{})
	if a := w.action(plan, name); a.Verb != Create {
		t.Errorf("at the stored version: got %s %s, want create", a.Verb, a.Reason)
	}
	if f := warning(plan); f.Fatal {
		t.Errorf("%+v is fatal", f)
	}
	w.crds[widgets].Spec.Versions[0].Storage, w.crds[widgets].Spec.Versions[1].Storage = false, true
	plan = w.plan(Options{})
	if a := w.action(plan, name); a.Verb != Blocked {
		t.Errorf("at another version: got %s, want blocked", a.Verb)
	}
	if f := warning(plan); !f.Fatal || len(f.Objects) != 1 || !strings.Contains(f.Text, "system/convert") {
		t.Errorf("got %+v, want it fatal for the object", f)
	}
	w.ready[types.NamespacedName{Namespace: "system", Name: "convert"}] = true
	if a := w.action(w.plan(Options{}), name); a.Verb != Create {
		t.Errorf("with somebody behind it: got %s %s, want create", a.Verb, a.Reason)
	}
}

// What a listing showed before it failed proves nothing about what it did not show.
func TestPlanUnlisted(t *testing.T) {
	w := shop(t)
	w.live(namespaceText("shop"))
	w.live(widgetCRD("v1"))
	w.live(widget("shop", "a", "1"))
	w.unlisted[widgets] = &apply.Rejected{Verdict: apply.Forbidden, Message: "no way"}
	plan := w.plan(Options{})
	for _, name := range []string{"a", "b"} {
		a := w.action(plan, "widgets.example.com shop/"+name)
		if a.Verb != Blocked {
			t.Errorf("%s: got %s, want blocked", name, a.Verb)
		}
		wantText(t, a.Reason, "cannot be listed", "no way")
	}
}

func TestPlanWithoutNamespaces(t *testing.T) {
	w := newScene(t)
	w.live(widgetCRD("v1"))
	w.git(widget("shop", "a", "1"), nil)
	w.unlisted[namespaceResource] = &apply.Rejected{Verdict: apply.Forbidden}
	plan := w.plan(Options{})
	if a := w.action(plan, "widgets.example.com shop/a"); a.Verb != Create {
		t.Errorf("got %s %s, want create: the namespace may well be there", a.Verb, a.Reason)
	}
	wantText(t, plan.Findings[0].Text, "cannot be listed", "forbidden")
}

func TestPlanCRDsThatServeNothing(t *testing.T) {
	const name = "widgets.example.com shop/a"
	w := newScene(t)
	w.live(namespaceText("shop"))
	w.git(widget("shop", "a", "1"), nil)
	w.live(widgetCRD("v1"))
	w.crds[widgets].Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{
		{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionFalse, Message: "Widget is taken"},
	}
	wantText(t, w.action(w.plan(Options{}), name).Reason, "Widget is taken")

	w = newScene(t)
	w.live(namespaceText("shop"))
	w.git(widget("shop", "a", "1"), nil)
	w.live(strings.Replace(widgetCRD("v1"), "metadata:", "metadata:\n  deletionTimestamp: \"2026-01-02T03:04:05Z\"", 1))
	wantText(t, w.action(w.plan(Options{}), name).Reason, "CRD widgets.example.com is being deleted")
}

func TestPlanTerminating(t *testing.T) {
	w := shop(t)
	w.live(namespaceText("shop"))
	w.live(widgetCRD("v1"))
	w.live(widget("shop", "a", "1", "  deletionTimestamp: \"2026-01-02T03:04:05Z\"\n"))
	a := w.action(w.plan(Options{}), "widgets.example.com shop/a")
	if a.Verb != Blocked {
		t.Errorf("got %s, want blocked: it is as git has it, and not for long", a.Verb)
	}
	wantText(t, a.Reason, "deleting")
}

func TestPlanLargeObject(t *testing.T) {
	w := shop(t)
	w.live(widgetCRD("v1"))
	w.git(widget("shop", "large", "1", "  annotations: {a: "+strings.Repeat("x", etcdLimit)+"}\n"), nil)
	plan := w.plan(Options{})
	if !slices.ContainsFunc(plan.Findings, func(f Finding) bool {
		return !f.Fatal && strings.Contains(f.What, "shop/large") && strings.Contains(f.Text, "max-request-bytes")
	}) {
		t.Errorf("findings: %+v, want one about the size", plan.Findings)
	}
}

func TestPlanStatusNeedsPermission(t *testing.T) {
	w := newScene(t)
	w.live(namespaceText("shop"))
	w.live(widgetCRD("v1"))
	w.served.Kinds[widgets].Versions[0].Status = true
	w.git(widget("shop", "a", "1")+"status: {ready: true}\n", &kube.Shape{Status: true})
	w.forbidden[bulk.Access{Verb: "update", Resource: widgets, Subresource: "status", Namespace: "shop"}] = true
	wantText(t, w.action(w.plan(Options{}), "widgets.example.com shop/a").Reason, "may not update widgets.example.com/status in namespace shop")
}

func TestPlanTellsOfTypingMistakes(t *testing.T) {
	w := shop(t)
	plan := w.plan(Options{Resources: []string{"widgets.example.com", "wigdets.example.com"}})
	var told []string
	for _, f := range plan.Findings {
		told = append(told, f.What+" "+f.Text)
	}
	wantText(t, strings.Join(told, "\n"), "no wigdets.example.com")

	bad := Options{Resources: []string{"Widgets", "a/b"}, Names: []string{"["}, Existing: "burn", MapNamespaces: map[string]string{"a": "B!"}}
	err := bad.Check()
	if err == nil {
		t.Fatal("bad options pass")
	}
	wantText(t, err.Error(), "Widgets", "a/b", "names", "burn", "B!")
}

// To release what was written is to write it again.
func TestPlanReleaseNeedsPermission(t *testing.T) {
	const created, held = "widgets.example.com shop/a", "widgets.example.com shop/b"
	w := shop(t)
	w.live(namespaceText("shop"))
	w.live(widgetCRD("v1"))
	w.live(widget("shop", "b", "2", "  managedFields:\n  - {manager: "+bulk.FieldManager+", operation: Update}\n"))
	w.forbidden[bulk.Access{Verb: "update", Resource: widgets, Namespace: "shop"}] = true
	plan := w.plan(Options{})
	if a := w.action(plan, created); a.Verb != Create {
		t.Errorf("got %s %s, want create", a.Verb, a.Reason)
	}
	plan = w.plan(Options{ReleaseOwnership: true})
	a := w.action(plan, created)
	if a.Verb != Blocked {
		t.Errorf("got %s, want blocked", a.Verb)
	}
	wantText(t, a.Reason, "may not update widgets.example.com in namespace shop", "--release-ownership")
	if a := w.action(plan, held); a.Verb != Unchanged {
		t.Errorf("got %s, want unchanged", a.Verb)
	}
	if !slices.ContainsFunc(plan.Findings, func(f Finding) bool { return f.Fatal && len(f.Objects) == 2 && f.Objects[1].Name == "b" }) {
		t.Errorf("findings: %+v, want both objects", plan.Findings)
	}
}

// Nothing is asked for about what others stand on and is there already.
func TestPlanNeedsNothingOfWhatIsThere(t *testing.T) {
	w := shop(t)
	w.live(namespaceText("shop") + "    team: x\n")
	w.live(widgetCRD("v1"))
	w.forbidden[bulk.Access{Verb: "update", Resource: namespaceResource}] = true
	w.wantVerbs(w.plan(Options{Resources: []string{"widgets.example.com"}, Names: []string{"a"}, Existing: ExistingUpdate}),
		"widgets.example.com shop/a: create")
}
