package threeway

import (
	"maps"
	"math/rand/v2"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

// random makes objects of a type, and edits of them. What it makes fits the type.
type random struct {
	*rand.Rand
	types types
	typ   typeRef
	wrong bool // edits put in values of wrong types now and then
}

func (r *random) one(n int) bool { return r.IntN(n) == 0 }

// object makes an object with what the type has and some metadata.
func (r *random) object() map[string]any {
	obj := r.value(r.typ, 0).(map[string]any)
	obj["apiVersion"], obj["kind"] = "example.dev/v1", "Thing"
	delete(obj, "status")
	obj["metadata"] = r.meta()
	return obj
}

func (r *random) meta() map[string]any {
	meta := r.value(metadataType(), 0).(map[string]any)
	for _, k := range []string{"labels", "annotations", "finalizers", "ownerReferences"} {
		if isEmpty(meta[k]) {
			delete(meta, k) // as Encode does
		}
	}
	meta["name"] = "x"
	delete(meta, "namespace")
	return meta
}

// value makes a value: few different ones, so that they meet.
func (r *random) value(typ typeRef, depth int) any {
	if typ.Nullable && r.one(6) {
		return nil
	}
	atom, _ := r.types.schema.Resolve(typ)
	switch {
	case atom.Map != nil && (atom.Scalar == nil || depth == 0 || depth < 5 && r.one(2)):
		return r.mapping(atom.Map, depth)
	case atom.List != nil && (atom.Scalar == nil || depth < 5 && r.one(3)):
		return r.list(atom.List, depth)
	}
	switch *atom.Scalar {
	case schema.Numeric:
		if r.one(5) {
			return float64(r.IntN(3))
		}
		return int64(r.IntN(3))
	case schema.Boolean:
		return r.one(2)
	}
	return string(rune('a' + r.IntN(3)))
}

func (r *random) mapping(m *schema.Map, depth int) map[string]any {
	out := map[string]any{}
	for _, f := range m.Fields {
		if !r.one(3) {
			out[f.Name] = r.value(f.Type, depth+1)
		}
	}
	if (m.ElementType != typeRef{}) {
		for range r.IntN(4) {
			out["key-"+string(rune('a'+r.IntN(4)))] = r.value(m.ElementType, depth+1)
		}
	}
	return out
}

func (r *random) list(l *schema.List, depth int) []any {
	out := []any{}
	for range r.IntN(4) {
		out = r.withItem(out, l, depth)
	}
	return out
}

// withItem adds an item, unless it is there.
func (r *random) withItem(items []any, l *schema.List, depth int) []any {
	item := r.value(l.ElementType, depth+1)
	if m, ok := item.(map[string]any); ok {
		element, _ := r.types.schema.Resolve(l.ElementType)
		for _, key := range l.Keys {
			f, _ := element.FindField(key)
			if _, ok := m[key]; !ok && (f.Default == nil || r.one(2)) {
				m[key] = r.value(f.Type, depth+1)
			}
		}
	}
	grown := append(slices.Clone(items), item)
	if l.ElementRelationship == schema.Associative {
		if _, ok := r.types.index(l, grown, len(l.Keys) == 3); !ok {
			return items
		}
	}
	return grown
}

// edited returns an object after some edits.
func (r *random) edited(obj map[string]any) map[string]any {
	out := maps.Clone(obj)
	for range r.IntN(4) {
		edited, _ := r.edit(r.typ, out, 0).(map[string]any)
		edited["metadata"] = obj["metadata"]
		for _, k := range []string{"apiVersion", "kind"} {
			edited[k] = obj[k]
		}
		delete(edited, "status")
		out = edited
	}
	if r.one(3) {
		meta, _ := r.edit(metadataType(), out["metadata"], 0).(map[string]any)
		meta["name"] = "x"
		delete(meta, "namespace")
		for k, v := range meta {
			if isEmpty(v) {
				delete(meta, k)
			}
		}
		out["metadata"] = meta
	}
	return out
}

// edit returns a value with one edit somewhere in it.
func (r *random) edit(typ typeRef, v any, depth int) any {
	if r.wrong && depth > 1 && r.one(4) {
		wrong := []any{
			nil, int64(1), "a", true, map[string]any{}, []any{}, map[string]any{"key-a": "a"}, []any{"a", "a"},
			[]any{map[string]any{"name": "a"}, map[string]any{"name": "a", "role": "b"}}, []any{nil}, []any{[]any{}},
		}
		return wrong[r.IntN(len(wrong))]
	}
	atom, _ := r.types.schema.Resolve(typ)
	if m, ok := v.(map[string]any); ok && atom.Map != nil && (depth == 0 || !r.one(8)) {
		return r.editMap(atom.Map, m, depth)
	}
	if l, ok := v.([]any); ok && atom.List != nil && !r.one(8) {
		return r.editList(atom.List, l, depth)
	}
	return r.value(typ, depth)
}

func (r *random) editMap(m *schema.Map, old map[string]any, depth int) map[string]any {
	out := maps.Clone(old)
	keys := slices.Sorted(maps.Keys(old))
	switch n := r.IntN(8); {
	case n == 0 && depth > 1:
		return map[string]any{}
	case n <= 2 && len(keys) > 0:
		delete(out, keys[r.IntN(len(keys))])
	case n <= 4:
		for k, v := range r.mapping(m, depth) {
			if _, ok := old[k]; !ok {
				out[k] = v
				break
			}
		}
	case len(keys) > 0:
		k := keys[r.IntN(len(keys))]
		out[k] = r.edit(fieldType(m, k), old[k], depth+1)
	}
	return out
}

func (r *random) editList(l *schema.List, old []any, depth int) []any {
	out := slices.Clone(old)
	switch n := r.IntN(7); {
	case n == 0:
		return []any{}
	case n == 1 && len(old) > 0:
		i := r.IntN(len(old))
		return slices.Delete(out, i, i+1)
	case n == 2:
		r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
		return out
	case n <= 4:
		return r.withItem(out, l, depth)
	case len(old) > 0:
		i := r.IntN(len(old))
		item := r.edit(l.ElementType, old[i], depth+1)
		out[i] = item
		if l.ElementRelationship == schema.Associative {
			if _, ok := r.types.index(l, out, len(l.Keys) == 3); !ok {
				return old
			}
		}
	}
	return out
}
