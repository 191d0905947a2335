package sync

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
)

// stray is a person's file that may lie where one of ours would.
const stray = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: stray}\n"

// A person's file at a path of ours is never written, however often and from
// whatever state the agent comes by.
func TestStraysStay(t *testing.T) {
	path := PathOf(widget(9))
	for _, tc := range []struct {
		name   string
		happen func(*world)
	}{
		{"restart", func(w *world) {
			w.put(widget(9))
			w.tell(widget(9))
			w.mirror.Recheck()
			w.cycle()
			w.restart()
		}},
		{"another change", func(w *world) {
			w.put(widget(9))
			w.tell(widget(9))
			w.mirror.Recheck()
			w.cycle()
			w.change(widget(9), "2")
		}},
		{"there before the start, then a change", func(w *world) {
			w.put(widget(9))
			w.restart()
			w.cycle()
			w.change(widget(9), "2")
		}},
		{"there before the start, then the deletion", func(w *world) {
			w.put(widget(9))
			w.restart()
			w.cycle()
			w.remove(widget(9))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := mirrored(t, widgetRange(0, 2)...)
			w.edit(path, stray)
			tc.happen(w)
			report := w.cycle()
			if got := w.file(path); got != stray {
				t.Errorf("a person's file was written:\n%s", got)
			}
			if len(report.Findings) != 1 || report.Findings[0].Path != path {
				t.Errorf("findings: %v, want the stray file", report.Findings)
			}
		})
	}
}

// What git cannot hold beside a person's files is a finding; the rest goes on.
func TestFolderInTheWay(t *testing.T) {
	attic := kube.Key{Group: widgets.Group, Resource: widgets.Resource, Namespace: "attic", Name: "old"}
	for _, tc := range []struct {
		name string
		file string // a person's
		key  kube.Key
	}{
		{"a folder in the place of a file", PathOf(widget(9)) + "/README.md", widget(9)},
		{"a file in the place of a folder", "namespaces/attic", attic},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := mirrored(t, widgetRange(0, 3)...)
			w.edit(tc.file, "hello\n")
			w.put(tc.key)
			w.tell(tc.key)
			w.change(widget(1), "2")
			report := w.cycle()
			if got := w.file(PathOf(widget(1))); !strings.Contains(got, `"2"`) {
				t.Errorf("another object was held up; its file is\n%s", got)
			}
			if got := w.file(tc.file); got != "hello\n" {
				t.Errorf("the person's file: got %q", got)
			}
			if len(report.Findings) != 1 || report.Findings[0].Key != tc.key {
				t.Errorf("findings: %v, want one about %s", report.Findings, tc.key)
			}
			w.restart()
			if report = w.cycle(); len(report.Findings) != 1 {
				t.Errorf("after a restart: findings %v, want the same", report.Findings)
			}
		})
	}
}

// Namespaces that were mirrored for their own sake are orphans without the rule,
// not objects that nothing mirrored is in any more.
func TestNamespacesStayWhenTheRuleGoes(t *testing.T) {
	w := newWorld(t)
	all := kube.Rule{Resources: []string{"*"}}
	w.rules = kube.Selection{Select: []kube.Rule{all, {Resources: []string{"namespaces"}}}}
	w.put(widgetRange(0, 3)...)
	empty := []kube.Key{namespaceKey("attic"), namespaceKey("cellar")}
	for _, key := range empty {
		w.cluster.put(key, "")
	}
	w.restart()
	w.cycle()
	before := w.names()
	w.rules = kube.Selection{Select: []kube.Rule{all}}
	w.restart()
	report := w.cycle()
	if diff := cmp.Diff(before, w.names()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(empty, report.Orphans); diff != "" {
		t.Errorf("orphans (-want +got):\n%s", diff)
	}
}

// A Namespace is needed from its first object on. If it cannot be read then, it
// is read later, without anything else having to happen to it.
func TestNamespaceReadLater(t *testing.T) {
	w := mirrored(t, widgetRange(0, 3)...)
	first := kube.Key{Group: widgets.Group, Resource: widgets.Resource, Namespace: "new", Name: "first"}
	w.put(first)
	w.tell(namespaceKey("new"))
	w.cycle() // nothing is in it yet
	w.tell(first)
	w.cluster.getErr = errors.New("timeout")
	report := w.cycle()
	if w.file(PathOf(first)) == "" {
		t.Error("the object waits for its Namespace")
	}
	if report.Postponed[namespaceKey("new")] == nil || report.Waiting == 0 {
		t.Errorf("postponed %v, waiting %d; want the Namespace", report.Postponed, report.Waiting)
	}
	w.cluster.getErr = nil
	w.cycle()
	if w.file(PathOf(namespaceKey("new"))) == "" {
		t.Error("the Namespace was never written")
	}
}

// A plain-path repository is its owner's, who commits in it whenever they like.
func TestOwnRepositoryMoves(t *testing.T) {
	w := newWorld(t)
	w.put(widgetRange(0, 3)...)
	w.start()
	w.stop()
	w.remote = filepath.Join(t.TempDir(), "own")
	var err error
	w.store, err = gitstore.Open(t.Context(), gitstore.Options{
		Dir: w.remote, Branch: "main", Path: "clusters/lab", Refs: w.mirror.refs.All(), Log: w.mirror.log,
		Author: gitstore.Identity{Name: "crmirror", Email: "crmirror@example.com"},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.mirror = NewMirror(w.mirror.opts, w.inbox, w.cluster, w.store, w.mirror.refs)
	w.list(widgets, namespaceResource)
	w.cycle()
	w.git("-C", w.remote, "commit", "--quiet", "--allow-empty", "--message", "Mine")
	w.change(widget(0), "2")
	w.cycle()
	if got := w.file(PathOf(widget(0))); !strings.Contains(got, `"2"`) {
		t.Errorf("the change did not arrive:\n%s", got)
	}
	if got := w.git("-C", w.remote, "log", "--format=%s", "main"); !strings.Contains(got, "Mine\n") {
		t.Errorf("the owner's commit is gone:\n%s", got)
	}
	if got := w.git("-C", w.remote, "status", "--porcelain"); got != "" {
		t.Errorf("git status is not clean:\n%s", got)
	}
}
