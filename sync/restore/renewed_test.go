package restore

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/bulk"
)

// inVersion is a text of example.com/v1 at another version.
func inVersion(text, version string) string {
	return strings.Replace(text, "example.com/v1\n", "example.com/"+version+"\n", 1)
}

// Where the plan updates a CRD, objects at a version that only git's has are planned by that one.
func TestPlanRenewedCRD(t *testing.T) {
	const crd = "customresourcedefinitions.apiextensions.k8s.io widgets.example.com"
	w := newScene(t)
	w.git(namespaceText("shop"), nil)
	w.live(namespaceText("shop"))
	w.git(widgetCRD("v2", "v1"), nil)
	w.live(widgetCRD("v1"))
	for name, size := range map[string]string{"equal": "1", "differs": "2", "missing": "3", "bad": "0", "worse": "0"} {
		w.git(inVersion(widget("shop", name, size), "v2"), nil)
	}
	for _, name := range []string{"equal", "differs", "bad"} {
		w.live(widget("shop", name, "1"))
	}
	name := func(n string) string { return "widgets.example.com shop/" + n }
	want := func(opts Options, verbs map[string]Verb) *Plan {
		t.Helper()
		plan := w.plan(opts)
		for key, verb := range verbs {
			if a := w.action(plan, key); a.Verb != verb {
				t.Errorf("%s: got %s %s %+v, want %s", key, a.Verb, a.Reason, a.Changes, verb)
			}
		}
		return plan
	}
	update := Options{Existing: ExistingUpdate}
	plan := want(update, map[string]Verb{crd: Update, name("equal"): Unchanged, name("differs"): Update, name("missing"): Create,
		name("bad"): Blocked, name("worse"): Blocked})
	a := w.action(plan, name("differs"))
	if a.Resource.Version != "v2" || len(a.Changes) != 1 {
		t.Errorf("written at %s, %+v; want v2, and the size alone", a.Resource.Version, a.Changes)
	}
	wantText(t, strings.Join(a.Notes, ""), "converted to v2 by name only")
	wantText(t, w.action(plan, name("bad")).Reason, "the CRD in git does not allow it", "size")

	w.forbidden[bulk.Access{Verb: "update", Resource: crdResource}] = true
	plan = want(update, map[string]Verb{crd: Blocked, name("differs"): Blocked, name("missing"): Blocked})
	wantText(t, w.action(plan, name("missing")).Reason, "is not updated", "may not update")
	clear(w.forbidden)

	// Without the update, they are converted to what is served, and checked against the schema of that.
	plan = want(Options{}, map[string]Verb{crd: Skip, name("missing"): Create, name("worse"): Blocked})
	if a := w.action(plan, name("missing")); a.Resource.Version != "v1" {
		t.Errorf("written at %s, want v1", a.Resource.Version)
	}
	wantText(t, w.action(plan, name("worse")).Reason, "the CRD in the cluster does not allow it", "size")

	// A version that no CRD has is no name of anything.
	w.git(inVersion(widget("shop", "odd", "1"), "v9"), nil)
	plan = want(Options{}, map[string]Verb{name("odd"): Blocked})
	wantText(t, w.action(plan, name("odd")).Reason, "version v9", "only at v1")

	// Only the webhook knows what an object is at the other version.
	w.git(strings.Replace(widgetCRD("v2", "v1"), "spec:\n", "spec:\n  conversion: {strategy: Webhook, webhook: "+
		"{conversionReviewVersions: [v1], clientConfig: {service: {namespace: shop, name: convert}}}}\n", 1), nil)
	w.ready[types.NamespacedName{Namespace: "shop", Name: "convert"}] = true
	plan = want(update, map[string]Verb{crd: Update, name("differs"): Blocked, name("missing"): Create})
	wantText(t, w.action(plan, name("differs")).Reason, "webhook", "run again")
}

// A CRD gets a version, and objects, there or not, are written at it, in one run.
func TestExecuteRenewedCRD(t *testing.T) {
	w := newEmptyWorld(t, "renewed")
	namespace := w.namespace + "-renewed"
	w.gadgets("gadgets", "Gadget", "", namespace)
	if got := w.restore(t.Context()).Totals(); got[WasCreated] != 5 {
		t.Fatalf("%v, want 5 created", got)
	}
	gr := schema.GroupResource{Group: w.group, Resource: "gadgets"}
	w.canonical(crdKey(gr), fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.%[1]s}
spec:
  conversion: {strategy: None}
  group: %[1]s
  names: {kind: Gadget, listKind: GadgetList, plural: gadgets, singular: gadget}
  scope: Namespaced
  versions:
  - name: v2
    schema:
      openAPIV3Schema:
        properties:
          spec:
            properties:
              size: {type: integer}
              color: {type: string, default: red}
              ports:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}, port: {type: integer}}}
            type: object
        type: object
    served: true
    storage: true
  - name: v1
    schema:
      openAPIV3Schema:
        properties:
          spec: {properties: {size: {type: integer}}, type: object}
          status: {properties: {ready: {type: boolean}}, type: object}
        type: object
    served: true
    storage: false
`, w.group))
	for name, spec := range map[string]string{
		"g0": "{size: 0, color: red}", "g2": "{size: 2}", "g1": "{size: 9, color: blue, ports: [{name: a, port: 1}]}", "g9": "{size: 9, color: red}",
	} {
		key := kube.Key{Group: w.group, Resource: "gadgets", Namespace: namespace, Name: name}
		w.canonical(key, fmt.Sprintf("{apiVersion: %s/v2, kind: Gadget, metadata: {name: %s, namespace: %s}, spec: %s}", w.group, name, namespace, spec))
	}
	w.opts.Names = []string{"g0", "g1", "g2", "g9", gr.String()}
	w.want(w.restore(t.Context()), map[string]Result{gr.String(): WasConfigured, "g0": WasConfigured, "g1": WasConfigured, "g2": WasUnchanged, "g9": WasCreated})
	if v := w.verify(); !v.Same() {
		t.Errorf("%+v", v.Differences)
	}
	live, err := w.dynamic.Resource(gr.WithVersion("v2")).Namespace(namespace).Get(t.Context(), "g1", metav1.GetOptions{})
	if err != nil || live.Object["spec"].(map[string]any)["color"] != "blue" {
		t.Errorf("got %v, %v", live, err)
	}
}
