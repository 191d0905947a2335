package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// server is the Lease at the API server, in fake time.
type server struct {
	mu      sync.Mutex
	record  *resourcelock.LeaderElectionRecord
	version int
}

// client is one process's way to it.
type client struct {
	*server
	identity string

	mu      sync.Mutex
	err     error         // of every request from now on
	slow    time.Duration // how long answers to writes take
	version int           // what was read last
}

func (c *client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

func (c *client) failing() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *client) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if err := c.failing(); err != nil {
		return nil, nil, err
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.record == nil {
		return nil, nil, apierrors.NewNotFound(leases, "x")
	}
	record := *c.record
	c.version = c.server.version
	raw, err := json.Marshal(record)
	return &record, raw, err
}

func (c *client) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return c.put(ctx, record, 0)
}

func (c *client) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return c.put(ctx, record, c.version)
}

func (c *client) put(ctx context.Context, record resourcelock.LeaderElectionRecord, version int) error {
	if err := c.failing(); err != nil {
		return err
	}
	c.server.mu.Lock()
	if c.server.version != version {
		c.server.mu.Unlock()
		return apierrors.NewConflict(leases, "x", errors.New("it moved"))
	}
	c.server.version++
	c.record, c.version = &record, c.server.version
	c.server.mu.Unlock()
	select { // it is written; the answer takes its time
	case <-time.After(c.slow):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *client) RecordEvent(string) {}
func (c *client) Identity() string   { return c.identity }
func (c *client) Describe() string   { return "x" }

// candidate is a process that takes part.
type candidate struct {
	*Lease
	client *client
	logs   *strings.Builder
	stop   context.CancelFunc
	ended  chan error
}

func (s *server) candidate(t *testing.T, identity string) *candidate {
	t.Helper()
	c := &candidate{client: &client{server: s, identity: identity}, logs: &strings.Builder{}, ended: make(chan error, 1)}
	log := logrus.New()
	log.SetOutput(&locked{w: c.logs})
	c.Lease = newLease(c.client, Options{
		Namespace: "ops", Name: "x", Identity: identity,
		Duration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, Log: log,
	})
	return c
}

type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

func (c *candidate) start(t *testing.T) *candidate {
	t.Helper()
	var ctx context.Context
	ctx, c.stop = context.WithCancel(t.Context())
	t.Cleanup(c.stop)
	go func() { c.ended <- c.Run(ctx) }()
	synctest.Wait()
	return c
}

// closed tells whether a channel is.
func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// pass lets time go by in small steps, and calls check after each.
func pass(d time.Duration, check func()) {
	for range d / (100 * time.Millisecond) {
		<-time.After(100 * time.Millisecond)
		synctest.Wait()
		check()
	}
}

// TestHandOver: who stops gives the lease back, and another one has it within a few tries.
func TestHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		a := s.candidate(t, "a").start(t)
		b := s.candidate(t, "b").start(t)
		if err := a.Held(); err != nil || !closed(a.Acquired()) {
			t.Fatalf("the first one does not hold it: %v", err)
		}
		if err := b.Held(); !errors.Is(err, ErrLost) || closed(b.Acquired()) || b.Holder() != "a" {
			t.Fatalf("the second one: %v, holder %q", err, b.Holder())
		}
		a.stop()
		if err := <-a.ended; err != nil || closed(a.Lost()) {
			t.Errorf("after it was given back: %v, lost %v", err, closed(a.Lost()))
		}
		pass(5*time.Second, func() {})
		if err := b.Held(); err != nil {
			t.Errorf("the second one does not hold it five seconds later: %v", err)
		}
	})
}

// TestHeldByOne: whatever fails, at no time do two processes hold the lease, and the next has it
// when its duration is over. Also where answers are slow: the holder counts from when it asked.
func TestHeldByOne(t *testing.T) {
	for _, slow := range []time.Duration{0, 3 * time.Second} {
		t.Run(fmt.Sprint("answers take ", slow), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				a := s.candidate(t, "a")
				a.client.slow = slow
				a.start(t)
				b := s.candidate(t, "b").start(t)
				pass(20*time.Second, func() {
					if a.Held() == nil && b.Held() == nil {
						t.Fatal("two hold it")
					}
				})
				if err := a.Held(); err != nil {
					t.Fatal(err)
				}
				a.client.fail(errors.New("no route to host"))
				pass(30*time.Second, func() {
					if a.Held() == nil && b.Held() == nil {
						t.Fatal("two hold it")
					}
				})
				if err := b.Held(); err != nil {
					t.Errorf("nobody took over: %v", err)
				}
				if err := <-a.ended; !errors.Is(err, ErrLost) || !closed(a.Lost()) {
					t.Errorf("the first one ended with %v, lost %v", err, closed(a.Lost()))
				}
				if a.Err() == nil || !strings.Contains(a.logs.String(), "no route to host") {
					t.Errorf("it does not say why: %v\n%s", a.Err(), a.logs)
				}
			})
		})
	}
}

// TestOneTerm: a process that was stopped while others had the lease, and gave it back, does
// not take it up where it was.
func TestOneTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		a := s.candidate(t, "a").start(t)
		// Others, while this one stood still: the lease is free again, and two terms have passed.
		s.mu.Lock()
		s.record.HolderIdentity, s.record.LeaderTransitions, s.record.LeaseDurationSeconds = "", 2, 1
		s.version++
		s.mu.Unlock()
		if err := <-a.ended; !errors.Is(err, ErrLost) {
			t.Errorf("it ended with %v, want ErrLost", err)
		}
		if a.Held() == nil {
			t.Error("it holds the lease")
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.record.HolderIdentity != "" {
			t.Errorf("the lease is held by %q", s.record.HolderIdentity)
		}
	})
}
