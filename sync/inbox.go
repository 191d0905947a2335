package sync

import (
	"context"
	"errors"
	gosync "sync"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/informer"
)

// Inbox is where the informers' goroutines and the loop meet: it turns what the
// informers see into dirty keys of the Batch, and remembers which scopes are
// proven by a complete listing. It implements informer.Sink.
type Inbox struct {
	batch    *Batch
	log      logrus.FieldLogger
	observer Observer
	events   Quarantine // nil for none

	mu      gosync.Mutex
	scopes  map[informer.Scope]*scopeState
	sweeps  map[informer.Scope]sweep
	refused map[kube.Key]error
	epochs  map[schema.GroupResource]int // how often the kind went away in this process
	gone    map[schema.GroupResource]bool
	lost    bool // a kind went away since the last take
}

// scopeState is what is known of one resource in one namespace scope.
type scopeState struct {
	listing bool // a listing is under way
	held    bool // and the batch waits for it
	failing error
	since   time.Time // of failing
	skipped int       // objects that the listing showed and no rule selects
}

// sweep is a complete listing that waits to be compared with the files in git.
type sweep struct {
	listing informer.Listing
	epoch   int
}

// NewInbox returns an empty Inbox that fills batch.
func NewInbox(batch *Batch, log logrus.FieldLogger) *Inbox {
	return &Inbox{
		batch:    batch,
		log:      log,
		observer: unobserved{},

		scopes:  map[informer.Scope]*scopeState{},
		sweeps:  map[informer.Scope]sweep{},
		refused: map[kube.Key]error{},
		epochs:  map[schema.GroupResource]int{},
		gone:    map[schema.GroupResource]bool{},
	}
}

// Observe lets an Inbox that gets nothing yet tell an Observer what watches see.
func (in *Inbox) Observe(o Observer) { in.observer = orNobody(o) }

// Quarantine tells the users of the cluster of objects that cannot be written to git. Its
// methods are called from several goroutines and must return at once.
type Quarantine interface {
	Quarantined(key kube.Key, uid types.UID, reason error)
	Recovered(key kube.Key, uid types.UID)
}

// Tell lets an Inbox that gets nothing yet tell of quarantined objects: of each when it
// is, when the reason changes, and when it can be mirrored again.
func (in *Inbox) Tell(events Quarantine) { in.events = events }

// Changed implements informer.Sink. It blocks while the batch holds as many
// bytes as it may, which slows the informer down to what git can take.
func (in *Inbox) Changed(ctx context.Context, s informer.State) {
	in.mu.Lock()
	_, was := in.refused[s.Key]
	delete(in.refused, s.Key)
	listed := in.isListing(s.Key)
	in.mu.Unlock()
	if was {
		in.log.WithField("key", s.Key).Info("object can be mirrored again")
		if in.events != nil {
			in.events.Recovered(s.Key, s.UID)
		}
	}
	in.seen(s.Key, SightChanged, listed)
	in.put(ctx, Entry{
		Key: s.Key, Op: Present, Content: s.Content,
		UID: s.UID, ResourceVersion: s.ResourceVersion, Manager: s.Manager, Listed: listed,
	})
}

// Refused implements informer.Sink: the object exists but has no encoding. Its
// file stays as it is (promise 6: one bad object harms only itself).
func (in *Inbox) Refused(_ context.Context, key kube.Key, err error) {
	in.mu.Lock()
	before := in.refused[key]
	in.refused[key] = err
	listed := in.isListing(key)
	in.mu.Unlock()
	in.seen(key, SightQuarantined, listed)
	if before == nil || before.Error() != err.Error() {
		in.log.WithError(err).WithField("key", key).Warn("object is quarantined; its file stays as it is")
		var refused *informer.RefusedError
		if in.events != nil && errors.As(err, &refused) {
			in.events.Quarantined(key, refused.UID, err)
		}
	}
}

// Absent implements informer.Sink.
func (in *Inbox) Absent(ctx context.Context, key kube.Key, absence informer.Absence) {
	gr := key.GroupResource()
	in.mu.Lock()
	delete(in.refused, key)
	epoch, gone := in.epochs[gr], in.gone[gr]
	if absence == informer.Unselected {
		in.countSkipped(key)
	}
	listed := in.isListing(key)
	in.mu.Unlock()
	reason, sight := ReasonDeleted, SightDeleted
	switch {
	case absence == informer.Unselected:
		reason, sight = ReasonUnselected, SightUnselected
	case gone:
		reason = ReasonKindGone
	}
	in.seen(key, sight, listed)
	in.put(ctx, Entry{Key: key, Op: Absent, Reason: reason, Epoch: epoch, Listed: listed})
}

// seen tells the Observer of what a watch told.
func (in *Inbox) seen(key kube.Key, sight Sight, listed bool) {
	if !listed {
		in.observer.Seen(key.GroupResource(), sight)
	}
}

// put hands an entry to the batch. An error means that ctx ended; what was
// under way then is found again by the next start's listing.
func (in *Inbox) put(ctx context.Context, e Entry) {
	if err := in.batch.Put(ctx, e); err != nil {
		in.log.WithField("key", e.Key).Debug("not taken: shutting down")
	}
}

// Listing implements informer.Sink: until the scope is listed, or fails, no
// batch closes, so that a start or a new version is one commit. A scope that
// has been failing is not waited for: one bad kind does not slow the others.
func (in *Inbox) Listing(_ context.Context, scope informer.Scope) {
	in.mu.Lock()
	defer in.mu.Unlock()
	s := in.scope(scope)
	s.listing, s.skipped = true, 0
	if s.held || s.failing != nil {
		return
	}
	s.held = true
	in.batch.Hold()
}

// Listed implements informer.Sink.
//
// Invariant (promise 3): only a listing that completed without error in this
// process is ever compared with the files in git to find what was deleted.
// TestDeletedWhileDown and TestForbiddenKindDeletesNothing hold it to that.
func (in *Inbox) Listed(_ context.Context, scope informer.Scope, listing informer.Listing) {
	in.mu.Lock()
	defer in.mu.Unlock()
	gr := scope.Resource
	in.sweeps[scope] = sweep{listing: listing, epoch: in.epochs[gr]}
	delete(in.gone, gr)
	in.release(scope)
	in.batch.Kick()
}

// Failing implements informer.Sink.
func (in *Inbox) Failing(_ context.Context, scope informer.Scope, err error) {
	in.mu.Lock()
	s := in.scope(scope)
	if s.failing == nil {
		s.since = time.Now()
	}
	s.failing = err
	in.release(scope)
	in.mu.Unlock()
	in.log.WithError(err).WithField("scope", scope.String()).
		Warn("resource cannot be read; its files stay as they are, it is tried again")
}

// Recovered implements informer.Sink.
func (in *Inbox) Recovered(_ context.Context, scope informer.Scope) {
	in.mu.Lock()
	s := in.scope(scope)
	since := s.since
	s.failing = nil
	in.mu.Unlock()
	in.log.WithFields(logrus.Fields{"scope": scope.String(), "failing_since": since.Format(time.RFC3339)}).
		Info("resource can be read again")
}

// KindGone implements informer.Sink: from here on, absences of the kind are no
// proof that somebody deleted the objects.
func (in *Inbox) KindGone(_ context.Context, gr schema.GroupResource) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.epochs[gr]++
	in.gone[gr] = true
	in.lost = true
	for key := range in.refused {
		if key.GroupResource() == gr {
			delete(in.refused, key)
		}
	}
	for scope := range in.scopes {
		if scope.Resource == gr {
			in.release(scope)
			delete(in.scopes, scope)
			delete(in.sweeps, scope)
		}
	}
	in.log.WithField("resource", gr).Warn("kind is gone from the cluster; its files stay until their deletion is approved")
	in.batch.Kick()
}

// intake is everything that waits to be carried into git.
type intake struct {
	entries []Entry
	sweeps  map[informer.Scope]sweep
	gone    bool // a kind went away since the last take
}

// take empties the inbox.
//
// Invariant: what a listing showed comes no later than the listing itself, so
// the listings are taken before the entries. TestListedBetween.
func (in *Inbox) take() intake {
	in.mu.Lock()
	t := intake{sweeps: in.sweeps, gone: in.lost}
	in.sweeps, in.lost = map[informer.Scope]sweep{}, false
	in.mu.Unlock()
	t.entries = in.batch.Take()
	return t
}

// known tells whether a scope is still watched.
func (in *Inbox) known(scope informer.Scope) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	_, ok := in.scopes[scope]
	return ok
}

// countSkipped counts an object that a listing shows and no rule selects.
func (in *Inbox) countSkipped(key kube.Key) {
	if s := in.listingOf(key); s != nil {
		s.skipped++
	}
}

// isListing tells whether a listing is under way that shows the object.
func (in *Inbox) isListing(key kube.Key) bool { return in.listingOf(key) != nil }

// listingOf returns the scope that is being listed and shows the object; nil for none.
func (in *Inbox) listingOf(key kube.Key) *scopeState {
	for _, ns := range []string{"", key.Namespace} {
		if s := in.scopes[informer.Scope{Resource: key.GroupResource(), Namespace: ns}]; s != nil && s.listing {
			return s
		}
	}
	return nil
}

// skippedIn returns how many objects of a scope no rule selects.
func (in *Inbox) skippedIn(scope informer.Scope) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	if s := in.scopes[scope]; s != nil {
		return s.skipped
	}
	return 0
}

// replaced tells whether the kind went away since epoch was noted.
func (in *Inbox) replaced(gr schema.GroupResource, epoch int) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.epochs[gr] != epoch
}

// epoch returns how often the kind went away, for an absence that is seen now.
func (in *Inbox) epoch(gr schema.GroupResource) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.epochs[gr]
}

// Failures returns the scopes that cannot be read now, with the reason.
func (in *Inbox) Failures() map[informer.Scope]error {
	in.mu.Lock()
	defer in.mu.Unlock()
	failures := map[informer.Scope]error{}
	for scope, s := range in.scopes {
		if s.failing != nil {
			failures[scope] = s.failing
		}
	}
	return failures
}

// Quarantined returns the objects that cannot be encoded, with the reason.
func (in *Inbox) Quarantined() map[kube.Key]error {
	in.mu.Lock()
	defer in.mu.Unlock()
	out := make(map[kube.Key]error, len(in.refused))
	for key, err := range in.refused {
		out[key] = err
	}
	return out
}

func (in *Inbox) isRefused(key kube.Key) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.refused[key] != nil
}

func (in *Inbox) scope(scope informer.Scope) *scopeState {
	s := in.scopes[scope]
	if s == nil {
		s = &scopeState{}
		in.scopes[scope] = s
	}
	return s
}

// release notes that the listing of scope ended, and ends the batch's wait for it.
func (in *Inbox) release(scope informer.Scope) {
	s := in.scope(scope)
	s.listing = false
	if s.held {
		s.held = false
		in.batch.Release()
	}
}
