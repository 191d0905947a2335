package sync

import (
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/threeway"
)

// object is the objection to a one-sided change, or "".
func (t *twoWay) object(j *judgement, move threeway.Move) string {
	if move.ToCluster {
		for _, owner := range j.owners.Owners(move.Path) {
			if slices.Contains(t.opts.Respect, owner.Name) {
				return ownedBy + owner.Name
			}
		}
		if len(move.Path) == 0 && j.live != nil { // the object goes, and with it all that they own
			for _, m := range j.live.GetManagedFields() {
				if slices.Contains(t.opts.Respect, m.Manager) && m.Subresource != "status" {
					return ownedBy + m.Manager
				}
			}
		}
		return ""
	}
	if by := t.tookBack(j, move.Path); by != "" {
		return takenBack + by
	}
	return ""
}

// ownedBy begins the reason of a conflict about a field that is not taken.
const ownedBy = "owned by "

// takenBack begins the reason of a conflict about a field that its owner took back.
const takenBack = "taken back by "

// tookBack names who took back a field that we had set; "" when nobody did. What was
// found before stands in base, and thus outlives the agent.
func (t *twoWay) tookBack(j *judgement, path fieldpath.Path) string {
	if hasFrom(j.base.taken, path) {
		if owners := j.owners.Owners(path); len(owners) > 0 {
			return owners[0].Name
		}
		return "its owner"
	}
	for _, lost := range t.taken[j.key] {
		if lost.hasBack(j, path) {
			return lost.manager
		}
	}
	return ""
}

// hasFrom tells whether a set has a path, or one that it lies below.
func hasFrom(set *fieldpath.Set, path fieldpath.Path) bool {
	for i := 1; set != nil && i <= len(path); i++ {
		if set.Has(path[:i]) {
			return true
		}
	}
	return false
}

// loss is a field that an owner lost to us, and the value that it had there: a leaf, or a
// map, list or item that went as one and may come back leaf by leaf. An owner
// that sets that very value again takes the field back; another value is a change like any,
// and ends the loss.
type loss struct {
	path    fieldpath.Path
	manager string
	had     fieldValue // before our write
	has     fieldValue // since our write
}

// fieldValue is what a field has.
type fieldValue struct {
	value   any
	present bool
}

func valueOf(object map[string]any, path fieldpath.Path) fieldValue {
	value, present := valueAt(object, path)
	return fieldValue{value, present}
}

func (v fieldValue) equals(o fieldValue) bool {
	return v.present == o.present && kube.EqualValues(v.value, o.value)
}

// hasBack tells whether the owner has a field again, the lost one or one below it.
func (l loss) hasBack(j *judgement, path fieldpath.Path) bool {
	if len(path) < len(l.path) || !path[:len(l.path)].Equals(l.path) {
		return false
	}
	had := l.had
	if below := path[len(l.path):]; len(below) > 0 {
		had.value, had.present = valueAt(l.had.value, below)
	}
	return valueOf(j.cluster, path).equals(had) &&
		slices.ContainsFunc(j.owners.Owners(path), func(o apply.Owner) bool { return o.Name == l.manager })
}

// lose notes the fields that owners lost by a write that landed; before is what the
// cluster had, and j what it has.
func (t *twoWay) lose(j *judgement, written *fieldpath.Set, displaced []apply.Displaced, before map[string]any) {
	list := t.taken[j.key]
	for i := range list {
		if written.Has(list[i].path) { // the person insists
			list[i].has = valueOf(j.cluster, list[i].path)
		}
	}
	for _, d := range displaced {
		lost := loss{path: d.Path.Copy(), manager: d.Owner.Name, had: valueOf(before, d.Path), has: valueOf(j.cluster, d.Path)}
		list = slices.DeleteFunc(list, func(l loss) bool { return l.manager == lost.manager && l.path.Equals(lost.path) })
		list = append(list, lost)
	}
	t.setLosses(j.key, list)
}

// endLosses forgets the losses that are over: both sides agreed on something else there
// since, or it was told, and base remembers it.
func (t *twoWay) endLosses(j *judgement) {
	if _, landed := t.landed[j.key]; landed {
		return // base is behind
	}
	t.setLosses(j.key, slices.DeleteFunc(t.taken[j.key], func(l loss) bool {
		return j.base.taken != nil && j.base.taken.Has(l.path) || !valueOf(j.base.content, l.path).equals(l.has)
	}))
}

func (t *twoWay) setLosses(key kube.Key, list []loss) {
	if len(list) == 0 {
		delete(t.taken, key)
		return
	}
	t.taken[key] = list
}

// ValueAt returns the value at a path of decoded content, and whether there is one.
func ValueAt(content map[string]any, path fieldpath.Path) (any, bool) { return valueAt(content, path) }

func valueAt(at any, path fieldpath.Path) (any, bool) {
	steps := stepsOf(at, path)
	if len(steps) != len(path) {
		return nil, false
	}
	for _, step := range steps {
		switch s := step.(type) {
		case string:
			fields, _ := at.(map[string]any)
			value, ok := fields[s]
			if !ok {
				return nil, false
			}
			at = value
		case int:
			at = at.([]any)[s]
		}
	}
	return at, true
}
