package apply_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/kube/apply"
)

// rounds is how many changes TestWriteNeverMore makes.
const rounds = 150

// TestWriteNeverMore lets others and crmirror change random fields of an object, and looks after each
// write of crmirror that the object is what was wanted, and that crmirror owns exactly the fields that it set
// and nobody took since.
func TestWriteNeverMore(t *testing.T) {
	w := install(t, "nevermore")
	w.typ("v1")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	w.create("other", "a", "{size: 0, replicas: 1, mode: auto}")
	ours := map[string]bool{}
	methods := map[apply.Method]int{}
	for round := range rounds {
		if random.IntN(2) == 0 {
			change := randomEdit(random)
			live := w.get("a")
			spec := live.Object["spec"].(map[string]any)
			change(spec)
			manager := fmt.Sprintf("other-%d", random.IntN(3))
			if _, err := w.in("v1").Update(t.Context(), live, updateAs(manager)); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		live := w.get("a")
		want := with(live, func(o *unstructured.Unstructured) {
			for range 1 + random.IntN(3) {
				randomEdit(random)(o.Object["spec"].(map[string]any))
			}
		})
		c := w.toward(live, want)
		before := append(owned(t, live, apply.Manager, "Apply"), owned(t, live, apply.Manager, "Update")...)
		result := w.write(c)
		methods[result.Method]++
		// An item that an edit took out and put in elsewhere did not change: order alone is never applied.
		byItem := cmpopts.SortSlices(func(a, b any) bool { return fmt.Sprint(a) < fmt.Sprint(b) })
		if diff := cmp.Diff(want.Object["spec"], w.get("a").Object["spec"], byItem); diff != "" {
			t.Fatalf("round %d, by %q (-want +got):\n%s", round, result.Method, diff)
		}
		// Owned are those fields that we owned before and that were set now, as far as they are
		// still there, and the maps and lists that came into being with them.
		allowed := slices.Clone(before)
		c.Set.Iterate(func(p fieldpath.Path) { allowed = append(allowed, p.String()[1:]) })
		for _, field := range append(owned(t, result.Object, apply.Manager, "Apply"), owned(t, result.Object, apply.Manager, "Update")...) {
			within := func(set string) bool {
				return set == field || strings.HasPrefix(set, field+".") || strings.HasPrefix(set, field+"[")
			}
			if !slices.ContainsFunc(allowed, within) && !isKey(field) {
				t.Fatalf("round %d, by %q: crmirror owns %s", round, result.Method, field)
			}
			ours[field] = true
		}
		c.Set.Iterate(func(p fieldpath.Path) {
			own, err := apply.ReadOwnership(result.Object)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(own.Owners(p), func(o apply.Owner) bool { return o.Name == apply.Manager }) {
				t.Fatalf("round %d, by %q: crmirror does not own %s", round, result.Method, p)
			}
		})
	}
	if methods[apply.Applied] == 0 || methods[apply.Patched] == 0 || len(ours) < 5 {
		t.Errorf("used %v on %d fields; the test shows little", methods, len(ours))
	}
	t.Logf("%v", methods)
}

func updateAs(manager string) metav1.UpdateOptions {
	return metav1.UpdateOptions{FieldManager: manager}
}

// isKey tells whether a field is a key of a list item; items are owned with their keys.
func isKey(field string) bool {
	return strings.HasSuffix(field, ".port") || strings.HasSuffix(field, ".protocol")
}

// edit is one change to a spec.
type edit func(spec map[string]any)

func randomEdit(random *rand.Rand) edit {
	n := random.IntN(4)
	text := fmt.Sprint("v", n)
	scalarEdit := func(field string, v any) edit {
		return func(spec map[string]any) {
			if n == 0 {
				delete(spec, field)
			} else {
				spec[field] = v
			}
		}
	}
	mapEdit := func(field string) edit {
		return func(spec map[string]any) {
			m, _ := spec[field].(map[string]any)
			m = maps.Clone(m)
			if m == nil {
				m = map[string]any{}
			}
			if n == 0 {
				delete(m, "k")
			} else {
				m[[]string{"k", "l/m"}[n%2]] = text
			}
			spec[field] = m
		}
	}
	switch random.IntN(9) {
	case 0:
		return scalarEdit("size", int64(n))
	case 1:
		return scalarEdit("color", text)
	case 2:
		return scalarEdit("args", []any{text, "x"})
	case 3:
		return scalarEdit("limits", map[string]any{text: "x"})
	case 4:
		return mapEdit("options")
	case 5:
		return mapEdit("extra")
	case 6:
		return func(spec map[string]any) {
			tags := list(spec["tags"])
			if slices.Contains(tags, any(text)) {
				tags = slices.DeleteFunc(slices.Clone(tags), func(v any) bool { return v == any(text) })
			} else {
				tags = slices.Insert(slices.Clone(tags), random.IntN(len(tags)+1), any(text))
			}
			if spec["tags"] = tags; len(tags) == 0 {
				delete(spec, "tags")
			}
		}
	case 7:
		return scalarEdit("note", text)
	}
	return func(spec map[string]any) {
		ports := slices.Clone(list(spec["ports"]))
		i := slices.IndexFunc(ports, func(p any) bool { return p.(map[string]any)["port"] == any(int64(n+1)) })
		switch {
		case i < 0:
			port := map[string]any{"port": int64(n + 1), "protocol": "TCP", "name": text}
			ports = slices.Insert(ports, random.IntN(len(ports)+1), any(port))
		case random.IntN(3) == 0:
			ports = slices.Delete(ports, i, i+1)
		default:
			port := maps.Clone(ports[i].(map[string]any))
			port["note"] = fmt.Sprint("n", random.IntN(5))
			ports[i] = port
		}
		if spec["ports"] = ports; len(ports) == 0 {
			delete(spec, "ports")
		}
	}
}
