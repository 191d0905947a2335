package restore

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/kube/apply"
)

// What is not selected and there already counts only as far as it is there.
func TestVerifySupport(t *testing.T) {
	w := shop(t)
	for _, name := range []string{"shop", "shop2"} {
		w.live(namespaceText(name) + "    team: x\n")
		w.live(widget(name, "a", "1"))
	}
	w.live(widgetCRD("v1", "v1beta1"))
	opts := Options{Resources: []string{"widgets.example.com"}, Names: []string{"a"}}
	for name, maps := range map[string]map[string]string{"as in git": nil, "mapped": {"shop": "shop2"}} {
		opts.MapNamespaces = maps
		v := w.verify(opts)
		if !v.Same() || v.Objects != 1 || v.Equal != 1 || len(v.Beside) != 2 || len(v.Beside[0].Changes) == 0 {
			t.Errorf("%s: %d of %d equal, %+v, beside %+v; want the object equal, and what it stands on beside it", name, v.Equal, v.Objects, v.Differences, v.Beside)
		}
	}
	opts.MapNamespaces = nil
	if v := w.verify(Options{}); v.Same() || len(v.Beside) != 0 {
		t.Errorf("everything: %+v, beside %+v; want them to differ", v.Differences, v.Beside)
	}
	w.hideSupport()
	if v := w.verify(opts); !v.Same() || v.Objects != 1 {
		t.Errorf("unseen: %+v, findings %+v; want the object equal", v.Differences, v.Findings)
	}
	w.unlisted, w.objects[namespaceResource] = nil, nil
	if v := w.verify(opts); v.Same() || v.Differences[0].State != Missing {
		t.Errorf("without its namespace: %+v", v.Differences)
	}
}

// hideSupport lets nobody list what others stand on.
func (w *scene) hideSupport() {
	for _, gr := range []schema.GroupResource{namespaceResource, crdResource} {
		w.unlisted[gr] = &apply.Rejected{Verdict: apply.Forbidden}
	}
}

// What is not selected, and there, is left alone whatever its file says; and it is taken to be there if it may not be seen.
func TestPlanLeavesSupport(t *testing.T) {
	w := shop(t)
	w.live(namespaceText("shop"))
	w.live(widgetCRD("v1"))
	opts := Options{Resources: []string{"widgets.example.com"}, Names: []string{"a"}, Existing: ExistingUpdate}
	const a, path = "widgets.example.com shop/a: create", "cluster/namespaces/shop.yaml"
	good := w.files[path]
	w.file(path, "kind: [")
	plan := w.plan(opts)
	if w.wantVerbs(plan, a); !plan.Complete() {
		t.Errorf("findings %+v", plan.Findings)
	}
	w.files[path] = good
	w.hideSupport()
	plan = w.plan(opts)
	if w.wantVerbs(plan, a); !plan.Complete() {
		t.Errorf("unseen: findings %+v", plan.Findings)
	}
	plan = w.plan(Options{})
	w.wantVerbs(plan, "customresourcedefinitions.apiextensions.k8s.io widgets.example.com: blocked", "namespaces shop: blocked",
		"widgets.example.com shop/a: create", "widgets.example.com shop/b: create")
	if plan.Complete() {
		t.Error("complete, though it is not known what is there of what was asked for")
	}
}
