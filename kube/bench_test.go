package kube

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// BenchmarkEncode encodes an object of about three kilobytes as it comes from a
// server, without a shape and with one that drops and redacts.
func BenchmarkEncode(b *testing.B) {
	spec := map[string]any{"replicas": int64(3), "paused": false, "selector": map[string]any{"app": "web"}}
	for n := range 50 {
		spec[fmt.Sprintf("field%02d", n)] = fmt.Sprintf("value %d, of some length, as values are", n)
	}
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "bench.example.com/v1", "kind": "Widget",
		"metadata": map[string]any{
			"name": "web", "namespace": "shop", "uid": "0f8fad5b-d9cb-469f-a165-000000000000", "resourceVersion": "1",
			"labels": map[string]any{"app": "web"}, "annotations": map[string]any{lastApplied: "{}", "team": "shop"},
			"ownerReferences": []any{map[string]any{"kind": "Shop", "name": "shop", "uid": "1"}},
		},
		"spec": spec, "status": map[string]any{"ready": true},
	}}
	drop, err := ParseFieldPath(".spec.replicas")
	if err != nil {
		b.Fatal(err)
	}
	redact, err := ParseFieldPath(".spec.field07")
	if err != nil {
		b.Fatal(err)
	}
	for name, shape := range map[string]*Shape{
		"plain": nil, "shaped": {Drop: []FieldPath{drop}, Redact: []FieldPath{redact}, RedactKey: []byte("0123456789abcdef")},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				content, err := Encode(obj, shape)
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(len(content)))
			}
		})
	}
}
