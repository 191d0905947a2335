package sync

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/threeway"
)

// writeRounds is how often a cycle judges and announces a write whose object moves in
// between, before it leaves the object to the next cycle. A controller that reports its
// progress moves it a few times a second.
const writeRounds = 8

// roundPause is how long a round waits at most for objects that moved; how long, chance
// decides: what moves them may have a beat.
const roundPause = 100 * time.Millisecond

// write announces in git the writes that were decided, and makes them. Objects that moved
// meanwhile are judged again on their new state, and what is decided then is announced anew.
func (m *Mirror) write(ctx context.Context, judged []*judgement, now time.Time) error {
	var told []announced // what landed in this cycle, and is not in base yet
	return m.inRounds(ctx, judged, func(judged []*judgement) ([]*judgement, error) {
		written, err := m.writeOnce(ctx, judged, told, now)
		if err != nil {
			return nil, err
		}
		var moved []*judgement
		for _, w := range written {
			switch {
			case len(w.of.done) > 0:
				told = append(told, w.entry)
			case w.of.moved && w.of.decision.Object != threeway.DeleteObject: // its guard was asked for this state
				moved = append(moved, w.of)
			}
		}
		return moved, nil
	})
}

// inRounds does something with what was judged, and again with the objects that moved meanwhile, judged
// on their new state, until none does. once returns those.
func (m *Mirror) inRounds(ctx context.Context, judged []*judgement, once func([]*judgement) ([]*judgement, error)) error {
	for round := 1; ; round++ {
		moved, err := once(judged)
		if err != nil || len(moved) == 0 {
			return err
		}
		if round == writeRounds {
			neverAtRest(moved, round)
			return nil
		}
		if err := pause(ctx, rand.N(roundPause)); err != nil {
			return err
		}
		if err := m.judgeMoved(ctx, moved); err != nil {
			return err
		}
		judged = moved
	}
}

// neverAtRest leaves objects that moved in every round to the next cycle.
func neverAtRest(moved []*judgement, rounds int) {
	for _, j := range moved {
		j.waits = fmt.Sprintf("the object changes in the cluster faster than it can be written, %d times in a row; it is tried again", rounds)
	}
}

// writing is a write and what was told of it.
type writing struct {
	of    *judgement
	entry announced
}

// writeOnce announces the writes that were decided, makes them, and returns them. told are
// the announcements besides that base does not make needless yet.
//
// Invariant: nothing is written to the cluster before the remote has the
// announcement, of the very state that is written to, and it takes that only if branch, base and
// announcement are what was judged, also where it has that very announcement from before. Tests:
// TestAnnouncementLosesRace, TestMovesBeforeWrite, TestAnnouncedBefore.
//
// Invariant: a new announcement adds to what is open and to what landed, until base holds that.
// Test: TestSecondRoundDies.
func (m *Mirror) writeOnce(ctx context.Context, judged []*judgement, told []announced, now time.Time) ([]writing, error) {
	t := m.two
	var written []writing
	var writes []*judgement
	entries := append(t.unanswered(), told...)
	m.refuseHomeless(ctx, judged)
	for _, j := range judged {
		if !j.toWrite() || j.refused != nil || t.refusedBefore(j) {
			continue
		}
		e, err := j.announce()
		if err != nil { // the others go on
			j.finding = err.Error()
			continue
		}
		written, writes, entries = append(written, writing{j, e}), append(writes, j), append(entries, e)
	}
	if len(writes) == 0 {
		return nil, nil
	}
	if err := m.announceAnew(ctx, entries, now); err != nil {
		return nil, err
	}
	t.mine[m.repo.Ref(m.refs.Applying)] = true // even if the push's answer is lost, nothing was written
	if err := m.pushIf(ctx); err != nil {
		return nil, fmt.Errorf("announce %s: %w", count(len(writes), "write"), err)
	}
	if err := t.reached(StepAnnounced); err != nil {
		return nil, err
	}
	m.execute(ctx, writes)
	if err := t.reached(StepWritten); err != nil {
		return nil, err
	}
	return written, ctx.Err()
}

// judgeMoved decides again about objects that moved, in place.
func (m *Mirror) judgeMoved(ctx context.Context, moved []*judgement) error {
	keys := make([]kube.Key, len(moved))
	for i, j := range moved {
		keys[i] = j.key
	}
	again, err := m.judge(ctx, keys)
	if err != nil {
		return err
	}
	for i, j := range again {
		*moved[i] = *j
	}
	return nil
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
