package kube

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestDiffPaths(t *testing.T) {
	tests := []struct {
		name, old, new string
		max            int
		want           []string
	}{
		{"nothing", "spec: {a: 1}", "spec:\n  a: 1.0", 0, []string{}},
		{"one field", "spec: {a: 1, b: 2}", "spec: {a: 1, b: 3}", 0, []string{"spec.b"}},
		{"added, removed, another type", "spec: {a: 1, b: {x: 1}}", "spec: {b: [], c: {d: {e: 1}}}", 0, []string{"spec.a", "spec.b", "spec.c"}},
		{"null is not nothing", "spec: {a: null}", "spec: {}", 0, []string{"spec"}},
		{"quoted key", `x: {k: {"x.io/seen": 1, z: 1}}`, `x: {k: {"x.io/seen": 2, z: 1}}`, 0, []string{`x.k["x.io/seen"]`}},
		{"quoted key at the top", `"x.io/seen": 1`, `"x.io/seen": 2`, 0, []string{`["x.io/seen"]`}},
		{"items by name", "c: [{name: a, v: 1}, {name: b, v: 1}]", "c: [{name: b, v: 2}, {name: a, v: 1}, {name: c}]", 0, []string{"c[b].v", "c[c]"}},
		{"only the order", "c: [{name: a}, {name: b}]", "c: [{name: b}, {name: a}]", 0, []string{"c"}},
		{"items by index", "c: [{name: a}, {name: a}, 3]", "c: [{name: a}, {name: b}, 3, 4]", 0, []string{"c[1].name", "c[3]"}},
		{"a list of plain values", "c: [a, b]", "c: [a, x, y]", 0, []string{"c"}},
		{"names that cannot be shown", `c: [{name: "a\nb", v: 1}]`, `c: [{name: "a\nb", v: 2}]`, 0, []string{"c[0].v"}},
		{"redacted names", `c: [{name: "crmirror-redacted:v1:0", v: 1}]`, `c: [{name: "crmirror-redacted:v1:0", v: 2}]`, 0, []string{"c[0].v"}},
		{"a key with a newline", `x: {"a\n\nTrailer: b": 1, c: 1}`, `x: {"a\n\nTrailer: b": 2, c: 1}`, 0, []string{`x["a\n\nTrailer: b"]`}},
		{"emptied", "c: [1, 2]", "c: []", 0, []string{"c"}},
		{"parents of many", "a: {x: 1}\nb: {p: {k: 1, l: 1, m: 1}, q: 1}", "a: {x: 2}\nb: {p: {k: 2, l: 2, m: 2}, q: 1}", 2, []string{"a.x", "b.p"}},
		{"as far as it must", "a: {x: 1}\nb: {p: {k: 1, l: 1, m: 1}, q: 1}", "a: {x: 2}\nb: {p: {k: 2, l: 2, m: 2}, q: 2}", 2, []string{"a.x", "b"}},
		{"one", "a: {x: 1}\nb: {z: 1}", "a: {x: 2}\nb: {z: 2}", 1, []string{"a"}},
		{"top level cut off", "a: 1\nb: 1\nc: 1", "a: 2\nb: 2\nc: 2", 2, []string{"a", "b"}},
		{"very many", "a: {x: {" + series(500, 1) + "}, z: 1}", "a: {x: {" + series(500, 2) + "}, z: 2}", 3, []string{"a.x", "a.z"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := DiffPaths([]byte(head+tt.old), []byte(head+tt.new), tt.max)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	labelled := strings.Replace(head, "metadata:", "metadata:\n  labels: {a: b}", 1)
	for _, pair := range [][2]string{{head, labelled}, {labelled, head}} {
		got, err := DiffPaths([]byte(pair[0]), []byte(pair[1]), 0)
		if err != nil || !cmp.Equal(got, []string{"metadata.labels.a"}) {
			t.Errorf("the first or last label: got %q, %v, want the label", got, err)
		}
	}
	if got, err := DiffPaths(nil, []byte(head), 0); err != nil || !cmp.Equal(got, []string{"apiVersion", "kind", "metadata"}) {
		t.Errorf("from nothing: %q, %v", got, err)
	}
	if got, err := DiffPaths(nil, nil, 1); err != nil || len(got) != 0 {
		t.Errorf("nothing to nothing: %q, %v", got, err)
	}
	if _, err := DiffPaths([]byte(head), []byte("{"), 0); err == nil || !strings.Contains(err.Error(), "new content") {
		t.Errorf("broken content: %v", err)
	}
}

func series(n, v int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "k%d: %d, ", i, v)
	}
	return b.String()
}

func TestNewestManager(t *testing.T) {
	entry := func(name, op, sub, at string) any {
		m := map[string]any{"manager": name, "operation": op, "time": at, "fieldsV1": map[string]any{"f:spec": map[string]any{}}}
		if sub != "" {
			m["subresource"] = sub
		}
		return m
	}
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	const early, late = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
	tests := []struct {
		name    string
		entries []any
		want    Manager
	}{
		{"none", nil, Manager{}},
		{"newest", []any{entry("b", "Update", "", late), entry("a", "Apply", "", early)}, Manager{Name: "b", Operation: "Update", Time: at(late)}},
		{"not the status", []any{entry("a", "Apply", "", early), entry("c", "Update", "status", late)}, Manager{Name: "a", Operation: "Apply", Time: at(early)}},
		{"another subresource counts", []any{entry("a", "Apply", "", early), entry("hpa", "Update", "scale", late)}, Manager{Name: "hpa", Operation: "Update", Subresource: "scale", Time: at(late)}},
		{"the last of a tie", []any{entry("a", "Apply", "", late), entry("b", "Update", "", late)}, Manager{Name: "b", Operation: "Update", Time: at(late)}},
		{"no time", []any{entry("a", "Apply", "", ""), "junk", map[string]any{}}, Manager{Name: "a", Operation: "Apply"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			obj := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"managedFields": tt.entries}}}
			if got := NewestManager(obj); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
	if got := NewestManager(&unstructured.Unstructured{}); got != (Manager{}) {
		t.Errorf("of nothing: %+v", got)
	}
}
