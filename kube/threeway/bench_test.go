package threeway

import (
	"fmt"
	"testing"
)

// BenchmarkDecide decides about an object with a list of many items of which each side changed one.
func BenchmarkDecide(b *testing.B) {
	for _, items := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("items=%d", items), func(b *testing.B) {
			in := Input{Base: manyUsers(items, -1), Git: manyUsers(items, 0), Cluster: manyUsers(items, items-1), Type: handmadeType(b)}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Decide(in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDecideEqual decides about an object that nobody changed.
func BenchmarkDecideEqual(b *testing.B) {
	in := Input{Base: manyUsers(100, -1), Git: manyUsers(100, -1), Cluster: manyUsers(100, -1), Type: handmadeType(b)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decide(in); err != nil {
			b.Fatal(err)
		}
	}
}

// manyUsers makes an object with a list of users, one of them with a changed role.
func manyUsers(n, changed int) map[string]any {
	users := make([]any, n)
	for i := range users {
		role := "reader"
		if i == changed {
			role = fmt.Sprintf("writer-%d", changed)
		}
		users[i] = map[string]any{"name": fmt.Sprintf("user-%d", i), "role": role, "keys": []any{"a", "b"}}
	}
	return map[string]any{
		"apiVersion": "example.dev/v1", "kind": "Thing",
		"metadata": map[string]any{"name": "x", "labels": map[string]any{"a": "b"}},
		"spec":     map[string]any{"size": int64(1), "users": users},
	}
}
