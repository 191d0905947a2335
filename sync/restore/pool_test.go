package restore

import (
	"context"
	"errors"
	"slices"
	gosync "sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crmirror/crmirror/kube/apply"
)

// newPool makes a pool of tasks that wait for each other as owners says, and returns it with the
// order in which tasks end.
func newPool(owners [][]int, limit int, attempt func(ctx context.Context, task int) error) (*pool, *[]int) {
	var ended []int
	p := &pool{
		schedule: newSchedule(newOrder(owners), func(int) []string { return []string{"kind"} }, time.Minute, func() float64 { return 1 }),
		pace:     newPace(limit),
		attempt:  attempt,
		ended: func(task int, err error) bool {
			ended = append(ended, task)
			return err == nil
		},
	}
	return p, &ended
}

func TestPoolConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		p, ended := newPool(make([][]int, 100), 5, func(context.Context, int) error {
			most.Store(max(most.Load(), now.Add(1)))
			<-time.After(time.Second)
			now.Add(-1)
			return nil
		})
		began := time.Now()
		p.run(t.Context())
		if len(*ended) != 100 || most.Load() != 5 {
			t.Errorf("%d ended, %d at once, want 100 and 5", len(*ended), most.Load())
		}
		if took := time.Since(began); took != 20*time.Second {
			t.Errorf("took %s, want 20s", took)
		}
	})
}

// Owners come first, a task is tried until it succeeds, and what waits for a failed one is not tried.
func TestPoolOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu gosync.Mutex
		tries := map[int]int{}
		p, ended := newPool([][]int{{1}, nil, {3}, nil, {0}}, 0, func(_ context.Context, task int) error {
			mu.Lock()
			defer mu.Unlock()
			tries[task]++
			switch {
			case task == 3:
				return errors.New("refused")
			case task == 1 && tries[task] < 5:
				return &againError{gate: "kind", err: errors.New("not yet")}
			}
			return nil
		})
		p.run(t.Context())
		if !slices.Equal(*ended, []int{3, 1, 0, 4}) || tries[1] != 5 || tries[2] != 0 {
			t.Errorf("ended %v, tried %v", *ended, tries)
		}
	})
}

// The context of an attempt does not end with the restore's, and run waits for all attempts.
func TestPoolStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		p, ended := newPool(make([][]int, 10), 3, func(attempt context.Context, task int) error {
			if task == 0 {
				cancel()
			}
			<-time.After(time.Minute)
			return attempt.Err()
		})
		p.run(ctx)
		if len(*ended) == 0 || len(*ended) > 3 {
			t.Errorf("%d ended, want those of the first three that had begun", len(*ended))
		}
	})
}

// A server that asks to be left alone is.
func TestPoolRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var times []time.Duration
		p, ended := newPool(make([][]int, 1), 0, func(context.Context, int) error {
			if times = append(times, time.Since(began)); len(times) < 3 {
				return &againError{gate: noGate, overload: true, after: 7 * time.Second, err: errors.New("too many requests")}
			}
			return nil
		})
		p.run(t.Context())
		if want := []time.Duration{0, 7 * time.Second, 14 * time.Second}; !slices.Equal(times, want) || len(*ended) != 1 {
			t.Errorf("tried after %v, want %v", times, want)
		}
	})
}

// A server that asks to be left alone for longer than patience is tried once more after that, and then
// everything is given up, with what the server asked.
func TestPoolRetryAfterTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &executor{opts: ExecuteOptions{Patience: time.Minute}}
		j := &job{action: &Action{}}
		p, ended := newPool(make([][]int, 20), 0, func(context.Context, int) error {
			return x.judge(j, &apply.Rejected{Verdict: apply.Unavailable, Message: "busy", Retry: true, RetryAfter: time.Hour})
		})
		reasons := map[string]bool{}
		p.ended = func(task int, err error) bool {
			*ended = append(*ended, task)
			reasons[err.Error()] = true
			return false
		}
		began := time.Now()
		p.run(t.Context())
		if took := time.Since(began); len(*ended) != 20 || took > 3*time.Minute {
			t.Errorf("%d ended after %s, want 20 soon after a minute", len(*ended), took)
		}
		for reason := range reasons {
			wantText(t, reason, "busy", "left alone for 1h0m0s")
		}
	})
}

// Waiting for a kind, or for discovery, ends with patience whatever the server asks.
func TestPersistRetryAfterTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &executor{opts: ExecuteOptions{Patience: time.Minute}, jitter: func() float64 { return 1 }}
		began, tries := time.Now(), 0
		err := x.persist(t.Context(), func(context.Context) error {
			tries++
			return &apply.Rejected{Verdict: apply.Unavailable, Retry: true, RetryAfter: time.Hour}
		})
		if took := time.Since(began); took != time.Minute || tries != 2 {
			t.Errorf("tried %d times in %s, want 2 and a minute", tries, took)
		}
		if err == nil {
			t.Fatal("no error")
		}
		wantText(t, err.Error(), "left alone for 1h0m0s")
	})
}
