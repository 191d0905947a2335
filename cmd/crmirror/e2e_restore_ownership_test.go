package main_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
)

// restoredWidget is an object of TestRestoreOwnership, with the requests that other tools make of it.
type restoredWidget struct {
	*scene
	t    *testing.T
	name string
}

// manifest is the object as a person has it in a file; git has size 1 and color green.
func (w restoredWidget) manifest(spec map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": w.group + "/v1", "kind": "Widget",
		"metadata": map[string]any{"name": w.name, "namespace": w.namespace}, "spec": spec,
	}
}

// lastApplied is the annotation in which kubectl apply keeps what it applied last.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// clientSide does what kubectl apply does: a merge patch of what was applied last, the file and the live object.
func (w restoredWidget) clientSide(spec map[string]any) error {
	live := w.get(w.namespace, "Widget", w.name)
	manifest := w.manifest(spec)
	config, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	manifest["metadata"].(map[string]any)["annotations"] = map[string]any{lastApplied: string(config)}
	modified, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	current, err := json.Marshal(live.Object)
	if err != nil {
		return err
	}
	patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch([]byte(live.GetAnnotations()[lastApplied]), modified, current)
	if err != nil {
		return err
	}
	_, err = w.in(w.namespace, "Widget").
		Patch(w.t.Context(), w.name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-client-side-apply"})
	return err
}

// serverSide does what kubectl apply --server-side does, with --force-conflicts if so.
func (w restoredWidget) serverSide(spec map[string]any, force bool) error {
	body, err := json.Marshal(w.manifest(spec))
	if err != nil {
		return err
	}
	_, err = w.in(w.namespace, "Widget").
		Patch(w.t.Context(), w.name, types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "kubectl", Force: &force})
	return err
}

// update does what a controller does: it reads the object and writes all of it.
func (w restoredWidget) update(field string, value any) error {
	live := w.get(w.namespace, "Widget", w.name)
	if err := unstructured.SetNestedField(live.Object, value, "spec", field); err != nil {
		return err
	}
	_, err := w.in(w.namespace, "Widget").Update(w.t.Context(), live, metav1.UpdateOptions{FieldManager: "a-controller"})
	return err
}

// wantSpec compares the live spec with "map[color:green size:2]".
func (w restoredWidget) wantSpec(want string) {
	w.t.Helper()
	if got := fmt.Sprint(w.get(w.namespace, "Widget", w.name).Object["spec"]); got != want {
		w.t.Errorf("spec: got %s, want %s", got, want)
	}
}

// wantConflict checks that a request met a conflict over a field with the manager that restored it, or none if the
// ownership was released.
func (w restoredWidget) wantConflict(err error, conflict bool) {
	w.t.Helper()
	if !conflict {
		if err != nil {
			w.t.Errorf("got %v, want no conflict", err)
		}
		return
	}
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `conflict with "crmirror-restore"`) || !strings.Contains(err.Error(), ".spec.size") {
		w.t.Errorf("got %v, want a conflict over .spec.size with crmirror-restore", err)
	}
}

// What other tools meet in an object that was restored, with and without --release-ownership. README's "Ownership, and
// other tools" is what stands here.
func TestRestoreOwnership(t *testing.T) {
	t.Parallel()
	requests := []struct {
		name string
		test func(w restoredWidget, held bool)
	}{
		{"client-side", func(w restoredWidget, _ bool) {
			// Without the annotation, which git never has, what the file lacks by now is not known to have been in it.
			w.wantConflict(w.clientSide(map[string]any{"size": 2}), false)
			w.wantSpec("map[color:green size:2]")
			w.wantConflict(w.clientSide(map[string]any{"size": 2, "color": "green"}), false)
			w.wantConflict(w.clientSide(map[string]any{"size": 3}), false)
			w.wantSpec("map[size:3]")
		}},
		{"server-side-same", func(w restoredWidget, held bool) {
			w.wantConflict(w.serverSide(map[string]any{"size": 1, "color": "green"}, false), false)
			w.wantConflict(w.serverSide(map[string]any{"size": 1}, false), false)
			if held { // the other owner keeps it
				w.wantSpec("map[color:green size:1]")
			} else {
				w.wantSpec("map[size:1]")
			}
		}},
		{"server-side-other", func(w restoredWidget, held bool) {
			w.wantConflict(w.serverSide(map[string]any{"size": 2}, false), held)
			if held {
				w.wantSpec("map[color:green size:1]")
			} else { // nobody is known to have applied the color
				w.wantSpec("map[color:green size:2]")
			}
		}},
		{"server-side-forced", func(w restoredWidget, _ bool) {
			w.wantConflict(w.serverSide(map[string]any{"size": 2}, true), false)
			w.wantConflict(w.serverSide(map[string]any{"size": 3}, false), false) // taken once and for all
			w.wantSpec("map[color:green size:3]")
		}},
		{"controller", func(w restoredWidget, _ bool) {
			w.wantConflict(w.update("size", int64(2)), false)
			w.wantConflict(w.serverSide(map[string]any{"color": "green"}, false), false)
			w.wantSpec("map[color:green size:2]")
		}},
	}
	for name, args := range map[string][]string{"owned": nil, "released": {"--release-ownership"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, name)
			s.kind("Widget", "v1")
			for _, r := range requests {
				s.object(s.namespace, "Widget", r.name, "spec:\n  color: green\n  size: 1\n")
			}
			s.commit()
			s.restore(0, args...).wantTotals(t, map[string]int{"created": len(requests) + 2})
			held := args == nil
			for _, r := range requests {
				w := restoredWidget{s, t, r.name}
				if owns := w.owns("crmirror-restore", "f:size"); owns != held {
					t.Errorf("%s: crmirror-restore owns the size: got %t, want %t", r.name, owns, held)
				}
				r.test(w, held)
			}
			r := s.u.run("verify", "--repo", s.repo)
			wantTold(t, r.stdout, "controller: differs\n    spec.size: 1 in git, 2 in the cluster (set by a-controller at ")
			if again := s.u.run(append([]string{"restore", "--repo", s.repo}, args...)...); again.code != 3 {
				t.Errorf("got %v\nwant exit code 3, and what others changed since left alone", again)
			}
			restoredWidget{s, t, "controller"}.wantSpec("map[color:green size:2]")
		})
	}
}

// owns tells whether a manager owns a field, named as managedFields do.
func (w restoredWidget) owns(manager, field string) bool {
	return slices.ContainsFunc(w.get(w.namespace, "Widget", w.name).GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == manager && e.FieldsV1 != nil && strings.Contains(string(e.FieldsV1.GetRawBytes()), `"`+field+`"`)
	})
}
