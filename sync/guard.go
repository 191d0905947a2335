package sync

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/kube"
)

// GuardWindow is how long deletions count together.
const GuardWindow = 10 * time.Minute

const (
	// percentFrom is the number of deletions below which MaxDeletePercent says
	// nothing: three of four objects is an ordinary afternoon.
	percentFrom = 10
	// vanishFrom is the number of files from which "all files of a resource
	// vanish at once" is a reason to wait. Whoever deletes the only issuer, or
	// both, means it; and many small resources that vanish together exceed the
	// limits over all.
	vanishFrom = 3
)

// Reason is why an object is absent.
type Reason int

// Why an object is absent.
const (
	ReasonDeleted    Reason = iota + 1 // the server said so, or a complete listing lacks it
	ReasonUnselected                   // it changed and no rule selects it any more
	ReasonKindGone                     // its kind is gone or was replaced: no proof of anything
	ReasonPruned                       // its file was deleted in git; it is the object that is to go
	ReasonAdopted                      // the files are another cluster's, adopted; this one never had it
)

// Limits are how much may be deleted within GuardWindow without a person's approval.
type Limits struct {
	MaxDeleteObjects int // per resource and in all; 0 lets no deletion through
	MaxDeletePercent int // of the files, per resource and in all, from ten deletions on; 100 = any
}

// Candidate is a file whose object is absent.
type Candidate struct {
	Key    kube.Key
	Reason Reason
}

// Deletion is an executed deletion.
type Deletion struct {
	Resource schema.GroupResource
	When     time.Time
}

// GuardInput is all that the guard judges by.
type GuardInput struct {
	Candidates []Candidate                  // every absent object that has a file, those held before included
	Files      map[schema.GroupResource]int // files in the tree now, the candidates' included
	History    []Deletion                   // executed without approval; what is older than GuardWindow is ignored
	Held       HeldSet                      // what the last judgement held
	Approved   map[kube.Key]bool            // exactly what a person let through
	Limits     Limits
	Now        time.Time
}

// Guard decides which files may be deleted now and which wait for a person's
// approval. Both results are sorted by key; same input, same result.
//
// A deletion that is not approved waits
//   - when its kind is gone, or its file came with an adopted tree;
//   - when it was held before: time alone releases nothing;
//   - when at least three files of its resource are all that there are, and
//     all their objects are absent;
//   - when deletions of its resource, or of all resources, within GuardWindow
//     exceed the limits. All of them wait then, not only those above the limit:
//     it is one event, and a person decides on it as a whole.
//
// Invariant: nothing is allowed beyond these rules unless Approved names it.
// TestGuard, TestGuardProperties.
func Guard(in GuardInput) (allowed []kube.Key, held HeldSet) {
	g := newGuard(in)
	for _, c := range g.in.Candidates {
		text := g.judge(c)
		if text == "" {
			allowed = append(allowed, c.Key)
			continue
		}
		since := in.Now
		if before, ok := g.before[c.Key]; ok && !before.Since.IsZero() {
			since = before.Since
		}
		held = append(held, Held{Key: c.Key, Reason: c.Reason, Text: text, Since: since})
	}
	return allowed, held
}

// guard is the input with what the rules count.
type guard struct {
	in     GuardInput
	before map[kube.Key]Held               // what was held already
	absent map[schema.GroupResource]int    // candidates
	byKind map[schema.GroupResource]string // reason of a resource over its limits
	inAll  string                          // reason when all together are
}

// tally counts deletions of one resource, or of all.
type tally struct {
	deletions int // within the window: executed, fresh, and held since then
	executed  int // those of them whose files are gone already
	files     int // in the tree now
}

func newGuard(in GuardInput) *guard {
	in.Candidates = slices.Clone(in.Candidates)
	slices.SortFunc(in.Candidates, func(a, b Candidate) int { return CompareKeys(a.Key, b.Key) })
	in.Candidates = slices.CompactFunc(in.Candidates, func(a, b Candidate) bool { return a.Key == b.Key })
	g := &guard{
		in:     in,
		before: map[kube.Key]Held{},
		absent: map[schema.GroupResource]int{},
		byKind: map[schema.GroupResource]string{},
	}
	for _, h := range in.Held {
		g.before[h.Key] = h
	}
	for _, c := range in.Candidates {
		g.absent[c.Key.GroupResource()]++
	}
	g.count()
	return g
}

// count finds the resources that exceed the limits. What a person approved is
// neither counted here nor, by the caller, entered into the history.
func (g *guard) count() {
	kinds := map[schema.GroupResource]*tally{}
	all := &tally{}
	kind := func(gr schema.GroupResource) *tally {
		if kinds[gr] == nil {
			kinds[gr] = &tally{files: g.in.Files[gr]}
		}
		return kinds[gr]
	}
	for _, d := range g.in.History {
		if g.in.Now.Sub(d.When) < GuardWindow {
			for _, t := range []*tally{kind(d.Resource), all} {
				t.deletions++
				t.executed++
			}
		}
	}
	for _, c := range g.in.Candidates {
		if g.counts(c) {
			kind(c.Key.GroupResource()).deletions++
			all.deletions++
		}
	}
	for _, n := range g.in.Files {
		all.files += n
	}
	for gr, t := range kinds {
		g.byKind[gr] = t.exceeds(g.in.Limits, gr.String())
	}
	g.inAll = all.exceeds(g.in.Limits, "objects")
}

// counts tells whether a candidate is one of the window's deletions.
func (g *guard) counts(c Candidate) bool {
	if g.in.Approved[c.Key] || c.Reason == ReasonKindGone || c.Reason == ReasonAdopted {
		return false
	}
	before, wasHeld := g.before[c.Key]
	return !wasHeld || g.in.Now.Sub(before.Since) < GuardWindow
}

// exceeds returns the reason why the deletions are too many, or "".
func (t *tally) exceeds(l Limits, what string) string {
	if t.deletions > l.MaxDeleteObjects {
		return fmt.Sprintf("%d %s deleted within %d minutes, more than maxDeleteObjects (%d)",
			t.deletions, what, int(GuardWindow.Minutes()), l.MaxDeleteObjects)
	}
	files := t.files + t.executed // as many as there were when the window began
	if t.deletions >= percentFrom && t.deletions*100 > l.MaxDeletePercent*files {
		return fmt.Sprintf("%d of %d %s deleted within %d minutes, more than maxDeletePercent (%d)",
			t.deletions, files, what, int(GuardWindow.Minutes()), l.MaxDeletePercent)
	}
	return ""
}

// judge returns why a deletion waits, or "" when it need not.
func (g *guard) judge(c Candidate) string {
	gr := c.Key.GroupResource()
	before, wasHeld := g.before[c.Key]
	switch {
	case g.in.Approved[c.Key]:
		return ""
	case c.Reason == ReasonKindGone:
		return "the kind is gone from the cluster"
	case c.Reason == ReasonAdopted:
		return "in git when this cluster adopted it, never seen in this cluster"
	case wasHeld && (before.Reason == ReasonDeleted || before.Reason == ReasonUnselected || before.Reason == ReasonPruned):
		return before.Text
	case wasHeld:
		return "held before: " + before.Text
	case g.in.Files[gr] >= vanishFrom && g.absent[gr] >= g.in.Files[gr]:
		return fmt.Sprintf("all %d %s vanished at once", g.in.Files[gr], gr)
	case g.byKind[gr] != "":
		return g.byKind[gr]
	}
	return g.inAll
}
