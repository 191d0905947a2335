package restore

import (
	"context"
	"errors"
	"time"
)

// pool attempts the tasks of a schedule, as many at once as the pace allows.
type pool struct {
	schedule *schedule
	pace     *pace
	// attempt does a task. Its context does not end with the restore's: what was begun is
	// finished. An *againError is tried again later.
	attempt func(ctx context.Context, task int) error
	// ended is told how a task ended, once, and from one goroutine. It tells whether what waits for the
	// task can come next.
	ended func(task int, err error) bool
}

// againError is why an attempt failed for a while.
type againError struct {
	gate     string // that it stands before
	overload bool
	after    time.Duration // that the server wants to be left alone
	err      error
}

func (e *againError) Error() string { return e.err.Error() }
func (e *againError) Unwrap() error { return e.err }

// end is that of an attempt.
type end struct {
	answer
	task int
	err  error
}

// run returns when all tasks have ended, but for those that wait for one that nothing can come
// after; or when ctx has ended and what was begun is finished.
func (p *pool) run(ctx context.Context) {
	ends := make(chan end)
	stop := ctx.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for underWay := 0; ; {
		underWay += p.begin(ctx, underWay, ends)
		wake := p.wake(underWay)
		if underWay == 0 && (wake.IsZero() || ctx.Err() != nil) {
			return
		}
		timer.Stop()
		if !wake.IsZero() && ctx.Err() == nil {
			timer.Reset(time.Until(wake))
		}
		select {
		case e := <-ends:
			underWay--
			p.end(e)
		case <-timer.C:
		case <-stop:
			stop = nil
		}
	}
}

// begin begins as many attempts as may be begun, and returns how many.
func (p *pool) begin(ctx context.Context, underWay int, ends chan<- end) int {
	begun := 0
	for now := time.Now(); ctx.Err() == nil && p.pace.allows(underWay+begun, now); begun++ {
		task, ok := p.schedule.next(now)
		if !ok {
			break
		}
		full := underWay+begun+1 == p.pace.limit
		go func() {
			began := time.Now()
			err := p.attempt(context.WithoutCancel(ctx), task)
			e := end{task: task, err: err, answer: answer{at: time.Now(), full: full}}
			e.took = e.at.Sub(began)
			var again *againError
			if errors.As(err, &again) {
				e.overload, e.after = again.overload, again.after
			}
			ends <- e
		}()
	}
	return begun
}

// wake returns when something can be begun though nothing ends; zero is never.
func (p *pool) wake(underWay int) time.Time {
	if underWay >= p.pace.limit {
		return time.Time{}
	}
	wake, pause := p.schedule.wake(), p.pace.pause
	if (!wake.IsZero() || len(p.schedule.ready) > 0) && wake.Before(pause) {
		return pause
	}
	return wake
}

func (p *pool) end(e end) {
	p.pace.answered(e.answer)
	var again *againError
	switch {
	case errors.As(e.err, &again):
		for _, task := range p.schedule.again(e.task, again.gate, again.after, e.at) {
			if p.ended(task, again.err) {
				p.schedule.release(task)
			}
		}
	case p.ended(e.task, e.err):
		p.schedule.done(e.task)
	default:
		p.schedule.refused(e.task)
	}
}
