package apply

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/kube"
)

// Manager is the field manager that two-way mode writes as.
const Manager = "crmirror"

// Owner is a field manager that owns a field. Its time is an upper bound: the manager last
// wrote something then, not necessarily this field.
type Owner struct {
	kube.Manager
	// Unknown means that the server keeps no record of who it really is: the
	// entry stands for all that wrote before the first apply, or long ago.
	Unknown bool
}

// Ownership is what an object's managedFields say.
type Ownership struct {
	entries []entry
}

type entry struct {
	owner      Owner
	apiVersion string
	fields     *fieldpath.Set
}

// ReadOwnership reads the managedFields of a live object.
func ReadOwnership(live *unstructured.Unstructured) (Ownership, error) {
	var o Ownership
	for _, managed := range live.GetManagedFields() {
		fields := &fieldpath.Set{}
		if managed.FieldsV1 != nil {
			if err := fields.FromJSON(managed.FieldsV1.GetRawReader()); err != nil {
				return Ownership{}, fmt.Errorf("read managedFields of %s %s: %w", live.GetKind(), live.GetName(), err)
			}
		}
		e := entry{apiVersion: managed.APIVersion, fields: fields, owner: Owner{
			Manager: kube.Manager{Name: managed.Manager, Operation: string(managed.Operation), Subresource: managed.Subresource},
			Unknown: managed.Manager == "before-first-apply" || managed.Manager == "ancient-changes",
		}}
		if managed.Time != nil {
			e.owner.Time = managed.Time.Time
		}
		o.entries = append(o.entries, e)
	}
	return o, nil
}

// Owners returns who owns a field or anything below it, in the order of
// managedFields; none is normal (a default), several are too. Where a manager owns an
// ancestor as one piece (an atomic list, a map without a schema), it owns the field.
func (o Ownership) Owners(path fieldpath.Path) []Owner {
	var owners []Owner
	for _, e := range o.entries {
		if o.owns(e, path) {
			owners = append(owners, e.owner)
		}
	}
	return owners
}

func (o Ownership) owns(e entry, path fieldpath.Path) bool {
	at := e.fields
	for i, step := range path {
		below := at.WithPrefix(step)
		if i == len(path)-1 {
			return at.Members.Has(step) || !below.Empty()
		}
		if at.Members.Has(step) && below.Empty() {
			return o.onePiece(path[:i+1])
		}
		at = below
	}
	return false
}

// onePiece tells whether a field that somebody owns without anything below it is
// owned whole. If anybody owns a part of it, it has parts, and only its being there is owned.
func (o Ownership) onePiece(path fieldpath.Path) bool {
	return !slices.ContainsFunc(o.entries, func(e entry) bool { return !below(e.fields, path).Empty() })
}

// Changer returns the manager besides crmirror that wrote last of those that own a field for which
// changed is true; zero when none does. The path is valid during the call.
func (o Ownership) Changer(changed func(fieldpath.Path) bool) kube.Manager {
	var newest kube.Manager
	for _, e := range o.entries {
		if e.owner.Name == Manager || e.owner.Unknown || newest.Name != "" && e.owner.Time.Before(newest.Time) {
			continue
		}
		if slices.ContainsFunc(each(e.fields.Leaves()), changed) {
			newest = e.owner.Manager
		}
	}
	return newest
}

// Owned returns the fields that crmirror owns, by apply or by update, of the object itself.
func (o Ownership) Owned() *fieldpath.Set {
	owned := fieldpath.NewSet()
	for _, e := range o.entries {
		if e.ours() {
			owned = owned.Union(e.fields)
		}
	}
	return owned
}

// Applied returns the fields that crmirror owns by apply: those of which it is certain
// that git's value landed and nobody changed it since.
func (o Ownership) Applied() *fieldpath.Set {
	for _, e := range o.entries {
		if e.applied() {
			return e.fields
		}
	}
	return fieldpath.NewSet()
}

// Updated returns the fields that crmirror owns by other writes than an apply, as JSON patches are:
// nobody changed their values since.
func (o Ownership) Updated() *fieldpath.Set {
	owned := fieldpath.NewSet()
	for _, e := range o.entries {
		if e.ours() && !e.applied() {
			owned = owned.Union(e.fields)
		}
	}
	return owned
}

// appliedAt returns the API version of crmirror's Apply entry, or "".
func (o Ownership) appliedAt() string {
	for _, e := range o.entries {
		if e.applied() {
			return e.apiVersion
		}
	}
	return ""
}

func (e entry) ours() bool {
	return e.owner.Name == Manager && e.owner.Subresource == ""
}

func (e entry) applied() bool {
	return e.ours() && e.owner.Operation == string(metav1.ManagedFieldsOperationApply)
}

// each returns the paths of a set. Set.All can neither be left early (it panics) nor its paths be kept
// (they share memory).
func each(set *fieldpath.Set) []fieldpath.Path {
	var paths []fieldpath.Path
	set.Iterate(func(path fieldpath.Path) { paths = append(paths, path.Copy()) })
	return paths
}

// below returns the part of a set below a path.
func below(set *fieldpath.Set, path fieldpath.Path) *fieldpath.Set {
	for _, step := range path {
		set = set.WithPrefix(step)
	}
	return set
}
