package restore

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/crmirror/crmirror/gitstore"
)

// wanted is what one file becomes.
func (w *scene) wanted(path string, opts Options) *Desired {
	w.t.Helper()
	s, err := ReadSnapshot(w.t.Context(), w, gitstore.Hash{1}, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, item := range s.Items {
		if item.Path == path {
			d, err := s.Wanted(w.t.Context(), item, "", &opts)
			if err != nil {
				w.t.Fatal(err)
			}
			return d
		}
	}
	w.t.Fatalf("no item at %s in %v", path, s.Items)
	return nil
}

func TestWantedStrips(t *testing.T) {
	const path = "namespaces/shop/widgets.example.com/a.yaml"
	w := newScene(t)
	w.file(path, `apiVersion: example.com/v1
kind: Widget
metadata:
  name: a
  namespace: shop
  uid: by-hand
  creationTimestamp: "2026-01-02T03:04:05Z"
  finalizers: [x.io/y]
  labels: {app.kubernetes.io/managed-by: Helm, team: a, kustomize.toolkit.fluxcd.io/name: z}
  annotations: {argocd.argoproj.io/tracking-id: q}
spec: {size: 1}
`)
	meta := func(opts Options) map[string]any { return w.wanted(path, opts).Object["metadata"].(map[string]any) }
	plain := map[string]any{
		"name": "a", "namespace": "shop", "finalizers": []any{"x.io/y"},
		"labels":      map[string]any{"app.kubernetes.io/managed-by": "Helm", "team": "a", "kustomize.toolkit.fluxcd.io/name": "z"},
		"annotations": map[string]any{"argocd.argoproj.io/tracking-id": "q"},
	}
	if diff := cmp.Diff(plain, meta(Options{})); diff != "" {
		t.Errorf("as in git, without what servers set (-want +got):\n%s", diff)
	}
	stripped := map[string]any{"name": "a", "namespace": "shop", "labels": map[string]any{"team": "a"}}
	if diff := cmp.Diff(stripped, meta(Options{StripFinalizers: true, StripTracking: true})); diff != "" {
		t.Errorf("stripped (-want +got):\n%s", diff)
	}
	if list := strings.Join(Tracking(), "\n"); !strings.Contains(list, "Helm: label app.kubernetes.io/managed-by=Helm") {
		t.Errorf("the list: %s", list)
	}
}

// What is stripped is not compared either: an object that has it is equal, one that lacks it too.
func TestPlanStripped(t *testing.T) {
	w := shop(t)
	w.live(namespaceText("shop"))
	w.live(widgetCRD("v1"))
	w.git(widget("shop", "a", "1", "  finalizers: [x.io/y]\n"), nil)
	w.git(widget("shop", "b", "1", "  finalizers: [x.io/y]\n"), nil)
	w.live(widget("shop", "a", "1"))
	w.live(widget("shop", "b", "1", "  finalizers: [x.io/y]\n"))
	for _, name := range []string{"a", "b"} {
		if a := w.action(w.plan(Options{StripFinalizers: true}), "widgets.example.com shop/"+name); a.Verb != Unchanged {
			t.Errorf("%s: got %s %+v, want unchanged", name, a.Verb, a.Changes)
		}
	}
	if a := w.action(w.plan(Options{}), "widgets.example.com shop/a"); a.Verb != Skip || a.Changes[0].Kind != "only in git" {
		t.Errorf("got %s %+v, want a finalizer that only git has", a.Verb, a.Changes)
	}
}

func TestDefaultRuns(t *testing.T) {
	runs := DefaultRuns()
	seen := map[string]bool{}
	for _, r := range runs {
		if seen[r] {
			t.Errorf("%s stands there twice", r)
		}
		seen[r] = true
	}
	for _, r := range []string{"workflows.argoproj.io", "pipelineruns.tekton.dev", "backups.velero.io", "restores.velero.io", "certificaterequests.cert-manager.io"} {
		if !seen[r] {
			t.Errorf("%s is missing", r)
		}
	}
	if _, err := ReadRuns(strings.NewReader("a.b\n# x\n\n*.c # y\n")); err == nil || !strings.Contains(err.Error(), "line 4") {
		t.Errorf("got %v, want line 4", err)
	}
}
