package apply_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/crmirror/crmirror/kube/apply"
)

// writer is crmirror's side of a test.
func (w *widgets) writer() *apply.Writer { return newWriter(w.t, w.config, apply.Options{}) }

func newWriter(t *testing.T, config *rest.Config, options apply.Options) *apply.Writer {
	t.Helper()
	schemas, err := apply.NewSchemas(config, patience)
	if err != nil {
		t.Fatal(err)
	}
	writer, err := apply.NewWriter(config, schemas, options)
	if err != nil {
		t.Fatal(err)
	}
	return writer
}

// typ waits until the kind's schema is published and returns it.
func (w *widgets) typ(version string) typed.ParseableType {
	w.t.Helper()
	schemas, err := apply.NewSchemas(w.config, patience)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.published(schemas, version)
}

// become is the change that makes of a live object one with that spec, as git would have it: with
// exactly the fields that differ.
func (w *widgets) become(live *unstructured.Unstructured, spec string) apply.Change {
	w.t.Helper()
	want := live.DeepCopy()
	want.Object["spec"] = w.object("x", spec).Object["spec"]
	return w.toward(live, want)
}

func (w *widgets) toward(live, want *unstructured.Unstructured) apply.Change {
	w.t.Helper()
	set, remove := w.differ(live, want)
	return apply.Change{
		Key: w.key(live.GetName()), Resource: w.resource(live.GroupVersionKind().Version),
		Live: live, Want: want.Object, Set: set, Remove: remove,
	}
}

// differ compares as git's changes are found.
func (w *widgets) differ(live, want *unstructured.Unstructured) (set, remove *fieldpath.Set) {
	w.t.Helper()
	typ := w.typ(live.GroupVersionKind().Version)
	before, err := typ.FromUnstructured(live.Object, typed.AllowDuplicates)
	if err != nil {
		w.t.Fatal(err)
	}
	after, err := typ.FromUnstructured(want.Object, typed.AllowDuplicates)
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := before.Compare(after)
	if err != nil {
		w.t.Fatal(err)
	}
	return c.Added.Union(c.Modified).Leaves(), c.Removed
}

func (w *widgets) write(c apply.Change) apply.Result {
	w.t.Helper()
	result, err := w.writer().Write(w.t.Context(), c)
	if err != nil {
		w.t.Fatal(err)
	}
	return result
}

// expect compares the spec that the server has.
func (w *widgets) expect(name, spec string) {
	w.t.Helper()
	want := w.object(name, spec).Object["spec"]
	if diff := cmp.Diff(want, w.get(name).Object["spec"]); diff != "" {
		w.t.Errorf("spec of %s (-want +got):\n%s", name, diff)
	}
}

// path reads "spec.ports[port=80,protocol=TCP].note", "spec.tags[=a]".
func path(t *testing.T, text string) fieldpath.Path {
	t.Helper()
	var parts []any
	for _, step := range strings.Split(text, ".") {
		name, key, keyed := strings.Cut(strings.TrimSuffix(step, "]"), "[")
		parts = append(parts, name)
		if !keyed {
			continue
		}
		if v, ok := strings.CutPrefix(key, "="); ok {
			parts = append(parts, value.NewValueInterface(scalar(v)))
			continue
		}
		var fields []any
		for _, field := range strings.Split(key, ",") {
			k, v, _ := strings.Cut(field, "=")
			fields = append(fields, k, scalar(v))
		}
		parts = append(parts, fieldpath.KeyByFields(fields...))
	}
	p, err := fieldpath.MakePath(parts...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func scalar(text string) any {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	return text
}

func paths(t *testing.T, texts ...string) *fieldpath.Set {
	t.Helper()
	set := fieldpath.NewSet()
	for _, text := range texts {
		set.Insert(path(t, text))
	}
	return set
}

// owned returns the fields that a manager owns, as text.
func owned(t *testing.T, obj *unstructured.Unstructured, manager, operation string) []string {
	t.Helper()
	var out []string
	for _, e := range obj.GetManagedFields() {
		if e.Manager != manager || string(e.Operation) != operation || e.Subresource != "" {
			continue
		}
		set := &fieldpath.Set{}
		if err := set.FromJSON(e.FieldsV1.GetRawReader()); err != nil {
			t.Fatal(err)
		}
		for p := range set.Leaves().All() {
			out = append(out, strings.TrimPrefix(p.String(), "."))
		}
	}
	slices.Sort(out)
	return out
}

func expectOwned(t *testing.T, obj *unstructured.Unstructured, manager, operation string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, owned(t, obj, manager, operation)); diff != "" {
		t.Errorf("owned by %s/%s (-want +got):\n%s", manager, operation, diff)
	}
}

func rejected(t *testing.T, err error, verdict apply.Verdict) apply.Rejected {
	t.Helper()
	var r *apply.Rejected
	if !errors.As(err, &r) || r.Verdict != verdict {
		t.Fatalf("got %v, want a rejection as %q", err, verdict)
	}
	return *r
}

func with(obj *unstructured.Unstructured, edit func(*unstructured.Unstructured)) *unstructured.Unstructured {
	obj = &unstructured.Unstructured{Object: runtime.DeepCopyJSON(obj.Object)}
	edit(obj)
	return obj
}
