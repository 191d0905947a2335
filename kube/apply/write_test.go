package apply_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/kube/apply"
)

func TestWriteOneField(t *testing.T) {
	w := install(t, "onefield")
	live := w.create("kubectl-create", "a", "{size: 1, color: red, tags: [x], options: {a: b}}")
	result := w.write(w.become(live, "{size: 2, color: red, tags: [x], options: {a: b}, replicas: 1, mode: auto}"))
	if result.Method != apply.Applied {
		t.Errorf("written by %q", result.Method)
	}
	w.expect("a", "{size: 2, color: red, tags: [x], options: {a: b}, replicas: 1, mode: auto}")
	expectOwned(t, w.get("a"), apply.Manager, "Apply", "spec.size")
	if diff := cmp.Diff(w.get("a").Object, result.Object.Object); diff != "" {
		t.Errorf("read back (-server +result):\n%s", diff)
	}
	if len(result.Displaced) != 1 || result.Displaced[0].Owner.Name != "kubectl-create" || result.Displaced[0].Path.String() != ".spec.size" {
		t.Errorf("displaced: %v", result.Displaced)
	}
	if result.Returned != nil || result.Altered != nil {
		t.Errorf("got %+v", result)
	}

	again := w.write(w.become(result.Object, "{size: 2, color: red, tags: [x], options: {a: b}, replicas: 1, mode: auto}"))
	if again.Method != apply.Unneeded || w.get("a").GetResourceVersion() != result.Object.GetResourceVersion() {
		t.Error("a change that changes nothing was written")
	}
}

// TestPayloadKeepsOwned writes field after field, each time as an apply that must
// hold what the ones before set, by whichever method.
func TestPayloadKeepsOwned(t *testing.T) {
	w := install(t, "keepsowned")
	w.create("other", "a", "{legacy: x, color: red, selfSigned: {}}")
	for _, step := range []struct{ spec, method string }{
		{"{size: 1, legacy: x, color: red, selfSigned: {}, replicas: 1, mode: auto}", "apply"},
		{"{size: 1, grade: low, legacy: x, color: red, selfSigned: {}, replicas: 1, mode: auto}", "apply"},
		{"{size: 1, grade: high, note: hi, color: red, selfSigned: {}, replicas: 1, mode: auto}", "patch"},
		{"{size: 1, grade: high, note: hi, color: red, selfSigned: {}, options: {}, ports: [{port: 1, protocol: TCP, name: x}], replicas: 1, mode: auto}", "apply"},
		{"{size: 1, grade: high, note: hi, color: blue, selfSigned: {}, options: {}, ports: [{port: 1, protocol: TCP, name: x}], replicas: 1, mode: auto}", "apply"},
	} {
		result := w.write(w.become(w.get("a"), step.spec))
		if string(result.Method) != step.method {
			t.Errorf("%s: by %q, want %q", step.spec, result.Method, step.method)
		}
		w.expect("a", step.spec)
	}
	// Somebody fills a map that we own as an empty one: it stays theirs.
	w.patch("other", "a", "spec: {options: {theirs: x}}")
	live := w.get("a")
	w.write(w.become(live, "{size: 7, grade: high, note: hi, color: blue, selfSigned: {}, options: {theirs: x}, ports: [{port: 1, protocol: TCP, name: x}], replicas: 1, mode: auto}"))
	w.expect("a", "{size: 7, grade: high, note: hi, color: blue, selfSigned: {}, options: {theirs: x}, ports: [{port: 1, protocol: TCP, name: x}], replicas: 1, mode: auto}")
	expectOwned(t, w.get("a"), apply.Manager, "Apply", "spec.color", "spec.grade", "spec.note", "spec.options",
		`spec.ports[port=1,protocol="TCP"].name`, `spec.ports[port=1,protocol="TCP"].port`, `spec.ports[port=1,protocol="TCP"].protocol`, "spec.size")
	expectOwned(t, w.get("a"), "other", "Update", "spec.mode", "spec.options.theirs", "spec.replicas", "spec.selfSigned")
}

// TestWriteShapes carries each shape of a change over, and looks that nothing else changed.
func TestWriteShapes(t *testing.T) {
	w := install(t, "shapes")
	w.typ("v1")
	for _, test := range []struct {
		name, from, to string
		method         apply.Method
	}{
		{"set a scalar", "{}", "{size: 1}", apply.Applied},
		{"remove a scalar", "{size: 1}", "{}", apply.Patched},
		{"add a list item", "{ports: [{port: 1, note: a}]}", "{ports: [{port: 1, note: a}, {port: 2}]}", apply.Applied},
		{"put a list item before others", "{ports: [{port: 1}, {port: 2}]}", "{ports: [{port: 3}, {port: 1}, {port: 2}]}", apply.Patched},
		{"put a list item between others", "{ports: [{port: 1}, {port: 2}]}", "{ports: [{port: 1}, {port: 3}, {port: 2}]}", apply.Patched},
		{"change a field of a list item", "{ports: [{port: 1, note: a, name: b}, {port: 2}]}", "{ports: [{port: 1, note: c, name: b}, {port: 2}]}", apply.Applied},
		{"remove a field of a list item", "{ports: [{port: 1, note: a, name: b}]}", "{ports: [{port: 1, name: b}]}", apply.Patched},
		{"remove a list item", "{ports: [{port: 1, note: a}, {port: 2}]}", "{ports: [{port: 2}]}", apply.Patched},
		{"rename a list item", "{ports: [{port: 1, note: a}, {port: 2}]}", "{ports: [{port: 3, note: a}, {port: 2}]}", apply.Patched},
		{"add to a set", "{tags: [a]}", "{tags: [a, b]}", apply.Applied},
		{"remove from a set", "{tags: [a, b]}", "{tags: [b]}", apply.Patched},
		{"an atomic list", "{args: [a, b]}", "{args: [c, a]}", apply.Applied},
		{"an atomic map", "{limits: {a: x, b: x}}", "{limits: {a: z}}", apply.Applied},
		{"a map's key", "{options: {a: x}}", "{options: {a: x, b/c~d.e: z}}", apply.Applied},
		{"remove a map's key", "{options: {a: x, b/c~d.e: z}}", "{options: {a: x}}", apply.Patched},
		{"an empty map", "{}", "{selfSigned: {}}", apply.Applied},
		{"empty a map", "{options: {a: x}}", "{options: {}}", apply.Patched},
		{"an empty list", "{}", "{args: []}", apply.Applied},
		{"an empty set", "{}", "{tags: []}", apply.Patched},
		{"null", "{note: a}", "{note: null}", apply.Applied},
		{"from null", "{note: null}", "{note: a}", apply.Applied},
		{"int or string", "{amount: 1}", "{amount: 1%}", apply.Applied},
		{"unknown fields", "{extra: {a: {b: 1}, l: [{x: 1}]}}", "{extra: {a: {b: 2, c: 0.5}, l: [{x: 2}]}}", apply.Applied},
		{"an unknown field's kind", "{extra: {a: {b: 1}}}", "{extra: {a: [1]}}", apply.Applied},
		{"an unknown scalar to a map", "{extra: {a: 1}}", "{extra: {a: {b: 1}}}", apply.Applied},
		{"one of two", "{solver: {http: {path: /}}}", "{solver: {dns: {zone: a}}}", apply.Patched},
		{"remove all", "{size: 1, options: {a: x}, ports: [{port: 1}]}", "{}", apply.Patched},
	} {
		t.Run(test.name, func(t *testing.T) {
			at := *w
			at.t = t
			name := "a"
			at.create("other", name, test.from)
			defer at.delete(name)
			// What others have there stays, in its place.
			live := at.patch("third", name, "{spec: {color: theirs}, metadata: {labels: {theirs: x}}}")
			to := at.object(name, test.to)
			spec := to.Object["spec"].(map[string]any)
			spec["color"], spec["replicas"], spec["mode"] = "theirs", int64(1), "auto"
			for _, port := range list(spec["ports"]) {
				port.(map[string]any)["protocol"] = "TCP"
			}
			want := with(live, func(o *unstructured.Unstructured) { o.Object["spec"] = spec })
			result := at.write(at.toward(live, want))
			if result.Method != test.method {
				t.Errorf("written by %q, want %q", result.Method, test.method)
			}
			got := at.get(name)
			if diff := cmp.Diff(any(spec), got.Object["spec"]); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if got.GetLabels()["theirs"] != "x" {
				t.Error("a label is gone")
			}
			expectOwned(t, got, "third", "Update", "metadata.labels.theirs", "spec.color")
			if result.Returned != nil || result.Altered != nil {
				t.Errorf("returned %v, altered %v", result.Returned, result.Altered)
			}
		})
	}
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

// TestNotHeld sets a field for which the wanted content has no value.
func TestNotHeld(t *testing.T) {
	w := install(t, "notheld")
	live := w.create("other", "a", "{size: 1}")
	for _, where := range []string{"spec.color", "spec.extra.a.b", "spec.ports[port=1,protocol=TCP].note"} {
		c := apply.Change{Key: w.key("a"), Resource: w.resource("v1"), Live: live, Want: live.Object, Set: paths(t, "spec.size", where)}
		if _, err := w.writer().Write(t.Context(), c); err == nil {
			t.Errorf("%s is written", where)
		}
	}
}

func TestRemovedDefaultReturns(t *testing.T) {
	w := install(t, "returns")
	live := w.create("other", "a", "{size: 1, replicas: 5, mode: manual, legacy: x}")
	result := w.write(w.become(live, "{size: 2}"))
	w.expect("a", "{size: 2, replicas: 1, mode: auto}")
	if got := fmt.Sprint(result.Returned); got != "[.spec.mode .spec.replicas]" {
		t.Errorf("returned: %s", got)
	}
	if len(result.Displaced) != 4 {
		t.Errorf("displaced: %v", result.Displaced)
	}
}

func TestWriteMetadata(t *testing.T) {
	w := install(t, "metadata")
	live := w.create("other", "a", "{size: 1}")
	annotated := with(live, func(o *unstructured.Unstructured) {
		o.SetAnnotations(map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}", "x.io/a": "1"})
		o.SetFinalizers([]string{"x.io/f"})
	})
	live = w.write(w.toward(live, with(annotated, func(o *unstructured.Unstructured) {
		o.SetAnnotations(map[string]string{"x.io/a": "1"})
	}))).Object
	want := with(live, func(o *unstructured.Unstructured) {
		o.SetAnnotations(map[string]string{"x.io/b": "2"})
		o.SetLabels(map[string]string{"a.b/c": "d"})
		o.SetFinalizers([]string{"x.io/g"})
	})
	got := w.write(w.toward(live, want)).Object
	if diff := cmp.Diff(want.Object["metadata"], got.Object["metadata"], cmp.FilterPath(func(p cmp.Path) bool {
		switch p.Last().String() {
		case `["managedFields"]`, `["resourceVersion"]`, `["generation"]`:
			return true
		}
		return false
	}, cmp.Ignore())); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, forbidden := range []string{
		"status.ready spec.color", "metadata.uid spec.size", "metadata.managedFields", "metadata.name", "metadata", "apiVersion", "kind",
	} {
		c := apply.Change{Key: w.key("a"), Resource: w.resource("v1"), Live: got, Want: got.Object, Set: paths(t, strings.Fields(forbidden)...)}
		if _, err := w.writer().Write(t.Context(), c); err == nil {
			t.Errorf("%s is written", forbidden)
		}
		c.Set, c.Remove = nil, paths(t, strings.Fields(forbidden)...)
		if _, err := w.writer().Write(t.Context(), c); err == nil {
			t.Errorf("%s is removed", forbidden)
		}
	}
	got = w.patch("kubectl-client-side-apply", "a", `metadata: {annotations: {kubectl.kubernetes.io/last-applied-configuration: '{}'}}`)
	c := apply.Change{Key: w.key("a"), Resource: w.resource("v1"), Live: got, Want: got.Object, Remove: fieldpath.NewSet(
		fieldpath.MakePathOrDie("metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"))}
	if _, err := w.writer().Write(t.Context(), c); err == nil {
		t.Error("kubectl's annotation is removed")
	}
}

// TestShapedStays removes a map and a list item of which git does not hold all.
func TestShapedStays(t *testing.T) {
	w := install(t, "shaped")
	live := w.create("other", "a", "{extra: {public: 1, secret: s}, size: 1}")
	want := w.object("a", "{size: 1, replicas: 1, mode: auto}")
	w.write(apply.Change{
		Key: w.key("a"), Resource: w.resource("v1"), Live: live, Want: want.Object,
		Remove: paths(t, "spec.extra", "spec.extra.public"),
	})
	w.expect("a", "{extra: {secret: s}, size: 1, replicas: 1, mode: auto}")
}

// TestWithoutSchema writes an object whose type is not known: by a patch, whatever it is.
func TestWithoutSchema(t *testing.T) {
	w := install(t, "noschema")
	live := w.create("other", "a", "{size: 1, ports: [{port: 1}]}")
	schemas, err := apply.NewSchemas(w.config, patience)
	if err != nil {
		t.Fatal(err)
	}
	if _, known, _ := schemas.Type(t.Context(), schema.GroupVersionKind{Group: w.group, Version: "v1", Kind: "Nothing"}); known {
		t.Fatal("known")
	}
	live.SetKind("Nothing") // its schema is not published
	want := with(live, func(o *unstructured.Unstructured) {
		o.Object["spec"] = w.object("a", "{size: 2, ports: [{port: 1}, {port: 2}]}").Object["spec"]
	})
	result := w.write(apply.Change{Key: w.key("a"), Resource: w.resource("v1"), Live: live, Want: want.Object, Set: paths(t, "spec.size", "spec.ports")})
	if result.Method != apply.Patched {
		t.Errorf("written by %q", result.Method)
	}
	if len(result.Altered) != 1 || result.Altered[0].String() != ".spec.ports" {
		t.Errorf("altered: %v; want the list to which the server added defaults", result.Altered)
	}
}
