package kube

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPlaces(t *testing.T) {
	obj := map[string]any{"spec": map[string]any{
		"a.b":   "dropped",
		"items": []any{map[string]any{"password": "x"}, map[string]any{"other": "x"}, map[string]any{"password": "y"}},
	}}
	shape := &Shape{}
	for _, p := range []string{`.spec["a.b"]`, ".spec.items[*].password", ".spec.absent"} {
		path, err := ParseFieldPath(p)
		if err != nil {
			t.Fatal(err)
		}
		if p == ".spec.items[*].password" {
			shape.Redact = append(shape.Redact, path)
		} else {
			shape.Drop = append(shape.Drop, path)
		}
	}
	want := [][]any{{"spec", "a.b"}, {"spec", "items", 0, "password"}, {"spec", "items", 2, "password"}}
	if diff := cmp.Diff(want, shape.Places(obj)); diff != "" {
		t.Errorf("Places (-want +got):\n%s", diff)
	}
}

func TestLine(t *testing.T) {
	content := []byte("kind: X\nspec:\n  ports:\n  - name: a\n  - name: b\n    port: 80\n")
	for _, tt := range []struct {
		path []any
		want int
	}{
		{[]any{"spec", "ports", 1, "port"}, 6},
		{[]any{"spec", "absent"}, 2},
		{nil, 1},
	} {
		if got := Line(content, slices.Clone(tt.path)); got != tt.want {
			t.Errorf("Line(%v) = %d, want %d", tt.path, got, tt.want)
		}
	}
}
