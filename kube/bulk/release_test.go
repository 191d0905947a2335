package bulk_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/crmirror/crmirror/kube/bulk"
	"github.com/crmirror/crmirror/kube/kubetest"
)

// appliers are ways to apply a widget server-side, without force: by a request, and by the kubectl that is there.
func (w *widgets) appliers() map[string]func(manager, name, spec string) error {
	ways := map[string]func(manager, name, spec string) error{"requests": w.apply}
	if kubectl, err := exec.LookPath("kubectl"); err == nil {
		ways["kubectl"] = func(manager, name, spec string) error {
			content, err := json.Marshal(w.object(name, spec))
			if err != nil {
				return err
			}
			command := exec.CommandContext(w.t.Context(), kubectl, "--kubeconfig", kubetest.Shared(w.t).Kubeconfig,
				"apply", "--server-side", "--field-manager", manager, "-f", "-")
			command.Stdin = bytes.NewReader(content)
			if said, err := command.CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, said)
			}
			return nil
		}
	}
	return ways
}

func (w *widgets) apply(manager, name, spec string) error {
	_, err := w.in().Apply(w.t.Context(), name, &unstructured.Unstructured{Object: w.object(name, spec)}, metav1.ApplyOptions{FieldManager: manager})
	return err
}

// TestRelease has others apply what was restored: without a release they meet a conflict, with one they do not.
func TestRelease(t *testing.T) {
	w := install(t, "release")
	const spec = "{size: 1, ports: [{port: 80}], args: [a], options: {a: b}}"
	const changed = "{size: 2, ports: [{port: 80, name: x}], args: [b], options: {a: c}}"
	for way, apply := range w.appliers() {
		t.Run(way, func(t *testing.T) {
			w.create("kept-"+way, spec)
			if err := apply("argocd", "kept-"+way, changed); err == nil || !strings.Contains(err.Error(), bulk.FieldManager) {
				t.Fatalf("without a release: %v", err)
			}
			obj := w.object(way, spec)
			set(obj, w.create(way, spec))
			obj["status"] = map[string]any{"ready": true}
			created, err := w.client.PutStatus(t.Context(), w.resource(), obj)
			if err != nil {
				t.Fatal(err)
			}
			before := w.get(way)
			if err := w.client.Release(t.Context(), w.resource(), w.namespace, way, created.UID, created.ResourceVersion); err != nil {
				t.Fatal(err)
			}
			after := w.get(way)
			if m := after.GetManagedFields(); len(m) != 1 || m[0].Subresource != "" {
				t.Errorf("managed by %v", m)
			}
			if after.GetGeneration() != before.GetGeneration() || !equal(before, after) {
				t.Errorf("the object changed: %v", after)
			}
			if err := apply("argocd", way, changed); err != nil {
				t.Errorf("after a release: %v", err)
			}
			// The next one meets only the one before.
			if err := apply("flux", way, spec); err == nil || strings.Contains(err.Error(), bulk.FieldManager) || strings.Contains(err.Error(), "before-first-apply") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// equal tells whether two states have the same content.
func equal(a, b *unstructured.Unstructured) bool {
	content := func(o *unstructured.Unstructured) string {
		o = o.DeepCopy()
		o.SetManagedFields(nil)
		o.SetResourceVersion("")
		text, _ := o.MarshalJSON()
		return string(text)
	}
	return content(a) == content(b)
}

// TestReleaseOthers keeps what others own.
func TestReleaseOthers(t *testing.T) {
	w := install(t, "others")
	w.create("a", "{size: 1, color: red}")
	live := w.get("a")
	live.Object["spec"].(map[string]any)["color"] = "blue"
	live, err := w.in().Update(t.Context(), live, metav1.UpdateOptions{FieldManager: "controller"})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second has nothing to do
		if err := w.client.Release(t.Context(), w.resource(), w.namespace, "a", string(live.GetUID()), live.GetResourceVersion()); err != nil {
			t.Fatal(err)
		}
		live = w.get("a")
	}
	if m := live.GetManagedFields(); len(m) != 1 || m[0].Manager != "controller" {
		t.Errorf("managed by %v", m)
	}
	if err := w.apply("kubectl", "a", "{size: 2}"); err != nil {
		t.Errorf("a field that was released: %v", err)
	}
	if err := w.apply("kubectl", "a", "{size: 2, color: red}"); err == nil || !strings.Contains(err.Error(), "controller") {
		t.Errorf("a field that is another's: %v", err)
	}
}
