package main_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// content writes a repository with one object that other tools claim, that waits for a controller when it is deleted
// and that names its namespace, and one that runs when it is created.
func content(t *testing.T) *scene {
	s := newScene(t, "content")
	s.kind("Widget", "v1")
	s.object(s.namespace, "Widget", "marked", `  annotations:
    meta.helm.sh/release-name: shop
    note: kept
  finalizers:
  - example.dev/hold
  labels:
    app.kubernetes.io/managed-by: Helm
    argocd.argoproj.io/instance: shop
    team: a
spec:
  color: content
  peers:
  - content
  - other
`)
	s.kind("Task", "v1")
	s.object(s.namespace, "Task", "task-x7k2p", "spec:\n  size: 1\n")
	s.commit()
	s.u.file("runs.txt", "# ours\ntasks.content.example.dev\n")
	return s
}

// wantMetadata compares what an object has of finalizers, labels and annotations.
func wantMetadata(t *testing.T, obj *unstructured.Unstructured, want string) {
	t.Helper()
	if got := fmt.Sprint(obj.GetFinalizers(), obj.GetLabels(), obj.GetAnnotations()); got != want {
		t.Errorf("%s %s: got %s, want %s", obj.GetKind(), obj.GetName(), got, want)
	}
}

// An object comes back as git has it, but for what the flags leave out.
func TestRestoreContent(t *testing.T) {
	t.Parallel()
	s := content(t)
	r := s.u.run("restore", "--repo", s.repo, "--runs-file", "runs.txt")
	if r.code != 0 {
		t.Errorf("got %v\nwant exit code 0: what would run again is left out", r)
	}
	wantTold(t, r.stdout, "tasks.content.example.dev content/task-x7k2p: would run again; to restore it, name tasks.content.example.dev in --resources",
		"1 object would run again if created, and may be missing")
	s.wantMissing(s.namespace, "Task", "task-x7k2p")
	wantMetadata(t, s.get(s.namespace, "Widget", "marked"), "[example.dev/hold] "+
		"map[app.kubernetes.io/managed-by:Helm argocd.argoproj.io/instance:shop team:a] map[meta.helm.sh/release-name:shop note:kept]")
	s.restore(0, "--runs-file", "runs.txt", "--resources", "tasks.content.example.dev").wantTotals(t, map[string]int{"created": 1})
	if got := fmt.Sprint(s.get(s.namespace, "Task", "task-x7k2p").Object["spec"]); got != "map[size:1]" {
		t.Errorf("what runs, named: got spec %s, want it as git has it", got)
	}

	mapped := []string{"restore", "--repo", s.repo, "--resources", "widgets.content.example.dev", "--map-namespace", "content=content-test"}
	r = s.u.succeed(append(mapped, "--strip-finalizers", "--strip-tracking")...)
	wantTold(t, r.stdout, "content-test/marked", "still names namespace content (now content-test), and is left as it is: spec.color, spec.peers[0]")
	obj := s.get("content-test", "Widget", "marked")
	wantMetadata(t, obj, "[] map[team:a] map[note:kept]")
	if got := fmt.Sprint(obj.Object["spec"]); got != "map[color:content peers:[content other]]" {
		t.Errorf("spec in the other namespace: got %s, want it as git has it", got)
	}
	// What was left out is a difference for who does not leave it out.
	verify := s.u.run(append([]string{"verify"}, mapped[1:]...)...)
	if verify.code != 3 {
		t.Errorf("got %v\nwant exit code 3", verify)
	}
	wantTold(t, verify.stdout, "metadata.finalizers", "metadata.labels.argocd.argoproj.io/instance", "metadata.annotations.meta.helm.sh/release-name")
}
