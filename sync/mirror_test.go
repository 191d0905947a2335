package sync

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/gitstore/gittest"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/informer"
)

func TestFirstCommit(t *testing.T) {
	w := newWorld(t)
	w.put(widgetRange(0, 2)...)
	w.start()
	w.list(widgets, namespaceResource)
	report := w.cycle()
	want := []string{
		"cluster/namespaces/shop.yaml",
		"namespaces/shop/widgets.shop.example.dev/w000.yaml",
		"namespaces/shop/widgets.shop.example.dev/w001.yaml",
	}
	if diff := cmp.Diff(want, w.names()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if got := w.commits(); got != 1 {
		t.Errorf("got %d commits, want 1", got)
	}
	if !report.Pushed || !report.Clean() || report.Created() != 3 {
		t.Errorf("report: pushed %v, clean %v, created %d; want true, true, 3", report.Pushed, report.Clean(), report.Created())
	}
	refs := Refs("lab", "main", "clusters/lab")
	if got, want := w.git("-C", w.remote, "rev-parse", refs.Base+"^"), w.git("-C", w.remote, "rev-parse", "main"); got != want {
		t.Errorf("parent of base: got %s, want the branch's head %s", got, want)
	}
	if diff := w.git("-C", w.remote, "diff", "--stat", refs.Base, "main", "--", "clusters/lab"); diff != "" {
		t.Errorf("base and branch differ below the path:\n%s", diff)
	}
	w.git("-C", w.remote, "fsck", "--strict")
}

func TestRestartWithNothingChanged(t *testing.T) {
	w := newWorld(t)
	w.put(widgetRange(0, 5)...)
	for range 3 {
		w.start()
		w.list(widgets, namespaceResource)
		w.cycle()
		w.cycle()
	}
	if got := w.commits(); got != 1 {
		t.Errorf("got %d commits, want 1", got)
	}
}

func TestDeletedWhileDown(t *testing.T) {
	w := newWorld(t)
	w.put(widgetRange(0, 5)...)
	w.start()
	w.list(widgets, namespaceResource)
	w.cycle()

	delete(w.cluster.objects, widget(3))
	w.start()
	w.cycle() // nothing is listed yet, so nothing is proven
	if got := len(w.names()); got != 6 {
		t.Fatalf("before the listing: got %d files, want 6", got)
	}
	w.list(widgets, namespaceResource)
	w.cycle()
	if got := w.file("namespaces/shop/widgets.shop.example.dev/w003.yaml"); got != "" {
		t.Errorf("the deleted object's file is still there:\n%s", got)
	}
	if got := len(w.names()); got != 5 {
		t.Errorf("got %d files, want 5", got)
	}
}

func TestForbiddenKindDeletesNothing(t *testing.T) {
	w := newWorld(t)
	gadget := kube.Key{Group: "shop.example.dev", Resource: "gadgets", Namespace: "shop", Name: "g"}
	w.put(widget(0), gadget)
	w.start()
	w.list(widgets, gadget.GroupResource(), namespaceResource)
	w.cycle()
	before := w.names()

	delete(w.cluster.objects, gadget)
	w.start()
	scope := informer.Scope{Resource: gadget.GroupResource()}
	w.cluster.serve(gadget.GroupResource())
	w.inbox.Listing(t.Context(), scope)
	w.inbox.Failing(t.Context(), scope, errors.New("gadgets is forbidden"))
	w.list(widgets, namespaceResource)
	w.change(widget(0), "2")
	report := w.cycle()
	if diff := cmp.Diff(before, w.names()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if report.Failing[scope] == nil || report.Clean() {
		t.Errorf("the report does not tell of the forbidden kind: %+v", report)
	}
	if got := w.file(PathOf(widget(0))); !strings.Contains(got, `"2"`) {
		t.Errorf("the other kind was held up; its file is\n%s", got)
	}
}

func TestDeleteIsConfirmed(t *testing.T) {
	w := newWorld(t)
	w.put(widgetRange(0, 5)...)
	w.start()
	w.list(widgets, namespaceResource)
	w.cycle()
	// A DELETED event whose object is there again when the file would go.
	w.inbox.Absent(t.Context(), widget(1), informer.Deleted)
	w.cycle()
	// One whose confirmation fails: the file stays, and it is tried again.
	delete(w.cluster.objects, widget(2))
	w.inbox.Absent(t.Context(), widget(2), informer.Deleted)
	w.cluster.getErr = errors.New("connection refused")
	report := w.cycle()
	if got := len(w.names()); got != 6 {
		t.Fatalf("got %d files, want all 6: %v", got, w.names())
	}
	if report.Postponed[widget(2)] == nil || report.Waiting != 1 {
		t.Errorf("got postponed %v, waiting %d; want w002 postponed", report.Postponed, report.Waiting)
	}
	w.cluster.getErr = nil
	w.cycle()
	if got := len(w.names()); got != 5 {
		t.Errorf("after the server answers: got %d files, want 5", got)
	}
}

func TestKindGone(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		happen func(w *world)
	}{
		{"terminating, told before the deletions", func(w *world) {
			w.inbox.KindGone(w.t.Context(), widgets)
			w.remove(widgetRange(0, 2)...)
		}},
		{"terminating, told after the deletions", func(w *world) {
			w.remove(widgetRange(0, 2)...)
			w.inbox.KindGone(w.t.Context(), widgets)
		}},
		{"terminating, found by asking", func(w *world) {
			w.cluster.proofs[widgets] = informer.ErrKindGone
			w.remove(widgetRange(0, 2)...)
		}},
		{"deleted and installed again", func(w *world) {
			w.remove(widgetRange(0, 2)...)
			w.inbox.KindGone(w.t.Context(), widgets)
			w.listAs(widgets, true)
		}},
		{"deleted and installed again while the agent was down", func(w *world) {
			for _, key := range widgetRange(0, 2) {
				delete(w.cluster.objects, key)
			}
			w.cluster.created[widgets] = w.now.Add(time.Second)
			w.start()
			w.list(widgets, namespaceResource)
		}},
		{"deleted while the agent was down", func(w *world) {
			for _, key := range widgetRange(0, 2) {
				delete(w.cluster.objects, key)
			}
			delete(w.cluster.scopes, widgets)
			w.start()
			w.list(namespaceResource)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.put(widgetRange(0, 2)...)
			w.start()
			w.list(widgets, namespaceResource)
			w.cycle()
			tc.happen(w)
			report := w.cycle()
			if got := len(w.names()); got != 3 {
				t.Fatalf("got files %v, want all 3 kept", w.names())
			}
			if len(report.Held) != 2 || !report.Held.Has(ReasonKindGone) {
				t.Fatalf("held: %v, want both, kind gone", report.Held)
			}
			w.approve(report.Held.Digest())
			w.mirror.Recheck()
			if report = w.cycle(); len(report.Held) != 0 {
				t.Errorf("after approval still held: %v", report.Held)
			}
			if got := w.names(); len(got) != 0 {
				t.Errorf("after approval: got files %v, want none", got)
			}
			if got := w.git("-C", w.remote, "for-each-ref", "refs/crmirror/*/held", "refs/crmirror/*/approved"); got != "" {
				t.Errorf("used refs are still there:\n%s", got)
			}
		})
	}
}

// approve does what "crmirror approve" does, in a clone of its own.
func (w *world) approve(digest string) {
	w.t.Helper()
	refs := Refs("lab", "main", "clusters/lab")
	repo, err := gitstore.Open(w.t.Context(), gitstore.Options{
		URL: "file://" + w.remote, Dir: w.t.TempDir(), Branch: "main", Path: "clusters/lab", Refs: refs.All(), Log: w.mirror.log,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = repo.Close() }()
	if _, err := Approve(w.t.Context(), repo, refs, "000000000000"); !errors.As(err, new(*NotHeldError)) {
		w.t.Errorf("approve of another digest: got %v, want a NotHeldError", err)
	}
	if _, err := Approve(w.t.Context(), repo, refs, digest); err != nil {
		w.t.Fatal(err)
	}
}

func TestGuardHoldsManyDeletions(t *testing.T) {
	w := newWorld(t)
	w.put(widgetRange(0, 200)...)
	w.start()
	w.list(widgets, namespaceResource)
	w.cycle()
	w.remove(widgetRange(0, 60)...)
	w.change(widget(100), "2")
	report := w.cycle()
	if got := len(w.names()); got != 201 {
		t.Fatalf("got %d files, want all 201", got)
	}
	if len(report.Held) != 60 {
		t.Fatalf("got %d held, want 60", len(report.Held))
	}
	if got := w.file(PathOf(widget(100))); !strings.Contains(got, `"2"`) {
		t.Errorf("only the deletions should wait, but the change did too:\n%s", got)
	}

	w.put(widget(7)) // one is created anew while its deletion waits
	w.tell(widget(7))
	report = w.cycle()
	if len(report.Held) != 59 {
		t.Fatalf("after one came back: got %d held, want 59", len(report.Held))
	}

	w.start() // and a restart forgets nothing
	w.list(widgets, namespaceResource)
	report = w.cycle()
	if len(report.Held) != 59 {
		t.Fatalf("after a restart: got %d held, want 59", len(report.Held))
	}
	w.approve(report.Held.Digest())
	w.remove(widget(150))
	w.mirror.Recheck()
	report = w.cycle()
	if got := w.file(PathOf(widget(7))); got == "" {
		t.Error("the object that came back lost its file")
	}
	if got := len(w.names()); got != 201-59-1 {
		t.Errorf("after approval: got %d files, want %d; held %v", got, 201-59-1, report.Held)
	}
}

// The guard's ten minutes go over processes: a backup that cron starts does not
// begin counting anew each time.
func TestGuardCountsOverRestarts(t *testing.T) {
	w := newWorld(t)
	w.guard.MaxDeleteObjects = 5
	w.put(widgetRange(0, 40)...)
	w.start()
	w.list(widgets, namespaceResource)
	w.cycle()
	w.remove(widgetRange(0, 4)...)
	if report := w.cycle(); len(report.Held) != 0 {
		t.Fatalf("held %v, want none", report.Held)
	}
	for _, key := range widgetRange(4, 8) {
		delete(w.cluster.objects, key)
	}
	w.start()
	w.list(widgets, namespaceResource)
	if report := w.cycle(); len(report.Held) != 4 {
		t.Fatalf("after a restart within ten minutes: got %d held, want 4", len(report.Held))
	}
}

func TestRemoteRewound(t *testing.T) {
	w := newWorld(t)
	w.put(widgetRange(0, 3)...)
	w.start()
	w.list(widgets, namespaceResource)
	w.cycle()
	w.change(widget(0), "2")
	w.cycle()
	w.git("-C", w.remote, "update-ref", "refs/heads/main", "main~1")
	w.mirror.Recheck()
	report := w.cycle()
	if report.Clean() || len(report.Findings) != 1 || !strings.Contains(report.Findings[0].Text, "rewound") {
		t.Errorf("findings: %v, want the rewound branch", report.Findings)
	}
	if got := w.file(PathOf(widget(0))); !strings.Contains(got, `"2"`) {
		t.Errorf("the present state was not written again:\n%s", got)
	}
	w.mirror.Recheck()
	if report := w.cycle(); !report.Clean() {
		t.Errorf("findings: %v, want it told once", report.Findings)
	}
}

// Deletions that were held are not released by a restart or by a moment in which
// the cluster does not answer, however few are left of them.
func TestHeldStaysHeld(t *testing.T) {
	w := newWorld(t)
	w.put(widgetRange(0, 30)...)
	w.start()
	w.list(widgets, namespaceResource)
	w.cycle()
	w.remove(widgetRange(0, 12)...) // more than 30 %
	if report := w.cycle(); len(report.Held) != 12 {
		t.Fatalf("got %d held, want 12", len(report.Held))
	}
	w.put(widgetRange(2, 12)...) // most come back: two are far below the limits
	for _, key := range widgetRange(2, 12) {
		w.tell(key)
	}
	w.cluster.proofs[widgets] = errors.New("no answer")
	w.cycle()
	delete(w.cluster.proofs, widgets)
	if report := w.cycle(); len(report.Held) != 2 {
		t.Fatalf("after a moment without answers: got %d held, want 2", len(report.Held))
	}
	w.start()
	w.list(widgets, namespaceResource)
	if report := w.cycle(); len(report.Held) != 2 {
		t.Fatalf("after a restart: got %d held, want 2", len(report.Held))
	}
	if got := len(w.names()); got != 31 {
		t.Errorf("got %d files, want all 31", got)
	}
}

func TestOtherClusterIsRefused(t *testing.T) {
	w := newWorld(t)
	w.put(widgetRange(0, 5)...)
	w.start()
	w.list(widgets, namespaceResource)
	w.cycle()

	w.cluster = newFakeCluster("uid-two") // the disaster: a new, empty cluster
	w.put(widget(1))
	w.start()
	w.list(widgets, namespaceResource)
	_, err := w.tryCycle()
	var refused *OtherClusterError
	if !errors.As(err, &refused) || refused.UID != "uid-one" || refused.Files != 6 {
		t.Fatalf("got %v, want it refused naming uid-one and 6 files", err)
	}
	if got := w.commits(); got != 1 {
		t.Fatalf("got %d commits, want 1", got)
	}

	if _, err := w.mirror.Adopt(t.Context(), w.now); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.list(widgets, namespaceResource)
	report := w.cycle()
	if got := len(w.names()); got != 6 {
		t.Errorf("after adoption: got files %v, want all 6", w.names())
	}
	if len(report.Held) != 4 || !report.Held.Has(ReasonAdopted) {
		t.Fatalf("after adoption: held %v, want the 4 missing objects", report.Held)
	}
	w.approve(report.Held.Digest())
	w.mirror.Recheck()
	w.cycle()
	if diff := cmp.Diff([]string{PathOf(kube.Key{Resource: "namespaces", Name: "shop"}), PathOf(widget(1))}, w.names()); diff != "" {
		t.Errorf("after approval (-want +got):\n%s", diff)
	}
	w.cycle()
	if got := w.file(MarkerName); strings.Contains(got, "adopted") {
		t.Errorf("all is settled, but the marker still tells of the adoption:\n%s", got)
	}
}

func TestMissingMarkerIsRefused(t *testing.T) {
	w := newWorld(t)
	w.put(widget(0))
	w.start()
	w.list(widgets, namespaceResource)
	w.cycle()
	w.person("Tidy up", func(dir string) { _ = os.Remove(filepath.Join(dir, "clusters/lab", MarkerName)) })
	w.start()
	w.list(widgets, namespaceResource)
	if _, err := w.tryCycle(); !errors.As(err, new(*OtherClusterError)) {
		t.Errorf("got %v, want an OtherClusterError", err)
	}
}

func TestPeoplesFiles(t *testing.T) {
	w := newWorld(t)
	w.put(widgetRange(0, 4)...)
	w.start()
	w.list(widgets, namespaceResource)
	w.cycle()
	base := "clusters/lab/" + strings.TrimSuffix(PathOf(widget(0)), "w000.yaml")
	edit := func(name, content string) func(string) {
		return func(dir string) {
			if err := os.WriteFile(filepath.Join(dir, base, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	formatted := "# mine\napiVersion: shop.example.dev/v1\nkind: Widget\nmetadata: {name: w000, namespace: shop}\nspec: {size: '1'}\n"
	w.person("Format by hand", edit("w000.yaml", formatted))
	w.person("Resize w001", edit("w001.yaml", strings.Replace(formatted, "w000", "w001", 1)+"# and\nextra: 1\n"))
	w.person("Add a README and a stray file", func(dir string) {
		edit("README.md", "hello\n")(dir)
		edit("w009.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: stray}\n")(dir)
		edit("w003.yaml", "<<<<<<< HEAD\n")(dir)
	})
	w.put(widget(9)) // its path is taken by the stray file
	w.tell(widget(9))
	w.mirror.Recheck()
	report := w.cycle()

	dir := strings.TrimPrefix(base, "clusters/lab/")
	if got := w.file(dir + "w000.yaml"); got != formatted {
		t.Errorf("a file with the same content lost its form:\n%s", got)
	}
	if got := w.file(dir + "w001.yaml"); strings.Contains(got, "extra") {
		t.Errorf("the cluster is the truth in this mode, but the edit stands:\n%s", got)
	}
	if got := w.file(dir + "w003.yaml"); !strings.HasPrefix(got, "apiVersion") {
		t.Errorf("a broken file of ours was not put right:\n%s", got)
	}
	if got := w.file(dir + "README.md"); got != "hello\n" {
		t.Errorf("README.md: got %q", got)
	}
	if got := w.file(dir + "w009.yaml"); !strings.Contains(got, "stray") {
		t.Errorf("a person's file was overwritten:\n%s", got)
	}
	if len(report.Findings) != 1 || report.Findings[0].Path != dir+"w009.yaml" {
		t.Errorf("findings: %v, want the stray file", report.Findings)
	}
	log := w.git("-C", w.remote, "log", "-1", "--format=%B", "main")
	if !strings.Contains(log, "undoes a commit up to ") || strings.Contains(log, "Ada") {
		t.Errorf("several commits came at once; the message should blame none of their authors:\n%s", log)
	}
	w.person("Resize w001 again", edit("w001.yaml", strings.Replace(formatted, "w000", "w001", 1)+"extra: 2\n"))
	w.mirror.Recheck()
	w.cycle()
	if log := w.git("-C", w.remote, "log", "-1", "--format=%B", "main"); !strings.Contains(log, "by Ada") {
		t.Errorf("the commit does not say whose change it undoes:\n%s", log)
	}
	w.put(widget(9)) // and what was strange once is looked at each time
	w.change(widget(9), "2")
	w.cycle()
	if got := w.file(dir + "w009.yaml"); !strings.Contains(got, "stray") {
		t.Errorf("a person's file was overwritten later:\n%s", got)
	}
	w.change(widget(0), "5")
	w.cycle()
	if got := w.file(dir + "w000.yaml"); !strings.Contains(got, `"5"`) {
		t.Errorf("a hand-formatted file does not follow the cluster:\n%s", got)
	}
}

// TestUndoneAfterRestart: a process that starts after somebody edited a file knows whose edit it undoes.
func TestUndoneAfterRestart(t *testing.T) {
	w := newWorld(t)
	w.put(widgetRange(0, 2)...)
	w.start()
	w.list(widgets, namespaceResource)
	w.cycle()
	edit := func() {
		w.person("Edit", func(dir string) {
			name := filepath.Join(dir, "clusters", "lab", filepath.FromSlash(PathOf(widget(1))))
			text, err := os.ReadFile(name)
			if err == nil {
				err = os.WriteFile(name, append(text, "extra"+fmt.Sprint(len(text))+": yes\n"...), 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
	for _, commits := range []int{1, 2} {
		edit()
		if commits == 2 {
			edit()
		}
		head := strings.TrimSpace(w.git("-C", w.remote, "rev-parse", "--short=7", "main"))
		w.start()
		w.list(widgets, namespaceResource)
		w.cycle()
		want := "; undoes " + map[int]string{1: head + " by Ada", 2: "a commit up to " + head}[commits] + "\n"
		if got := w.git("-C", w.remote, "log", "-1", "--format=%B", "main"); !strings.Contains(got, want) {
			t.Errorf("the commit does not say %q:\n%s", want, got)
		}
	}
}

func TestPersonDeletesFile(t *testing.T) {
	w := newWorld(t)
	w.put(widgetRange(0, 3)...)
	w.start()
	w.list(widgets, namespaceResource)
	w.cycle()
	w.person("Remove w001", func(dir string) { _ = os.Remove(filepath.Join(dir, "clusters/lab", PathOf(widget(1)))) })
	w.change(widget(2), "2") // any push finds out that the branch moved
	w.cycle()
	if got := w.file(PathOf(widget(1))); got == "" {
		t.Error("the object lives, but its file is gone")
	}
}

func TestAnotherWriter(t *testing.T) {
	w := newWorld(t)
	w.put(widgetRange(0, 3)...)
	w.start()
	w.list(widgets, namespaceResource)
	w.cycle()
	w.person("Docs", func(dir string) {
		if err := os.WriteFile(filepath.Join(dir, "README.md"), []byte("ours is not yours\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	})
	w.change(widget(1), "2")
	w.remove(widget(2))
	report := w.cycle()
	if !report.Pushed {
		t.Fatal("not pushed")
	}
	if got := w.git("-C", w.remote, "cat-file", "blob", "main:README.md"); got != "ours is not yours\n" {
		t.Errorf("README.md: got %q", got)
	}
	if got := w.git("-C", w.remote, "log", "-1", "--format=%B", "main"); strings.Contains(got, "undoes") || strings.Contains(got, "Put back") {
		t.Errorf("nobody else wrote these files, but the commit says that it undoes something:\n%s", got)
	}
	if got := w.git("-C", w.remote, "log", "--merges", "--format=%H", "main"); got != "" {
		t.Errorf("there are merges: %s", got)
	}
	if got := w.commits(); got != 3 {
		t.Errorf("got %d commits, want 3", got)
	}
	if got := w.names(); len(got) != 3 || strings.Contains(fmt.Sprint(got), "w002") {
		t.Errorf("files: %v", got)
	}
}

func TestRemoteDown(t *testing.T) {
	w := newWorld(t)
	server, err := gittest.NewHTTP(filepath.Dir(w.remote), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	w.url = server.URL(filepath.Base(w.remote))
	w.put(widgetRange(0, 5)...)
	w.start()
	w.list(widgets, namespaceResource)
	w.cycle()
	server.Off()
	for n := range 3 {
		w.change(widget(1), fmt.Sprint("down", n))
		if _, err := w.tryCycle(); err == nil {
			t.Fatal("a cycle without a remote returned no error")
		}
	}
	w.remove(widget(4))
	for range 2 { // the second time, the file is gone in a local commit already
		if report, err := w.tryCycle(); err == nil || report.Waiting != 2 {
			t.Fatalf("got %v with %d waiting; want an error and both changes kept", err, report.Waiting)
		}
	}
	if err := server.On(); err != nil {
		t.Fatal(err)
	}
	report := w.cycle()
	if report.Waiting != 0 {
		t.Errorf("got %d waiting after the push, want 0", report.Waiting)
	}
	if got := w.file(PathOf(widget(1))); !strings.Contains(got, "down2") {
		t.Errorf("the newest state did not arrive:\n%s", got)
	}
	if got := w.file(PathOf(widget(4))); got != "" {
		t.Error("the deletion did not arrive")
	}
	w.git("-C", w.remote, "fsck", "--strict")
}

func TestRemoteTakesNoRefsOfOurs(t *testing.T) {
	w := newWorld(t)
	hook := "#!/bin/sh\ncase $1 in refs/crmirror/*) echo no such refs here; exit 1;; esac\n"
	if err := os.WriteFile(filepath.Join(w.remote, "hooks", "update"), []byte(hook), 0o755); err != nil {
		t.Fatal(err)
	}
	w.put(widgetRange(0, 3)...)
	w.start()
	w.list(widgets, namespaceResource)
	w.cycle()
	w.change(widget(1), "2")
	if report := w.cycle(); !report.Pushed {
		t.Error("not pushed")
	}
	if got := w.file(PathOf(widget(1))); !strings.Contains(got, `"2"`) {
		t.Errorf("the change did not arrive:\n%s", got)
	}
}

func TestRemoteRecreatedEmpty(t *testing.T) {
	w := newWorld(t)
	w.put(widgetRange(0, 5)...)
	w.start()
	w.list(widgets, namespaceResource)
	w.cycle()
	if err := os.RemoveAll(w.remote); err != nil {
		t.Fatal(err)
	}
	w.git("init", "--quiet", "--bare", "--initial-branch=main", w.remote)
	w.change(widget(0), "2")
	w.cycle()
	if got := len(w.names()); got != 6 {
		t.Errorf("got files %v, want all 6 in the new repository", w.names())
	}
}

func TestSelectionChanges(t *testing.T) {
	w := newWorld(t)
	w.rules.Select[0].LabelSelector = "tier!=test"
	w.put(widgetRange(0, 6)...)
	w.start()
	w.list(widgets, namespaceResource)
	w.cycle()

	w.cluster.label(widget(1), "tier", "test") // the object changed
	w.tell(widget(1))
	report := w.cycle()
	if got := w.file(PathOf(widget(1))); got != "" {
		t.Error("the object left the selection, but its file is still there")
	}
	if log := w.git("-C", w.remote, "log", "-1", "--format=%B", "main"); !strings.Contains(strings.ToLower(log), "unselect") {
		t.Errorf("the commit does not say that it was unselected:\n%s", log)
	}
	if len(report.Held) != 0 {
		t.Errorf("held: %v", report.Held)
	}

	w.rules = kube.Selection{Select: []kube.Rule{{Resources: []string{"*"}, Names: []string{"w00[0-3]"}}}} // the rules changed
	w.start()
	w.list(widgets, namespaceResource)
	report = w.cycle()
	want := []kube.Key{widget(4), widget(5)}
	if diff := cmp.Diff(want, report.Orphans); diff != "" {
		t.Errorf("orphans (-want +got):\n%s", diff)
	}
	if got := w.names(); !slices.Contains(got, PathOf(widget(4))) || !slices.Contains(got, PathOf(widget(5))) {
		t.Errorf("orphans lost their files; there are %v", got)
	}
}

func TestReshape(t *testing.T) {
	w := newWorld(t)
	w.put(widgetRange(0, 2)...)
	w.start()
	w.list(widgets, namespaceResource)
	w.cycle()
	drop, err := kube.ParseFieldPath(".spec.size")
	if err != nil {
		t.Fatal(err)
	}
	w.rules.Select[0].Shape.Drop = []kube.FieldPath{drop}
	w.start()
	w.cycle() // before anything is listed
	if got := w.commits(); got != 2 {
		t.Fatalf("got %d commits, want one for the new shape", got)
	}
	if got := w.file(PathOf(widget(0))); strings.Contains(got, "size") {
		t.Errorf("the tree was not re-encoded:\n%s", got)
	}
	w.list(widgets, namespaceResource)
	w.cycle()
	if got := w.commits(); got != 2 {
		t.Errorf("got %d commits, want 2", got)
	}
}

func TestNamespacesFollow(t *testing.T) {
	w := newWorld(t)
	other := kube.Key{Group: widgets.Group, Resource: widgets.Resource, Namespace: "attic", Name: "old"}
	w.put(widget(0), widget(1), other)
	w.cluster.put(kube.Key{Resource: "namespaces", Name: "empty"}, "")
	w.start()
	w.list(namespaceResource, widgets)
	w.cycle()
	namespaces := func() []string {
		var out []string
		for _, name := range w.names() {
			if strings.HasPrefix(name, "cluster/namespaces/") {
				out = append(out, strings.TrimPrefix(name, "cluster/namespaces/"))
			}
		}
		return out
	}
	if diff := cmp.Diff([]string{"attic.yaml", "shop.yaml"}, namespaces()); diff != "" {
		t.Errorf("namespaces (-want +got):\n%s", diff)
	}
	w.remove(other)
	w.cycle()
	if diff := cmp.Diff([]string{"shop.yaml"}, namespaces()); diff != "" {
		t.Errorf("after the last object went (-want +got):\n%s", diff)
	}
	w.put(kube.Key{Group: widgets.Group, Resource: widgets.Resource, Namespace: "empty", Name: "first"})
	w.tell(kube.Key{Group: widgets.Group, Resource: widgets.Resource, Namespace: "empty", Name: "first"})
	w.cycle()
	if diff := cmp.Diff([]string{"empty.yaml", "shop.yaml"}, namespaces()); diff != "" {
		t.Errorf("after the first object came (-want +got):\n%s", diff)
	}
}

func TestCRDStaysWhileItsFilesDo(t *testing.T) {
	w := newWorld(t)
	crd := kube.Key{Group: crdResource.Group, Resource: crdResource.Resource, Name: "widgets.shop.example.dev"}
	w.put(widgetRange(0, 2)...)
	w.put(crd)
	w.start()
	w.list(widgets, namespaceResource)
	w.cycle()
	w.inbox.KindGone(t.Context(), widgets)
	w.remove(widgetRange(0, 2)...)
	w.remove(crd)
	report := w.cycle()
	if len(report.Held) != 3 {
		t.Fatalf("held %v, want the objects and their CRD", report.Held)
	}
	w.approve(report.Held.Digest())
	w.mirror.Recheck()
	w.cycle()
	if got := w.names(); len(got) != 0 {
		t.Errorf("after approval: got files %v, want none", got)
	}
}

func TestQuarantine(t *testing.T) {
	w := newWorld(t)
	w.put(widgetRange(0, 3)...)
	w.start()
	w.list(widgets, namespaceResource)
	w.cycle()
	w.inbox.Refused(t.Context(), widget(1), errors.New("no encoding"))
	w.change(widget(2), "2")
	report := w.cycle()
	if w.file(PathOf(widget(1))) == "" || !strings.Contains(w.file(PathOf(widget(2))), `"2"`) {
		t.Errorf("one bad object harmed itself or another: %v", w.names())
	}
	if report.Refused[widget(1)] == nil || report.Clean() {
		t.Errorf("the report does not tell of the quarantined object")
	}
	w.change(widget(1), "3")
	if report = w.cycle(); len(report.Refused) != 0 {
		t.Errorf("still quarantined: %v", report.Refused)
	}
}

func TestSpillKeepsEntries(t *testing.T) {
	w := newWorld(t)
	w.put(widgetRange(0, 3)...)
	w.start()
	w.list(widgets, namespaceResource)
	if err := w.mirror.Spill(w.batch.Take()); err != nil {
		t.Fatal(err)
	}
	for key, e := range w.mirror.pending {
		if e.Op == Present && (e.Content != nil || e.Digest.IsZero()) {
			t.Errorf("%s is still in memory after a spill", key)
		}
	}
	w.cycle()
	if got := len(w.names()); got != 4 {
		t.Errorf("got files %v, want 4", w.names())
	}
}
