package threeway

import (
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/kube"
)

// value is a value or none.
type value struct {
	ok bool
	v  any
}

// equal compares as kube.Equal does: numbers by value, since to an API server
// 1 and 1.0 are one number.
func equal(a, b value) bool {
	return a.ok == b.ok && (!a.ok || kube.EqualValues(a.v, b.v))
}

// sides are a field's values: base, git, cluster. Where base is not known, O is none.
type sides struct {
	O, G, C value
}

// result is what becomes of a field: in the cluster (W), in the file (F), in base
// when the change has reached the cluster (B) and while it has not (K).
type result struct {
	W, F, B, K value
}

func agreed(in sides) result       { return result{W: in.C, F: in.C, B: in.C, K: in.C} }
func gitMoved(in sides) result     { return result{W: in.G, F: in.G, B: in.G, K: in.O} }
func clusterMoved(in sides) result { return result{W: in.C, F: in.C, B: in.C, K: in.C} }
func stays(in sides) result        { return result{W: in.C, F: in.G, B: in.O, K: in.O} }

// field returns a map's value.
func field(m map[string]any, key string) value {
	v, ok := m[key]
	return value{ok: ok, v: v}
}

// union is the set of keys of several maps.
func union(all ...map[string]any) map[string]struct{} {
	keys := map[string]struct{}{}
	for _, m := range all {
		for k := range m {
			keys[k] = struct{}{}
		}
	}
	return keys
}

// isEmpty tells whether v is a map or list without content.
func isEmpty(v any) bool {
	switch t := v.(type) {
	case map[string]any:
		return len(t) == 0
	case []any:
		return len(t) == 0
	}
	return false
}

// place is where a field stands, and what is known of the place.
type place struct {
	path fieldpath.Path // shared with siblings: copy it to keep it
	typ  typeRef
	keys []fieldpath.Path // the keys of the list items on the way

	known   bool           // base has a value here that can be relied on
	unknown *fieldpath.Set // the places below where it has none; may be nil
	shaped  *fieldpath.Set // the dropped or redacted places below; may be nil

	root       bool // the object
	isShaped   bool // dropped or redacted itself
	item       bool // an item of an associative list
	metadata   bool // the object's metadata
	emptyIsNot bool // a map or list that is absent when it is empty
}

// child returns the place of a field or item.
func (at place) child(pe fieldpath.PathElement, typ typeRef) place {
	out := place{path: append(at.path, pe), typ: typ, keys: at.keys, known: at.known, emptyIsNot: at.metadata}
	var unknown bool
	unknown, out.unknown = below(at.unknown, pe)
	out.known = at.known && !unknown
	out.isShaped, out.shaped = below(at.shaped, pe)
	out.metadata = at.root && pe.FieldName != nil && *pe.FieldName == "metadata"
	return out
}

// below looks a step up in a set: whether it is a member, and what is below it.
func below(s *fieldpath.Set, pe fieldpath.PathElement) (member bool, sub *fieldpath.Set) {
	if s == nil {
		return false, nil
	}
	sub, _ = s.Children.Get(pe)
	return s.Members.Has(pe), sub
}

func empty(s *fieldpath.Set) bool { return s == nil || s.Empty() }

// keptMetadata tells whether people and controllers set this field of metadata; Encode keeps it then.
func keptMetadata(key string) bool {
	switch key {
	case "name", "namespace", "labels", "annotations", "finalizers", "ownerReferences":
		return true
	}
	return false
}

// lastApplied is the annotation that Encode always drops.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
