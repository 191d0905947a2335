package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/kube/informer"
	"github.com/crmirror/crmirror/sync"
)

// What fails is named, and only a mistake of the agent itself asks for a restart.
func TestProbes(t *testing.T) {
	now := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	scope := informer.Scope{Resource: schema.GroupResource{Group: "shop.example.dev", Resource: "widgets"}, Namespace: "shop"}
	well := probes{
		health: func() sync.HealthState { return sync.HealthState{Started: true} },
		pulse:  func() informer.Pulse { return informer.Pulse{} },
		resources: func() []informer.ResourceStatus {
			return []informer.ResourceStatus{{Scope: scope, Phase: informer.PhaseSynced}}
		},
		running: func() map[sync.Operation]time.Time { return nil },
	}
	runs := func(op sync.Operation, took time.Duration) func(*probes) {
		return func(p *probes) {
			p.running = func() map[sync.Operation]time.Time { return map[sync.Operation]time.Time{op: now.Add(-took)} }
		}
	}
	for _, tt := range []struct {
		what    string
		so      func(*probes)
		unready []string // what fails of /readyz
		dead    []string // and of /healthz
	}{
		{"all is well", func(*probes) {}, nil, nil},
		{"at the start", func(p *probes) { p.health = func() sync.HealthState { return sync.HealthState{} } },
			[]string{"start: the first sync is not finished"}, nil},
		{"git is down for a day", func(p *probes) {
			p.health = func() sync.HealthState {
				return sync.HealthState{Started: true, Failing: errors.New("push main: no route"), Since: now.Add(-24 * time.Hour)}
			}
		}, []string{"git: push main: no route (since 2026-11-29T09:00:00Z)"}, nil},
		{"the API server is silent", func(p *probes) {
			p.pulse = func() informer.Pulse { return informer.Pulse{Err: errors.New("no answer"), Since: now} }
		}, []string{"api: no answer (since 2026-11-30T09:00:00Z)"}, nil},
		{"a kind is forbidden", func(p *probes) {
			p.resources = func() []informer.ResourceStatus {
				return []informer.ResourceStatus{{Scope: scope, Phase: informer.PhaseFailing, Err: errors.New("you may not")}}
			}
		}, []string{"watch widgets.shop.example.dev in namespace shop: you may not"}, nil},
		{"a push that takes its time", runs(sync.OpPush, 29*time.Second), nil, nil},
		{"a push that hangs", runs(sync.OpPush, 41*time.Second), []string{"remote: a push has been under way for 41s"}, nil},
		{"a fetch that hangs", runs(sync.OpFetch, time.Minute), []string{"remote: a fetch has been under way for 1m0s"}, nil},
		{"packs that are merged for long", runs(sync.OpMaintain, 10*time.Minute), nil, nil},
		{"a loop that is stuck", runs(sync.OpCycle, 2*time.Hour), nil, []string{"loop: a cycle has been under way for 2h0m0s"}},
	} {
		p := well
		tt.so(&p)
		if d := cmp.Diff(tt.unready, failing(t, p, p.ready(now))); d != "" {
			t.Errorf("%s: /readyz (-want +got):\n%s", tt.what, d)
		}
		if d := cmp.Diff(tt.dead, failing(t, p, p.alive(now))); d != "" {
			t.Errorf("%s: /healthz (-want +got):\n%s", tt.what, d)
		}
	}
}

// failing returns what a probe that asks for no details is told.
func failing(t *testing.T, p probes, checks []check) []string {
	t.Helper()
	w := httptest.NewRecorder()
	answer(w, httptest.NewRequest(http.MethodGet, "/readyz", nil), checks, p.health())
	var body healthAnswer
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatal(err)
	}
	if ok := w.Code == http.StatusOK; ok != (len(body.Failing) == 0) {
		t.Errorf("status %d with %q", w.Code, body.Failing)
	}
	return body.Failing
}

func TestVerboseProbe(t *testing.T) {
	w := httptest.NewRecorder()
	answer(w, httptest.NewRequest(http.MethodGet, "/readyz?verbose", nil), []check{
		{name: "start", note: "standby"}, {name: "git"}, {name: "watch widgets.shop.example.dev", err: errors.New("you\nmay not")},
	}, sync.HealthState{})
	const want = "[+]start ok standby\n[+]git ok\n[-]watch widgets.shop.example.dev failed: you; may not\nreadyz check failed\n"
	if d := cmp.Diff(want, w.Body.String()); d != "" {
		t.Errorf("body (-want +got):\n%s", d)
	}
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("status: got %d, want 503", w.Code)
	}
}
