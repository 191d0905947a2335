// Package lease lets one of several agents work at a time: the one that holds a Lease
// of coordination.k8s.io. It is client-go's leader election, and besides it a clock of
// the holder's own: a process that was stopped, or cannot reach the API server, knows by
// its own time that it holds the lease no longer, before anybody else can have it.
package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// ErrLost says that this process does not hold the lease, or not any more. Within one
// process it is never had again.
var ErrLost = errors.New("the lease is not held")

// Options say which lease, and for how long. All fields are required.
type Options struct {
	Namespace, Name string
	Identity        string // of this process; no other one, not even its own restart, may have it

	Duration      time.Duration // how long after the last renewal that they saw others wait; whole seconds
	RenewDeadline time.Duration // how long after its last renewal the holder goes on; below Duration
	RetryPeriod   time.Duration // between tries; RenewDeadline is more than 1.2 times this

	Log logrus.FieldLogger
}

// Lease is one process's part in the election.
type Lease struct {
	opts     Options
	lock     resourcelock.Interface
	acquired chan struct{}
	lost     chan struct{}

	mu      sync.Mutex
	renewed time.Time // when the last renewal that succeeded was sent; zero before
	term    int       // the lease's count of transitions while it is this process's
	gone    bool      // held once, and not any more
	err     error     // why the lease cannot be read or written
	holder  string
}

// New prepares to take part through a connection. It does no I/O.
func New(conn *rest.Config, opts Options) (*Lease, error) {
	conn = rest.CopyConfig(conn)
	// One request may not use up the time in which another could renew.
	conn.Timeout = max(opts.RenewDeadline/2, time.Second)
	client, err := coordinationv1.NewForConfig(conn)
	if err != nil {
		return nil, fmt.Errorf("connect for the lease: %w", err)
	}
	return newLease(&resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: opts.Namespace, Name: opts.Name},
		Client:     client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: opts.Identity},
	}, opts), nil
}

func newLease(lock resourcelock.Interface, opts Options) *Lease {
	return &Lease{opts: opts, lock: lock, acquired: make(chan struct{}), lost: make(chan struct{})}
}

// Run tries to get the lease, and keeps it once it has it, until ctx ends: then it is
// given back, so that another one takes over at once, and Run returns nil. When the
// lease is lost it returns ErrLost.
func (l *Lease) Run(ctx context.Context) error {
	elect, cancel := context.WithCancel(ctx)
	defer cancel()
	var watch sync.WaitGroup
	defer watch.Wait()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: (*clocked)(l), Name: l.String(),
		LeaseDuration: l.opts.Duration, RenewDeadline: l.opts.RenewDeadline, RetryPeriod: l.opts.RetryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {}, // clocked knows it earlier
			OnStoppedLeading: func() {},
			OnNewLeader:      l.leads,
		},
	})
	if err != nil {
		return fmt.Errorf("take part in the election of %s: %w", l, err)
	}
	watch.Go(func() {
		if l.watch(elect) {
			cancel()
		}
	})
	elector.Run(elect)
	cancel()
	watch.Wait()
	if ctx.Err() == nil {
		return l.lose("it could not be renewed")
	}
	return nil
}

// watch waits for the lease, and then for its being lost by this process's own clock. It
// tells whether it was.
func (l *Lease) watch(ctx context.Context) (lost bool) {
	select {
	case <-l.acquired:
	case <-ctx.Done():
		return false
	}
	for {
		left := l.left()
		if left <= 0 {
			_ = l.lose(fmt.Sprintf("it was not renewed for %s", l.opts.RenewDeadline)) // Run tells
			return true
		}
		select {
		case <-time.After(left):
		case <-ctx.Done():
			return false
		}
	}
}

// left is how long the last renewal serves.
func (l *Lease) left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.opts.RenewDeadline - since(l.renewed)
}

// since is how long ago that was, by the clock that went further: the monotonic one
// stands still while a machine is suspended, the other one can be set back.
func since(at time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(at), now.Round(0).Sub(at.Round(0)))
}

// lose notes that the lease is lost, for good.
func (l *Lease) lose(why string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.gone {
		l.gone = true
		close(l.lost)
	}
	return fmt.Errorf("lease %s: %w: %s", l, ErrLost, why)
}

// Acquired is closed when this process has got the lease.
func (l *Lease) Acquired() <-chan struct{} { return l.acquired }

// Lost is closed when this process had the lease and does not any more, at the latest
// RenewDeadline after the last renewal. Giving it back is no loss.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Held returns nil if this process holds the lease now, else ErrLost.
//
// Invariant: at no time do two processes get nil, as long as their clocks go at one speed.
// The holder counts from when it sent its last renewal, for RenewDeadline; the others from when
// they saw that renewal, which is later, for Duration, which is longer. Test: TestHeldByOne.
func (l *Lease) Held() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.gone || l.renewed.IsZero():
		return fmt.Errorf("lease %s: %w", l, ErrLost)
	case since(l.renewed) >= l.opts.RenewDeadline:
		return fmt.Errorf("lease %s: %w: it was renewed %s ago", l, ErrLost, since(l.renewed).Round(time.Millisecond))
	}
	return nil
}

// Err returns why the lease cannot be read or written; nil when it can.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Holder returns the identity of the process that was last seen to hold the lease; "" for none.
func (l *Lease) Holder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder
}

// String names the lease: namespace/name.
func (l *Lease) String() string { return l.opts.Namespace + "/" + l.opts.Name }

// leads notes who holds the lease.
func (l *Lease) leads(identity string) {
	l.mu.Lock()
	l.holder = identity
	l.mu.Unlock()
	if identity != "" && identity != l.opts.Identity {
		l.opts.Log.WithFields(logrus.Fields{"lease": l.String(), "leader": identity}).Info("another agent leads; standing by")
	}
}
