package sync

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
)

// fakeLease is a lease whose holder the test decides.
type fakeLease struct {
	asked func() error // answers Held
	lost  chan struct{}
}

func (l *fakeLease) Held() error           { return l.asked() }
func (l *fakeLease) Lost() <-chan struct{} { return l.lost }

func mine() error   { return nil }
func theirs() error { return errors.New("another agent has it") }

// TestStandby: while another agent leads, what comes in is taken in and nothing is
// committed, however long that lasts; the remote is looked at. Then there is a cycle at once, and
// after it everything is listed again.
func TestStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLooped(t, BatchOptions{Quiet: 2 * time.Second, Max: 30 * time.Second}, Pace{Poll: time.Minute}, &fakeMirror{})
		lead := make(chan struct{})
		relisted := 0
		go func() {
			if err := l.Standby(t.Context(), lead, func() { relisted++ }); err != nil {
				t.Error(err)
			}
			l.ended <- l.Run(t.Context())
		}()
		mustPut(t, l.batch, entry("a", "1"))
		after(time.Hour)
		mustPut(t, l.batch, entry("b", "1"))
		after(time.Minute)
		seen := l.mirror.seen()
		if len(seen.cycles) != 0 || relisted != 0 || !slices.Equal(seen.spilled, []string{"a=1", "b=1"}) || !l.health.State().Standby {
			t.Errorf("standing by: %d cycles, %d listings, took in %v, health %+v", len(seen.cycles), relisted, seen.spilled, l.health.State())
		}
		wantBetween(t, "looks at the remote in an hour", len(seen.follows), 50, 77)
		close(lead)
		seen = l.mirror.seen()
		if len(seen.cycles) != 1 || seen.takeovers != 1 || relisted != 1 || l.health.State().Standby {
			t.Errorf("leading: %d cycles, %d takeovers, %d listings, health %+v", len(seen.cycles), seen.takeovers, relisted, l.health.State())
		}
		mustPut(t, l.batch, entry("c", "1"))
		if got := l.mirror.during(time.Minute, cycles); got != 1 || relisted != 1 {
			t.Errorf("then: %d cycles, %d listings, want one of each", got, relisted)
		}
	})
}

// TestLeadingAtOnce: where nobody else is, the listings of the start are not made twice.
func TestLeadingAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLooped(t, BatchOptions{Quiet: 2 * time.Second}, Pace{}, &fakeMirror{})
		lead := make(chan struct{})
		close(lead)
		if err := l.Standby(t.Context(), lead, func() { t.Error("listed again") }); err != nil {
			t.Fatal(err)
		}
		l.run(t)
		if got := len(l.mirror.seen().cycles); got != 1 {
			t.Errorf("%d cycles, want 1", got)
		}
	})
}

// TestLeaseLost: the cycle under way is broken off, in the last flush too, and there is no other one.
func TestLeaseLost(t *testing.T) {
	for _, tt := range []struct {
		name   string
		during func(l *looped)
		cycles int
	}{
		{"while it waits", func(*looped) {}, 1},
		{"in a cycle", func(l *looped) { l.batch.Kick() }, 2},
		{"in the last flush", func(l *looped) { l.cancel() }, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lease := &fakeLease{lost: make(chan struct{})}
				l := newLooped(t, BatchOptions{}, Pace{}, &fakeMirror{})
				l.Under(lease)
				l.batch.Kick()
				l.run(t)
				l.mirror.answer(func(ctx context.Context, _ int) (*Report, error) {
					<-ctx.Done()
					return newReport(), context.Cause(ctx)
				})
				tt.during(l)
				synctest.Wait()
				close(lease.lost)
				synctest.Wait()
				select {
				case err := <-l.ended:
					if !errors.Is(err, ErrLeaseLost) {
						t.Errorf("ended with %v, want ErrLeaseLost", err)
					}
				default:
					t.Error("it goes on")
				}
				if got := len(l.mirror.seen().cycles); got != tt.cycles {
					t.Errorf("%d cycles, want %d", got, tt.cycles)
				}
			})
		})
	}
}

// standby starts a second agent beside the world's, on the same cluster and remote.
func (w *world) standby() *world {
	w.t.Helper()
	other := *w
	other.store = nil
	other.start()
	return &other
}

// mainHead is the remote's branch.
func (w *world) mainHead() string {
	return strings.TrimSpace(w.git("-C", w.remote, "rev-parse", "main"))
}

// TestTakeOver: what the old leader committed is not committed again, what it did not arrives, and
// what comes to be equal again is not even kept by a standby.
func TestTakeOver(t *testing.T) {
	leader := newWorld(t)
	leader.put(widgetRange(0, 3)...)
	leader.start()
	leader.list(widgets)
	leader.cycle()

	standby := leader.standby()
	standby.list(widgets)
	if err := standby.mirror.Spill(standby.batch.Take()); err != nil {
		t.Fatal(err)
	}
	both := func(key kube.Key, value string) {
		leader.change(key, value)
		standby.tell(key)
		if err := standby.mirror.Spill(standby.batch.Take()); err != nil {
			t.Fatal(err)
		}
	}
	both(widget(0), "2")
	leader.remove(widget(1))
	standby.tell(widget(1))
	leader.cycle()
	if err := standby.mirror.Follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := standby.mirror.Spill(standby.batch.Take()); err != nil {
		t.Fatal(err)
	}
	both(widget(0), "3") // the leader commits it after the standby's last look
	leader.cycle()
	both(widget(2), "2") // and dies before it commits this
	before := leader.commits()
	standby.mirror.TakeOver()
	report := standby.cycle()
	if got := standby.commits() - before; got != 1 || report.Changed() != 1 || !strings.Contains(standby.file(PathOf(widget(2))), `"2"`) {
		t.Errorf("%d commits that change %d, want one that changes widget 2:\n%s", got, report.Changed(), standby.git("-C", standby.remote, "log", "--stat", "main"))
	}
	standby.list(widgets)
	if standby.cycle(); standby.commits() != before+1 {
		t.Error("a commit for nothing")
	}
}

// TestFollowForgets: what a standby keeps does not grow with what the leader commits.
func TestFollowForgets(t *testing.T) {
	leader := newWorld(t)
	leader.put(widgetRange(0, 3)...)
	leader.start()
	standby := leader.standby()
	leader.list(widgets)
	standby.list(widgets)
	leader.cycle()
	for n := range 20 {
		key := widget(100 + n)
		leader.put(key)
		leader.tell(key)
		standby.tell(key)
		leader.cycle()
		leader.remove(key)
		standby.tell(key)
		leader.cycle()
	}
	if err := standby.mirror.Spill(standby.batch.Take()); err != nil {
		t.Fatal(err)
	}
	if got := standby.mirror.Waiting(); got < 20 {
		t.Fatalf("%d objects wait, want all that came in", got)
	}
	if err := standby.mirror.Follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := standby.mirror.Waiting(); got != 0 {
		t.Errorf("%d objects wait although the remote has everything", got)
	}
}

// TestNoPushWithoutLease: nothing is pushed without the lease, and nothing is lost by it.
func TestNoPushWithoutLease(t *testing.T) {
	w := newWorld(t)
	w.put(widget(0))
	w.start()
	lease := &fakeLease{asked: mine}
	w.mirror.opts.Lease = lease
	w.list(widgets)
	w.cycle()
	before := w.mainHead()
	lease.asked = theirs
	w.change(widget(0), "2")
	if _, err := w.tryCycle(); err == nil || !strings.Contains(err.Error(), "another agent has it") {
		t.Errorf("cycle: %v, want the lease's error", err)
	}
	if got := w.mainHead(); got != before {
		t.Error("pushed without the lease")
	}
	lease.asked = mine
	w.cycle()
	if got := w.file(PathOf(widget(0))); !strings.Contains(got, `"2"`) {
		t.Errorf("the change did not arrive:\n%s", got)
	}
}

// TestOldLeaderCannotPush: a leader that stood still between its last look at the lease and its push, for
// so long that another one took over, is refused by the remote, even if the new one had nothing
// to commit: what it would push is of before.
func TestOldLeaderCannotPush(t *testing.T) {
	old := newWorld(t)
	old.put(widget(0))
	old.start()
	old.list(widgets)
	old.cycle()
	before := old.mainHead()

	lease := &fakeLease{}
	asked := 0
	lease.asked = func() error {
		if asked++; asked > 1 {
			return theirs()
		}
		// It stands still from here on. Meanwhile the object is as it was.
		old.cluster.put(widget(0), "1")
		standby := old.standby()
		standby.list(widgets)
		standby.mirror.TakeOver()
		standby.mirror.opts.Identity = "the new leader"
		standby.cycle()
		if got := standby.mainHead(); got != before {
			t.Errorf("the new leader committed something: %s", standby.git("-C", standby.remote, "log", "main"))
		}
		return nil
	}
	old.mirror.opts.Lease = lease
	old.change(widget(0), "2")
	if _, err := old.tryCycle(); err == nil || !strings.Contains(err.Error(), "another agent has it") {
		t.Errorf("cycle of the old leader: %v, want it to be asked for the lease again", err)
	}
	if got := old.mainHead(); got != before || asked != 2 {
		t.Errorf("the old leader pushed (asked %d times): %s", asked, old.git("-C", old.remote, "log", "--patch", "main"))
	}
}

// TestTakeOverKeepsTheTimeOfBase: that another agent leads does not mean that git and cluster agree as of now.
func TestTakeOverKeepsTheTimeOfBase(t *testing.T) {
	w := newWorld(t)
	w.put(widget(0))
	w.start()
	w.list(widgets)
	w.cycle()
	base := w.mirror.refs.Base
	when := func() string { return w.git("-C", w.remote, "log", "-1", "--format=%ct %T %P", base) }
	was, before := when(), w.git("-C", w.remote, "rev-parse", base)
	standby := w.standby()
	standby.list(widgets)
	standby.mirror.TakeOver()
	standby.mirror.opts.Identity = "the new leader"
	standby.cycle()
	if got := when(); got != was {
		t.Errorf("base: got time, tree and parent %s, want %s", got, was)
	}
	if w.git("-C", w.remote, "rev-parse", base) == before || !strings.Contains(w.git("-C", w.remote, "log", "-1", "--format=%B", base), "the new leader") {
		t.Error("base did not move")
	}
}

// TestNoWriteWithoutLease: a leader that lost its lease after it announced a write does not make it; the
// next one settles that.
func TestNoWriteWithoutLease(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}"})
	p.edit("grow", map[string]string{"a": of("{size: 2}")})
	p.agent()
	lease := &fakeLease{asked: mine}
	p.mirror.opts.Lease, p.mirror.two.lease = lease, lease
	p.mirror.two.opts.Reached = func(s Step) error {
		if s == StepAnnounced {
			lease.asked = theirs
		}
		return nil
	}
	p.hands.eachWrite = func(key kube.Key) { t.Errorf("%s is written", key) }
	if _, err := p.tryTurn(); err == nil || !strings.Contains(err.Error(), "another agent has it") {
		t.Errorf("cycle: %v, want the lease's error", err)
	}
	p.hands.eachWrite = nil
	p.agent()
	p.mirror.TakeOver()
	p.turn()
	p.want("a", of("{size: 2}"), of("{size: 2}"), of("{size: 2}"))
}

// TestFasterWriters: a loop that others are faster than waits no longer from try to try, so that it does not
// come last for ever.
func TestFasterWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLooped(t, BatchOptions{}, Pace{}, &fakeMirror{})
		l.mirror.answer(func(context.Context, int) (*Report, error) { return newReport(), gitstore.ErrDiverged })
		l.batch.Kick()
		l.run(t)
		after(time.Hour)
		tries := l.mirror.seen().cycles
		for i := 1; i < len(tries); i++ {
			if wait := tries[i].Sub(tries[i-1]); wait > 3*time.Second {
				t.Fatalf("try %d came %v after the one before, want 2 s or so", i, wait)
			}
		}
		if len(tries) < 1000 {
			t.Errorf("%d tries in an hour", len(tries))
		}
	})
}

// TestGiveWay: who met other writers leaves the branch to them for about as long as it took itself.
func TestGiveWay(t *testing.T) {
	for lost, want := range []int{3600, 1800} { // cycles in an hour
		synctest.Test(t, func(t *testing.T) {
			l := newLooped(t, BatchOptions{}, Pace{}, &fakeMirror{})
			l.mirror.answer(func(ctx context.Context, _ int) (*Report, error) {
				if ctx.Err() != nil {
					return newReport(), ctx.Err()
				}
				after(time.Second)
				l.batch.Kick()
				report := newReport()
				report.Lost = lost
				return report, nil
			})
			l.batch.Kick()
			l.run(t)
			wantBetween(t, "cycles in an hour", l.mirror.during(time.Hour, cycles), want*9/10, want*11/10)
			l.cancel()
			if err := <-l.ended; err != nil {
				t.Error(err)
			}
		})
	}
}
