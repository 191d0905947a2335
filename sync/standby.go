package sync

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Lease is what makes one of several agents the one that writes.
type Lease interface {
	// Held returns nil while this process is it.
	Held() error
	// Lost is closed when it is not any more, and will not be again.
	Lost() <-chan struct{}
}

// ErrLeaseLost ended a Loop: another agent may write now.
var ErrLeaseLost = errors.New("the lease is lost")

// Under lets a Loop that does not run yet end at once when the lease is lost: the cycle
// under way is broken off, and there is no last flush.
func (l *Loop) Under(lease Lease) { l.lease = lease }

// underLease returns a context that ends with ctx, and when the lease is lost.
func (l *Loop) underLease(ctx context.Context) (context.Context, context.CancelFunc) {
	held, cancel := context.WithCancelCause(ctx)
	stop := func() { cancel(context.Canceled) }
	if l.lease == nil {
		return held, stop
	}
	go func() {
		select {
		case <-l.lease.Lost():
			cancel(ErrLeaseLost)
		case <-held.Done():
		}
	}()
	return held, stop
}

// Standby takes in what the informers tell, and commits nothing, until lead is closed;
// then the mirror is ready for Run, and relist is called when Run's first cycle has
// finished. What it takes in waits, so that the first cycle has the newest state of
// whatever the remote lacks. The only error is ctx's.
func (l *Loop) Standby(ctx context.Context, lead <-chan struct{}, relist func()) error {
	l.health.standby(true)
	defer l.health.standby(false)
	wait, cancel := until(ctx, lead)
	defer cancel()
	var tries int
	var poll alarm
	defer poll.stop()
	for {
		poll.set(jitter(l.pace.Poll), l.Recheck)
		due, err := l.batch.Wait(wait)
		if err == nil {
			l.relist = relist // the listings of the start are not the newest any more
			err = l.standBy(wait, due)
			tries = l.followed(err, tries)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case wait.Err() != nil:
			l.mirror.TakeOver()
			l.batch.Kick()
			return nil
		case err != nil && due == DueSpill:
			l.pause(wait, tries)
		case err != nil:
			l.batch.Return(nil, l.backoff(tries))
		}
	}
}

// standBy does what a batch that is due wants, without a commit.
func (l *Loop) standBy(ctx context.Context, due Due) error {
	if due == DueSpill {
		return l.batch.Spill(l.mirror.Spill)
	}
	if err := l.mirror.Spill(l.batch.Take()); err != nil {
		return err
	}
	if l.recheck.Swap(false) {
		if err := l.mirror.Follow(ctx); err != nil {
			l.recheck.Store(true)
			return err
		}
	}
	l.maintain(ctx)
	return nil
}

// followed logs how a standby fares, once per change, and keeps health informed. It
// returns the number of failures in a row.
func (l *Loop) followed(err error, tries int) int {
	if errors.Is(err, context.Canceled) {
		return tries // it is not over because of it
	}
	first, ended, since := l.health.followed(l.mirror.Waiting(), err)
	switch {
	case first:
		l.log.WithError(err).Warn("standing by, but could not take over now")
	case ended:
		l.log.WithField("since", since.Format(time.RFC3339)).Info("standing by; could take over again")
	}
	if err != nil {
		return tries + 1
	}
	return 0
}

// Follow is what a standby does instead of a Cycle: it learns what the remote has, and
// forgets of what it took in what is there already. Nothing is written but to the clone.
func (m *Mirror) Follow(ctx context.Context) error {
	if err := m.observe(OpFetch, func() error { return m.repo.Fetch(ctx) }); err != nil {
		return err
	}
	m.forgetShared()
	return nil
}

// forgetShared forgets of what waits what the branch has already, by whomever.
func (m *Mirror) forgetShared() {
	for key, e := range m.pending {
		blob, exists := m.repo.Lookup(PathOf(key))
		if e.Op == Present && exists && blob == digestOf(e) || e.Op == Absent && !exists {
			delete(m.pending, key)
		}
	}
	m.shrink()
}

// TakeOver lets the Mirror begin as after a start, but for what it took in: another
// agent has led meanwhile, and what was known of git is of before. Its first push
// moves a ref in any case.
func (m *Mirror) TakeOver() {
	pending, sweeps := m.pending, m.sweeps
	*m = *NewMirror(m.opts, m.inbox, m.cluster, m.repo, m.refs)
	m.pending, m.sweeps, m.fence = pending, sweeps, true
}

// fenceOff lets the push that follows move base whatever it says, if nothing else does.
//
// Invariant: once an agent that took over has pushed, nothing that an earlier one derived
// from what was there before is accepted any more: each of its pushes moves base or expects it unmoved.
// And what that one pushed before, this one has read. Test: TestOldLeaderCannotPush.
func (m *Mirror) fenceOff(ctx context.Context) error {
	if !m.fence || m.refless || m.repo.Ref(m.refs.Base).IsZero() || m.repo.Moves(m.refs.Base) {
		return nil
	}
	message := m.baseMessage(m.deleted) + "\nTaken over by " + m.opts.Identity + "\n"
	// Base says as of when cluster and git agree, and no more does now.
	if _, err := m.repo.Anew(ctx, m.refs.Base, message, m.agreed); err != nil {
		return fmt.Errorf("take over: %w", err)
	}
	return nil
}

// mayWrite returns an error if another agent may be writing.
//
// Invariant: asked right before each push and each write to the cluster. What is under way
// when a process is stopped for longer than the lease is up to the refs' and the
// objects' expected states. Tests: TestNoPushWithoutLease, TestNoWriteWithoutLease.
func (m *Mirror) mayWrite() error {
	if m.opts.Lease == nil {
		return nil
	}
	return m.opts.Lease.Held()
}
