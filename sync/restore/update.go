package restore

import (
	"context"
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/bulk"
)

// updateTries is how often an object is read and compared anew because it changed before it
// could be written.
const updateTries = 5

// update makes an object that differs equal to git's. What the rules leave out of git keeps its
// live value.
func (x *executor) update(ctx context.Context, j *job, desired *Desired) error {
	j.met = true
	for range updateTries {
		live, err := x.read(ctx, j)
		if err != nil {
			return err
		}
		comparison, err := x.compare(ctx, desired, live)
		if err != nil {
			return err
		}
		if err := j.permits(live, comparison); err != nil {
			return err
		}
		if len(comparison.Changes) == len(comparison.Kept) {
			j.isAsWanted(live)
			return nil
		}
		err = x.replace(ctx, j, desired, live, comparison)
		if !errors.Is(err, apply.ErrMoved) {
			return err
		}
	}
	return &refusedError{result: HasFailed, reason: "it changes all the time; stop its controller and run again"}
}

// isAsWanted notes that nothing is left to be written of a live object: it was so before, or a write arrived
// whose answer did not.
func (j *job) isAsWanted(live *unstructured.Unstructured) {
	j.written = bulk.Written{UID: string(live.GetUID()), ResourceVersion: live.GetResourceVersion()}
	if j.result = WasUnchanged; j.unsure {
		j.result = WasConfigured
	}
}

// permits tells whether what is to be done to a live object is what the plan says.
//
// Invariant: only fields that the plan lists are changed in an object that exists, and only in
// the very object that the plan was made for (TestUpdateUnplanned).
func (j *job) permits(live *unstructured.Unstructured, comparison Comparison) error {
	switch {
	case string(live.GetUID()) != j.action.UID:
		return &refusedError{result: HasFailed, reason: "it was deleted and made again since the plan was made; run again"}
	case live.GetDeletionTimestamp() != nil:
		return blocked("it is being deleted; run again when it is gone")
	case len(comparison.Lacking) > 0:
		return blocked("%s", redactedReason(comparison.Lacking))
	case len(comparison.Whole) > 0:
		return inConflict("%s: cannot be set without something that the rules leave out of git; set it by hand", strings.Join(comparison.Whole, ", "))
	}
	planned := map[string]bool{}
	for _, change := range j.action.Changes {
		planned[change.Field] = true
	}
	var more []string
	for _, change := range comparison.Changes {
		if planned[change.Field] || j.action.foreseen && planned[fieldText(wholeList(change.path))] {
			continue
		}
		more = append(more, change.Field)
	}
	if len(more) > 0 {
		j.changes = comparison.Changes
		return &refusedError{result: HasFailed, reason: "it changed since the plan was made: " + someOf(more) + "; run again"}
	}
	return nil
}

// wholeList returns the path of the outermost list that a path leads into, or the path itself.
func wholeList(path fieldpath.Path) fieldpath.Path {
	for i, step := range path {
		if step.FieldName == nil {
			return path[:i]
		}
	}
	return path
}

// replace writes an object as it was compared.
func (x *executor) replace(ctx context.Context, j *job, desired *Desired, live *unstructured.Unstructured, comparison Comparison) error {
	j.changes = comparison.Changes
	j.status = x.hasOwnStatus(j, desired) && slices.ContainsFunc(comparison.Changes, isOfStatus)
	j.first = j.status && statusIsLeft(live, &comparison)
	if !j.first {
		if err := x.save(j, live); err != nil {
			return err
		}
	}
	if j.status && !slices.ContainsFunc(comparison.Changes, func(c Change) bool { return !isOfStatus(c) }) {
		j.result = WasConfigured
		j.written = bulk.Written{UID: string(live.GetUID()), ResourceVersion: live.GetResourceVersion()}
		return nil
	}
	owners, err := x.owners(ctx, j.action, desired.Object)
	if err != nil {
		return err
	}
	body, err := apply.Advance(live.Object, desired.Object, comparison.Set, comparison.Remove)
	if err != nil {
		return err
	}
	if kube.ContainsRedaction(body) { // the cluster has no value of its own
		return blocked("%s", redactedReason(desired.Redacted))
	}
	setOwners(body, live.GetOwnerReferences(), owners)
	if _, err := x.setLinks(ctx, j.action, body); err != nil {
		return err
	}
	if status, kept := desired.Object["status"]; kept && j.phase == Objects && !j.status {
		body["status"] = status // the server leaves it alone where it is a subresource
	}
	err = x.send(j, body, func() (bulk.Written, error) { return x.target.Replace(ctx, j.action.Resource, body, false) })
	if err == nil {
		j.result = WasConfigured
	}
	return err
}

func isOfStatus(c Change) bool {
	return len(c.path) > 0 && c.path[0].FieldName != nil && *c.path[0].FieldName == "status"
}

// save keeps a live object before a write to it.
//
// Invariant: no live object is made another one that does not lie on disk as it was
// (TestUpdateSaves), in the very state in which it is written (TestUpdateSavesAgain).
func (x *executor) save(j *job, live *unstructured.Unstructured) error {
	if j.saved == live.GetResourceVersion() || x.rehearses {
		return nil
	}
	if x.opts.Saver == nil {
		return errors.New("there is nowhere to save the live object to")
	}
	if err := x.opts.Saver.Save(live); err != nil {
		return err
	}
	j.saved = live.GetResourceVersion()
	return nil
}
