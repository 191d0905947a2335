package informer_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/informer"
)

// patience is how long a test waits for something that must come.
const patience = 2 * time.Minute

// recorder is a Sink that writes down what it is told, as one line each.
type recorder struct {
	mu     sync.Mutex
	lines  []string
	states map[kube.Key]informer.State
	// listings are the last complete ones, by scope.
	listings map[informer.Scope]informer.Listing
	news     chan struct{}
	// block, where set, is called in Changed without the lock.
	block func(context.Context, informer.State)
}

func newRecorder() *recorder {
	return &recorder{
		states:   map[kube.Key]informer.State{},
		listings: map[informer.Scope]informer.Listing{},
		news:     make(chan struct{}),
	}
}

func (r *recorder) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
	close(r.news)
	r.news = make(chan struct{})
}

func (r *recorder) Changed(ctx context.Context, s informer.State) {
	if r.block != nil {
		r.block(ctx, s)
	}
	r.mu.Lock()
	r.states[s.Key] = s
	r.mu.Unlock()
	r.note("changed %s", s.Key)
}

func (r *recorder) Refused(_ context.Context, key kube.Key, _ error) { r.note("refused %s", key) }

func (r *recorder) Absent(_ context.Context, key kube.Key, a informer.Absence) {
	r.note("%s %s", a, key)
}

func (r *recorder) Listing(_ context.Context, s informer.Scope) { r.note("listing %s", s) }

func (r *recorder) Listed(_ context.Context, s informer.Scope, l informer.Listing) {
	r.mu.Lock()
	r.listings[s] = l
	r.mu.Unlock()
	reborn := ""
	if l.Reborn {
		reborn = " reborn"
	}
	r.note("listed %s%s", s, reborn)
}

func (r *recorder) Failing(_ context.Context, s informer.Scope, err error) {
	r.note("failing %s: %v", s, err)
}

func (r *recorder) Recovered(_ context.Context, s informer.Scope) { r.note("recovered %s", s) }

func (r *recorder) KindGone(_ context.Context, gr schema.GroupResource) { r.note("gone %s", gr) }

// all returns the lines so far that contain the text.
func (r *recorder) all(text string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []string
	for _, l := range r.lines {
		if strings.Contains(l, text) {
			found = append(found, l)
		}
	}
	return found
}

// mark returns a position for wait.
func (r *recorder) mark() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.lines)
}

// wait waits until a line that begins with the prefix has come after the mark.
func (r *recorder) wait(t *testing.T, mark int, prefix string) {
	t.Helper()
	deadline := time.After(patience)
	for {
		r.mu.Lock()
		found := slices.ContainsFunc(r.lines[mark:], func(l string) bool { return strings.HasPrefix(l, prefix) })
		news := r.news
		r.mu.Unlock()
		if found {
			return
		}
		select {
		case <-news:
		case <-deadline:
			t.Fatalf("got no %q; told was:\n%s", prefix, strings.Join(r.all(""), "\n"))
		}
	}
}

// state returns the state of an object as last told.
func (r *recorder) state(key kube.Key) informer.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.states[key]
}

// snapshot returns all states as last told.
func (r *recorder) snapshot() map[kube.Key]informer.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.states)
}

func (r *recorder) listing(scope informer.Scope) informer.Listing {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.listings[scope]
}

// compile compiles rules that must be right.
func compile(t *testing.T, selection kube.Selection) *kube.Rules {
	t.Helper()
	rules, err := selection.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// selecting are rules for those resources.
func selecting(t *testing.T, resources ...string) *kube.Rules {
	t.Helper()
	return compile(t, kube.Selection{Select: []kube.Rule{{Resources: resources}}})
}

// options are those of most tests: short waits, no log.
func options(config *rest.Config, rules *kube.Rules, sink informer.Sink) informer.Options {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return informer.Options{
		Config: config, Rules: rules, Sink: sink, Log: log,
		RetryMin: 50 * time.Millisecond, RetryMax: time.Second,
		Recheck: 200 * time.Millisecond, Settle: 500 * time.Millisecond, RequestTimeout: 20 * time.Second,
	}
}

// run starts a fleet that ends with the test, and waits until it is synced.
func run(t *testing.T, o informer.Options) *informer.Fleet {
	t.Helper()
	fleet, _ := runUntilStopped(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := fleet.WaitSynced(ctx); err != nil {
		t.Fatalf("%v; status: %+v", err, fleet.Status())
	}
	return fleet
}

// runUntilStopped starts a fleet. The function it returns stops it and waits.
func runUntilStopped(t *testing.T, o informer.Options) (*informer.Fleet, func()) {
	t.Helper()
	fleet, err := informer.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- fleet.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(patience):
			t.Error("Run does not return after its context has ended")
		}
	})
	t.Cleanup(stop)
	return fleet, stop
}
