package sync

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/threeway"
)

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
		back := strings.HasPrefix(c.Reason, takenBack)
		if back {
			w.counts["taken back"]++
		}
		byGit, byCluster, asked := false, false, back && i >= 0 && th.fields[i].whole()
		for _, f := range th.fields {
			if within(c.path, f.path) {
				byGit = byGit || !f.at[inCluster].covers(f.at[inGit])
				byCluster = byCluster || !f.at[inGit].covers(f.at[inCluster])
				asked = asked || f.differs() && w.mayAsk(th, f, c.Base)
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

// mayAsk tells whether a field may be asked about though one side alone edited it: base does not know what
// it was, since it was being written when an agent died; and the cluster's value is not one that our
// Apply entry owns, for then it is known who wrote it. A default that came with a write is nobody's edit.
func (w *writers) mayAsk(th *thing, f *field, base Shown) bool {
	switch live := w.live(th); {
	case f.may && f.preset != "" && f.at[inCluster].value == f.preset:
		return true
	case base != unknown:
		return false
	case f.asked || th.making || th.writing != "" && th.writing != th.had:
		return true
	case !f.may || live == nil:
		return f.may
	default:
		owners, err := apply.ReadOwnership(live)
		if err != nil {
			w.t.Fatal(err)
		}
		return !owners.Applied().Has(f.path)
	}
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

// unknownOf is what base says that it has no values for.
func (w *writers) unknownOf(th *thing) threeway.Unknown {
	content, err := os.ReadFile(filepath.Join(w.base, "clusters/lab", unknownFile))
	if errors.Is(err, fs.ErrNotExist) {
		return threeway.Unknown{}
	}
	if err != nil {
		w.t.Fatal(err)
	}
	unknown, err := parseUnknown(content)
	if err != nil {
		w.t.Fatal(err)
	}
	return unknown[th.key].unknown
}

// among tells whether base has no value for the field, or for something of it. That an item is
// there may be agreed while something in it is not.
func (f *field) among(unknown threeway.Unknown) bool {
	found := unknown.Object
	if unknown.Fields != nil {
		unknown.Fields.Iterate(func(p fieldpath.Path) { found = found || within(p, f.path) || !f.whole() && within(f.path, p) })
	}
	return found
}
