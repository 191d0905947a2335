package sync

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
)

// recounted are the counts of the head, read anew.
func recounted(m *Mirror) (map[schema.GroupResource]int, map[string]int) {
	x := newIndex().follow(m.repo)
	return x.resources, x.namespaces
}

// without drops counts that came down to nothing.
func without[K comparable](counts map[K]int) map[K]int {
	out := map[K]int{}
	for key, n := range counts {
		if n != 0 {
			out[key] = n
		}
	}
	return out
}

// TestCountsFollow has objects and files come and go, by the agent and by a person,
// and wants the counts that are kept to be those of the tree at each step.
func TestCountsFollow(t *testing.T) {
	w := newWorld(t)
	w.put(widgetRange(0, 20)...)
	w.start()
	w.list(widgets, namespaceResource)
	person := func(edit func(dir string)) {
		t.Helper()
		w.person("By hand", func(dir string) { edit(filepath.Join(dir, "clusters", "lab")) })
		w.mirror.Recheck()
	}
	write := func(name string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte("a: person's\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(name string) {
		t.Helper()
		if err := os.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
	}
	steps := []func(){
		func() {},
		func() { w.remove(widget(3), widget(4)) },
		func() { w.change(widget(30), "1") },
		func() { person(func(dir string) { write(filepath.Join(dir, PathOf(widget(40)))) }) },
		func() {
			person(func(dir string) { remove(filepath.Join(dir, PathOf(widget(40)))) })
			w.change(widget(31), "1")
		},
		func() { person(func(dir string) { remove(filepath.Join(dir, "namespaces")) }) },
		func() { person(func(dir string) { write(filepath.Join(dir, "cluster", "notes", "README.md")) }) },
		func() {
			w.put(widget(50))
			person(func(dir string) {
				write(filepath.Join(dir, PathOf(kube.Key{Resource: "configmaps", Namespace: "other", Name: "x"})))
			})
		},
	}
	for i, step := range steps {
		step()
		w.cycle()
		resources, namespaces := recounted(w.mirror)
		if diff := cmp.Diff(without(resources), without(w.mirror.index.resources)); diff != "" {
			t.Errorf("step %d: resources (-tree +counted):\n%s", i, diff)
		}
		if diff := cmp.Diff(without(namespaces), without(w.mirror.index.namespaces)); diff != "" {
			t.Errorf("step %d: namespaces (-tree +counted):\n%s", i, diff)
		}
	}
	if got := len(w.names()); got < 20 {
		t.Errorf("%d files at the end; what a person removed was not put back", got)
	}
}

// TestOutsideAfterPush has a person push a file of a kind that the cluster does not
// serve, long after everything was looked at: it waits for approval all the same.
func TestOutsideAfterPush(t *testing.T) {
	w := newWorld(t)
	w.put(widgetRange(0, 3)...)
	w.start()
	w.list(widgets, namespaceResource)
	w.cycle()
	if w.mirror.look.due() {
		t.Fatal("the first cycle did not look at everything")
	}
	gadget := kube.Key{Group: "gone.example.dev", Resource: "gadgets", Namespace: "shop", Name: "one"}
	content := fmt.Sprintf("apiVersion: %s/v1\nkind: Gadget\nmetadata:\n  name: one\n  namespace: shop\n", gadget.Group)
	w.person("Bring a gadget back", func(dir string) {
		name := filepath.Join(dir, "clusters", "lab", filepath.FromSlash(PathOf(gadget)))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	})
	w.mirror.Recheck()
	report := w.cycle()
	if len(report.Held) != 1 || report.Held[0].Key != gadget || report.Held[0].Reason != ReasonKindGone {
		t.Errorf("held: got %v, want %s for its kind", report.Held, gadget)
	}
	if w.mirror.look.due() {
		t.Error("the file is still to be looked at")
	}
	if w.file(PathOf(gadget)) == "" {
		t.Error("the file was deleted without approval")
	}
}

// TestChangesOfAnother wants exactly the paths that another writer changed to be
// read again, not those of our own commits, whether they were pushed or not.
func TestChangesOfAnother(t *testing.T) {
	w := newWorld(t)
	w.put(widgetRange(0, 5)...)
	w.start()
	w.list(widgets, namespaceResource)
	w.cycle()
	w.change(widget(1), "2") // ours, acknowledged
	w.cycle()
	w.person("Edit", func(dir string) {
		name := filepath.Join(dir, "clusters", "lab", filepath.FromSlash(PathOf(widget(2))))
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(strings.Replace(string(content), "metadata", "extra: 1\nmetadata", 1)), 0o644); err != nil {
			t.Fatal(err)
		}
	})
	w.change(widget(3), "2") // ours, local only: the push finds the branch moved
	if err := w.mirror.repo.Fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.mirror.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for path := range w.mirror.foreign {
		got = append(got, path)
	}
	if diff := cmp.Diff([]string{PathOf(widget(2))}, got); diff != "" {
		t.Errorf("written by another (-want +got):\n%s", diff)
	}
	if report := w.cycle(); report.Waiting != 0 {
		t.Errorf("%d are waiting", report.Waiting)
	}
	if got := w.file(PathOf(widget(2))); strings.Contains(got, "extra") {
		t.Error("the person's edit was not put back")
	}
	if is, ok := w.mirror.repo.Lookup(PathOf(widget(2))); !ok || is == (gitstore.Hash{}) {
		t.Error("the file is gone")
	}
}

// TestLoadFollowsChange counts what learning a tree anew allocates after another
// writer changed one file: as much among a thousand files as among fifty.
func TestLoadFollowsChange(t *testing.T) {
	allocated := map[int]uint64{}
	for _, n := range []int{50, 1000} {
		w := makeWorld(t)
		w.put(widgetRange(0, n)...)
		w.start()
		w.list(widgets, namespaceResource)
		w.cycle()
		w.person("Edit", func(dir string) {
			name := filepath.Join(dir, "clusters", "lab", filepath.FromSlash(PathOf(widget(2))))
			if err := os.WriteFile(name, []byte("a: person's\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		})
		if err := w.mirror.repo.Fetch(t.Context()); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := w.mirror.load(t.Context()); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		allocated[n] = after.Mallocs - before.Mallocs
	}
	if few, many := allocated[50], allocated[1000]; many > few+300 {
		t.Errorf("%d allocations among 1,000 files, %d among 50", many, few)
	}
}
