package informer

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crmirror/crmirror/kube"
)

// State is one object as the server returned it, encoded.
type State struct {
	Key             kube.Key
	UID             types.UID
	ResourceVersion string
	// Manager is who changed the object last, status aside.
	Manager kube.Manager
	// Content is what kube.Encode made of it. The receiver owns the bytes.
	Content []byte
}

// RefusedError says why an object cannot be encoded.
type RefusedError struct {
	UID types.UID // of the object
	Err error
}

// Error is the reason alone: the Sink is told which object it is.
func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *RefusedError) Unwrap() error { return e.Err }

// Scope is what one informer covers and one listing proves.
type Scope struct {
	Resource schema.GroupResource
	// Namespace is empty when the scope is the whole cluster.
	Namespace string
}

// String writes the scope as people read it in logs: "certificates.cert-manager.io",
// or "certificates.cert-manager.io in namespace shop".
func (s Scope) String() string {
	if s.Namespace == "" {
		return s.Resource.String()
	}
	return s.Resource.String() + " in namespace " + s.Namespace
}

// Covers says whether an object with that key lies in the scope.
func (s Scope) Covers(key kube.Key) bool {
	return key.GroupResource() == s.Resource && (s.Namespace == "" || s.Namespace == key.Namespace)
}

// Absence says why an object is not to be mirrored.
type Absence int

const (
	// Deleted objects do not exist any more: the server said so.
	Deleted Absence = iota + 1
	// Unselected objects exist, but no rule selects them.
	Unselected
)

// String returns the word for logs and tests.
func (a Absence) String() string {
	switch a {
	case Deleted:
		return "deleted"
	case Unselected:
		return "unselected"
	}
	return fmt.Sprintf("absence %d", int(a))
}

// Listing is a complete listing of a scope.
type Listing struct {
	// Has says whether a selected object with that key exists. It follows the
	// watch after the listing, may be called from any goroutine, and is true for
	// refused objects and for those whose absence could not be confirmed.
	Has func(kube.Key) bool
	// Count is the number of objects for which Has is true.
	Count int
	// Filtered says that the server was given a label selector: an object that
	// Has denies may exist, without the label. Fleet.Get tells.
	Filtered bool
	// Reborn says that the kind's CRD was replaced by another one of the same name
	// since this process saw it first. What this listing lacks went with the old
	// one: that is no proof that somebody deleted the objects.
	Reborn bool
}

// Sink is told what the informers see. The calls for one scope come one at a
// time and in order; calls for different scopes come at the same time. A call
// that blocks holds up its scope and nothing else. The context ends when the
// informer does.
type Sink interface {
	// Changed tells the state of a selected object. It is called for every change
	// and, in a listing, for every object, before Listed.
	Changed(ctx context.Context, state State)
	// Refused tells of a selected object that exists but cannot be encoded. The error is
	// a *RefusedError.
	Refused(ctx context.Context, key kube.Key, err error)
	// Absent tells that an object is deleted, or exists and is not selected. The
	// latter is told of every unselected object that is seen, mirrored before
	// or not.
	Absent(ctx context.Context, key kube.Key, absence Absence)
	// Listing tells that a listing of the scope begins. One that breaks off is not
	// told of, except by Failing when the error is a new one: Listing is told again.
	Listing(ctx context.Context, scope Scope)
	// Listed tells that a listing is complete: every selected object of the scope
	// has been told by Changed or Refused, every one that has vanished by Absent.
	Listed(ctx context.Context, scope Scope, listing Listing)
	// Failing tells that the scope cannot be listed or watched; once for each
	// different error. It is tried again with backoff.
	Failing(ctx context.Context, scope Scope, err error)
	// Recovered tells that a scope that was failing is complete and watched again.
	Recovered(ctx context.Context, scope Scope)
	// KindGone tells that the CRD of a resource is terminating, deleted or replaced.
	// Nothing more is told of its objects, unless the CRD comes back: then there is a
	// new listing, which is Reborn. Absences told just before are no proof: ask
	// Fleet.Proven before acting on any.
	KindGone(ctx context.Context, resource schema.GroupResource)
}
