package sync

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/kubetest"
)

// TestTwoWriters lets people edit, create and delete objects in git and in the cluster at
// random while the agent works, dies and is refused; see twoWriters. The edits are the same
// each time; the long test takes others, and kinds of real projects.
func TestTwoWriters(t *testing.T) {
	root, err := kubetest.Root()
	if err != nil {
		t.Fatal(err)
	}
	w := newWriters(t, 1)
	w.install(filepath.Join(root, "testdata", "corpus"), ownKinds(), 2)
	w.run(4, 30, 4)
}

// writers are the two sides, and what each made of every field since they last agreed.
//
// An edit knows the edits that it was made on top of. When the agent carries a value
// over, the edits that stood there before have to be known to it: so an edit that is gone shows,
// whichever way it went. At rest, after each round:
//
//   - A field has the same value in git, in the cluster and in base, or a conflict is reported
//     that names it, its item or its object; and then nothing of it was written on either side.
//   - A field that only one side edited since they last agreed has the value of its last edit.
//   - A field that both edited to different values is a conflict.
//   - A conflict about a field is reported only if both edited it; about an item or an object
//     only if one side lacks it and both edited something in it.
//   - All else of the object is the same, too.
//
// "Edited" is said of values, since there is nothing else to compare: a side that went away
// from a value and came back, the other never having had what was between, did not edit it. To
// create or delete an item or an object edits all fields in it.
//
// There are three exceptions, and no other:
//
//   - A field in an announcement that no agent settled (the agent died, or the server's answer was
//     lost) may be asked about though one side alone edited it: whether the write landed and was
//     changed since, or never landed, is told by nothing. Neither side is overwritten. Base has no value for
//     it then, and no Apply entry of ours owns it: else it is known. Where
//     the announced write creates or deletes the object, or it was made anew meanwhile, this is so
//     for all of it; where it adds an item, for all of the item, defaults of the server included.
//     What was once asked about may be asked again until an agent has seen, and pushed, that both are equal.
//   - An object that an agent created before it died, and that somebody deleted before the next
//     looked, is created once more: it looks as if it had never been there.
//   - A field that the agent took from its owner, and that this owner sets to the same as before, is
//     asked about ("taken back"). Values here are new each time; only an item can be the same.
type writers struct {
	*pair
	rnd    *rand.Rand
	serial int64
	things []*thing
	clone  string // a person's
	base   string // a worktree of it, for base
	line   *line
	calls  chan func()   // what is to be done in the test's goroutine
	over   chan struct{} // closed when no cycle is awaited any more
	inside bool          // a cycle of the agent, between two of its steps
	faulty bool          // something was done to the present cycle
	counts map[string]int
}

// thing is one object that is edited.
type thing struct {
	*installed
	key     kube.Key
	fields  []*field
	stays   bool      // it is never deleted: what vanishes all at once is held
	writing types.UID // of the object that was being written when the agent died
	making  bool      // it was being created when the agent died
	had     types.UID // at the last look
	tale    []string
}

func newWriters(t *testing.T, seed uint64) *writers {
	t.Helper()
	t.Logf("seed %d", seed)
	w := &writers{pair: newPair(t), rnd: rand.New(rand.NewPCG(seed, 0)), calls: make(chan func()), counts: map[string]int{}}
	w.line = newLine(w.pair, kubetest.Shared(t).Config)
	w.opts.Prune = true
	w.guard = Limits{MaxDeleteObjects: 1 << 20, MaxDeletePercent: 100}
	return w
}

// install makes kinds of a corpus and some objects of each.
func (w *writers) install(corpus string, kinds []modelKind, objects int) {
	w.t.Helper()
	for i := range kinds {
		in := kinds[i].install(w.pair, corpus)
		for n := range objects {
			th := &thing{installed: in, stays: n == 0}
			th.key = kube.Key{Group: in.Group, Resource: in.Resource, Namespace: w.server.namespace, Name: fmt.Sprintf("%s-%d", strings.ToLower(in.kind), n)}
			for _, s := range in.spots {
				th.fields = append(th.fields, &field{spot: s})
			}
			w.things = append(w.things, th)
		}
	}
}

// run makes the rounds of edits, each with about so many, of which up to burst in a row
// on one side.
func (w *writers) run(rounds, edits, burst int) {
	w.t.Helper()
	for _, th := range w.things {
		th.settle()
		w.editCluster(th, th.fields)
	}
	w.agent()
	w.settled()
	w.clone = filepath.Join(w.t.TempDir(), "person")
	w.git("clone", "--quiet", w.remote, w.clone)
	w.pull()
	w.base = filepath.Join(w.t.TempDir(), "base")
	w.git("-C", w.clone, "worktree", "add", "--quiet", "--detach", w.base, "refs/base")
	w.check("at the start", w.settled())
	for round := range rounds {
		for until := w.counts["edits"] + edits; w.counts["edits"] < until; {
			switch w.rnd.IntN(5) {
			case 0, 1:
				for range 1 + w.rnd.IntN(burst) {
					w.editSomething()
				}
			case 2, 3:
				w.editGit(1 + w.rnd.IntN(burst))
			default:
				w.work()
			}
		}
		what := fmt.Sprintf("round %d", round)
		w.t.Logf("%s: %v", what, w.counts)
		report := w.settled()
		w.check(what, report)
		if len(report.Conflicts) > 0 && w.decide(report.Conflicts) {
			w.check(what+", after decisions", w.settled())
		}
	}
	c := w.counts
	w.t.Logf("%d edits; %d values came to the cluster, %d to git; %d conflicts, of which %d taken back and %d asked after a crash; %d settled by a person; %d edits right before a write",
		c["edits"], c["carried to cluster"], c["carried to git"], c["conflicts"], c["taken back"], c["asked after a crash"], c["settled by a person"], c["edited before a write"])
	for _, kind := range []string{"created", "deleted", "conflicts", "carried to git", "carried to cluster", "edited before a write"} {
		if w.counts[kind] == 0 {
			w.t.Errorf("nothing was %s", kind)
		}
	}
}

func (th *thing) settle() {
	for _, f := range th.fields {
		f.settle(noPlace)
	}
}

// tell adds to the tale of an object, which is told when something is wrong with it.
func (th *thing) tell(format string, args ...any) {
	th.tale = append(th.tale, fmt.Sprintf(format, args...))
}

// tellAll adds to all tales what is about none.
func (w *writers) tellAll(format string, args ...any) {
	for _, th := range w.things {
		th.tell(format, args...)
	}
}

// fail reports what is wrong with an object.
func (w *writers) fail(th *thing, format string, args ...any) {
	w.t.Helper()
	tale := th.tale[max(0, len(th.tale)-200):]
	w.t.Errorf("%s: %s\n\t%s", th.key.Name, fmt.Sprintf(format, args...), strings.Join(tale, "\n\t"))
}

// decide lets a person settle conflicts, or leave them; it tells whether he settled any.
func (w *writers) decide(conflicts []Conflict) bool {
	w.t.Helper()
	r := Resolution{Take: []Side{TakeGit, TakeCluster}[w.rnd.IntN(2)]}
	switch w.rnd.IntN(4) {
	case 0:
		return false
	case 1:
		c := conflicts[w.rnd.IntN(len(conflicts))]
		r.Resource, r.Name, r.Field = c.Key.GroupResource().String(), c.Key.Name, c.Field
	}
	side := map[Side]int{TakeGit: inGit, TakeCluster: inCluster}[r.Take]
	settled := w.resolve(r)
	w.counts["settled by a person"] += len(settled)
	for _, c := range conflicts {
		if !r.matches(&c) {
			continue
		}
		if !slices.ContainsFunc(settled, func(s Conflict) bool { return s.Key == c.Key && s.Field == c.Field }) {
			w.t.Errorf("%s %s was not settled", c.Key.Name, c.Field)
		}
		th := w.things[slices.IndexFunc(w.things, func(th *thing) bool { return th.key == c.Key })]
		th.tell("person: resolve %q, take %s", c.Field, r.Take)
		for _, f := range th.fields {
			if within(c.path, f.path) {
				f.at[side] = f.join(side)
			}
		}
	}
	return true
}
