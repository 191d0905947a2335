package threeway

import (
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	smdvalue "sigs.k8s.io/structured-merge-diff/v6/value"
)

type typeRef = schema.TypeRef

// deducedType is what structured-merge-diff and the server's OpenAPI both call the
// type of what has no schema.
const deducedType = "__untyped_deduced_"

// types answers what a schema says. Whatever it does not say makes a leaf.
type types struct {
	schema *schema.Schema
}

// asMap returns how a map of this type is merged, and false when it is a leaf.
func (t types) asMap(typ typeRef) (*schema.Map, bool) {
	atom, ok := t.schema.Resolve(typ)
	if !ok || atom.Map == nil || atom.Map.ElementRelationship == schema.Atomic {
		return nil, false
	}
	return atom.Map, true
}

// asList returns how a list of this type is merged, and false when it is a leaf.
func (t types) asList(typ typeRef) (*schema.List, bool) {
	atom, ok := t.schema.Resolve(typ)
	if !ok || atom.List == nil || atom.List.ElementRelationship != schema.Associative {
		return nil, false
	}
	return atom.List, true
}

// field returns the type of a map's field; that of an undeclared one fits nothing.
func (t types) field(typ typeRef, key string) typeRef {
	m, ok := t.asMap(typ)
	if !ok {
		return typeRef{}
	}
	return fieldType(m, key)
}

func fieldType(m *schema.Map, key string) typeRef {
	if f, ok := m.FindField(key); ok {
		return f.Type
	}
	return m.ElementType
}

// isStruct tells whether a map comes and goes as one: it has declared fields, or
// nobody knows what it is.
func isStruct(m *schema.Map) bool {
	return len(m.Fields) > 0 || m.ElementType.NamedType != nil && *m.ElementType.NamedType == deducedType
}

// fits tells whether a value is of the type, without duplicates in associative lists. The
// validator's words are left out: they quote values.
func (t types) fits(typ typeRef, v any) bool {
	_, err := typed.AsTyped(smdvalue.NewValueInterface(v), t.schema, typ)
	return err == nil
}

// same compares two values by their type: the order of associative lists does not count.
func (t types) same(typ typeRef, a, b value) bool {
	if equal(a, b) {
		return true
	}
	switch x := a.v.(type) {
	case map[string]any:
		y, ok := b.v.(map[string]any)
		m, granular := t.asMap(typ)
		if !ok || !granular || len(x) != len(y) {
			return false
		}
		for key := range x {
			if !t.same(fieldType(m, key), field(x, key), field(y, key)) {
				return false
			}
		}
		return true
	case []any:
		y, ok := b.v.([]any)
		l, associative := t.asList(typ)
		if !ok || !associative || len(x) != len(y) {
			return false
		}
		xs, okX := t.index(l, x, false)
		ys, okY := t.index(l, y, false)
		if !okX || !okY {
			return false
		}
		for _, item := range xs.items {
			other := ys.get(item.id)
			if !other.ok || !t.same(l.ElementType, value{ok: true, v: item.v}, other) {
				return false
			}
		}
		return true
	}
	return false
}

// leaves calls f with each leaf of a value: what is not a granular map or associative
// list with content. The path is valid during the call.
func (t types) leaves(typ typeRef, path fieldpath.Path, v any, f func(fieldpath.Path)) {
	switch x := v.(type) {
	case map[string]any:
		if m, granular := t.asMap(typ); granular && len(x) > 0 {
			for key, item := range x {
				t.leaves(fieldType(m, key), append(path, fieldpath.FieldNameElement(key)), item, f)
			}
			return
		}
	case []any:
		l, associative := t.asList(typ)
		if !associative || len(x) == 0 {
			break
		}
		list, ok := t.index(l, x, false)
		if !ok {
			break
		}
		for _, item := range list.items {
			t.leaves(l.ElementType, append(path, item.pe), item.v, f)
		}
		return
	}
	f(path)
}

// list is an associative list or set with its items' identities.
type list struct {
	items []item
	byID  fieldpath.PathElementMap // of indexes
}

type item struct {
	id fieldpath.PathElement // what tells it from others
	pe fieldpath.PathElement // how it stands in paths; the id, but for owner references
	v  any
}

func (l *list) get(id fieldpath.PathElement) value {
	i, ok := l.byID.Get(id)
	if !ok {
		return value{}
	}
	return value{ok: true, v: l.items[i.(int)].v}
}

// element returns how the item stands in paths.
func (l *list) element(id fieldpath.PathElement) (fieldpath.PathElement, bool) {
	i, ok := l.byID.Get(id)
	if !ok {
		return id, false
	}
	return l.items[i.(int)].pe, true
}

// index tells a list's items apart, and false when it cannot: an item lacks its keys,
// is of another type, or there twice.
func (t types) index(l *schema.List, values []any, owners bool) (list, bool) {
	out := list{items: make([]item, 0, len(values)), byID: fieldpath.MakePathElementMap(len(values))}
	for i, v := range values {
		pe, ok := t.element(l, v)
		if !ok {
			return list{}, false
		}
		id := pe
		if owners {
			id = ownerID(v)
		}
		if _, twice := out.byID.Get(id); twice {
			return list{}, false
		}
		out.byID.Insert(id, i)
		out.items = append(out.items, item{id: id, pe: pe, v: v})
	}
	return out, true
}

// element identifies one item as the API server does: by its keys, with their defaults where
// they are absent, or by its value. It needs all keys, as the server does of custom resources.
func (t types) element(l *schema.List, v any) (fieldpath.PathElement, bool) {
	m, isMap := v.(map[string]any)
	if len(l.Keys) == 0 {
		_, isList := v.([]any)
		if isMap || isList || v == nil {
			return fieldpath.PathElement{}, false
		}
		return fieldpath.ValueElement(smdvalue.NewValueInterface(v)), true
	}
	if !isMap {
		return fieldpath.PathElement{}, false
	}
	var key smdvalue.FieldList
	for _, name := range l.Keys {
		if v, ok := m[name]; ok {
			key = append(key, smdvalue.Field{Name: name, Value: smdvalue.NewValueInterface(v)})
		} else if v, ok := t.keyDefault(l, name); ok {
			key = append(key, smdvalue.Field{Name: name, Value: smdvalue.NewValueInterface(v)})
		}
	}
	key.Sort()
	return fieldpath.PathElement{Key: &key}, len(key) == len(l.Keys)
}

func (t types) keyDefault(l *schema.List, name string) (any, bool) {
	atom, ok := t.schema.Resolve(l.ElementType)
	if !ok || atom.Map == nil {
		return nil, false
	}
	f, ok := atom.FindField(name)
	return f.Default, ok && f.Default != nil
}

// keyFields returns the paths of an item's keys, as far as both sides have them.
func keyFields(l *schema.List, path fieldpath.Path, git, cluster any) []fieldpath.Path {
	g, _ := git.(map[string]any)
	c, _ := cluster.(map[string]any)
	var out []fieldpath.Path
	for _, name := range l.Keys {
		if field(g, name).ok && field(c, name).ok {
			out = append(out, append(path.Copy(), fieldpath.FieldNameElement(name)))
		}
	}
	return out
}

// holdsAny tells whether one of the places is there in a value.
func holdsAny(v any, places *fieldpath.Set, t types, typ typeRef) bool {
	if empty(places) {
		return false
	}
	switch x := v.(type) {
	case map[string]any:
		for key, item := range x {
			member, sub := below(places, fieldpath.FieldNameElement(key))
			if member || holdsAny(item, sub, t, t.field(typ, key)) {
				return true
			}
		}
	case []any:
		// A place in a list that git has is taken for one of git's items.
		return len(x) > 0
	}
	return false
}
