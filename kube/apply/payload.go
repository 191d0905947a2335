package apply

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// payload returns the body of the apply that makes target of live: the fields that
// crmirror owns, with their values in target, and those that differ. It is false
// where an apply cannot do that, or might do more.
//
// Invariant: a payload has all that our Apply entry owns, since the server removes the
// rest, and the server's own merge makes exactly target of it (TestPayloadKeepsOwned,
// TestWriteNeverMore).
func payload(typ typed.ParseableType, live *unstructured.Unstructured, target map[string]any, own Ownership) (map[string]any, bool) {
	before, err := typ.FromUnstructured(live.Object, typed.AllowDuplicates)
	if err != nil {
		return nil, false
	}
	after, err := typ.FromUnstructured(target, typed.AllowDuplicates)
	if err != nil {
		return nil, false
	}
	all, err := after.ToFieldSet()
	if err != nil {
		return nil, false
	}
	changes, err := before.Compare(after)
	if err != nil {
		return nil, false
	}
	if !own.keeps(all, live.GetAPIVersion()) {
		return nil, false
	}
	body := own.body(target, all, own.Owned().Union(changes.Added).Union(changes.Modified))
	sent, err := typ.FromUnstructured(body)
	if err != nil {
		return nil, false
	}
	merged, err := before.Merge(sent)
	if err != nil || !same(merged.AsValue().Unstructured(), target) {
		return nil, false
	}
	return body, true
}

// keeps tells whether all that our Apply entry owns can be sent again. It cannot where the
// entry was made at a version that calls the fields otherwise, or has a status.
func (o Ownership) keeps(all *fieldpath.Set, version string) bool {
	if at := o.appliedAt(); at == "" || at == version {
		return o.Applied().WithPrefix(fieldpath.FieldNameElement("status")).Empty()
	}
	for _, path := range each(o.Applied().Leaves()) {
		if _, ok := covering(all, path); !ok || notOurs(path) {
			return false
		}
	}
	return true
}

// body builds a payload of the given fields of an object, all of whose fields are known.
func (o Ownership) body(target map[string]any, all, fields *fieldpath.Set) map[string]any {
	take, bare := fieldpath.NewSet(), fieldpath.NewSet()
	for _, path := range each(fields.Leaves()) {
		at, ok := covering(all, path)
		switch inside := below(all, at); {
		case !ok || notOurs(path):
		case inside.Empty():
			take.Insert(at)
		case o.onePiece(at):
			// It was owned whole, and the type has come to know its parts since.
			for _, part := range each(inside.Leaves()) {
				take.Insert(append(at[:len(at):len(at)], part...))
			}
		default:
			bare.Insert(at)
		}
	}
	body, err := overlay(identity(target), target, take, nil)
	if err != nil {
		body = identity(target) // never, as target has all of them; the merge would tell
	}
	for _, path := range each(bare) {
		body = present(body, target, path)
	}
	return body.(map[string]any)
}

// covering returns the path of the field that holds a path: itself, or the ancestor that
// is one piece.
func covering(all *fieldpath.Set, path fieldpath.Path) (fieldpath.Path, bool) {
	if all.Has(path) || !below(all, path).Empty() {
		return path, true
	}
	for i := len(path) - 1; i > 0; i-- {
		if all.Has(path[:i]) && below(all, path[:i]).Empty() {
			return path[:i], true
		}
	}
	return nil, false
}

// present returns body with an empty map or list at a path, unless something is there.
func present(body, target any, path fieldpath.Path) any {
	step := path[0]
	wanted, _ := child(target, step)
	item, there := child(body, step)
	item = container(item, wanted, there)
	if len(path) > 1 {
		item = present(item, wanted, path[1:])
	}
	if step.Key != nil {
		item = withKey(item, wanted, *step.Key)
	}
	return put(body, target, step, item)
}

// identity returns the part of an object that says which one it is.
func identity(obj map[string]any) map[string]any {
	from, _ := obj["metadata"].(map[string]any)
	metadata := map[string]any{"name": from["name"]}
	if namespace, ok := from["namespace"]; ok {
		metadata["namespace"] = namespace
	}
	return map[string]any{"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata}
}

// settable are the fields of metadata that are not the server's alone.
var settable = [...]string{"labels", "annotations", "finalizers", "ownerReferences"}

// notOurs tells whether a field is status, identity, or metadata that the server sets.
func notOurs(path fieldpath.Path) bool {
	if len(path) == 0 || path[0].FieldName == nil {
		return true
	}
	switch *path[0].FieldName {
	case "apiVersion", "kind", "status":
		return true
	case "metadata":
		if len(path) == 1 || path[1].FieldName == nil {
			return true
		}
		for _, name := range settable {
			if *path[1].FieldName == name {
				return len(path) > 2 && path[2].FieldName != nil && *path[2].FieldName == lastApplied
			}
		}
		return true
	}
	return false
}

// lastApplied is the annotation in which kubectl repeats the object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
