package sync

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/gitstore/gittest"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/informer"
)

// Forty objects and their Namespace: fifteen deletions are more than the guard
// lets through, six are not.
const (
	fortyFiles = 41
	tooMany    = 15
)

// holding returns a world in which the deletion of the first objects is held.
func holding(t *testing.T) (*world, *Report) {
	t.Helper()
	w := mirrored(t, widgetRange(0, 40)...)
	w.remove(widgetRange(0, tooMany)...)
	report := w.cycle()
	w.wantHeld(report, tooMany)
	w.wantFiles(fortyFiles)
	return w, report
}

func (w *world) wantHeld(r *Report, want int) {
	w.t.Helper()
	if got := len(r.Held); got != want {
		w.t.Errorf("got %d held, want %d: %v", got, want, r.Held)
	}
}

func (w *world) wantFiles(want int) {
	w.t.Helper()
	if got := len(w.names()); got != want {
		w.t.Errorf("got %d files, want %d", got, want)
	}
}

// reborn lets the CRD of the widgets be deleted and installed again, and some of
// the objects with it.
func (w *world) reborn(without ...kube.Key) *Report {
	w.t.Helper()
	w.inbox.KindGone(w.t.Context(), widgets)
	w.drop(without...)
	w.listAs(widgets, true)
	return w.cycle()
}

// A restart whose informers cannot list the kind sees no candidates; that it saw
// none is no reason to forget what waits.
func TestHeldSurvivesARestartWithoutListing(t *testing.T) {
	w := mirrored(t, widgetRange(0, 20)...)
	w.wantHeld(w.reborn(widgetRange(0, 2)...), 2)
	w.start()
	w.list(namespaceResource)
	scope := informer.Scope{Resource: widgets}
	w.cluster.serve(widgets)
	w.inbox.Listing(t.Context(), scope)
	w.inbox.Failing(t.Context(), scope, errors.New("conversion webhook"))
	w.wantHeld(w.cycle(), 2)
	w.list(widgets, namespaceResource)
	w.wantHeld(w.cycle(), 2)
	w.wantFiles(21)
}

// What a person approved is that objects which are gone lose their files; an
// object that may live again keeps its own.
func TestApprovalNeedsAnAnswer(t *testing.T) {
	t.Run("the server does not answer", func(t *testing.T) {
		w, report := holding(t)
		w.approve(report.Held.Digest())
		w.put(widgetRange(0, tooMany)...) // the informer has not said so yet
		w.cluster.getErr = errors.New("the server is currently unable to handle the request")
		w.mirror.Recheck()
		report = w.cycle()
		w.wantFiles(fortyFiles)
		if got := len(report.Postponed); got != tooMany {
			t.Errorf("got %d postponed, want %d", got, tooMany)
		}
	})
	t.Run("the object is quarantined", func(t *testing.T) {
		w := mirrored(t, widgetRange(0, 20)...)
		report := w.reborn(widgetRange(0, 3)...)
		w.wantHeld(report, 3)
		w.approve(report.Held.Digest())
		w.put(widget(0))
		w.inbox.Refused(t.Context(), widget(0), errors.New("no encoding"))
		w.mirror.Recheck()
		// Even where the live read found nothing: the informer has seen it since.
		w.drop(widget(0))
		w.cycle()
		if w.file(PathOf(widget(0))) == "" {
			t.Error("quarantined and alive, yet its file is gone")
		}
		w.wantFiles(21 - 2)
	})
}

// An adoption is not settled while what this cluster lacks could not be judged.
func TestAdoptionWaitsForPostponed(t *testing.T) {
	w := mirrored(t, widgetRange(0, 20)...)
	w.cluster = newFakeCluster("uid-two")
	w.put(widgetRange(2, 20)...)
	w.restart()
	if _, err := w.mirror.Adopt(t.Context(), w.now); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.cluster.proofs[widgets] = errors.New("etcd leader changed")
	w.cycle()
	if got := w.file(MarkerName); !strings.Contains(got, "adopted") {
		t.Errorf("the marker forgot the adoption:\n%s", got)
	}
	delete(w.cluster.proofs, widgets)
	w.restart()
	w.wantHeld(w.cycle(), 2)
	w.wantFiles(21)
}

// An adoption is not settled while anything is held of what this cluster lacks, be
// its CRDs as young as in a restored cluster, or not there at all.
func TestAdoptionWaitsForWhatIsHeld(t *testing.T) {
	for _, tc := range []struct {
		name string
		held int
		new  func(*fakeCluster, time.Time)
	}{
		{"the CRD is younger than base", 2, func(c *fakeCluster, now time.Time) { c.created[widgets] = now.Add(time.Hour) }},
		{"the CRD is missing", 20, func(c *fakeCluster, _ time.Time) {
			delete(c.scopes, widgets)
			clear(c.objects)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := mirrored(t, widgetRange(0, 20)...)
			w.cluster = newFakeCluster("uid-two")
			w.put(widgetRange(2, 20)...)
			tc.new(w.cluster, w.now)
			w.restart()
			if _, err := w.mirror.Adopt(t.Context(), w.now); err != nil {
				t.Fatal(err)
			}
			for range 2 { // base has moved by the second time
				w.restart()
				w.wantHeld(w.cycle(), tc.held)
				w.wantFiles(21)
				if got := w.file(MarkerName); !strings.Contains(got, "adopted") {
					t.Errorf("the marker forgot the adoption:\n%s", got)
				}
				w.now = w.now.Add(2 * time.Hour)
			}
		})
	}
}

// The approval is still there, and still lets its set through, when the commit
// that used it did not arrive, and the remote cannot even be asked why.
func TestApprovedDeletionSurvivesALostPush(t *testing.T) {
	w := newWorld(t)
	server, err := gittest.NewHTTP(filepath.Dir(w.remote), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	w.url = server.URL(filepath.Base(w.remote))
	w.put(widgetRange(0, 40)...)
	w.restart()
	w.cycle()
	w.remove(widgetRange(0, tooMany)...)
	report := w.cycle()
	w.wantHeld(report, tooMany)
	w.approve(report.Held.Digest())
	w.mirror.Recheck()
	accept := w.refuse()
	if _, err := w.tryCycle(); err == nil {
		t.Fatal("the remote refused the push, yet the cycle returned no error")
	}
	w.wantFiles(fortyFiles)
	server.Off()
	if _, err := w.tryCycle(); err == nil {
		t.Fatal("a cycle without a remote returned no error")
	}
	accept()
	if err := server.On(); err != nil {
		t.Fatal(err)
	}
	w.wantHeld(w.cycle(), 0)
	w.wantFiles(fortyFiles - tooMany)
	if got := w.git("-C", w.remote, "for-each-ref", w.mirror.refs.Held, w.mirror.refs.Approved); got != "" {
		t.Errorf("used refs are still there:\n%s", got)
	}
}

// A list that cannot be read now is no list that says nothing: the approval would
// be taken back unused.
func TestUnreadableListIsNoEmptyList(t *testing.T) {
	w, _ := holding(t)
	held := w.store.Ref(w.mirror.refs.Held)
	if set, err := readHeld(t.Context(), w.store, held); err != nil || len(set) != tooMany {
		t.Errorf("the list: %d deletions, %v", len(set), err)
	}
	if _, err := readHeld(t.Context(), w.store, w.store.Head()); !errors.Is(err, errNoList) {
		t.Errorf("a commit without a list: %v, want errNoList", err)
	}
	missing := gitstore.BlobHash([]byte("no commit"))
	if _, err := readHeld(t.Context(), w.store, missing); err == nil || errors.Is(err, errNoList) {
		t.Errorf("a commit that cannot be read: %v, want another error than errNoList", err)
	}
}

// An approval that names nothing that waits is no standing flag for later.
func TestApprovalEnds(t *testing.T) {
	w, report := holding(t)
	w.approve(report.Held.Digest())
	// Before the agent looks, all come back from a backup, and others vanish.
	w.put(widgetRange(0, tooMany)...)
	for _, key := range widgetRange(0, tooMany) {
		w.tell(key)
	}
	w.remove(widgetRange(20, 20+tooMany)...)
	w.mirror.Recheck()
	w.wantHeld(w.cycle(), tooMany)
	if got := w.git("-C", w.remote, "for-each-ref", w.mirror.refs.Approved); got != "" {
		t.Errorf("the approval stands:\n%s", got)
	}
	w.now = w.now.Add(1000 * time.Hour)
	w.remove(widgetRange(0, tooMany)...)
	w.wantHeld(w.cycle(), 2*tooMany)
	w.wantFiles(fortyFiles)
}

// A deletion whose commit has to be derived again is still one deletion, and so
// is a change.
func TestDeletionsCountOnce(t *testing.T) {
	t.Run("for the guard, when the push was lost", func(t *testing.T) {
		w := mirrored(t, widgetRange(0, 60)...)
		w.remove(widgetRange(0, 12)...) // a fifth; twice as many would be held
		accept := w.refuse()
		for range 2 {
			if _, err := w.tryCycle(); err == nil {
				t.Fatal("the remote refused the push, yet the cycle returned no error")
			}
		}
		accept()
		w.wantHeld(w.cycle(), 0)
		w.wantFiles(61 - 12)
	})
	t.Run("in the report, when another writer was faster", func(t *testing.T) {
		w := mirrored(t, widgetRange(0, 3)...)
		w.docs()
		w.change(widget(1), "2")
		w.remove(widget(2))
		if report := w.cycle(); report.Changed() != 1 || report.Deleted() != 1 {
			t.Errorf("reported %d changed, %d deleted; want 1 and 1", report.Changed(), report.Deleted())
		}
	})
}

// The held ref names what is held now, also when the first push that said so
// came too late.
func TestHeldRefFollows(t *testing.T) {
	w, _ := holding(t)
	w.remove(widgetRange(tooMany, tooMany+3)...)
	w.change(widget(30), "2")
	w.docs()
	report := w.cycle()
	w.wantHeld(report, tooMany+3)
	set, err := ParseHeldSet(w.git("-C", w.remote, "cat-file", "blob", w.mirror.refs.Held+":"+heldFile))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(report.Held.Keys(), set.Keys()); diff != "" {
		t.Errorf("the remote's held ref (-report +ref):\n%s", diff)
	}
}

// A quarantine protects an object that lives; with its kind it is over.
func TestRefusedEndsWithItsKind(t *testing.T) {
	w := mirrored(t, widgetRange(0, 3)...)
	w.inbox.Refused(t.Context(), widget(1), errors.New("no encoding"))
	w.cycle()
	w.inbox.KindGone(t.Context(), widgets)
	w.drop(widgetRange(0, 3)...)
	delete(w.cluster.scopes, widgets)
	w.list(namespaceResource)
	report := w.cycle()
	w.wantHeld(report, 3)
	if len(report.Refused) != 0 {
		t.Errorf("still quarantined: %v", report.Refused)
	}
	w.wantFiles(4)
}

// Files that are no mirror of an object must not make up for those that are,
// when all of a resource vanish.
func TestVanishCountsGovernedFiles(t *testing.T) {
	t.Run("not a person's file", func(t *testing.T) {
		w := mirrored(t, widgetRange(0, 9)...)
		w.edit(PathOf(widget(9)), stray)
		w.restart()
		w.cycle()
		w.remove(widgetRange(0, 9)...)
		w.wantHeld(w.cycle(), 9)
		w.wantFiles(11)
	})
	t.Run("not an orphan", func(t *testing.T) {
		w := mirrored(t, widgetRange(0, 9)...)
		w.rules.Select[0].Names = []string{"w00[0-7]"}
		w.restart()
		w.cycle()
		w.remove(widgetRange(0, 8)...)
		w.wantHeld(w.cycle(), 8)
		w.wantFiles(10)
	})
}
