package sync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/crmirror/crmirror/gitstore"
)

// Pace is how the loop spends time.
type Pace struct {
	Poll     time.Duration // how often the remote is asked for approvals while deletions are held; 0 = 30 s
	RetryMin time.Duration // first wait after an error; 0 = 1 s
	RetryMax time.Duration // longest wait between tries; 0 = 1 min
	Follow   bool          // ask the remote every Poll whatever is held, for what people commit
	Grace    time.Duration // for the last flush after a signal; 0 = 20 s
}

func (p Pace) withDefaults() Pace {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&p.Poll, 30 * time.Second}, {&p.RetryMin, time.Second}, {&p.RetryMax, time.Minute}, {&p.Grace, 20 * time.Second}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	return p
}

// cycler is what a Loop drives. *Mirror implements it.
type cycler interface {
	Cycle(ctx context.Context, now time.Time) (*Report, error)
	Spill(entries []Entry) error
	Recheck()
	Waiting() int
	Maintain(ctx context.Context, due bool) (done bool, err error)
	Follow(ctx context.Context) error
	TakeOver()
}

// Loop runs a Mirror: it waits for batches, polls and retries, and does nothing
// else. Everything that wakes it only leads to one more Cycle.
type Loop struct {
	mirror cycler
	batch  *Batch
	health *Health
	pace   Pace
	log    logrus.FieldLogger

	events   Events // nil for none
	observer Observer
	lease    Lease  // nil where no other agent stands by
	relist   func() // nil, or called when the first cycle has finished

	recheck atomic.Bool         // the next cycle asks the remote first
	upkeep  atomic.Bool         // maintenance is due after the next cycle
	unkept  bool                // the last maintenance failed
	told    map[string]bool     // findings that were logged
	open    map[string]Conflict // conflicts that Events was told of
	held    string              // digest of the held deletions that it was told of
	started time.Time           // the first cycle that finished
}

// NewLoop returns a Loop over mirror, which takes its entries from batch, and
// keeps health informed.
func NewLoop(mirror cycler, batch *Batch, health *Health, pace Pace, log logrus.FieldLogger) *Loop {
	return &Loop{mirror: mirror, batch: batch, health: health, pace: pace.withDefaults(), log: log, observer: unobserved{}}
}

// Events tells the users of the cluster of what a person has to decide.
type Events interface {
	Conflict(c Conflict)
	Settled(c Conflict) // that there was
	Refused(r Refusal)
	Held(set HeldSet) // deletions that wait for approval
}

// Tell lets a Loop that does not run yet tell of what there is to decide, each once.
func (l *Loop) Tell(events Events) { l.events = events }

// Observe lets an Observer measure a Loop that does not run yet.
func (l *Loop) Observe(o Observer) { l.observer = orNobody(o) }

// cycle lets the mirror do one cycle, measured.
func (l *Loop) cycle(ctx context.Context) (*Report, error) {
	end := l.observer.Begin(OpCycle)
	report, err := l.mirror.Cycle(ctx, time.Now())
	end(err)
	return report, err
}

// Run works until ctx ends. Then it makes one last flush, within the grace time,
// and returns that flush's error. When the lease is lost it ends at once, with ErrLeaseLost.
func (l *Loop) Run(ctx context.Context) error {
	ctx, cancel := l.underLease(ctx)
	defer cancel()
	var tries, unproven int
	var poll, again, refused alarm
	defer poll.stop()
	defer again.stop()
	defer refused.stop()
	for {
		due, err := l.batch.Wait(ctx)
		if err != nil {
			return l.finish(ctx)
		}
		if due == DueSpill {
			if err := l.batch.Spill(l.mirror.Spill); err != nil {
				tries++
				l.failed(err)
				if !l.pause(ctx, tries) {
					return l.finish(ctx)
				}
			}
			continue
		}
		if l.recheck.Swap(false) {
			poll.stop()
			l.mirror.Recheck()
		}
		began := time.Now()
		report, err := l.cycle(ctx)
		l.done(report, err)
		l.giveWay(report, time.Since(began))
		l.maintain(ctx)
		if len(report.Held) > 0 || l.pace.Follow { // a person may approve them, or commit
			poll.set(jitter(l.pace.Poll), l.Recheck)
		}
		if err == nil {
			refused.stop()
			if !report.Next.IsZero() {
				refused.set(time.Until(report.Next), l.batch.Kick)
			}
		}
		switch {
		case err != nil:
			tries++
			l.observer.Retried()
			if errors.Is(err, gitstore.ErrDiverged) {
				// The remote is well, and who waits longer than the others comes last for ever.
				tries = min(tries, patientTries)
			}
			l.batch.Return(nil, l.backoff(tries)) // the mirror keeps the entries
		case report.Again || report.Waiting > 0: // what could not be settled is tried again, and holds up nothing
			tries, unproven = 0, unproven+1
			again.set(l.backoff(unproven), l.batch.Kick)
		default:
			tries, unproven = 0, 0
		}
	}
}

// giveWay waits after a cycle that other writers were faster in: one who pushed and goes on at once keeps
// those from the branch who derive on top of it just now. With several, that would be the same ones for long.
func (l *Loop) giveWay(report *Report, took time.Duration) {
	if report.Lost > 0 && took > 0 {
		l.batch.Pause(min(rand.N(2*took), l.pace.RetryMax))
	}
}

// patientTries is how many times in a row the wait doubles when other writers were faster.
const patientTries = 2

// alarm is a timer that is set once until it is stopped or has run.
type alarm struct {
	timer *time.Timer
	armed atomic.Bool
}

// set calls f after d, unless the alarm is set already.
func (a *alarm) set(d time.Duration, f func()) {
	if a.armed.Swap(true) {
		return
	}
	a.timer = time.AfterFunc(d, func() {
		a.armed.Store(false)
		f()
	})
}

func (a *alarm) stop() {
	if a.timer != nil && a.timer.Stop() {
		a.armed.Store(false)
	}
}

// Recheck lets a cycle run soon that asks the remote first. It may be called
// from any goroutine.
func (l *Loop) Recheck() {
	l.recheck.Store(true)
	l.batch.Kick()
}

// Maintain lets the repository be maintained after a cycle that comes soon. It
// may be called from any goroutine.
func (l *Loop) Maintain() {
	l.upkeep.Store(true)
	l.batch.Kick()
}

// maintain maintains the repository if that is due, or if its packs have piled
// up. Nothing is lost by its failing, and the next one may not.
func (l *Loop) maintain(ctx context.Context) {
	began := time.Now()
	done, err := l.mirror.Maintain(ctx, l.upkeep.Swap(false))
	switch {
	case err != nil && ctx.Err() != nil:
	case err != nil && !l.unkept:
		l.unkept = true
		l.log.WithError(err).Warn("repository not maintained; its packs stay as they are")
	case err == nil && done:
		l.unkept = false
		l.log.WithField("seconds", time.Since(began).Seconds()).Info("repository maintained")
	}
}

// pause waits out an error that nothing can be taken in during, such as a full
// disk: the informers wait too. It tells whether ctx still runs.
func (l *Loop) pause(ctx context.Context, tries int) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(l.backoff(tries)):
		return true
	}
}

// until returns a context that ends with ctx, and when a channel is closed.
func until(ctx context.Context, closed <-chan struct{}) (context.Context, context.CancelFunc) {
	wait, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-closed:
			cancel()
		case <-wait.Done():
		}
	}()
	return wait, cancel
}

// Once takes everything in until synced is closed, and carries it into git with
// one Cycle. It is what a backup does. The batch has to be held meanwhile.
func (l *Loop) Once(ctx context.Context, synced <-chan struct{}) (*Report, error) {
	waitCtx, cancel := until(ctx, synced)
	defer cancel()
	for {
		due, err := l.batch.Wait(waitCtx)
		switch {
		case ctx.Err() != nil:
			return newReport(), ctx.Err()
		case err != nil:
			return l.mirror.Cycle(ctx, time.Now())
		case due == DueSpill:
			err = l.batch.Spill(l.mirror.Spill)
		default:
			err = l.mirror.Spill(l.batch.Take())
		}
		if err != nil {
			return newReport(), err
		}
	}
}

// finish flushes what is left, on a context that the signal did not end.
func (l *Loop) finish(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), ErrLeaseLost) {
		return ErrLeaseLost
	}
	if l.started.IsZero() {
		// Half a first sync is no backup.
		l.log.Info("stopping before the first sync was finished; the next start lists everything again")
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.pace.Grace)
	defer cancel()
	ctx, done := l.underLease(ctx)
	defer done()
	objects, _ := l.batch.Size()
	l.log.WithField("objects", objects+l.mirror.Waiting()).Info("stopping; last flush")
	report, err := l.cycle(ctx)
	l.done(report, err)
	return err
}

// backoff grows from RetryMin to RetryMax, with jitter.
func (l *Loop) backoff(tries int) time.Duration {
	d := l.pace.RetryMin << min(tries-1, 20)
	return jitter(min(d, l.pace.RetryMax))
}

// jitter spreads d by a fifth either way, so that many agents do not meet.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// done logs a cycle's outcome, once per change, and keeps health informed.
func (l *Loop) done(report *Report, err error) {
	if report.Commit != "" && err == nil {
		l.log.WithFields(logrus.Fields{
			"commit": report.Commit, "pushed": report.Pushed,
			"created": report.Created(), "changed": report.Changed(), "deleted": report.Deleted(),
		}).Info("committed")
	}
	l.tellFindings(report, err == nil)
	if l.events != nil && err == nil {
		l.tellEvents(report)
	}
	first, ended, since := l.health.cycle(report, err)
	switch {
	case err == nil && l.started.IsZero():
		if ended {
			l.log.WithField("since", since.Format(time.RFC3339)).Info("cycles finish again")
		}
		l.started = time.Now()
		l.log.WithFields(logrus.Fields{"objects": report.Objects(), "held": len(report.Held), "unreadable": len(report.Failing)}).
			Info("in sync; watching")
		if l.relist != nil {
			l.relist()
		}
	case err != nil && first:
		l.log.WithError(err).WithField("waiting", report.Waiting).Error("cycle did not finish; changes are kept, it is tried again")
	case err != nil:
		l.log.WithError(err).WithField("since", since.Format(time.RFC3339)).Debug("cycle did not finish")
	case ended:
		l.log.WithField("since", since.Format(time.RFC3339)).Info("cycles finish again")
	}
}

// tellFindings logs what a person should look at, once. What it does not find any more is over only if the
// report is whole: a cycle that failed has not looked at everything.
func (l *Loop) tellFindings(report *Report, whole bool) {
	told := map[string]bool{}
	tell := func(what, text string, now ...string) (first bool) {
		line := what + ": " + text
		told[line] = true
		if l.told[line] {
			return false
		}
		l.log.WithField("at", what).Warn(text + strings.Join(now, ""))
		return true
	}
	for _, a := range report.Applied {
		l.log.WithFields(logrus.Fields{"object": a.Key, "fields": a.Fields, "notes": a.Notes}).Info(a.Action + " as git says")
	}
	for _, c := range report.Conflicts {
		tell(At(c.File, c.Line), fmt.Sprintf("conflict of %s: %s: %s; see crmirror conflicts", c.Key, cmp.Or(c.Field, "the object"), c.Reason))
	}
	for _, r := range report.Refusals {
		if tell(At(r.File, r.Line), "not applied: "+r.Text, r.again(time.Now())) && l.events != nil && r.Object.UID != "" {
			l.events.Refused(r)
		}
	}
	for _, f := range report.Findings {
		text := f.Text
		if !f.Undone {
			text = "left as it is: " + text
		}
		tell(f.At(), text)
	}
	for _, left := range report.Left {
		tell(cmp.Or(left.Path, "worktree"), "left as it is: "+left.Reason)
	}
	if n := len(report.Orphans); n > 0 {
		tell(fmt.Sprintf("%d files", n), "selected by no rule any more; they are kept as they are")
	}
	if !whole {
		maps.Copy(told, l.told)
	}
	l.told = told
}

// tellEvents tells the cluster's users of the conflicts and held deletions that are new,
// and of the conflicts that are over. The report is whole.
func (l *Loop) tellEvents(report *Report) {
	open := map[string]Conflict{}
	for _, c := range report.Conflicts {
		if c.Object.UID == "" {
			continue
		}
		what := c.Key.String() + " " + c.Field + ": " + c.Reason
		open[what] = c
		if _, known := l.open[what]; !known {
			l.events.Conflict(c)
		}
	}
	for what, c := range l.open {
		if _, still := open[what]; !still {
			l.events.Settled(c)
		}
	}
	l.open = open
	if digest := report.Held.Digest(); digest != l.held {
		l.held = digest
		if digest != "" {
			l.events.Held(report.Held)
		}
	}
}

// failed tells of an error outside a cycle.
func (l *Loop) failed(err error) {
	report := newReport()
	report.Waiting = l.mirror.Waiting()
	l.done(report, err)
}
