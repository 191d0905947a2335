package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// clocked is the lock as client-go's election sees it. It notes when renewals were sent
// and what fails, and lets a process have the lease for one term only.
type clocked Lease

// Get implements resourcelock.Interface.
func (c *clocked) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if err := c.over(); err != nil {
		return nil, nil, err
	}
	record, raw, err := c.lock.Get(ctx)
	c.note(ctx, "read", err)
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (c *clocked) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return c.write(ctx, "create", record, c.lock.Create)
}

// Update implements resourcelock.Interface.
func (c *clocked) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return c.write(ctx, "update", record, c.lock.Update)
}

// write sends a record, and counts from before it was sent.
//
// Invariant: a process whose term has ended, because another one had the lease meanwhile, does
// not take it up again: what it knows is of before. Test: TestOneTerm.
func (c *clocked) write(ctx context.Context, verb string, record resourcelock.LeaderElectionRecord,
	send func(context.Context, resourcelock.LeaderElectionRecord) error,
) error {
	if err := c.over(); err != nil {
		return err
	}
	mine := record.HolderIdentity == c.opts.Identity
	c.mu.Lock()
	first, term := c.renewed.IsZero(), c.term
	c.mu.Unlock()
	if mine && !first && record.LeaderTransitions != term {
		return fmt.Errorf("%w: another agent held it meanwhile", ErrLost)
	}
	sent := time.Now()
	err := send(ctx, record)
	c.note(ctx, verb, err)
	if err != nil || !mine {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.renewed, c.term, c.holder = sent, record.LeaderTransitions, c.opts.Identity
	if first {
		close(c.acquired)
	}
	return nil
}

// over returns an error once the lease was lost: it is neither renewed nor given back then.
func (c *clocked) over() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return ErrLost
	}
	return nil
}

// note keeps what fails, and logs it once. That there is no lease yet, or that another
// agent was faster, is no failure.
func (c *clocked) note(ctx context.Context, verb string, err error) {
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return
	}
	if apierrors.IsNotFound(err) && verb == "read" || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		err = nil
	}
	l := (*Lease)(c)
	if err != nil {
		err = fmt.Errorf("%s lease %s: %w", verb, l, err)
	}
	c.mu.Lock()
	was := c.err
	c.err = err
	c.mu.Unlock()
	switch {
	case err != nil && (was == nil || was.Error() != err.Error()):
		c.opts.Log.WithError(err).Warn("the lease cannot be used; it is tried again")
	case err == nil && was != nil:
		c.opts.Log.WithField("lease", l.String()).Info("the lease can be used again")
	}
}

// RecordEvent implements resourcelock.Interface. There are no events: that would need the right to write them.
func (c *clocked) RecordEvent(string) {}

// Identity implements resourcelock.Interface.
func (c *clocked) Identity() string { return c.opts.Identity }

// Describe implements resourcelock.Interface.
func (c *clocked) Describe() string { return (*Lease)(c).String() }
