package apply_test

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/crmirror/crmirror/kube/apply"
)

// published waits until the server publishes the schema of widgets.
func (w *widgets) published(schemas *apply.Schemas, version string) (typ typed.ParseableType) {
	w.t.Helper()
	kind := schema.GroupVersionKind{Group: w.group, Version: version, Kind: "Widget"}
	poll(w.t, "the schema to be published", func(ctx context.Context) error {
		var known bool
		var err error
		if typ, known, err = schemas.Type(ctx, kind); err == nil && !known {
			err = errors.New("not known")
		}
		return err
	})
	return typ
}

func TestSchemas(t *testing.T) {
	w := install(t, "schemas")
	schemas, err := apply.NewSchemas(w.config, patience)
	if err != nil {
		t.Fatal(err)
	}
	typ := w.published(schemas, "v1")
	if _, err := typ.FromUnstructured(w.object("a", "{size: 1, ports: [{port: 1, protocol: TCP}], extra: {a: [1]}}").Object); err != nil {
		t.Error(err)
	}
	if _, err := typ.FromUnstructured(w.object("a", "{later: 1}").Object); err == nil {
		t.Error("a field that the schema has not is accepted")
	}

	// The CRD comes to know a field.
	patch := []byte(`[{"op":"add","path":"/spec/versions/1/schema/openAPIV3Schema/properties/spec/properties/later","value":{"type":"integer"}}]`)
	if _, err := w.crds().Patch(t.Context(), "widgets."+w.group, types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	poll(t, "the new schema", func(ctx context.Context) error {
		if err := schemas.Refresh(ctx); err != nil {
			return err
		}
		typ := w.published(schemas, "v1")
		_, err := typ.FromUnstructured(w.object("a", "{later: 1}").Object)
		return err
	})

	built := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	typ, known, err := schemas.Type(t.Context(), built)
	if err != nil || !known {
		t.Fatalf("Deployment: known %v, %v", known, err)
	}
	wrong := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "spec": map[string]any{"replicas": "two"}}}
	if _, err := typ.FromUnstructured(wrong.Object); err == nil {
		t.Error("a wrong type is accepted")
	}
	for _, kind := range []schema.GroupVersionKind{
		{Group: w.group, Version: "v1", Kind: "Gadget"}, {Group: w.group, Version: "v7", Kind: "Widget"}, {Version: "v1", Kind: "Gadget"},
	} {
		typ, known, err := schemas.Type(t.Context(), kind)
		if err != nil || known || !typ.IsValid() {
			t.Errorf("%s: known %v, valid %v, %v; want the deduced type", kind, known, typ.IsValid(), err)
		}
	}
}
