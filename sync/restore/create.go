package restore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/bulk"
)

// create creates an object that the cluster lacked when the plan was made.
func (x *executor) create(ctx context.Context, j *job, desired *Desired) error {
	owners, err := x.owners(ctx, j.action, desired.Object)
	if err != nil {
		return err
	}
	body := maps.Clone(desired.Object)
	setOwners(body, nil, owners)
	j.first = true
	if j.status = x.hasOwnStatus(j, desired); j.status || j.phase != Objects {
		delete(body, "status")
	}
	err = x.send(j, body, func() (bulk.Written, error) { return x.target.Create(ctx, j.action.Resource, body, false) })
	if errors.Is(err, apply.ErrExists) {
		return x.exists(ctx, j, desired)
	}
	if err == nil {
		j.result = WasCreated
	}
	return err
}

// exists finds out what stands where an object was to be created. It may be our own, of a request
// whose answer got lost.
func (x *executor) exists(ctx context.Context, j *job, desired *Desired) error {
	live, err := x.read(ctx, j)
	if err != nil {
		return err
	}
	if j.met = true; live.GetDeletionTimestamp() != nil {
		return blocked("it is being deleted; run again when it is gone")
	}
	x.is(j.action.Key, string(live.GetUID()))
	j.written = bulk.Written{UID: string(live.GetUID()), ResourceVersion: live.GetResourceVersion()}
	if j.unsure && isOurs(live) {
		j.result = WasCreated
		return nil
	}
	comparison, err := x.compare(ctx, desired, live)
	if err != nil {
		return err
	}
	if len(comparison.Changes) == 0 {
		j.result = WasUnchanged
		j.notes = append(j.notes, "somebody else created it at the same time")
		return nil
	}
	j.changes = comparison.Changes
	return inConflict("somebody else created it at the same time, and it differs from git; see who (managedFields), then run again")
}

// isOurs tells whether an object was written by a restore.
func isOurs(live *unstructured.Unstructured) bool {
	for _, entry := range live.GetManagedFields() {
		if entry.Manager == bulk.FieldManager {
			return true
		}
	}
	return false
}

// holdsFields tells whether a restore's manager owns fields of an object; bulk.Client.Release leaves it
// but a mark that is none.
func holdsFields(live *unstructured.Unstructured) bool {
	metadata, _ := live.Object["metadata"].(map[string]any) // not copied: it is asked of each object of a listing
	entries, _ := metadata["managedFields"].([]any)
	for _, item := range entries {
		entry, _ := item.(map[string]any)
		_, released, _ := unstructured.NestedFieldNoCopy(entry, "fieldsV1", "f:metadata", "f:annotations", "f:"+bulk.ReleasedMark)
		if entry["manager"] == bulk.FieldManager && !released {
			return true
		}
	}
	return false
}

// read reads the live object of a job.
func (x *executor) read(ctx context.Context, j *job) (*unstructured.Unstructured, error) {
	live, err := x.target.Get(ctx, j.action.Resource, j.action.Key.Namespace, j.action.Key.Name)
	switch {
	case errors.Is(err, apply.ErrNotFound) && j.action.UID == "":
		return nil, &againError{gate: j.namespaceGate(), err: errors.New("it comes and goes; see who deletes it")}
	case errors.Is(err, apply.ErrNotFound):
		return nil, &refusedError{result: HasFailed, reason: "it was deleted since the plan was made; run again"}
	case err != nil:
		return nil, x.judge(j, err)
	}
	return live, nil
}

// compare compares an object as it shall be with the live one.
func (x *executor) compare(ctx context.Context, desired *Desired, live *unstructured.Unstructured) (Comparison, error) {
	typ, _, err := x.target.Type(ctx, live.GroupVersionKind())
	if err != nil {
		return Comparison{}, fmt.Errorf("compare %s: %w", desired.To, err)
	}
	return x.snapshot.Compare(desired, live, typ, &x.opts.Options)
}

// hasOwnStatus tells whether git has a status of an object, and it is written apart from it. CRDs
// and Namespaces have theirs from the server.
func (x *executor) hasOwnStatus(j *job, desired *Desired) bool {
	_, kept := desired.Object["status"]
	kind, _ := x.served.Resource(j.action.Key.GroupResource())
	version, _ := kind.Version(j.action.Resource.Version)
	return kept && j.phase == Objects && version.Status
}

// statusTries is how often a status is written anew because the object changed in between.
const statusTries = 5

// putStatus writes the status that git has of an object, through its subresource. Over what a controller
// wrote after the object was created it is not written. The rest of the body is the live object: of a
// built-in kind the server takes metadata from it too (TestStatusAlone).
//
// It follows its object at once: what a controller finds is whole but for a moment, and what an
// interruption leaves without a status is little.
func (x *executor) putStatus(ctx context.Context, j *job, desired *Desired) error {
	for range statusTries {
		live, err := x.read(ctx, j)
		if err != nil {
			return err
		}
		if string(live.GetUID()) != j.written.UID {
			return &refusedError{result: HasFailed, reason: "it was deleted and made again while its status was to be written; run again"}
		}
		if live.GetResourceVersion() != j.written.ResourceVersion {
			if done, err := x.meetStatus(ctx, j, desired, live); done || err != nil {
				return err
			}
			j.written.ResourceVersion = live.GetResourceVersion()
		}
		body := maps.Clone(live.Object)
		body["status"] = desired.Object["status"]
		err = x.send(j, body, func() (bulk.Written, error) { return x.target.PutStatus(ctx, j.action.Resource, body) })
		if !errors.Is(err, apply.ErrMoved) {
			return err
		}
	}
	return &refusedError{result: HasFailed, reason: "its status could not be written, since the object changes all the time; stop its controller and run again"}
}

// meetStatus decides about an object that somebody changed before git's status could be written, and tells
// whether nothing is left to be done.
func (x *executor) meetStatus(ctx context.Context, j *job, desired *Desired, live *unstructured.Unstructured) (done bool, err error) {
	comparison, err := x.compare(ctx, desired, live)
	switch {
	case err != nil:
		return false, err
	case !slices.ContainsFunc(comparison.Changes, isOfStatus):
		return true, nil
	case j.first && hasWrittenStatus(live):
		j.notes = append(j.notes, "its status is that of its controller, which was quicker; git's was not written")
		return true, nil
	case j.first:
		return false, nil
	}
	if err := j.permits(live, comparison); err != nil {
		return false, err
	}
	return false, x.save(j, live)
}

// hasWrittenStatus tells whether anybody has written the status of an object, but for the defaults of
// its kind.
func hasWrittenStatus(live *unstructured.Unstructured) bool {
	for _, entry := range live.GetManagedFields() {
		if entry.Subresource == "status" {
			return true
		}
	}
	return false
}

// release gives up the ownership of what was written, if that is asked for.
func (x *executor) release(ctx context.Context, j *job) error {
	if !x.opts.ReleaseOwnership {
		return nil
	}
	key := j.action.Key
	for range statusTries {
		err := x.target.Release(ctx, j.action.Resource, key.Namespace, key.Name, j.written.UID, j.written.ResourceVersion)
		if !errors.Is(err, apply.ErrMoved) {
			if err != nil {
				err = x.judge(j, err)
			}
			return err
		}
		live, err := x.read(ctx, j)
		switch {
		case err != nil:
			return err
		case string(live.GetUID()) != j.written.UID:
			return nil // another object, and not ours
		}
		j.written.ResourceVersion = live.GetResourceVersion()
	}
	return &refusedError{result: HasFailed, reason: "its ownership could not be released, since the object changes all the time; stop its controller and run again"}
}
