package restore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/bulk"
)

// job is one object that is to be written. One attempt at a time has it.
type job struct {
	action *Action
	phase  Phase

	written bulk.Written
	made    bool   // it is there, as it shall be, or nearly: the status, or the ownership, may be left to do
	met     bool   // something of its name is there
	unsure  bool   // a write was sent, and no answer came
	status  bool   // git's status is still to be written
	first   bool   // and not over what a controller wrote meanwhile
	saved   string // the resourceVersion in which it was saved

	result  Result
	notes   []string
	changes []Change // as they were found when it was written
}

func (x *executor) newJob(action *Action, phase Phase) *job {
	return &job{action: action, phase: phase}
}

// gates returns what the job may have to wait for together with others: its kind, and its kind's
// quota or namespace.
func (j *job) gates() []string { return []string{j.kindGate(), j.namespaceGate()} }

func (j *job) kindGate() string { return j.action.Key.GroupResource().String() }

func (j *job) namespaceGate() string { return j.kindGate() + " " + j.action.Key.Namespace }

// refusedError is why an object is not as git has it, where that is nobody's mistake at this moment.
type refusedError struct {
	result Result
	reason string
}

func (e *refusedError) Error() string { return e.reason }

func blocked(format string, args ...any) error {
	return &refusedError{result: WasBlocked, reason: fmt.Sprintf(format, args...)}
}

func inConflict(format string, args ...any) error {
	return &refusedError{result: InConflict, reason: fmt.Sprintf(format, args...)}
}

// attempt does what is left of a job.
func (x *executor) attempt(ctx context.Context, j *job) error {
	if j.action.Verb == Unchanged {
		j.made, j.result, j.written = true, WasUnchanged, bulk.Written{UID: j.action.UID, ResourceVersion: j.action.ResourceVersion}
		return x.release(ctx, j)
	}
	if j.action.relinksOnly() {
		return x.relink(ctx, j)
	}
	desired, err := x.wanted(ctx, j.action)
	if err != nil {
		return err
	}
	if len(desired.Redacted) > 0 && j.action.Verb == Create {
		return blocked("%s", redactedReason(desired.Redacted))
	}
	if !j.made {
		switch j.action.Verb {
		case Create:
			err = x.create(ctx, j, desired)
		default:
			err = x.update(ctx, j, desired)
		}
		if err != nil {
			return err
		}
		j.made = true
		x.is(j.action.Key, j.written.UID)
		if j.action.Key.GroupResource() == crdResource && j.result != WasUnchanged {
			x.renew(j.action.Key)
		}
	}
	if j.result == WasUnchanged {
		return nil
	}
	if j.status {
		if err := x.putStatus(ctx, j, desired); err != nil {
			return err
		}
		j.status = false
	}
	return x.release(ctx, j)
}

// wanted reads what an object is to be.
func (x *executor) wanted(ctx context.Context, a *Action) (*Desired, error) {
	item, ok := x.snapshot.Item(a.From)
	if !ok || item.Blob != a.Blob {
		return nil, fmt.Errorf("%s is not in the commit as the plan has it; make a new plan", a.From)
	}
	return x.snapshot.Wanted(ctx, item, a.Resource.GroupVersion().String(), &x.opts.Options)
}

// send is the last step before any write.
//
// Invariant: no body with a redacted value is sent (TestRedactedIsNotSent).
func (x *executor) send(j *job, body map[string]any, write func() (bulk.Written, error)) error {
	if kube.ContainsRedaction(body) {
		return blocked("holds a redacted value, which is never written")
	}
	written, err := write()
	switch {
	case err == nil:
		j.written = written
		return nil
	case errors.Is(err, apply.ErrUncertain):
		j.unsure = true
	}
	return x.judge(j, err)
}

// judge says what an error of a request means: an *againError if the same can succeed later.
func (x *executor) judge(j *job, err error) error {
	var rejected *apply.Rejected
	switch {
	case errors.Is(err, apply.ErrUncertain):
		return &againError{gate: wholeServer, overload: true, err: err}
	case !errors.As(err, &rejected):
		return err
	case !rejected.Retry:
		if rejected.Verdict == apply.UnknownField && x.settles(j.action.Key) {
			return &againError{gate: j.kindGate(), err: err}
		}
		return err
	}
	again := &againError{after: min(rejected.RetryAfter, x.opts.Patience), err: err}
	tooLong := rejected.RetryAfter > x.opts.Patience
	if tooLong {
		again.err = impatient(rejected)
	}
	switch rejected.Verdict {
	case apply.Unavailable:
		again.overload = true
		if again.gate = wholeServer; rejected.RetryAfter > 0 && !tooLong {
			again.gate = noGate // it is there, and the pace waits
		}
	case apply.Failing, apply.NoKind:
		again.gate = j.kindGate()
	default: // a quota, or a namespace that is on its way
		again.gate = j.namespaceGate()
	}
	return again
}

// impatient says of a refusal that its server wants to be left alone for longer than is waited.
func impatient(rejected *apply.Rejected) error {
	said := *rejected
	said.Message = strings.TrimPrefix(fmt.Sprintf("%s; the server asks to be left alone for %s, which is not waited for: run again then",
		said.Message, said.RetryAfter), "; ")
	return &said
}

// redactedReason says what keeps an object from being written for which git has not all values.
func redactedReason(fields []string) string {
	return "git has only digests of its redacted fields: " + someOf(fields) + ", and the cluster has none; write it with their values, from where they are kept"
}

// renew notes that a CRD was written.
func (x *executor) renew(crd kube.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.renewed[schema.ParseGroupResource(crd.Name)] = time.Now() // a CRD's name is that of its resource
}

// settles tells whether the CRD of an object was written a moment ago: the server may still have
// the old one in mind.
func (x *executor) settles(key kube.Key) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	at, ok := x.renewed[key.GroupResource()]
	return ok && time.Since(at) < settling
}
