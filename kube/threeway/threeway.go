// Package threeway decides, field by field, what is to become of an object that git and a
// cluster both hold: what goes to the cluster, what goes to git, and what is a conflict.
// It is pure: a function of three contents and a schema.
//
// Fields are those of server-side apply: granular maps key by key, associative lists
// item by item, sets value by value, and everything else (scalars, null, atomic maps
// and lists, values of the wrong type) as a whole. For each, with O the base, G git's
// value and C the cluster's, "absent" being a value like others:
//
//	C = G                  agreed: base takes the value
//	C = O                  git moved: the value goes to the cluster
//	G = O                  the cluster moved: the value goes to git
//	all differ, or no O    conflict: both sides stay, and base too
//
// These rules are about maps and lists as such.
//
//   - What has declared fields (a struct, an item of an associative list) comes and goes as
//     one: removed on one side and changed on the other is a conflict, as it is for
//     the object, and so are all fields that differ where both sides made it anew.
//     Maps of like values, and lists, are merged key by key even then.
//   - An empty map or list is another value than an absent one, but for metadata's, which
//     the server does not keep.
//   - The order of associative lists and sets decides nothing. Results follow the
//     cluster's order, with new items after those they follow in git; but the file
//     keeps git's order once a person has reordered it. A reordering alone is never applied.
//   - A list with duplicate or missing keys counts as atomic, and git's change of it is a finding.
//   - The object's own metadata has the same type for every resource: labels and annotations go
//     key by key, finalizers are a set, owner references are told apart by group, kind and name, and each
//     is one value.
package threeway

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/crmirror/crmirror/kube"
)

// Input is one object as base, git and the cluster have it: decoded contents under the same
// shaping, as kube.Decode(kube.Encode(live)) gives them. A nil map is no object. Contents are not
// modified; results share values with them.
type Input struct {
	Base, Git, Cluster map[string]any

	// Unknown says where base has no value that can be relied on.
	Unknown Unknown

	// Type is the resource's type at the version of git and cluster, as
	// typed.ParseableType{Schema: tv.Schema(), TypeRef: tv.TypeRef()} takes it from a typed value. Zero:
	// types are deduced, all lists are atomic then.
	Type typed.ParseableType

	// Shaped holds the concrete paths that the rules drop or redact, of this object
	// on any of the three sides, as Places makes them; nil is none. Items of associative lists
	// stand there by their keys. (By index, the list is taken as a whole.)
	Shaped *fieldpath.Set

	// KeepFinalizers makes git's removal of a finalizer a finding: it is not carried to the cluster.
	KeepFinalizers bool

	// Judge, if any, may object to a move that only one side made: the reason it returns
	// makes it a conflict, "" lets it pass. It is asked for each field that moves,
	// and for what comes or goes as one also for that itself. The path is valid during the call.
	Judge func(Move) string
}

// Unknown names the fields for which base has no value, after a crash in the midst of a
// write, or since they differed when they were first seen.
type Unknown struct {
	Object bool           // the whole object
	Fields *fieldpath.Set // these, and what is below them; nil is none
}

// Move is a one-sided change that is about to be carried over. An empty path
// is the object itself: it is created or deleted.
type Move struct {
	Path      fieldpath.Path
	ToCluster bool // else to git
	Removed   bool // the field, or the object, goes
}

// Action is what happens to the object itself.
type Action string

// The actions. A created or deleted object has no entries in Set and Remove.
const (
	None         Action = ""
	CreateObject Action = "create object" // in the cluster
	DeleteObject Action = "delete object" // in the cluster
	CreateFile   Action = "create file"   // in git
	DeleteFile   Action = "delete file"   // in git
)

// Decision is what is to become of an object. Nil contents are no object.
type Decision struct {
	// Cluster is what the cluster is to hold, as far as files hold it. It has the values for Set.
	Cluster map[string]any
	// File is what git is to hold: the cluster's content, but git's value wherever a
	// conflict or a finding stands or the change goes to the cluster.
	File map[string]any
	// Base is base once the change has reached the cluster: decide again with it over what the
	// server made of the change, and its defaults are the cluster's move. Kept is base while the
	// change has not reached it: what is agreed and what the cluster moved has advanced.
	Base, Kept map[string]any
	// Unknown names what base has no value for, in both cases.
	Unknown Unknown

	// Set holds the fields to be set in the cluster, to the values in Cluster:
	// leaves, and empty maps and lists. Where a field lies in an item of an associative
	// list, that item's keys are in it too, so that the value that ExtractItems(Set) gives,
	// of Cluster as a typed value, can be sent; but for a null in the place of a map or list,
	// which a payload cannot say. An owner reference stands as
	// .metadata.ownerReferences[apiVersion,kind,name].
	Set *fieldpath.Set
	// Remove holds the fields to be removed from the cluster, each with what is below it.
	Remove *fieldpath.Set

	Object    Action
	Conflicts []Conflict // sorted by path
	Findings  []Finding  // sorted by path
}

// Conflict is a field, or the object, that is written on neither side.
type Conflict struct {
	Path               fieldpath.Path // empty: the object
	Reason             string         // one of the constants, or what Judge said
	Base, Git, Cluster Value
}

// The reasons of conflicts that Decide finds by itself.
const (
	ReasonChanged          = "changed in git and in the cluster"
	ReasonDeletedInGit     = "deleted in git, changed in the cluster"
	ReasonDeletedInCluster = "changed in git, deleted in the cluster"
	ReasonUnknown          = "git and cluster differ, and base has no value for it"
	ReasonShaped           = "holds a dropped or redacted field"
	ReasonVersion          = "version changed"
)

// Value is one side's value in a conflict.
type Value struct {
	Known   bool // false only for a base that has none to be relied on
	Present bool
	Hidden  bool // V is left out: the place is, or holds, a dropped or redacted field
	V       any
}

// Finding is something in git that is not applied, whatever the cluster has. But for
// status, it stays in the file until a person puts it right.
type Finding struct {
	Path fieldpath.Path
	Kind FindingKind
}

// FindingKind says what is wrong.
type FindingKind string

// The kinds of findings.
const (
	EditsShaped    FindingKind = "edits a dropped or redacted field"
	EditsStatus    FindingKind = "edits status, which only the cluster writes"
	EditsServerSet FindingKind = "edits metadata that only the server writes"
	UnfitForSchema FindingKind = "does not fit the schema"
	Unkeyed        FindingKind = "is a list with duplicate or missing keys"
	// DropsFinalizer is found only with Input.KeepFinalizers.
	DropsFinalizer FindingKind = "removes a finalizer, which is its controller's to remove"
)

// ErrIdentity means that the three contents are not one object, or that git's and the cluster's
// are not at one apiVersion.
var ErrIdentity = errors.New("not the same object")

// Decide decides about one object. It fails only on contents that are no objects or not
// the same one (kube.ErrIdentity, ErrIdentity).
//
// Invariant: no value is written over one that differs from base, on either side; no
// leaf of a result is in none of the inputs; and deciding again over the results finds nothing
// but the same conflicts and findings, status aside (TestProperties).
func Decide(in Input) (Decision, error) {
	if err := checkIdentity(in); err != nil {
		return Decision{}, fmt.Errorf("decide: %w", err)
	}
	d := newDecider(in)
	return d.object(), nil
}

// checkIdentity tells whether base, git and cluster are one object.
func checkIdentity(in Input) error {
	var first *kube.Identity
	var versions [3]string
	for i, obj := range []map[string]any{in.Base, in.Git, in.Cluster} {
		if obj == nil || i == 0 && in.Unknown.Object {
			continue
		}
		id, err := kube.Identify(obj)
		if err != nil {
			return err
		}
		versions[i] = id.APIVersion
		gv, err := schema.ParseGroupVersion(id.APIVersion)
		if err != nil {
			return fmt.Errorf("%w: apiVersion is none", kube.ErrIdentity)
		}
		id.APIVersion = gv.Group
		if first == nil {
			first = &id
		} else if *first != id {
			return ErrIdentity
		}
	}
	if in.Git != nil && in.Cluster != nil && versions[1] != versions[2] {
		return fmt.Errorf("%w: git has it at %s, the cluster at %s", ErrIdentity, versions[1], versions[2])
	}
	return nil
}
