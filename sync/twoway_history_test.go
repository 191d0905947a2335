package sync

import (
	"slices"
	"testing"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Where a field stands.
const (
	inGit = iota
	inCluster
)

// version is a value that somebody gave a field, and what he had before him. No two edits
// give the same value, so that a value that turns up on the other side tells whose edit
// it is; but for an item, an object and an absence, which are told apart by where they can come from.
type version struct {
	value string     // compact JSON, noPlace or notThere
	from  []*version // what it was made of; two where a person or an agreement settled them
	gone  bool       // the whole object went in the cluster
}

// knows tells whether v is w or was made on top of it.
func (v *version) knows(w *version) bool {
	return v == w || slices.ContainsFunc(v.from, func(f *version) bool { return f.knows(w) })
}

// covers tells whether nothing is lost of w where v stands: v was made knowing w, or w is
// no change. A side that went away from a value and came back, while the other side never had what was
// between, did not change it: the values are all that there is to compare.
func (v *version) covers(w *version) bool {
	switch {
	case v.knows(w):
		return true
	case len(w.from) == 0:
		return false
	case len(w.from) > 1:
		return w.value == w.from[0].value && !slices.ContainsFunc(w.from, func(f *version) bool { return !v.covers(f) })
	}
	for at := w.from[0]; ; at = at.from[0] {
		if at.value == w.value {
			return v.covers(at)
		}
		if len(at.from) != 1 || v.knows(at) {
			return false
		}
	}
}

// find returns the latest version with one of the values among v and what it was made of.
func (v *version) find(values ...string) *version {
	for layer := []*version{v}; len(layer) > 0; {
		var next []*version
		for _, at := range layer {
			if slices.Contains(values, at.value) {
				return at
			}
			next = append(next, at.from...)
		}
		layer = next
	}
	return nil
}

// field is one field of one object, with all that was made of it since both sides
// were known to agree.
type field struct {
	*spot
	at    [2]*version
	made  []*version
	may   bool // be asked about: it was being written when the agent died
	asked bool // about, when both sides were last looked at at rest
}

// settle forgets the past: both sides have that.
func (f *field) settle(value string) {
	agreed := &version{value: value}
	f.at, f.made, f.may = [2]*version{agreed, agreed}, []*version{agreed}, false
}

// touchedBy tells whether a write touches the field: it, what it lies in, what lies in it; and any
// field of an item that base does not have and that the write therefore adds.
func (f *field) touchedBy(fields *fieldpath.Set, base map[string]any) bool {
	touched := false
	fields.Iterate(func(p fieldpath.Path) {
		adds := func(item *spot) bool { return within(item.path, p) && !isThere(item.value(base)) }
		touched = touched || within(p, f.path) || within(f.path, p) || slices.ContainsFunc(f.parents, adds)
	})
	return touched
}

// edit is somebody's edit on a side.
func (f *field) edit(side int, value string, gone bool) {
	f.at[side] = f.make(value, f.at[side])
	f.at[side].gone = gone
}

// join makes one version of those of both sides: that of one side stands, knowing the other.
func (f *field) join(side int) *version {
	a, b := f.at[side], f.at[1-side]
	switch {
	case a.knows(b):
		return a
	case b.knows(a) && a.value == b.value:
		return b
	}
	return f.make(a.value, a, b)
}

// came notes the value that a side has now. If it is another than before, the agent carried
// it over; the result is false when there is nothing that it can have carried. What is removed comes
// back as its default, if it has one: in the cluster at once, and then in git.
func (f *field) came(side int, value string) bool {
	was, other := f.at[side], f.at[1-side]
	if was.value == value {
		return true
	}
	from := []string{value}
	if value == f.preset && side == inCluster {
		from = append(from, notThere)
	}
	v := other.find(from...)
	switch {
	case v == nil:
		return false
	case v.value != value:
		v = f.make(value, v)
	case value == f.preset && side == inGit && was.value == notThere && v == other:
		v = f.make(value, v, was)
		f.at[inCluster] = v
	}
	f.at[side] = v
	return true
}

// make makes a version of others.
func (f *field) make(value string, from ...*version) *version {
	v := &version{value: value, from: from}
	f.made = append(f.made, v)
	return v
}

// lost returns a last edit of which neither side has anything. That a default was removed is never
// seen: it comes back at once.
func (f *field) lost() *version {
	known := map[*version]bool{}
	for _, v := range f.made {
		for _, from := range v.from {
			known[from] = true
		}
	}
	for _, v := range f.made {
		if !known[v] && !f.at[inGit].covers(v) && !f.at[inCluster].covers(v) && !f.removesDefault(v) {
			return v
		}
	}
	return nil
}

// removesDefault tells whether a version is that the field is not there, where it had its default before.
func (f *field) removesDefault(v *version) bool {
	return f.preset != "" && v.value == notThere && v.find(f.preset) != nil
}

// differs tells whether git and the cluster have different values.
func (f *field) differs() bool { return f.at[inGit].value != f.at[inCluster].value }

// within tells whether a path is another, or leads into it.
func within(outer, inner fieldpath.Path) bool {
	return len(outer) <= len(inner) && outer.Equals(inner[:len(outer)])
}

// TestHistory: what a value knows, what counts as an edit, and what is gone.
func TestHistory(t *testing.T) {
	for _, tt := range []struct {
		name            string
		git, cluster    string // edits, by their values
		between         string // what both agree on after the first edit in git, "" for nothing
		lost, contested bool
		last            string // both have this in the end
	}{
		{name: "one side", git: "b", last: "b"},
		{name: "both", git: "b", cluster: "c", last: "b", lost: true, contested: true},
		{name: "one after the other", git: "b", between: "b", cluster: "c", last: "c"},
		{name: "one after the other, the first stands", git: "b", between: "b", cluster: "c", last: "b", lost: true},
		{name: "away and back is no edit", git: "b", cluster: "ca", last: "b"},
		{name: "away, seen, and back is one", git: "bd", between: "b", cluster: "a", last: "d", lost: true, contested: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &field{spot: &spot{}}
			f.settle("a")
			for i, v := range tt.git {
				f.edit(inGit, string(v), false)
				if i == 0 && tt.between != "" && !f.came(inCluster, tt.between) {
					t.Fatalf("%s cannot have come", tt.between)
				}
			}
			for _, v := range tt.cluster {
				f.edit(inCluster, string(v), false)
			}
			contested := !f.at[inGit].covers(f.at[inCluster]) && !f.at[inCluster].covers(f.at[inGit])
			if contested != tt.contested {
				t.Errorf("contested %v, want %v", contested, tt.contested)
			}
			if v := f.lost(); v != nil {
				t.Errorf("%s is gone before anything was carried over", v.value)
			}
			for side := range f.at {
				if !f.came(side, tt.last) {
					t.Errorf("%s cannot have come", tt.last)
				}
			}
			if got := f.lost() != nil; got != tt.lost {
				t.Errorf("lost %v, want %v", got, tt.lost)
			}
			if f.came(inGit, "x") {
				t.Error("a value came that nobody gave")
			}
		})
	}
}

// TestHistoryOfDefault: a default that git removed and that came back at once is not gone when the
// cluster goes on from it; the removal of another value is.
func TestHistoryOfDefault(t *testing.T) {
	for preset, want := range map[string]bool{"d": false, "": true} {
		f := &field{spot: &spot{preset: preset}}
		f.settle("d")
		f.edit(inGit, notThere, false)
		f.edit(inCluster, "x", false)
		if !f.came(inGit, "x") {
			t.Error("x cannot have come")
		}
		if got := f.lost() != nil; got != want {
			t.Errorf("default %q: lost %v, want %v", preset, got, want)
		}
	}
}
