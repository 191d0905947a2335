package main_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// inConversion makes a CRD's versions differ by a webhook behind which nobody answers.
func inConversion(text string) string {
	return strings.Replace(text, "    strategy: None\n", "    strategy: Webhook\n    webhook:\n      clientConfig:\n"+
		"        service: {name: converter, namespace: inputs, path: /convert, port: 443}\n      conversionReviewVersions: [v1]\n", 1)
}

// badInputs writes a repository with one good object beside each bad one.
func badInputs(t *testing.T) *scene {
	s := newScene(t, "inputs")
	s.kind("Widget", "v1")
	s.object(s.namespace, "Widget", "good", "spec:\n  size: 1\n")
	s.object(s.namespace, "Widget", "child",
		"  ownerReferences:\n  - {apiVersion: inputs.example.dev/v1, kind: Widget, name: good}\nspec:\n  size: 1\n")
	s.object(s.namespace, "Widget", "orphan",
		"  ownerReferences:\n  - {apiVersion: inputs.example.dev/v1, kind: Widget, name: lost}\nspec:\n  size: 1\n")
	s.object(s.namespace, "Widget", "redacted", "spec:\n  color: crmirror-redacted:v1:00ff\n  size: 1\n")
	s.object(s.namespace, "Widget", "refused", "spec:\n  size: large\n")
	s.object(s.namespace, "Widget", "large", "spec:\n  text: "+strings.Repeat("x", 1700<<10)+"\n")

	s.space("inputs-going")
	s.object("inputs-going", "Widget", "stuck", "spec:\n  size: 1\n")

	// Gears are stored at v1, and somebody has to convert those of v1beta1.
	gears := inConversion(s.definition("Gear", "v1", "v1beta1"))
	s.write("cluster/customresourcedefinitions.apiextensions.k8s.io/gears.inputs.example.dev.yaml", gears)
	s.object(s.namespace, "Gear", "stored", "spec:\n  size: 1\n")
	s.write(s.file(s.namespace, "Gear", "converted"),
		"apiVersion: inputs.example.dev/v1beta1\nkind: Gear\nmetadata:\n  name: converted\n  namespace: inputs\nspec:\n  size: 1\n")

	// Of gadgets the cluster has a newer CRD than git.
	s.kind("Gadget", "v1")
	s.object(s.namespace, "Gadget", "older", "spec:\n  size: 1\n")
	s.commit()

	s.create(namespaces, "", "apiVersion: v1\nkind: Namespace\nmetadata: {name: inputs-going}\n")
	if err := s.client.Resource(namespaces).Delete(t.Context(), "inputs-going", metav1.DeleteOptions{}); err != nil { // nobody finishes it here
		t.Fatal(err)
	}
	s.install("Gadget", s.definition("Gadget", "v2", "v1"))
	return s
}

// Each thing that cannot be restored is named, before and after, with what to do; all others come back.
func TestRestoreBadInputs(t *testing.T) {
	t.Parallel()
	s := badInputs(t)
	told := []string{
		"namespace inputs-going is being deleted; run again when it is gone",
		"only digests of spec.color",
		"its owner Widget lost is neither in git nor in the cluster, in namespace inputs: it is written without that reference",
		"nobody answers behind its conversion webhook, service inputs/converter: start it first",
		"the cluster stores objects at v2, which git's CRD has not; it is left as it is",
		"bytes; etcd takes 1572864 unless its --max-request-bytes says otherwise",
	}
	dry := s.u.run("restore", "--repo", s.repo, "--existing", "update", "--dry-run")
	if dry.code != 3 {
		t.Errorf("got %v\nwant exit code 3", dry)
	}
	wantTold(t, dry.stdout, told...)
	if strings.Contains(dry.stdout, "00ff") {
		t.Errorf("got %v\nwant no digest in it", dry)
	}

	r := s.u.run("restore", "--repo", s.repo, "--existing", "update", "-o", "json")
	report := s.parse(r, 3)
	wantTold(t, r.stdout, told...)
	wantTold(t, r.stdout, "too large: ")
	for object, want := range map[string]string{
		"widgets.inputs.example.dev inputs/good":                                    "created",
		"widgets.inputs.example.dev inputs/child":                                   "created",
		"widgets.inputs.example.dev inputs/orphan":                                  "created",
		"widgets.inputs.example.dev inputs/redacted":                                "blocked",
		"widgets.inputs.example.dev inputs/large":                                   "failed",
		"widgets.inputs.example.dev inputs-going/stuck":                             "blocked",
		"gears.inputs.example.dev inputs/stored":                                    "created",
		"gears.inputs.example.dev inputs/converted":                                 "blocked",
		"gadgets.inputs.example.dev inputs/older":                                   "created",
		"customresourcedefinitions.apiextensions.k8s.io gadgets.inputs.example.dev": "skipped",
	} {
		if got := report.result(t, object); got != want {
			t.Errorf("%s: got %q, want %q", object, got, want)
		}
	}
	if got := report.result(t, "widgets.inputs.example.dev inputs/refused"); got != "failed" && got != "blocked" {
		t.Errorf("what the schema refuses: got %q, want it failed or blocked", got)
	}
	good, child := s.get(s.namespace, "Widget", "good"), s.get(s.namespace, "Widget", "child")
	if owners := child.GetOwnerReferences(); len(owners) != 1 || owners[0].UID != good.GetUID() {
		t.Errorf("owners of the child: got %v, want the new uid %s", owners, good.GetUID())
	}
	if owners := s.get(s.namespace, "Widget", "orphan").GetOwnerReferences(); len(owners) != 0 {
		t.Errorf("owners of the orphan: got %v, want none", owners)
	}
	crd, err := s.client.Resource(crds).Get(t.Context(), "gadgets.inputs.example.dev", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stored, _, _ := unstructured.NestedStringSlice(crd.Object, "status", "storedVersions")
	if storage(t, crd).Version != "v2" || fmt.Sprint(stored) != "[v2]" {
		t.Errorf("the newer CRD: got storage %s, stored %v, want it as it was", storage(t, crd).Version, stored)
	}
}
