package bulk_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/bulk"
)

const secret = `pass"word-1234`

func TestCreate(t *testing.T) {
	w := install(t, "create")
	obj := w.object("a", "{size: 1}")
	obj["status"] = map[string]any{"ready": true}
	dry, err := w.client.Create(t.Context(), w.resource(), obj, true)
	if err != nil || dry.Object == nil {
		t.Fatal(dry, err)
	}
	want := map[string]any{"size": int64(1), "replicas": int64(1), "mode": "auto"}
	if diff := cmp.Diff(want, dry.Object.Object["spec"]); diff != "" {
		t.Errorf("by dry run (-want +got):\n%s", diff)
	}
	if _, err := w.client.Get(t.Context(), w.resource(), w.namespace, "a"); !errors.Is(err, apply.ErrNotFound) {
		t.Fatalf("after a dry run: %v", err)
	}
	written, err := w.client.Create(t.Context(), w.resource(), obj, false)
	if err != nil {
		t.Fatal(err)
	}
	live := w.get("a")
	if diff := cmp.Diff(bulk.Written{UID: string(live.GetUID()), ResourceVersion: live.GetResourceVersion(), Generation: 1}, written); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, live.Object["spec"]); diff != "" || live.Object["status"] != nil {
		t.Errorf("status %v, spec (-want +got):\n%s", live.Object["status"], diff)
	}
	if m := live.GetManagedFields(); len(m) != 1 || m[0].Manager != bulk.FieldManager || m[0].Operation != metav1.ManagedFieldsOperationUpdate {
		t.Errorf("managed by %v", m)
	}
	got, err := w.client.Get(t.Context(), w.resource(), w.namespace, "a")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(live, got); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
	_, err = w.client.Create(t.Context(), w.resource(), w.object("a", "{size: 2}"), false)
	if !errors.Is(err, apply.ErrExists) || !errors.Is(err, apply.ErrMoved) {
		t.Errorf("a second create: %v", err)
	}
	if now := w.get("a"); now.GetResourceVersion() != live.GetResourceVersion() {
		t.Error("a second create wrote")
	}
}

func TestReplace(t *testing.T) {
	w := install(t, "replace")
	created := w.create("a", "{size: 1, color: red, options: {a: b}}")
	obj := w.object("a", "{size: 2, mode: auto, replicas: 1}")
	set(obj, created)
	before := maps.Clone(obj["metadata"].(map[string]any))
	dry, err := w.client.Replace(t.Context(), w.resource(), obj, true)
	if err != nil || dry.Object == nil || w.get("a").GetResourceVersion() != created.ResourceVersion {
		t.Fatal(dry, err)
	}
	written, err := w.client.Replace(t.Context(), w.resource(), obj, false)
	if err != nil || written.UID != created.UID || written.Generation != 2 || written.Object != nil {
		t.Fatal(written, err)
	}
	live := w.get("a")
	if diff := cmp.Diff(obj["spec"], live.Object["spec"]); diff != "" || live.GetResourceVersion() != written.ResourceVersion {
		t.Errorf("version %s and %s, spec (-want +got):\n%s", live.GetResourceVersion(), written.ResourceVersion, diff)
	}
	if diff := cmp.Diff(before, obj["metadata"]); diff != "" {
		t.Errorf("the caller's object was changed: %s", diff)
	}
	set(obj, written)
	obj["status"] = map[string]any{"ready": true}
	obj["spec"] = map[string]any{"size": int64(3)}
	written, err = w.client.PutStatus(t.Context(), w.resource(), obj)
	if err != nil || written.Generation != 2 {
		t.Fatal(written, err)
	}
	live = w.get("a")
	if diff := cmp.Diff(map[string]any{"ready": true}, live.Object["status"]); diff != "" || live.Object["spec"].(map[string]any)["size"] != int64(2) {
		t.Errorf("spec %v, status (-want +got):\n%s", live.Object["spec"], diff)
	}
}

// set puts uid and resourceVersion of an answer into an object.
func set(obj map[string]any, written bulk.Written) {
	metadata := obj["metadata"].(map[string]any)
	metadata["uid"], metadata["resourceVersion"] = written.UID, written.ResourceVersion
}

// TestReplaceUnjudged tries to write what exists without saying which state of it is meant.
func TestReplaceUnjudged(t *testing.T) {
	w := install(t, "unjudged")
	created := w.create("a", "{size: 1}")
	for _, leave := range []string{"uid", "resourceVersion"} {
		obj := w.object("a", "{size: 2}")
		set(obj, created)
		delete(obj["metadata"].(map[string]any), leave)
		_, replaced := w.client.Replace(t.Context(), w.resource(), obj, false)
		_, status := w.client.PutStatus(t.Context(), w.resource(), obj)
		if replaced == nil || status == nil || errors.Is(replaced, apply.ErrMoved) {
			t.Errorf("without %s: %v, %v", leave, replaced, status)
		}
	}
	for _, at := range []bulk.Written{{ResourceVersion: created.ResourceVersion}, {UID: created.UID}} {
		if err := w.client.Release(t.Context(), w.resource(), w.namespace, "a", at.UID, at.ResourceVersion); !errors.Is(err, apply.ErrMoved) {
			t.Errorf("released at %v: %v", at, err)
		}
	}
	if now := w.get("a"); now.GetResourceVersion() != created.ResourceVersion {
		t.Error("written")
	}
}

// TestReplaceMoved writes to an object that changed, went, or was made again meanwhile.
func TestReplaceMoved(t *testing.T) {
	w := install(t, "moved")
	for name, move := range map[string]func(name string, created bulk.Written){
		"changed": func(name string, _ bulk.Written) {
			live := w.get(name)
			live.SetLabels(map[string]string{"by": "other"})
			if _, err := w.in().Update(t.Context(), live, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		},
		"gone":  func(name string, _ bulk.Written) { w.delete(name) },
		"again": func(name string, _ bulk.Written) { w.delete(name); w.create(name, "{size: 5}") },
	} {
		t.Run(name, func(t *testing.T) {
			created := w.create(name, "{size: 1}")
			move(name, created)
			var before string
			if name != "gone" {
				before = w.get(name).GetResourceVersion()
			}
			obj := w.object(name, "{size: 2}")
			set(obj, created)
			obj["status"] = map[string]any{"ready": true}
			_, replaced := w.client.Replace(t.Context(), w.resource(), obj, false)
			_, status := w.client.PutStatus(t.Context(), w.resource(), obj)
			released := w.client.Release(t.Context(), w.resource(), w.namespace, name, created.UID, created.ResourceVersion)
			for _, err := range []error{replaced, status} {
				if !errors.Is(err, apply.ErrMoved) {
					t.Errorf("got %v", err)
				}
			}
			if name != "gone" && !errors.Is(released, apply.ErrMoved) {
				t.Errorf("release: %v", released)
			}
			if name == "gone" {
				if !errors.Is(released, apply.ErrNotFound) {
					t.Errorf("release: %v", released)
				}
				if _, err := w.client.Get(t.Context(), w.resource(), w.namespace, name); !errors.Is(err, apply.ErrNotFound) {
					t.Errorf("it is back: %v", err)
				}
				return
			}
			if now := w.get(name).GetResourceVersion(); now != before {
				t.Error("written")
			}
		})
	}
}

func TestRejected(t *testing.T) {
	w := install(t, "rejected")
	client := newClient(t, w.config, bulk.Options{Shaped: func(schema.GroupResource, map[string]any) *fieldpath.Set {
		return fieldpath.NewSet(fieldpath.MakePathOrDie("spec", "secret"))
	}})
	created := w.create("a", "{size: 1, locked: x}")
	for _, test := range []struct {
		name    string
		spec    map[string]any
		verdict apply.Verdict
		says    string
	}{
		{"unknown field", map[string]any{"nofield": "x"}, apply.UnknownField, "nofield"},
		{"wrong type", map[string]any{"size": "text"}, apply.Invalid, "spec.size"},
		{"enumeration", map[string]any{"grade": "middle"}, apply.Invalid, `"low"`},
		{"duplicate key", map[string]any{"ports": []any{map[string]any{"port": int64(1)}, map[string]any{"port": int64(1)}}}, apply.Invalid, "spec.ports"},
		{"too large", map[string]any{"color": strings.Repeat("x", 1_700_000)}, apply.TooLarge, ""},
		{"much too large", map[string]any{"color": strings.Repeat("x", 2_900_000)}, apply.TooLarge, ""},
		{"far too large", map[string]any{"color": strings.Repeat("x", 3_400_000)}, apply.TooLarge, ""},
		{"redacted", map[string]any{"color": "crmirror-redacted:v1:0"}, apply.Redacted, ""},
		{"a shaped value", map[string]any{"secret": secret + strings.Repeat("!", 40)}, apply.Invalid, "spec.secret"},
		{"a bad pattern", map[string]any{"pattern": strings.Repeat("LONG", 100)}, apply.Invalid, "spec.pattern"},
	} {
		t.Run(test.name, func(t *testing.T) {
			obj := w.object("b", "{}")
			obj["spec"] = test.spec
			_, err := client.Create(t.Context(), w.resource(), obj, false)
			expect := func(err error) {
				r := rejected(t, err, test.verdict)
				if r.Retry || !strings.Contains(r.Message, test.says) || len(r.Message) > 1100 {
					t.Errorf("retry %v, message %q", r.Retry, r.Message)
				}
				for _, body := range []string{secret, "managedFields", "xxxxxxxx", "LONGLONG"} {
					if strings.Contains(err.Error(), body) {
						t.Errorf("the error shows %q: %.300s", body, err)
					}
				}
			}
			expect(err)
			obj = w.object("a", "{size: 1, locked: x}")
			set(obj, created)
			maps.Copy(obj["spec"].(map[string]any), test.spec)
			_, err = client.Replace(t.Context(), w.resource(), obj, false)
			expect(err)
		})
	}
	obj := w.object("a", "{size: 1, locked: z}")
	set(obj, created)
	_, err := client.Replace(t.Context(), w.resource(), obj, false)
	if r := rejected(t, err, apply.Invalid); !strings.Contains(r.Message, "locked for ever") {
		t.Error(err)
	}
	if w.get("a").GetResourceVersion() != created.ResourceVersion {
		t.Error("written")
	}
	if _, err := w.client.Get(t.Context(), w.resource(), w.namespace, "b"); !errors.Is(err, apply.ErrNotFound) {
		t.Errorf("b: %v", err)
	}
}

// TestNowhere writes to where there is nothing to write to.
func TestNowhere(t *testing.T) {
	w := install(t, "nowhere")
	obj := w.object("a", "{}")
	_, err := w.client.Create(t.Context(), schema.GroupVersionResource{Group: w.group, Version: "v1", Resource: "gadgets"}, obj, false)
	if r := rejected(t, err, apply.NoKind); !r.Retry {
		t.Error("no retry")
	}
	_, err = w.client.Get(t.Context(), schema.GroupVersionResource{Group: w.group, Version: "v7", Resource: "widgets"}, w.namespace, "a")
	rejected(t, err, apply.NoKind)
	elsewhere := w.object("a", "{}")
	elsewhere["metadata"].(map[string]any)["namespace"] = w.namespace + "-none"
	_, err = w.client.Create(t.Context(), w.resource(), elsewhere, false)
	if r := rejected(t, err, apply.NoNamespace); !r.Retry {
		t.Error("no retry")
	}
	if err := w.typed().CoreV1().Namespaces().Delete(t.Context(), w.namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = w.client.Create(t.Context(), w.resource(), obj, false)
	if r := rejected(t, err, apply.Terminating); !r.Retry {
		t.Error("no retry")
	}
	_, err = w.client.Get(t.Context(), w.resource(), w.namespace, "..")
	if r := rejected(t, err, apply.Invalid); r.Retry {
		t.Error("a name that is none is tried again")
	}
}

// TestCreateTerminating meets an object of that name that is being deleted.
func TestCreateTerminating(t *testing.T) {
	w := install(t, "terminating")
	obj := w.object("a", "{}")
	obj["metadata"].(map[string]any)["finalizers"] = []any{"crmirror.dev/test"}
	if _, err := w.client.Create(t.Context(), w.resource(), obj, false); err != nil {
		t.Fatal(err)
	}
	w.delete("a")
	_, err := w.client.Create(t.Context(), w.resource(), obj, false)
	if r := rejected(t, err, apply.Terminating); !r.Retry {
		t.Error("no retry")
	}
	live := w.get("a")
	live.SetFinalizers(nil)
	if _, err := w.in().Update(t.Context(), live, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}
