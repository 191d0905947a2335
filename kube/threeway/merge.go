package threeway

import (
	"maps"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

// node decides about one place and what is below it.
func (d *decider) node(at place, in sides) result {
	if !at.known {
		in.O = value{}
	}
	switch {
	case equal(in.G, in.C):
		return agreed(in)
	case at.isShaped:
		return d.shapedEdit(at, in)
	}
	return d.merge(at, in)
}

// merge goes below a map or list, if the values are such and the type says how.
func (d *decider) merge(at place, in sides) result {
	if m, ok := d.types.asMap(at.typ); ok && all[map[string]any](in) {
		return d.mergeMap(at, in, m)
	}
	if l, ok := d.types.asList(at.typ); ok && all[[]any](in) && !byIndex(at.shaped) {
		if lists, ok := d.indexAll(at, in, l); ok {
			return d.mergeList(at, in, l, lists)
		}
	}
	return d.unit(at, in)
}

// all tells whether all values that are there are maps, or lists.
func all[T any](in sides) bool {
	for _, v := range []value{in.O, in.G, in.C} {
		if _, ok := v.v.(T); v.ok && !ok {
			return false
		}
	}
	return true
}

// byIndex tells whether places are named by their number in a list.
func byIndex(s *fieldpath.Set) bool {
	if s == nil {
		return false
	}
	found := false
	look := func(pe fieldpath.PathElement) { found = found || pe.Index != nil }
	s.Members.Iterate(look)
	s.Children.Iterate(look)
	return found
}

// mergeMap decides key by key. What comes and goes as one is a unit, unless both sides have it.
func (d *decider) mergeMap(at place, in sides, m *schema.Map) result {
	if at.item || isStruct(m) {
		if !in.G.ok || !in.C.ok {
			return d.unit(at, in)
		}
		at.known = at.known && in.O.ok
	}
	if !at.known {
		in.O, at.unknown = value{}, nil
	}
	if allEmpty(in) && !at.emptyIsNot {
		return d.unit(at, in)
	}
	o, g, c := content(in.O), content(in.G), content(in.C)
	w, f, b, k := map[string]any{}, map[string]any{}, map[string]any{}, map[string]any{}
	mark := len(d.remove)
	for _, key := range slices.Sorted(maps.Keys(union(o, g, c))) {
		r := d.key(at, m, key, sides{O: field(o, key), G: field(g, key), C: field(c, key)})
		put(w, key, r.W)
		put(f, key, r.F)
		put(b, key, r.B)
		put(k, key, r.K)
	}
	return d.contain(at, in, result{W: some(w), F: some(f), B: some(b), K: some(k)}, mark)
}

func put(m map[string]any, key string, v value) {
	if v.ok {
		m[key] = v.v
	}
}

func some(v any) value { return value{ok: true, v: v} }

// allEmpty tells whether no map or list has content.
func allEmpty(in sides) bool {
	return (!in.O.ok || isEmpty(in.O.v)) && (!in.G.ok || isEmpty(in.G.v)) && (!in.C.ok || isEmpty(in.C.v))
}

// key decides about one key of a map.
func (d *decider) key(at place, m *schema.Map, key string, in sides) result {
	if equal(in.G, in.C) {
		return agreed(in) // most are: no place needs to be made
	}
	child := at.child(fieldpath.FieldNameElement(key), fieldType(m, key))
	if !child.known {
		in.O = value{}
	}
	switch {
	case child.metadata:
		child.typ = d.metadata
	case at.root && key == "status":
		return d.status(child, in)
	case at.metadata && (key == "name" || key == "namespace"):
		return result{W: in.C, F: in.G, B: in.C, K: in.C} // an empty namespace is none
	case at.metadata && !keptMetadata(key), key == lastApplied && at.isAnnotations():
		return d.find(child, in, EditsServerSet)
	}
	return d.node(child, in)
}

// status is the cluster's. A person's edit of it is reported once and put right.
func (d *decider) status(at place, in sides) result {
	if at.known && !equal(in.G, in.O) {
		d.find(at, in, EditsStatus)
	}
	return agreed(in)
}

// contain decides whether a map or list is there, once its content is decided: with content it
// is. Without, it is where it has not been removed, and mark is where the removals of its content begin.
func (d *decider) contain(at place, in sides, r result, mark int) result {
	if at.emptyIsNot {
		return result{W: emptyLike(r.W, in.C), F: emptyLike(r.F, in.G), B: emptyLike(r.B, in.C), K: emptyLike(r.K, in.C)}
	}
	gone := at.known && in.O.ok
	switch {
	case in.G.ok && in.C.ok:
		return r
	case gone && !in.G.ok && isEmpty(r.W.v):
		if reason := d.objection(at, in, true); reason != "" {
			d.report(at, in, reason)
			r.F = nonEmpty(r.F)
			return r
		}
		d.remove = append(d.remove[:mark], at.path.Copy())
		r.W, r.F, r.B = value{}, nonEmpty(r.F), nonEmpty(r.B)
		return r
	case gone && !in.C.ok && isEmpty(r.F.v):
		if reason := d.objection(at, in, false); reason != "" {
			d.report(at, in, reason)
			r.W = nonEmpty(r.W)
			return r
		}
	case gone && !in.G.ok:
		r.F, r.B = nonEmpty(r.F), nonEmpty(r.B)
		return r
	}
	return result{W: nonEmpty(r.W), F: nonEmpty(r.F), B: nonEmpty(r.B), K: nonEmpty(r.K)}
}

// nonEmpty returns a map or list with content, else none.
func nonEmpty(v value) value {
	if isEmpty(v.v) {
		return value{}
	}
	return v
}

// emptyLike returns a map or list with content, else what a side without content has.
func emptyLike(v, side value) value {
	if isEmpty(v.v) && (!side.ok || !isEmpty(side.v)) {
		return value{}
	}
	return v
}
