package sync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	gosync "sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
)

// fakeMirror stands for the Mirror where only when it is called matters.
type fakeMirror struct {
	batch *Batch
	// spill answers the nth spill, from 0 on; nil takes it.
	spill func(n int) error

	mu     gosync.Mutex
	report func(ctx context.Context, n int) (*Report, error) // answers the nth cycle; nil reports nothing
	record record
}

// record is what a fakeMirror was asked.
type record struct {
	cycles    []time.Time
	entries   [][]string // of each cycle
	spills    []time.Time
	spilled   []string
	rechecks  []time.Time
	upkeeps   []time.Time
	follows   []time.Time
	takeovers int
}

func (m *fakeMirror) Cycle(ctx context.Context, now time.Time) (*Report, error) {
	m.mu.Lock()
	n, report := len(m.record.cycles), m.report
	m.record.cycles = append(m.record.cycles, now)
	m.record.entries = append(m.record.entries, names(m.batch.Take()))
	m.mu.Unlock()
	if report == nil {
		return newReport(), nil
	}
	return report(ctx, n)
}

func (m *fakeMirror) Spill(entries []Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(m.record.spills)
	m.record.spills = append(m.record.spills, time.Now())
	if n > 1000 {
		return errors.New("the loop spins")
	}
	if m.spill != nil {
		if err := m.spill(n); err != nil {
			return err
		}
	}
	m.record.spilled = append(m.record.spilled, names(entries)...)
	return nil
}

func (m *fakeMirror) Recheck() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.record.rechecks = append(m.record.rechecks, time.Now())
}

func (m *fakeMirror) Waiting() int { return 0 }

func (m *fakeMirror) Follow(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.record.follows = append(m.record.follows, time.Now())
	return nil
}

func (m *fakeMirror) TakeOver() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.record.takeovers++
}

func (m *fakeMirror) Maintain(_ context.Context, due bool) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if due {
		m.record.upkeeps = append(m.record.upkeeps, time.Now())
	}
	return due, nil
}

// answer lets the cycles from now on report something else.
func (m *fakeMirror) answer(report func(ctx context.Context, n int) (*Report, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.report = report
}

// seen returns what was asked until the loop had nothing more to do.
func (m *fakeMirror) seen() record {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.record
	r.spilled = slices.Clone(r.spilled)
	return r
}

func cycles(r record) int   { return len(r.cycles) }
func rechecks(r record) int { return len(r.rechecks) }
func upkeeps(r record) int  { return len(r.upkeeps) }

// during passes d and returns how many of these calls came in it.
func (m *fakeMirror) during(d time.Duration, calls func(record) int) int {
	before := calls(m.seen())
	after(d)
	return calls(m.seen()) - before
}

// looped is a loop that runs over a fakeMirror in fake time.
type looped struct {
	*Loop
	mirror *fakeMirror
	logs   *logtest.Hook
	cancel context.CancelFunc
	ended  chan error
}

func newLooped(t *testing.T, opts BatchOptions, pace Pace, mirror *fakeMirror) *looped {
	t.Helper()
	mirror.batch = NewBatch(opts)
	log, logs := logtest.NewNullLogger()
	return &looped{
		Loop:   NewLoop(mirror, mirror.batch, &Health{}, pace, log),
		mirror: mirror, logs: logs, ended: make(chan error, 1),
	}
}

func (l *looped) run(t *testing.T) {
	t.Helper()
	var ctx context.Context
	ctx, l.cancel = context.WithCancel(t.Context())
	t.Cleanup(l.cancel)
	go func() { l.ended <- l.Run(ctx) }()
	synctest.Wait()
}

func wantBetween(t *testing.T, what string, got, least, most int) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s: got %d, want %d to %d", what, got, least, most)
	}
}

// logged counts the log's lines of that level with that message.
func (l *looped) logged(level logrus.Level, message string) int {
	n := 0
	for _, e := range l.logs.AllEntries() {
		if e.Level == level && e.Message == message {
			n++
		}
	}
	return n
}

func TestLoopCyclesWhenABatchCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLooped(t, BatchOptions{Quiet: 2 * time.Second, Max: 30 * time.Second}, Pace{}, &fakeMirror{})
		l.run(t)
		start := time.Now()
		mustPut(t, l.batch, entry("a", "1"), entry("b", "1"))
		if got := l.mirror.during(time.Hour, cycles); got != 1 {
			t.Fatalf("got %d cycles, want 1", got)
		}
		if got := l.mirror.seen().cycles[0].Sub(start); got != 2*time.Second {
			t.Errorf("cycled after %v, want 2s", got)
		}
		if diff := cmp.Diff([]string{"a=1", "b=1"}, l.mirror.seen().entries[0]); diff != "" {
			t.Errorf("entries (-want +got):\n%s", diff)
		}
		if got := len(l.mirror.seen().rechecks); got != 0 {
			t.Errorf("the remote was asked %d times although nothing is held", got)
		}
		if got := l.health.State(); !got.Started || got.Failing != nil {
			t.Errorf("health: %+v, want it started and not failing", got)
		}
	})
}

func TestLoopBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("remote is down")
		const tries = 9
		mirror := &fakeMirror{report: func(_ context.Context, n int) (*Report, error) {
			if n < tries {
				return newReport(), down
			}
			return newReport(), nil
		}}
		l := newLooped(t, BatchOptions{}, Pace{RetryMin: time.Second, RetryMax: 20 * time.Second}, mirror)
		l.run(t)
		mustPut(t, l.batch, entry("a", "1"))
		synctest.Wait()
		if got := l.health.State(); !errors.Is(got.Failing, down) || got.Started {
			t.Errorf("health: %+v, want it failing", got)
		}
		if got := 1 + mirror.during(time.Hour, cycles); got != tries+1 {
			t.Fatalf("got %d cycles, want %d: until one finishes", got, tries+1)
		}
		for i := range tries {
			want := min(time.Second<<i, 20*time.Second)
			got := mirror.seen().cycles[i+1].Sub(mirror.seen().cycles[i])
			if got < want*8/10 || got > want*12/10 {
				t.Errorf("pause %d: got %v, want about %v", i, got, want)
			}
		}
		if got := l.health.State(); got.Failing != nil || !got.Started {
			t.Errorf("health: %+v, want it not failing", got)
		}
		if got := l.logged(logrus.ErrorLevel, "cycle did not finish; changes are kept, it is tried again"); got != 1 {
			t.Errorf("the error was logged %d times, want once", got)
		}
		// Another outage begins with short pauses again.
		mirror.answer(func(_ context.Context, n int) (*Report, error) {
			if n == tries+1 {
				return newReport(), down
			}
			return newReport(), nil
		})
		mustPut(t, l.batch, entry("a", "2"))
		if got := mirror.during(1300*time.Millisecond, cycles); got != 1 {
			t.Errorf("got %d cycles in the first second of the second outage, want 1 after the failed one", got)
		}
		if got := l.logged(logrus.InfoLevel, "cycles finish again"); got != 2 {
			t.Errorf("that cycles finish again was logged %d times, want once an outage", got)
		}
	})
}

func holds(context.Context, int) (*Report, error) {
	report := newReport()
	report.Held = HeldSet{{Key: widget(0), Reason: ReasonDeleted}}
	return report, nil
}

// stream makes a batch due every second, for d.
func stream(t *testing.T, b *Batch, d time.Duration) {
	for i := range int(d / time.Second) {
		mustPut(t, b, entry("busy", fmt.Sprint(i)))
		after(time.Second)
	}
}

// While deletions are held, the remote is asked for an approval.
func TestHeldIsPolled(t *testing.T) {
	const poll = 30 * time.Second
	t.Run("when nothing else happens", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLooped(t, BatchOptions{}, Pace{Poll: poll}, &fakeMirror{report: holds})
			l.run(t)
			l.batch.Kick()
			wantBetween(t, "polls in an hour", l.mirror.during(time.Hour, rechecks), 100, 150)
			l.mirror.answer(nil) // approved
			if got := l.mirror.during(time.Minute, cycles); got < 1 {
				t.Fatal("no poll in a minute")
			}
			if got := l.mirror.during(time.Hour, cycles); got != 0 {
				t.Errorf("got %d cycles in an hour after nothing was held any more, want none", got)
			}
		})
	})
	t.Run("under a stream of batches", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLooped(t, BatchOptions{}, Pace{Poll: poll}, &fakeMirror{report: holds})
			l.run(t)
			stream(t, l.batch, time.Hour)
			synctest.Wait()
			wantBetween(t, "polls in an hour", len(l.mirror.seen().rechecks), 100, 150)
		})
	})
	t.Run("not while the batch is held open", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLooped(t, BatchOptions{}, Pace{Poll: poll}, &fakeMirror{report: holds})
			l.run(t)
			l.batch.Kick()
			synctest.Wait()
			l.batch.Hold() // a listing begins
			mustPut(t, l.batch, entry("a", "1"))
			if got := l.mirror.during(time.Hour, cycles); got != 0 {
				t.Errorf("got %d cycles in the midst of a listing, want none", got)
			}
			mustPut(t, l.batch, entry("b", "1"))
			l.batch.Release()
			synctest.Wait()
			entries := l.mirror.seen().entries
			if got := entries[len(entries)-1]; !slices.Equal(got, []string{"a=1", "b=1"}) {
				t.Errorf("the cycle after the listing took %v, want a and b", got)
			}
		})
	})
}

// What was refused is tried again when the report says, also if that comes earlier than it
// was to be before, and not in between.
func TestRefusedIsTriedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := 40 * time.Second
		l := newLooped(t, BatchOptions{}, Pace{}, &fakeMirror{report: func(context.Context, int) (*Report, error) {
			report := newReport()
			report.tryAt(time.Now().Add(wait))
			return report, nil
		}})
		l.run(t)
		l.batch.Kick()
		synctest.Wait()
		if got := l.mirror.during(39*time.Second, cycles); got != 0 {
			t.Errorf("got %d cycles before it was time, want none", got)
		}
		if got := l.mirror.during(2*time.Second, cycles); got != 1 {
			t.Errorf("got %d cycles when it was time, want one", got)
		}
		wait = 5 * time.Second // an object is refused for the first time
		l.batch.Kick()
		synctest.Wait()
		if got := l.mirror.during(6*time.Second, cycles); got != 1 {
			t.Errorf("got %d cycles when the new one was due, want one", got)
		}
	})
}

// What could not be proven is tried again, at the pace of one, however many
// cycles there are for other reasons.
func TestRetriesDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mirror := &fakeMirror{report: func(context.Context, int) (*Report, error) {
			report := newReport()
			report.Waiting = 1
			return report, nil
		}}
		l := newLooped(t, BatchOptions{}, Pace{RetryMin: time.Second, RetryMax: time.Minute}, mirror)
		l.run(t)
		l.batch.Kick()
		wantBetween(t, "cycles in the first minute", mirror.during(time.Minute, cycles), 5, 8) // 0 s, 1 s, 3 s, 7 s, …
		after(time.Hour)
		wantBetween(t, "cycles in an hour before the stream", mirror.during(time.Hour, cycles), 50, 75)
		stream(t, l.batch, 10*time.Minute)
		wantBetween(t, "cycles in an hour after the stream", mirror.during(time.Hour, cycles), 50, 75)
		mirror.answer(nil)
		wantBetween(t, "cycles in the hour when it was proven", mirror.during(time.Hour, cycles), 1, 1)
	})
}

// A disk that is full does not turn into memory that is: the informers wait.
// TestLoopMaintains: what the clock asks for is done once, after a cycle.
func TestLoopMaintains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLooped(t, BatchOptions{Quiet: time.Second}, Pace{}, &fakeMirror{})
		l.run(t)
		if got := l.mirror.during(time.Hour, upkeeps); got != 0 {
			t.Errorf("maintained %d times unasked", got)
		}
		l.Maintain()
		after(time.Hour)
		if got := upkeeps(l.mirror.seen()); got != 1 {
			t.Errorf("maintained %d times, want once", got)
		}
		if got := cycles(l.mirror.seen()); got != 1 {
			t.Errorf("%d cycles, want one before the maintenance", got)
		}
		if got := l.logged(logrus.InfoLevel, "repository maintained"); got != 1 {
			t.Errorf("told %d times", got)
		}
	})
}

func TestFailingSpillPausesIntake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("no space left on device")
		mirror := &fakeMirror{spill: func(n int) error {
			if n < 5 {
				return full
			}
			return nil
		}}
		l := newLooped(t, BatchOptions{MaxBytes: 10}, Pace{RetryMin: time.Second, RetryMax: time.Minute}, mirror)
		l.batch.Hold()
		l.run(t)
		start := time.Now()
		mustPut(t, l.batch, entry("a", "1234567890"))
		if err := l.batch.Put(t.Context(), entry("b", "1")); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(start); got < 31*time.Second*8/10 || got > 31*time.Second*12/10 {
			t.Errorf("the next object was taken in after %v, want about 31s, when the spill succeeded", got)
		}
		synctest.Wait()
		if got := len(mirror.seen().spills); got != 6 {
			t.Errorf("got %d tries, want 6", got)
		}
		if diff := cmp.Diff([]string{"a=1234567890"}, mirror.seen().spilled); diff != "" {
			t.Errorf("spilled (-want +got):\n%s", diff)
		}
		l.batch.Release()
		synctest.Wait()
		if len(mirror.seen().entries) != 1 || !slices.Equal(mirror.seen().entries[0], []string{"b=1"}) {
			t.Errorf("cycles: %v, want one with b", mirror.seen().entries)
		}
		if got := l.health.State().Failing; got != nil {
			t.Errorf("still failing: %v", got)
		}
	})
}

func TestLoopFlushesAtTheEnd(t *testing.T) {
	const grace = 20 * time.Second
	opts, pace := BatchOptions{Quiet: time.Minute}, Pace{Grace: grace}
	t.Run("not before the first sync", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLooped(t, opts, pace, &fakeMirror{})
			l.batch.Hold()
			l.run(t)
			mustPut(t, l.batch, entry("a", "1"))
			l.cancel()
			if err := <-l.ended; err != nil || len(l.mirror.seen().cycles) != 0 {
				t.Errorf("Run = %v after %d cycles, want nil after none", err, len(l.mirror.seen().cycles))
			}
		})
	})
	t.Run("not when no cycle finished", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLooped(t, opts, pace, &fakeMirror{report: func(context.Context, int) (*Report, error) {
				return newReport(), errors.New("remote is down")
			}})
			l.run(t)
			l.batch.Kick()
			synctest.Wait()
			l.cancel()
			if err := <-l.ended; err != nil || len(l.mirror.seen().cycles) != 1 {
				t.Errorf("Run = %v after %d cycles, want nil after the one that failed", err, len(l.mirror.seen().cycles))
			}
		})
	})
	t.Run("what is dirty, once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLooped(t, opts, pace, &fakeMirror{})
			l.run(t)
			l.batch.Kick()
			synctest.Wait()
			mustPut(t, l.batch, entry("a", "1"))
			l.mirror.answer(func(ctx context.Context, _ int) (*Report, error) { return newReport(), ctx.Err() })
			l.cancel()
			if err := <-l.ended; err != nil {
				t.Errorf("Run = %v, want nil: the signal did not end the flush", err)
			}
			if diff := cmp.Diff([][]string{{}, {"a=1"}}, l.mirror.seen().entries); diff != "" {
				t.Errorf("cycles (-want +got):\n%s", diff)
			}
		})
	})
	t.Run("within the grace time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLooped(t, opts, pace, &fakeMirror{})
			l.run(t)
			l.batch.Kick()
			synctest.Wait()
			l.mirror.answer(func(ctx context.Context, _ int) (*Report, error) {
				<-ctx.Done()
				return newReport(), ctx.Err()
			})
			start := time.Now()
			l.cancel()
			if err := <-l.ended; !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Run = %v, want the flush's error", err)
			}
			if got := time.Since(start); got != grace {
				t.Errorf("the flush took %v, want %v", got, grace)
			}
		})
	})
}

func TestOnce(t *testing.T) {
	type outcome struct {
		report *Report
		err    error
	}
	once := func(ctx context.Context, l *looped, synced <-chan struct{}) <-chan outcome {
		ended := make(chan outcome, 1)
		go func() {
			report, err := l.Once(ctx, synced)
			ended <- outcome{report, err}
		}()
		return ended
	}
	opts := BatchOptions{MaxBytes: 10, MaxHold: 15 * time.Minute}
	t.Run("spills, and cycles when all is listed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLooped(t, opts, Pace{}, &fakeMirror{})
			l.batch.Hold()
			synced := make(chan struct{})
			ended := once(t.Context(), l, synced)
			for i := range 4 {
				mustPut(t, l.batch, entry(fmt.Sprint(i), "12345678"))
			}
			after(time.Minute)
			synctest.Wait()
			if got := len(l.mirror.seen().cycles); got != 0 {
				t.Errorf("got %d cycles before all was listed", got)
			}
			close(synced)
			if got := <-ended; got.err != nil || got.report == nil {
				t.Errorf("Once = %v, %v", got.report, got.err)
			}
			if diff := cmp.Diff([][]string{{"3=12345678"}}, l.mirror.seen().entries); diff != "" {
				t.Errorf("cycles (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"0=12345678", "1=12345678", "2=12345678"}, l.mirror.seen().spilled); diff != "" {
				t.Errorf("spilled (-want +got):\n%s", diff)
			}
		})
	})
	t.Run("a listing that outlasts the hold", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLooped(t, opts, Pace{}, &fakeMirror{})
			l.batch.Hold()
			synced := make(chan struct{})
			ended := once(t.Context(), l, synced)
			mustPut(t, l.batch, entry("a", "12345"))
			after(20 * time.Minute)
			mustPut(t, l.batch, entry("b", "1234567890"), entry("c", "1234567890")) // neither hangs
			after(time.Hour)
			synctest.Wait()
			wantBetween(t, "spills", len(l.mirror.seen().spills), 1, 10)
			if got := len(l.mirror.seen().cycles); got != 0 {
				t.Errorf("got %d cycles before all was listed: half a backup", got)
			}
			close(synced)
			if got := <-ended; got.err != nil || len(l.mirror.seen().cycles) != 1 {
				t.Fatalf("Once = %v after %d cycles, want nil after 1", got.err, len(l.mirror.seen().cycles))
			}
			got := append(l.mirror.seen().spilled, l.mirror.seen().entries[0]...)
			if diff := cmp.Diff([]string{"a=12345", "b=1234567890", "c=1234567890"}, got); diff != "" {
				t.Errorf("spilled and cycled (-want +got):\n%s", diff)
			}
		})
	})
	t.Run("interrupted", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLooped(t, opts, Pace{}, &fakeMirror{})
			l.batch.Hold()
			ctx, cancel := context.WithCancel(t.Context())
			ended := once(ctx, l, make(chan struct{}))
			mustPut(t, l.batch, entry("a", "1"))
			cancel()
			if got := <-ended; !errors.Is(got.err, context.Canceled) || len(l.mirror.seen().cycles) != 0 {
				t.Errorf("Once = %v after %d cycles, want it canceled after none", got.err, len(l.mirror.seen().cycles))
			}
		})
	})
	t.Run("a spill that fails", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			full := errors.New("no space left on device")
			l := newLooped(t, opts, Pace{}, &fakeMirror{spill: func(int) error { return full }})
			l.batch.Hold()
			ended := once(t.Context(), l, make(chan struct{}))
			mustPut(t, l.batch, entry("a", "1234567890"))
			if got := <-ended; !errors.Is(got.err, full) {
				t.Errorf("Once = %v, want %v", got.err, full)
			}
		})
	})
}

func TestFindingsAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		findings := true
		mirror := &fakeMirror{report: func(context.Context, int) (*Report, error) {
			report := newReport()
			if findings {
				report.Findings = []Finding{{Path: "cluster/x/a.yaml", Text: "it holds something else"}}
				report.Left = []gitstore.Left{{Path: "cluster/x/b.yaml", Reason: "it was changed"}}
				report.Orphans = []kube.Key{widget(1)}
			}
			return report, nil
		}}
		l := newLooped(t, BatchOptions{}, Pace{}, mirror)
		l.run(t)
		cycle := func() {
			l.batch.Kick()
			synctest.Wait()
		}
		warnings := func(want int) {
			t.Helper()
			got := 0
			for _, e := range l.logs.AllEntries() {
				if e.Level == logrus.WarnLevel {
					got++
				}
			}
			if got != want {
				t.Errorf("got %d warnings, want %d", got, want)
			}
		}
		cycle()
		warnings(3)
		cycle()
		cycle()
		warnings(3)
		findings = false // somebody tidied up
		cycle()
		warnings(3)
		findings = true // it is news again
		cycle()
		warnings(6)
	})
}
