package sync

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/informer"
)

// mirrored returns a world whose agent has carried these objects into git.
func mirrored(t *testing.T, keys ...kube.Key) *world {
	t.Helper()
	w := newWorld(t)
	w.put(keys...)
	w.restart()
	w.cycle()
	return w
}

// restart runs a new agent whose informers have listed everything.
func (w *world) restart() {
	w.t.Helper()
	w.start()
	w.list(widgets, namespaceResource)
}

// edit lets a person write one file below the mirrored path.
func (w *world) edit(name, content string) {
	w.t.Helper()
	w.person("Edit "+name, func(dir string) {
		path := filepath.Join(dir, "clusters/lab", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			w.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			w.t.Fatal(err)
		}
	})
}

// docs lets a person push a commit that touches nothing of ours.
func (w *world) docs() {
	w.t.Helper()
	w.edit("README.md", "hello\n")
}

// refuse makes the remote refuse every push, until the returned function is called.
func (w *world) refuse() (accept func()) {
	w.t.Helper()
	hook := filepath.Join(w.remote, "hooks", "pre-receive")
	if err := os.WriteFile(hook, []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		w.t.Fatal(err)
	}
	return func() {
		if err := os.Remove(hook); err != nil {
			w.t.Fatal(err)
		}
	}
}

// drop removes objects without any informer seeing it.
func (w *world) drop(keys ...kube.Key) {
	for _, key := range keys {
		delete(w.cluster.objects, key)
	}
}

// What changed in the cluster while the rules changed comes in the same cycle as
// the re-encoding commit; that commit must not count as the one that holds it.
func TestReshapeKeepsLiveStates(t *testing.T) {
	w := mirrored(t, widgetRange(0, 2)...)
	drop, err := kube.ParseFieldPath(".spec.size")
	if err != nil {
		t.Fatal(err)
	}
	w.rules.Select[0].Shape.Drop = []kube.FieldPath{drop}
	w.cluster.objects[widget(0)].Object["spec"] = map[string]any{"size": "1", "color": "blue"}
	w.restart()
	report := w.cycle()
	if got := w.file(PathOf(widget(0))); !strings.Contains(got, "blue") {
		t.Errorf("the live change is lost, with %d waiting; the file is\n%s", report.Waiting, got)
	}
	if got := w.commits(); got != 3 {
		t.Errorf("got %d commits, want 3: the first sync, the new shape, the change", got)
	}
}

func TestHeadThatCouldNotBeLoaded(t *testing.T) {
	t.Run("the fetch failed after the head moved", func(t *testing.T) {
		w := mirrored(t, widgetRange(0, 3)...)
		w.edit(MarkerName, strings.Replace(w.file(MarkerName), "uid-one", "uid-two", 1))
		w.change(widget(0), "2")
		w.mirror.Recheck()
		clones, err := filepath.Glob(filepath.Join(filepath.Dir(w.remote), "..", "*", "repo.git"))
		if err != nil || len(clones) != 1 {
			t.Fatalf("the agent's clones: %v, %v; want one", clones, err)
		}
		lock := filepath.Join(clones[0], "refs/heads/main.lock")
		if err := os.WriteFile(lock, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // a lock is waited for
		defer cancel()
		if _, err := w.mirror.Cycle(ctx, w.now); err == nil {
			t.Fatal("the branch was locked, yet the cycle returned no error")
		}
		if err := os.Remove(lock); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if _, err := w.tryCycle(); !errors.As(err, new(*OtherClusterError)) {
			t.Errorf("got %v, want an OtherClusterError: the head names another cluster", err)
		}
		if got := w.commits(); got != 2 {
			t.Errorf("got %d commits, want 2: nothing written into another cluster's path", got)
		}
	})
	t.Run("the marker could not be read", func(t *testing.T) {
		w := mirrored(t, widgetRange(0, 3)...)
		good := w.file(MarkerName)
		w.edit(MarkerName, "foo: [\n")
		w.edit(PathOf(widget(1)), "broken\n")
		w.change(widget(0), "2")
		for range 2 {
			if _, err := w.tryCycle(); err == nil {
				t.Fatal("a cycle with an unreadable marker returned no error")
			}
		}
		w.edit(MarkerName, good)
		w.cycle()
		// What came with the head that could not be loaded is still noticed.
		if got := w.file(PathOf(widget(1))); strings.HasPrefix(got, "broken") {
			t.Errorf("a person's edit of then was not put right:\n%s", got)
		}
		if got := w.file(PathOf(widget(0))); !strings.Contains(got, `"2"`) {
			t.Errorf("the change did not arrive:\n%s", got)
		}
	})
}

// Once the path is this cluster's again, the agent goes on by itself.
func TestAdoptedBackWithoutRestart(t *testing.T) {
	w := mirrored(t, widgetRange(0, 3)...)
	good := w.file(MarkerName)
	w.edit(MarkerName, strings.Replace(good, "uid-one", "uid-two", 1))
	w.change(widget(0), "2")
	for range 2 {
		if _, err := w.tryCycle(); !errors.As(err, new(*OtherClusterError)) {
			t.Fatalf("got %v, want an OtherClusterError", err)
		}
	}
	w.edit(MarkerName, good)
	w.cycle()
	if got := w.file(PathOf(widget(0))); !strings.Contains(got, `"2"`) {
		t.Errorf("the change did not arrive:\n%s", got)
	}
}

// A load balancer's name, or a rebuilt cluster's: the address that the agent was
// given leads to another cluster by now.
func TestClusterBehindTheAddressChanged(t *testing.T) {
	for _, tc := range []struct {
		name   string
		happen func(*world)
	}{
		{"noticed before a deletion", func(w *world) { w.remove(widget(0)) }},
		{"noticed when the remote is asked", func(w *world) {
			w.change(widget(0), "the other cluster's")
			w.mirror.Recheck()
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := mirrored(t, widgetRange(0, 3)...)
			w.cluster.uid = "uid-two"
			tc.happen(w)
			if _, err := w.tryCycle(); !errors.As(err, new(*OtherClusterError)) {
				t.Errorf("got %v, want an OtherClusterError", err)
			}
			if got := w.commits(); got != 1 {
				t.Errorf("got %d commits, want 1: another cluster wrote into the path", got)
			}
		})
	}
}

// A remote that begins to refuse our own refs, after it took them for a while,
// still takes the branch.
func TestRefsRefusedLater(t *testing.T) {
	w := mirrored(t, widgetRange(0, 3)...)
	hook := "#!/bin/sh\ncase $1 in refs/crmirror/*) echo no such refs here; exit 1;; esac\n"
	if err := os.WriteFile(filepath.Join(w.remote, "hooks", "update"), []byte(hook), 0o755); err != nil {
		t.Fatal(err)
	}
	w.change(widget(1), "2")
	_, _ = w.tryCycle() // finds out, and may end with that
	if report := w.cycle(); report.Waiting != 0 {
		t.Errorf("%d wait, want none", report.Waiting)
	}
	if got := w.file(PathOf(widget(1))); !strings.Contains(got, `"2"`) {
		t.Errorf("the change did not arrive:\n%s", got)
	}
}

// When every file has to be read live, a remote that was made anew say, memory
// holds a portion of the contents at a time.
func TestRecheckSpills(t *testing.T) {
	w := mirrored(t, widgetRange(0, livePortion+20)...)
	if err := os.RemoveAll(w.remote); err != nil {
		t.Fatal(err)
	}
	w.git("init", "--quiet", "--bare", "--initial-branch=main", w.remote)
	w.mirror.Recheck()
	if err := w.mirror.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.mirror.readAgain(t.Context()); err != nil {
		t.Fatal(err)
	}
	inMemory := 0
	for _, e := range w.mirror.pending {
		if e.Content != nil {
			inMemory++
		}
	}
	if waiting := w.mirror.Waiting(); waiting != livePortion+21 || inMemory >= livePortion {
		t.Errorf("%d objects wait, %d of them in memory; want %d, fewer than %d",
			waiting, inMemory, livePortion+21, livePortion)
	}
	w.cycle()
	if got := len(w.names()); got != livePortion+21 {
		t.Errorf("got %d files in the new repository, want %d", got, livePortion+21)
	}
}

// A kind that is gone cannot be read live any more; what a person did to its
// files is theirs then, and nothing waits for an answer that cannot come.
func TestGoneKindIsNotReadAgain(t *testing.T) {
	w := mirrored(t, widgetRange(0, 3)...)
	w.inbox.KindGone(t.Context(), widgets)
	w.drop(widgetRange(0, 3)...)
	delete(w.cluster.scopes, widgets)
	w.list(namespaceResource)
	w.cycle()
	w.person("Clean up", func(dir string) { _ = os.Remove(filepath.Join(dir, "clusters/lab", PathOf(widget(1)))) })
	w.cluster.getErr = informer.ErrUnknownKind
	w.mirror.Recheck()
	if report := w.cycle(); report.Waiting != 0 || len(report.Postponed) != 0 {
		t.Errorf("%d wait, postponed %v; want none", report.Waiting, report.Postponed)
	}
}

// An informer's listing can complete at any moment of a cycle. If its scope
// counted as compared with git before its objects were, the agent would take a
// file that a person formatted for one of its own.
func TestListedBetween(t *testing.T) {
	t.Run("while the inbox is emptied", func(t *testing.T) {
		w := mirrored(t, widget(0))
		scope := informer.Scope{Resource: widgets}
		w.change(widget(0), "2")
		w.inbox.mu.Lock() // the listings cannot be taken yet
		taken := make(chan intake)
		go func() { taken <- w.inbox.take() }()
		for range 1000 { // lets take run until it waits
			if objects, _ := w.batch.Size(); objects == 0 {
				t.Error("the entries were taken before the listings")
				break
			}
			runtime.Gosched()
		}
		mustPut(t, w.batch, entry("late", "1"))
		w.inbox.sweeps[scope] = sweep{}
		w.inbox.mu.Unlock()
		got := <-taken
		if _, listed := got.sweeps[scope]; !listed || len(got.entries) != 2 {
			t.Errorf("took listings %v and %d entries, want the listing and both entries", got.sweeps, len(got.entries))
		}
	})
	t.Run("after the inbox was emptied", func(t *testing.T) {
		w := mirrored(t, widget(0))
		gadget := kube.Key{Group: widgets.Group, Resource: "gadgets", Namespace: "shop", Name: "g"}
		formatted := "# mine\napiVersion: shop.example.dev/v1\nkind: Gadget\nmetadata: {name: g, namespace: shop}\nspec: {size: '1'}\n"
		w.edit(PathOf(gadget), formatted)
		w.restart()
		w.cluster.serve(gadget.GroupResource())
		w.put(gadget)
		w.mirror.cluster = &meanwhile{fakeCluster: w.cluster, once: func() { w.list(gadget.GroupResource()) }}
		w.cycle()
		w.cycle()
		if got := w.file(PathOf(gadget)); got != formatted {
			t.Errorf("a file with the same content lost its form:\n%s", got)
		}
	})
}

// meanwhile is a cluster in which something happens while a cycle is under way.
type meanwhile struct {
	*fakeCluster
	once func()
}

func (c *meanwhile) ClusterUID(ctx context.Context) (string, error) {
	if happen := c.once; happen != nil {
		c.once = nil
		happen()
	}
	return c.fakeCluster.ClusterUID(ctx)
}
