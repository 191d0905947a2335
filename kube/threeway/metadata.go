package threeway

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	smdvalue "sigs.k8s.io/structured-merge-diff/v6/value"
)

// metadataType returns the type of the object's metadata as files hold it. It is the same for every
// resource and stands here because the server's differs in one point: owner references are told
// apart there by the uid, which files lack.
func metadataType() typeRef {
	text := scalar(smd.String)
	tags := typeRef{Inlined: smd.Atom{Map: &smd.Map{ElementType: text}}}
	finalizers := typeRef{Inlined: smd.Atom{List: &smd.List{ElementType: text, ElementRelationship: smd.Associative}}}
	flag := scalar(smd.Boolean)
	owner := typeRef{Inlined: smd.Atom{Map: &smd.Map{
		Fields: []smd.StructField{
			{Name: "apiVersion", Type: text}, {Name: "kind", Type: text}, {Name: "name", Type: text},
			{Name: "controller", Type: flag}, {Name: "blockOwnerDeletion", Type: flag},
		},
		ElementRelationship: smd.Atomic,
	}}}
	owners := typeRef{Inlined: smd.Atom{List: &smd.List{
		ElementType: owner, ElementRelationship: smd.Associative, Keys: []string{"apiVersion", "kind", "name"},
	}}}
	return typeRef{Inlined: smd.Atom{Map: &smd.Map{Fields: []smd.StructField{
		{Name: "name", Type: text}, {Name: "namespace", Type: text}, {Name: "labels", Type: tags}, {Name: "annotations", Type: tags},
		{Name: "finalizers", Type: finalizers}, {Name: "ownerReferences", Type: owners},
	}}}}
}

func scalar(s smd.Scalar) typeRef { return typeRef{Inlined: smd.Atom{Scalar: &s}} }

// isOwners tells whether a place is that of the object's owner references.
func (at place) isOwners() bool {
	return at.emptyIsNot && *at.path[1].FieldName == "ownerReferences"
}

// isAnnotations tells whether a place is that of the object's annotations.
func (at place) isAnnotations() bool {
	return at.emptyIsNot && *at.path[1].FieldName == "annotations"
}

// dropsFinalizers tells whether git's value at a place lacks a finalizer that the cluster has: one
// of the list, or the list where git has something else in its place.
func (at place) dropsFinalizers(in sides) bool {
	if len(at.path) < 2 || !at.path[:2].Equals(fieldpath.MakePathOrDie("metadata", "finalizers")) {
		return false
	}
	_, isList := in.G.v.([]any)
	return !in.G.ok || len(at.path) == 2 && !isList
}

// ownerID tells owners apart by group, kind and name: a new version is no other owner.
func ownerID(v any) fieldpath.PathElement {
	m, _ := v.(map[string]any)
	group := m["apiVersion"]
	if s, ok := group.(string); ok {
		if gv, err := schema.ParseGroupVersion(s); err == nil {
			group = gv.Group
		}
	}
	return fieldpath.KeyElement(
		smdvalue.Field{Name: "group", Value: smdvalue.NewValueInterface(group)},
		smdvalue.Field{Name: "kind", Value: smdvalue.NewValueInterface(m["kind"])},
		smdvalue.Field{Name: "name", Value: smdvalue.NewValueInterface(m["name"])},
	)
}
