package restore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/bulk"
)

// relink is a reference of a live object to an owner that was made anew.
type relink struct {
	id    ownerID
	uid   string // that the reference has
	owner Owner  // its UID is "" if the plan creates it
}

// awaits are the owners that have to be there before an object is written.
func (a *Action) awaits() []Owner {
	owners := slices.Clip(a.Owners)
	for _, r := range a.relinks {
		owners = append(owners, r.owner)
	}
	return owners
}

// relinksOnly tells whether an object is as git has it but for owners that were made anew.
func (a *Action) relinksOnly() bool { return len(a.relinks) > 0 && len(a.relinks) == len(a.Changes) }

// checkLinks looks at the owners of all live objects.
func (m *maker) checkLinks(ctx context.Context) error {
	for _, t := range m.targets {
		if err := m.checkStale(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// checkStale looks at the owners of a live object: references were compared without their uids, and
// garbage collection deletes an object whose owners, by uid, are all gone.
//
// Invariant: what is as git has it is not left to garbage collection because its owner was made
// anew, by this restore or by others (TestPlanStaleOwner, TestRelink), and is not told to be there for good
// (TestVerifyStaleOwner).
func (m *maker) checkStale(ctx context.Context, t *target) error {
	if t.support || t.action.Verb == Blocked {
		return nil
	}
	for _, ref := range t.refs {
		r, stale, err := m.staleLink(ctx, t, ref)
		if err != nil {
			return err
		}
		switch {
		case !stale:
		case m.verifies:
			t.action.Changes = append(t.action.Changes, ref.change("its owner has another uid, so garbage collection will delete it"))
			if t.action.Verb == Unchanged {
				t.decide(Skip, "")
			}
		case t.action.Verb == Unchanged || t.action.Verb == Update && (t.action.relinksOnly() || len(t.action.Owners) > 0):
			t.relink(ref, r)
		default:
			if t.action.Verb != Update {
				t.action.Changes = append(t.action.Changes, ref.change("its owner has another uid"))
			}
			t.action.Notes = append(t.action.Notes, fmt.Sprintf(
				"its owner %s has another uid than its reference says, so garbage collection would delete it: set the reference anew", ref))
		}
	}
	return nil
}

// staleLink tells whether a reference of a live object has another uid than its owner has, or will have.
func (m *maker) staleLink(ctx context.Context, t *target, ref ownerRef) (r relink, stale bool, err error) {
	gr, namespaced, known := m.resource(ref.kind)
	if !known || ref.uid == "" || namespaced && t.action.Key.Namespace == "" {
		return r, false, nil // an owner that lies in a namespace cannot own what lies in none, and is not looked for
	}
	r = relink{
		id: ownerID{ref.kind.Group, ref.kind.Kind, ref.name}, uid: ref.uid,
		owner: Owner{Key: kube.Key{Group: gr.Group, Resource: gr.Resource, Name: ref.name}},
	}
	if namespaced {
		r.owner.Key.Namespace = t.action.Key.Namespace
	}
	coming, err := m.present(ctx, &r.owner)
	switch has := func(other ownerRef) bool { return other.uid == r.owner.UID }; {
	case err != nil:
		return r, false, err
	case slices.ContainsFunc(t.refs, has): // this one, or another to the same owner
		return r, false, nil
	}
	return r, r.owner.UID != "" || coming, nil // else nobody knows where it is, or whether
}

// change is that of a reference's uid.
func (r ownerRef) change(cause string) Change {
	path := fieldpath.MakePathOrDie("metadata", "ownerReferences", fieldpath.KeyByFields("uid", r.uid), "uid")
	return Change{Field: fieldText(path), Kind: differs, Cause: cause, path: path}
}

// present finds the uid of an owner, and tells whether the plan creates the owner.
func (m *maker) present(ctx context.Context, owner *Owner) (coming bool, err error) {
	if of := m.byKey[owner.Key]; of != nil {
		if !of.terminates {
			owner.UID = of.action.UID
		}
		return of.action.Verb == Create, nil
	}
	owner.UID, err = m.liveUID(ctx, owner.Key)
	var refused *apply.Rejected
	if errors.As(err, &refused) {
		return false, nil
	}
	return false, err
}

// relink plans to set a reference anew.
func (t *target) relink(ref ownerRef, r relink) {
	a := t.action
	a.relinks = append(a.relinks, r)
	a.Changes = append(a.Changes, ref.change("its owner was made anew"))
	a.Notes = append(a.Notes, fmt.Sprintf(
		"its owner %s was made anew, and garbage collection would delete it: its reference gets the uid that the owner has now", ref))
	if a.Verb == Unchanged {
		t.decide(Update, "")
	}
}

// relink sets the references of an object anew whose owners were made anew, and nothing else.
func (x *executor) relink(ctx context.Context, j *job) error {
	j.met = true
	for tries := 0; !j.made; tries++ {
		if tries == updateTries {
			return &refusedError{result: HasFailed, reason: "it changes all the time; stop its controller and run again"}
		}
		live, err := x.read(ctx, j)
		if err != nil {
			return err
		}
		if err := j.permits(live, Comparison{}); err != nil {
			return err
		}
		body := maps.Clone(live.Object)
		set, err := x.setLinks(ctx, j.action, body)
		if err != nil {
			return err
		}
		if !set {
			j.isAsWanted(live)
			j.made = true
			break
		}
		if err := x.save(j, live); err != nil {
			return err
		}
		err = x.send(j, body, func() (bulk.Written, error) { return x.target.Replace(ctx, j.action.Resource, body, false) })
		if err == nil {
			j.made, j.result = true, WasConfigured
		} else if !errors.Is(err, apply.ErrMoved) {
			return err
		}
	}
	return x.release(ctx, j)
}

// setLinks gives the references in an object to owners that were made anew their uids, and tells whether
// there were any. The object's metadata is replaced.
func (x *executor) setLinks(ctx context.Context, a *Action, obj map[string]any) (set bool, err error) {
	list := references(obj)
	for _, r := range a.relinks {
		uid, err := x.ownerUID(ctx, a, r.owner.Key)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(list, func(other map[string]any) bool { return other["uid"] == uid }) {
			continue // the server wants each owner once
		}
		for i, reference := range list {
			if reference["uid"] == r.uid && idOf(reference) == r.id {
				list[i] = maps.Clone(reference)
				list[i]["uid"], set = uid, true
			}
		}
	}
	if !set {
		return false, nil
	}
	setReferences(obj, list)
	return true, nil
}
