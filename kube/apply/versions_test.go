package apply_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/crmirror/crmirror/kube/apply"
)

// TestStaleVersion writes, at v1, an object of which managedFields say things at v1beta1 that
// v1 has a new default for: the server cannot merge it for anybody.
func TestStaleVersion(t *testing.T) {
	w := install(t, "stale")
	w.typ("v1")
	old := w.object("a", "{size: 1, color: red}")
	old.SetAPIVersion(w.group + "/v1beta1")
	if _, err := w.in("v1beta1").Create(t.Context(), old, metav1.CreateOptions{FieldManager: "old"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.tryApply("other", "a", "{size: 1}", true); err == nil {
		t.Fatal("the server merges such an object now; this test shows nothing")
	}
	for _, size := range []string{"2", "3"} {
		result := w.write(w.become(w.get("a"), "{size: "+size+", color: red, replicas: 1, mode: auto}"))
		if result.Method != apply.Patched {
			t.Errorf("written by %q", result.Method)
		}
		w.expect("a", "{size: "+size+", color: red, replicas: 1, mode: auto}")
	}
	// Of such an object the server does not record owners any more, but keeps the entries.
	expectOwned(t, w.get("a"), apply.Manager, "Update")
	expectOwned(t, w.get("a"), "old", "Update", "spec.color", "spec.replicas", "spec.size")
}

// TestVersionSwitch writes at v1 an object that we wrote at v1beta1: all that we set stays.
func TestVersionSwitch(t *testing.T) {
	w := installWith(t, "switch", func(crd string) string { return strings.ReplaceAll(crd, ", default: auto", "") })
	w.typ("v1")
	w.typ("v1beta1")
	w.create("other", "a", "{legacy: x}")
	w.create("other", "b", "{legacy: x}")
	read := func(name, version string) *unstructured.Unstructured {
		t.Helper()
		live, err := w.writer().Read(t.Context(), w.key(name), version)
		if err != nil {
			t.Fatal(err)
		}
		return live
	}
	for _, step := range []struct {
		name, version, spec string
		method              apply.Method
	}{
		{"a", "v1beta1", "{legacy: x, size: 1, options: {a: b}, replicas: 1}", apply.Applied},
		{"a", "v1", "{legacy: x, size: 1, options: {a: b}, color: red, replicas: 1}", apply.Applied},
		{"a", "v1beta1", "{legacy: x, size: 2, options: {a: b}, color: red, replicas: 1}", apply.Applied},
		{"b", "v1", "{legacy: x, size: 1, mode: manual, replicas: 1}", apply.Applied},
		// v1beta1 lacks one of the fields that we own. An apply there would give it up.
		{"b", "v1beta1", "{legacy: x, size: 3, replicas: 1}", apply.Patched},
	} {
		live := read(step.name, step.version)
		if result := w.write(w.become(live, step.spec)); result.Method != step.method {
			t.Errorf("%s at %s written by %q", step.spec, step.version, result.Method)
		}
		if diff := cmp.Diff(w.object("a", step.spec).Object["spec"], read(step.name, step.version).Object["spec"]); diff != "" {
			t.Errorf("at %s (-want +got):\n%s", step.version, diff)
		}
	}
}
