package sync

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/kubetest"
	"github.com/crmirror/crmirror/kube/threeway"
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
//     changed since, or never landed, is told by nothing. Neither side is overwritten. Where
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
		w.editCluster(th)
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
					w.editCluster(w.pick())
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
	w.t.Logf("%v", w.counts)
	for _, kind := range []string{"created", "deleted", "conflicts", "carried to git", "carried to cluster"} {
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
	tale := th.tale[max(0, len(th.tale)-60):]
	w.t.Errorf("%s: %s\n\t%s", th.key.Name, fmt.Sprintf(format, args...), strings.Join(tale, "\n\t"))
}

// look sees what both sides have now.
func (w *writers) look() {
	w.t.Helper()
	w.pull()
	for _, th := range w.things {
		th.had = w.see(th).GetUID()
		w.join(th)
	}
}

// see sees what both sides have of an object, git as it was pulled: first the cluster, where
// defaults come from. It returns the live object, an empty one if there is none.
func (w *writers) see(th *thing) *unstructured.Unstructured {
	w.t.Helper()
	live := w.live(th)
	if live == nil {
		live = &unstructured.Unstructured{}
	}
	w.came(th, inCluster, live.Object)
	w.came(th, inGit, w.fileOf(th))
	return live
}

// came notes what a side has of an object; what is new there the agent carried over.
func (w *writers) came(th *thing, side int, content map[string]any) {
	w.t.Helper()
	for _, f := range th.fields {
		was, now := f.at[side].value, f.value(content)
		if was == now {
			continue
		}
		th.tell("agent: %s of %s: %s to %s", f.path, sideName(side), was, now)
		w.counts["carried to "+sideName(side)]++
		if !f.came(side, now) {
			w.fail(th, "%s has %s in %s, which the other side never had", f.path, now, sideName(side))
			f.edit(side, now, false)
		}
	}
}

func sideName(side int) string { return []string{"git", "cluster"}[side] }

// join notes what both sides came to by themselves, and base has as well: nobody's edit from then on.
func (w *writers) join(th *thing) {
	var base map[string]any
	var unknown threeway.Unknown
	for _, f := range th.fields {
		if f.at[inGit] == f.at[inCluster] || f.differs() {
			continue
		}
		if base == nil {
			w.pullBase()
			base, unknown = w.baseOf(th), w.unknownOf(th)
		}
		// Where base has no value it has not agreed that there is none.
		if f.value(base) == f.at[inGit].value && !f.among(unknown) {
			v := f.join(inGit)
			f.at = [2]*version{v, v}
		}
	}
}

// check compares both sides at rest, and forgets what they agree on.
func (w *writers) check(when string, report *Report) {
	w.t.Helper()
	w.look()
	w.pullBase()
	if len(report.Refusals)+len(report.Findings)+len(report.Held)+len(report.Postponed) > 0 {
		w.t.Errorf("refusals %v, findings %v, held %v, postponed %v", report.Refusals, report.Findings, report.Held, report.Postponed)
	}
	for _, th := range w.things {
		var conflicts []Conflict
		for _, c := range report.Conflicts {
			if c.Key == th.key {
				conflicts = append(conflicts, c)
			}
		}
		th.tell("%s: %d conflicts", when, len(conflicts))
		w.checkConflicts(th, conflicts)
		w.checkFields(th, conflicts)
	}
	if w.t.Failed() {
		w.t.Fatalf("%s; %v", when, w.counts)
	}
}

// checkConflicts expects every conflict to be real.
func (w *writers) checkConflicts(th *thing, conflicts []Conflict) {
	w.t.Helper()
	for _, c := range conflicts {
		w.counts["conflicts"]++
		th.tell("conflict: %s, %s: base %s, git %s, cluster %s", c.Field, c.Reason, c.Base, c.Git, c.Cluster)
		i := slices.IndexFunc(th.fields, func(f *field) bool { return f.path.Equals(c.path) })
		if len(c.path) > 0 && i < 0 {
			w.fail(th, "a conflict about %s, which nobody edits", c.Field)
			continue
		}
		if whole := len(c.path) == 0 || th.fields[i].whole(); whole && (c.Git == absent) == (c.Cluster == absent) {
			w.fail(th, "a conflict about all of %q, which both sides have", c.Field)
		}
		if c.Git == c.Cluster {
			w.fail(th, "a conflict about %s, though both have %s", c.Field, c.Git)
		}
		byGit, byCluster, asked := false, false, strings.HasPrefix(c.Reason, takenBack) && i >= 0 && th.fields[i].whole()
		for _, f := range th.fields {
			if within(c.path, f.path) {
				byGit = byGit || !f.at[inCluster].covers(f.at[inGit])
				byCluster = byCluster || !f.at[inGit].covers(f.at[inCluster])
				asked = asked || f.differs() && (th.maybe(f) || f.asked)
			}
		}
		switch {
		case byGit && byCluster:
		case asked:
			w.counts["asked after a crash"]++
		default:
			w.fail(th, "a conflict about %q, which only one side edited", c.Field)
		}
	}
}

// maybe tells whether a field may be asked about, for it was being written when an agent died.
func (th *thing) maybe(f *field) bool {
	return f.may || th.making || th.writing != "" && th.writing != th.had
}

// checkFields expects no edit to be gone, and what is not in conflict to be equal.
func (w *writers) checkFields(th *thing, conflicts []Conflict) {
	w.t.Helper()
	base, file := w.baseOf(th), w.fileOf(th)
	for _, f := range th.fields {
		open := slices.ContainsFunc(conflicts, func(c Conflict) bool { return within(c.path, f.path) })
		if v := f.lost(); v != nil && (!v.gone || !th.making) {
			w.fail(th, "%s: an edit to %q is gone; git has %q, the cluster %q", f.path, v.value, f.at[inGit].value, f.at[inCluster].value)
		}
		if f.asked = open; open {
			continue
		}
		if f.differs() {
			w.fail(th, "%s: git has %q, the cluster %q, and that is not reported", f.path, f.at[inGit].value, f.at[inCluster].value)
		}
		if got := f.value(base); got != f.at[inGit].value {
			w.fail(th, "%s: both have %q, and base %q", f.path, f.at[inGit].value, got)
		}
		f.settle(f.at[inGit].value)
	}
	if len(conflicts) > 0 {
		return
	}
	th.writing, th.making = "", false
	var cluster map[string]any
	if live := w.live(th); live != nil {
		cluster = w.encoded(live)
	}
	file, cluster, base = th.inOrder(file), th.inOrder(cluster), th.inOrder(base)
	if !sameObject(file, cluster) || !sameObject(file, base) {
		w.fail(th, "git has %s\ncluster has %s\nbase has %s", compact(file), compact(cluster), compact(base))
	}
}

// inOrder sorts the lists in which order says nothing, and leaves out what of metadata is empty.
func (th *thing) inOrder(content map[string]any) map[string]any {
	for _, name := range []string{"labels", "annotations"} {
		path := fieldpath.MakePathOrDie("metadata", name)
		if m, _ := lookUp(content, path); m != nil && len(m.(map[string]any)) == 0 {
			content = put(content, path, nil).(map[string]any)
		}
	}
	for _, f := range th.fields {
		list := f.path[:len(f.path)-1]
		if v, _ := lookUp(content, list); f.path[len(list)].FieldName == nil && v != nil {
			content = put(content, list, slices.SortedFunc(slices.Values(v.([]any)), func(a, b any) int {
				return strings.Compare(compact(a), compact(b))
			})).(map[string]any)
		}
	}
	return content
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
