package informer_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/crmirror/crmirror/kube/kubetest"
)

// A server that is silent looks to watches like one in which nothing happens; the pulse
// tells them apart, and takes a refusal for an answer.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	server := kubetest.Shared(t)
	w := connect(t, server.Config).install("silent.test.dev")
	p := newProxy(t, server.Config)
	o := options(p.config, selecting(t, w.name()), newRecorder())
	o.PulseEvery, o.PulseTimeout = 50*time.Millisecond, 2*time.Second
	fleet := run(t, o)
	pulse := func(what string, want string) {
		t.Helper()
		poll(t, what, func(context.Context) error {
			err := fleet.Pulse().Err
			switch {
			case want == "" && err != nil:
				return err
			case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
				return fmt.Errorf("the pulse is %q", fmt.Sprint(err))
			}
			return nil
		})
	}

	p.answer(func(_ http.ResponseWriter, r *http.Request) bool {
		<-r.Context().Done()
		return true
	})
	pulse("the silence to be noticed", "no answer within 2s")
	if fleet.Pulse().Since.IsZero() {
		t.Error("since when is not told")
	}
	p.answer(nil)
	pulse("the answer to be noticed", "")

	p.answer(func(out http.ResponseWriter, _ *http.Request) bool {
		http.Error(out, "no backend", http.StatusServiceUnavailable)
		return true
	})
	pulse("a proxy without a server to be noticed", "unable to handle the request")

	var refused atomic.Int32
	p.answer(func(out http.ResponseWriter, _ *http.Request) bool {
		refused.Add(1)
		return refuse(out, http.StatusForbidden, metav1.StatusReasonForbidden, "you may not")
	})
	pulse("a refusal to count as an answer", "")
	if refused.Load() == 0 {
		t.Error("nothing was refused")
	}
}

// A watch from which nothing comes any more, while the server answers everything else, is
// opened anew, and what happened meanwhile is told.
func TestSilentWatch(t *testing.T) {
	t.Parallel()
	server := kubetest.Shared(t)
	w := connect(t, server.Config).install("mute.test.dev")
	p := newProxy(t, server.Config)
	told := newRecorder()
	o := options(p.config, selecting(t, w.name()), told)
	o.Silence = 2 * time.Second
	run(t, o)

	muted, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	var once atomic.Bool
	p.answer(func(out http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, w.group) || !watches(r) || streamsInitial(r) || once.Swap(true) {
			return false
		}
		out.Header().Set("Content-Type", "application/json")
		out.WriteHeader(http.StatusOK)
		out.(http.Flusher).Flush()
		muted <- struct{}{}
		<-r.Context().Done()
		ended <- struct{}{}
		return true
	})
	receive(t, "the silent watch", muted) // the first one is silent too, as nothing happens
	w.create("default", "b")
	receive(t, "its end", ended)
	told.wait(t, 0, "changed "+w.key("default", "b").String())
	if got := told.all("failing " + w.name()); len(got) > 0 {
		t.Errorf("told as %q, want it mended without a word", got)
	}
}

func receive(t *testing.T, what string, from <-chan struct{}) {
	t.Helper()
	select {
	case <-from:
	case <-time.After(patience):
		t.Fatalf("%s did not come", what)
	}
}
