package threeway

import (
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// Places makes the paths of an Input's Shaped from what kube.Shape.Places says of one of the
// object's contents: map keys (string) and list indices (int). Items of associative lists
// get their keys, so that an edit beside a redacted field is not held up; where they cannot be told
// apart, and in atomic lists, the index stays. Type is that of Input.
//
// The places of all contents, united, are an Input's Shaped; with a redacted key of a list
// among them, only if the cluster's content is taken both live and encoded.
func Places(typ typed.ParseableType, obj map[string]any, places [][]any) *fieldpath.Set {
	d := newDecider(Input{Type: typ})
	out := &fieldpath.Set{}
	for _, steps := range places {
		if path := d.concrete(obj, steps); len(path) > 0 {
			out.Insert(path)
		}
	}
	return out
}

// concrete returns the path of one place.
func (d *decider) concrete(obj map[string]any, steps []any) fieldpath.Path {
	at, v := d.root(), any(obj)
	for _, step := range steps {
		switch s := step.(type) {
		case string:
			m, _ := v.(map[string]any)
			at, v = at.child(fieldpath.FieldNameElement(s), d.types.field(at.typ, s)), m[s]
			if at.metadata {
				at.typ = d.metadata
			}
		case int:
			items, _ := v.([]any)
			if s < 0 || s >= len(items) {
				return nil
			}
			at, v = at.child(d.stepInto(at, items, s), d.itemType(at.typ)), items[s]
		}
	}
	return at.path
}

// stepInto returns how a list's item stands in paths.
func (d *decider) stepInto(at place, items []any, i int) fieldpath.PathElement {
	if l, ok := d.types.asList(at.typ); ok {
		if indexed, ok := d.types.index(l, items, at.isOwners()); ok {
			return indexed.items[i].pe
		}
	}
	return fieldpath.IndexElement(i)
}

func (d *decider) itemType(typ typeRef) typeRef {
	atom, ok := d.types.schema.Resolve(typ)
	if !ok || atom.List == nil {
		return typeRef{}
	}
	return atom.List.ElementType
}
