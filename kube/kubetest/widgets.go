package kubetest

import (
	"context"
	_ "embed" // widgets.yaml
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// widgetsYAML is a CRD that has every sort of field, at the versions v1beta1 and v1.
//
//go:embed widgets.yaml
var widgetsYAML string

// InstallWidgets installs the kind Widget (widgets.yaml) in an API group of the test's
// own, and returns when both of its versions take applies in a namespace. edit, unless
// nil, may change the CRD's text. The kind goes with the test.
func InstallWidgets(t testing.TB, client dynamic.Interface, group, namespace string, edit func(crd string) string) {
	t.Helper()
	text := strings.ReplaceAll(widgetsYAML, "GROUP", group)
	if edit != nil {
		text = edit(text)
	}
	crd := &unstructured.Unstructured{}
	content, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = crd.UnmarshalJSON(content)
	}
	if err != nil {
		t.Fatal(err)
	}
	InstallCRD(t, client, crd, func(ctx context.Context) error { return probeWidgets(ctx, client, group, namespace) })
}

// InstallCRD creates a CRD and returns when probe succeeds, which tells whether the kind
// is served: it is tried until then. The kind goes with the test.
func InstallCRD(t testing.TB, client dynamic.Interface, crd *unstructured.Unstructured, probe func(context.Context) error) {
	t.Helper()
	crds := client.Resource(crdResource)
	if _, err := crds.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := crds.Delete(context.WithoutCancel(t.Context()), crd.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	Poll(t.Context(), t, servedTimeout, crd.GetName()+" to be served", probe)
}

// Poll calls until there is no error, and fails the test when that takes longer than patience.
func Poll(ctx context.Context, t testing.TB, patience time.Duration, what string, call func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := call(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("wait for %s: %v", what, err)
		}
	}
}

// probeWidgets tries an apply at each version.
func probeWidgets(ctx context.Context, client dynamic.Interface, group, namespace string) error {
	for _, version := range []string{"v1", "v1beta1"} {
		probe := fmt.Sprintf(`{"apiVersion":"%s/%s","kind":"Widget","metadata":{"name":"probe"}}`, group, version)
		_, err := client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: "widgets"}).Namespace(namespace).
			Patch(ctx, "probe", types.ApplyPatchType, []byte(probe), metav1.PatchOptions{FieldManager: "probe", DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
	}
	return nil
}
