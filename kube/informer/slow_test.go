package informer_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/crmirror/crmirror/kube/informer"
	"github.com/crmirror/crmirror/kube/kubetest"
)

func TestHangingServer(t *testing.T) {
	server := kubetest.Shared(t)
	w, other := connect(t, server.Config).install("hangs.test.dev"), connect(t, server.Config).install("goeson.test.dev")
	w.create("default", "a")
	for _, test := range []struct {
		name   string
		answer bool // sends headers, then nothing
	}{{"without an answer", false}, {"after the headers", true}} {
		t.Run(test.name, func(t *testing.T) {
			p := newProxy(t, server.Config)
			p.answer(func(out http.ResponseWriter, r *http.Request) bool {
				if !strings.Contains(r.URL.Path, w.group) {
					return false
				}
				if test.answer {
					out.Header().Set("Content-Type", "application/json")
					out.WriteHeader(http.StatusOK)
					_ = http.NewResponseController(out).Flush()
				}
				<-r.Context().Done()
				return true
			})
			told := newRecorder()
			o := options(p.config, selecting(t, w.name(), other.name()), told)
			o.RequestTimeout = time.Second
			fleet, stop := runUntilStopped(t, o)
			told.wait(t, 0, "failing "+w.name())
			told.wait(t, 0, "listed "+other.name())
			p.answer(nil)
			told.wait(t, 0, "recovered "+w.name())
			if !fleet.Synced() {
				t.Errorf("not synced: %+v", fleet.Status())
			}
			stop()
		})
	}
}

func TestSlowSink(t *testing.T) {
	server := kubetest.Shared(t)
	c := connect(t, server.Config)
	slow, other := c.install("slow.test.dev"), c.install("quick.test.dev")
	slow.create("default", "a")
	told := newRecorder()
	release := make(chan struct{})
	told.block = func(ctx context.Context, s informer.State) {
		if s.Key.Group != slow.group {
			return
		}
		select {
		case <-release:
		case <-ctx.Done():
		}
	}
	fleet, stop := runUntilStopped(t, options(server.Config, selecting(t, slow.name(), other.name()), told))
	told.wait(t, 0, "listed "+other.name())
	other.create("default", "b")
	told.wait(t, 0, "changed "+other.key("default", "b").String())
	if got := told.all("changed " + slow.name()); len(got) > 0 || fleet.Synced() {
		t.Errorf("a call that blocks has returned: %q", got)
	}
	slow.create("default", "b")
	slow.label("default", "b", "a=b")
	slow.delete("default", "b")
	close(release)
	told.wait(t, 0, "deleted "+slow.key("default", "b").String())
	var order []string
	for _, line := range told.all(slow.key("default", "b").String()) {
		verb, _, _ := strings.Cut(line, " ")
		order = append(order, verb)
	}
	if got := strings.Join(order, " "); got != "changed changed deleted" {
		t.Errorf("told in the order %q", got)
	}

	told.block = nil
	stop()
	// client-go ends a watch's own goroutine without waiting for it: it is given a
	// moment to return from its last read.
	kubetest.Poll(t.Context(), t, 10*time.Second, "the end of all watches", func(context.Context) error {
		if left := running(t); len(left) > 0 {
			return fmt.Errorf("still runs after Run has returned:\n%s", strings.Join(left, "\n\n"))
		}
		return nil
	})
}

// running returns the stacks of goroutines that watch or decode.
func running(t *testing.T) []string {
	t.Helper()
	var stacks strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&stacks, 2); err != nil {
		t.Fatal(err)
	}
	var running []string
	for stack := range strings.SplitSeq(stacks.String(), "\n\n") {
		if strings.Contains(stack, "kube/informer.(*") || strings.Contains(stack, "cache.(*Reflector)") {
			running = append(running, stack)
		}
	}
	return running
}
