package apply_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/kube/apply"
)

func TestOwners(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetManagedFields([]metav1.ManagedFieldsEntry{
		entry("kubectl", "Apply", "", at, `{"f:spec":{"f:size":{},"f:args":{},"f:options":{},"f:ports":{"k:{\"port\":1}":{".":{},"f:port":{},"f:note":{}}},"f:tags":{"v:\"a\"":{}}}}`),
		entry("edit", "Update", "", at, `{"f:metadata":{"f:labels":{".":{},"f:app.kubernetes.io/name":{}}},"f:spec":{"f:size":{},"f:options":{"f:x":{}},"f:extra":{}}}`),
		entry("autoscaler", "Update", "scale", at, `{"f:spec":{"f:replicas":{}}}`),
		entry("crmirror", "Apply", "", at, `{"f:spec":{"f:color":{}}}`),
		entry("crmirror", "Update", "", at, `{"f:spec":{"f:legacy":{}}}`),
		entry("crmirror", "Update", "status", at, `{"f:status":{"f:ready":{}}}`),
		entry("before-first-apply", "Update", "", at, `{"f:spec":{"f:grade":{}}}`),
		entry("ancient-changes", "Update", "", at, `{"f:spec":{"f:grade":{}}}`),
	})
	own, err := apply.ReadOwnership(obj)
	if err != nil {
		t.Fatal(err)
	}
	for where, want := range map[string][]string{
		"spec.size":               {"kubectl/Apply", "edit/Update"},
		"spec.replicas":           {"autoscaler/Update/scale"},
		"spec.mode":               nil,
		"spec.args":               {"kubectl/Apply"},
		"spec.options.x":          {"edit/Update"}, // kubectl owns only that there is a map
		"spec.options.y":          nil,
		"spec.options":            {"kubectl/Apply", "edit/Update"},
		"spec.extra.deep.down":    {"edit/Update"},
		"spec.ports[port=1].note": {"kubectl/Apply"},
		"spec.ports[port=1].name": nil,
		"spec.ports[port=1]":      {"kubectl/Apply"},
		"spec.ports[port=2].note": nil,
		"spec.tags[=a]":           {"kubectl/Apply"},
		"spec.tags[=b]":           nil,
		"spec.grade":              {"before-first-apply/Update?", "ancient-changes/Update?"},
		"metadata.labels":         {"edit/Update"},
		"metadata.labels.other":   nil,
		"spec.color":              {"crmirror/Apply"},
		"spec.legacy":             {"crmirror/Update"},
		"spec":                    {"kubectl/Apply", "edit/Update", "autoscaler/Update/scale", "crmirror/Apply", "crmirror/Update", "before-first-apply/Update?", "ancient-changes/Update?"},
		"status.ready":            {"crmirror/Update/status"},
		"spec.nowhere.at.all":     nil,
	} {
		var got []string
		for _, o := range own.Owners(path(t, where)) {
			text := o.Name + "/" + o.Operation
			if o.Subresource != "" {
				text += "/" + o.Subresource
			}
			if o.Unknown {
				text += "?"
			}
			if !o.Time.Equal(at.Time) {
				t.Errorf("%s: time %s", where, o.Time)
			}
			got = append(got, text)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("owners of %s (-want +got):\n%s", where, diff)
		}
	}
	if got := own.Owned().String(); got != ".spec.color\n.spec.legacy" {
		t.Errorf("owned: %s", got)
	}
	if got := own.Applied().String(); got != ".spec.color" {
		t.Errorf("applied: %s", got)
	}
	obj.SetManagedFields([]metav1.ManagedFieldsEntry{entry("x", "Update", "", at, `{"f:spec":7}`)})
	if _, err := apply.ReadOwnership(obj); err == nil {
		t.Error("broken managedFields are read")
	}
	obj.SetManagedFields(nil)
	if own, err := apply.ReadOwnership(obj); err != nil || own.Owned().Size() != 0 || own.Owners(path(t, "spec.size")) != nil {
		t.Errorf("none: %v", err)
	}
}

func entry(manager, operation, subresource string, at metav1.Time, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationType(operation), Subresource: subresource, Time: &at,
		APIVersion: "x.dev/v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
	}
}

// TestManyOwners has more managers write than the server remembers, and one that resets the record.
func TestManyOwners(t *testing.T) {
	w := install(t, "manyowners")
	w.create("creator", "a", "{size: 0}")
	for i := range 13 {
		w.patch(fmt.Sprintf("updater-%02d", i), "a", fmt.Sprintf("spec: {options: {k%02d: v}}", i))
	}
	own, err := apply.ReadOwnership(w.get("a"))
	if err != nil {
		t.Fatal(err)
	}
	if owners := own.Owners(path(t, "spec.options.k00")); len(owners) != 1 || !owners[0].Unknown {
		t.Errorf("the owner of an old field is %v", owners)
	}
	if owners := own.Owners(path(t, "spec.options.k12")); len(owners) != 1 || owners[0].Name != "updater-12" || owners[0].Unknown {
		t.Errorf("the owner of a new field is %v", owners)
	}
	live := w.patch("resetter", "a", "metadata: {managedFields: [{}]}")
	w.write(w.become(live, `{size: 1, replicas: 1, mode: auto, options: {k00: v, k01: v, k02: v, k03: v, k04: v, k05: v, k06: v, k07: v, k08: v, k09: v, k10: v, k11: v, k12: v}}`))
	live = w.get("a")
	expectOwned(t, live, apply.Manager, "Apply", "spec.size")
	if own, err = apply.ReadOwnership(live); err != nil {
		t.Fatal(err)
	}
	if owners := own.Owners(path(t, "spec.options.k12")); len(owners) != 1 || !owners[0].Unknown {
		t.Errorf("the owner of a field before the first apply is %v", owners)
	}
}

// TestChanger: of the owners of what changed it is the newest, and never crmirror.
func TestChanger(t *testing.T) {
	at := func(minute int) metav1.Time { return metav1.NewTime(time.Date(2026, 1, 2, 3, minute, 0, 0, time.UTC)) }
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetManagedFields([]metav1.ManagedFieldsEntry{
		entry("old", "Update", "", at(1), `{"f:spec":{"f:size":{},"f:color":{}}}`),
		entry("new", "Update", "", at(2), `{"f:spec":{"f:size":{},"f:note":{}}}`),
		entry("crmirror", "Apply", "", at(3), `{"f:spec":{"f:size":{},"f:grade":{}}}`),
		entry("before-first-apply", "Update", "", at(4), `{"f:spec":{"f:size":{}}}`),
		entry("controller", "Update", "status", at(5), `{"f:status":{"f:ready":{}}}`),
	})
	own, err := apply.ReadOwnership(obj)
	if err != nil {
		t.Fatal(err)
	}
	for where, want := range map[string]string{
		"spec.size": "new", "spec.color": "old", "spec.note": "new", "spec.grade": "", "spec.mode": "", "status.ready": "controller",
	} {
		changed := path(t, where)
		if got := own.Changer(func(p fieldpath.Path) bool { return p.Equals(changed) }); got.Name != want {
			t.Errorf("%s was changed by %q, want %q", where, got.Name, want)
		}
	}
}
