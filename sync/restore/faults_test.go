package restore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/kubetest"
)

// A restore that is interrupted finishes what is under way and says what is left.
func TestInterrupted(t *testing.T) {
	w := newWorld(t, "interrupted")
	const n = 200
	for i := range n {
		w.widget(fmt.Sprintf("w%d", i), "{size: 1, replicas: 1, mode: auto}")
	}
	ctx, cancel := context.WithCancel(t.Context())
	w.opts.Progress = func(p Progress) {
		if p.Done == 20 {
			cancel()
		}
	}
	r := w.restore(ctx)
	totals := r.Totals()
	if !r.Interrupted || r.Complete() || totals[WasCreated] < 20 || totals[WasLeft] == 0 || totals[WasCreated]+totals[WasLeft] != n {
		t.Fatalf("interrupted %v, %v", r.Interrupted, totals)
	}
	w.opts.Progress = nil
	again := w.restore(t.Context())
	if got := again.Totals(); got[WasUnchanged]+got[WasCreated] != n || got[WasCreated] != totals[WasLeft] {
		t.Errorf("the second run: %v, want %d created", got, totals[WasLeft])
	}
}

// What the server, or what lies between, does to some requests.
func TestTransientErrors(t *testing.T) {
	w := newWorld(t, "transient")
	const n = 50
	want := map[string]Result{}
	for i := range n {
		name := fmt.Sprintf("w%d", i)
		w.widget(name, "{size: 1}", "status: {ready: true}")
		want[name] = WasCreated
	}
	var requests atomic.Int64
	spoil := func(kind string) error {
		switch requests.Add(1) % 7 {
		case 1:
			return fmt.Errorf("%s: %w", kind, apply.ErrUncertain)
		case 2:
			return &apply.Rejected{Verdict: apply.Unavailable, Message: "too many requests", Retry: true, RetryAfter: time.Millisecond}
		case 3:
			return &apply.Rejected{Verdict: apply.NoKind, Message: "not yet", Retry: true}
		}
		return nil
	}
	w.cluster.before = func(string, map[string]any) error { return spoil("before") }
	w.cluster.after = func(string, map[string]any) error {
		if requests.Add(1)%5 == 0 {
			return apply.ErrUncertain
		}
		return nil
	}
	w.want(w.restore(t.Context()), want)
	for name := range want {
		if live := w.get(name); live.Object["status"] == nil {
			t.Errorf("%s has no status", name)
		}
	}
}

// The API server goes away in the midst of it, and comes back.
func TestOutage(t *testing.T) {
	server := kubetest.New(t, kubetest.Options{})
	w := worldOn(t, server, "outage")
	kubetest.InstallWidgets(t, w.dynamic, w.group, w.namespace, nil)
	const n = 300
	for i := range n {
		w.widget(fmt.Sprintf("w%d", i), "{size: 1}")
	}
	restarted := make(chan error, 1)
	w.opts.Progress = func(p Progress) {
		if p.Done != n/10 { // it is told of each number once
			return
		}
		go func() {
			restarted <- errors.Join(server.StopAPIServer(), server.StartAPIServer(context.WithoutCancel(t.Context())))
		}()
	}
	r := w.restore(t.Context())
	if err := <-restarted; err != nil {
		t.Fatal(err)
	}
	if got := r.Totals(); got[WasCreated] != n {
		for _, o := range r.Outcomes {
			if o.Result != WasCreated {
				t.Logf("%s: %s %s", o.Key, o.Result, o.Reason)
			}
		}
		t.Errorf("%v, want %d created", got, n)
	}
}

// What fails for longer than patience is given up, and harms no other kind.
func TestGivenUp(t *testing.T) {
	w := newWorld(t, "given-up")
	w.opts.Patience = time.Second
	w.widget("a", "{size: 1}")
	w.widget("b", "{size: 2}")
	w.cluster.before = func(_ string, obj map[string]any) error {
		if obj["spec"].(map[string]any)["size"] == int64(1) {
			return &apply.Rejected{Verdict: apply.Failing, Message: "nobody there", Retry: true}
		}
		return nil
	}
	outcomes := w.want(w.restore(t.Context()), map[string]Result{"a": HasFailed, "b": WasCreated})
	if reason := outcomes["a"].Reason; !strings.Contains(reason, "nobody there") {
		t.Errorf("the reason is %q", reason)
	}
}
