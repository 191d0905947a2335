package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"time"

	"github.com/crmirror/crmirror/cmd/internal/config"
	"github.com/crmirror/crmirror/cmd/internal/metrics"
	"github.com/crmirror/crmirror/kube/informer"
	"github.com/crmirror/crmirror/sync"
)

// healthEndpoint serves /healthz, /readyz, /metrics and, where that is wanted, /debug/pprof/.
type healthEndpoint struct {
	server *http.Server
	done   chan error
}

const (
	// remotePatience is how long one fetch or push may take before /readyz says so: a push of a
	// few changes takes a second, and who watches wants to know of a stuck one within a minute.
	remotePatience = 30 * time.Second
	// deadAfter is how long an operation may take before /healthz says that the agent is
	// dead. Everything that waits for others has a timeout, so that nothing but a mistake in
	// the agent takes so long, or a first push over a very thin line.
	deadAfter = time.Hour
)

// probes answers for an agent.
type probes struct {
	health    func() sync.HealthState
	pulse     func() informer.Pulse
	resources func() []informer.ResourceStatus
	synced    func() bool
	running   func() map[sync.Operation]time.Time
	// note, if any, says what a person should know of an agent that is well: that it is a standby.
	note func() string
	// lease, if any, says why the lease cannot be used.
	lease func() error
}

// check is what one of the checks of a probe came to.
type check struct {
	name string
	err  error  // why it fails
	note string // of one that does not
}

// alive are the checks of /healthz: those that a restart of the process may help. It never
// fails because git or the API server is down.
func (p probes) alive(now time.Time) []check {
	return []check{{name: "loop", err: p.late(now, deadAfter, sync.Operations()...)}}
}

// ready are the checks of /readyz: everything that has to be so for changes to reach git.
func (p probes) ready(now time.Time) []check {
	state := p.health()
	start, git := check{name: "start"}, check{name: "git"}
	switch {
	case state.Standby: // it is ready when it could take over
		if !p.synced() {
			start.err = errors.New("the informers are not synced")
		}
	case !state.Started:
		start.err = errors.New("the first sync is not finished")
	}
	if state.Failing != nil {
		git.err = fmt.Errorf("%w (since %s)", state.Failing, state.Since.UTC().Format(time.RFC3339))
	}
	api := check{name: "api"}
	if pulse := p.pulse(); pulse.Err != nil {
		api.err = fmt.Errorf("%w (since %s)", pulse.Err, pulse.Since.UTC().Format(time.RFC3339))
	}
	checks := []check{start, api, git, {name: "remote", err: p.late(now, remotePatience, sync.OpFetch, sync.OpPush)}}
	if p.note != nil {
		checks[0].note = p.note()
	}
	if p.lease != nil {
		if err := p.lease(); err != nil {
			checks = append(checks, check{name: "lease", err: err})
		}
	}
	return append(checks, watches(p.resources())...)
}

// late tells whether one of the operations takes longer than it may.
func (p probes) late(now time.Time, patience time.Duration, ops ...sync.Operation) error {
	for op, since := range p.running() {
		if took := now.Sub(since); slices.Contains(ops, op) && took > patience {
			return fmt.Errorf("a %s has been under way for %s", op, took.Round(time.Second))
		}
	}
	return nil
}

// watches is one check for all informers that do well, and one for each that fails.
func watches(resources []informer.ResourceStatus) []check {
	phases := map[informer.Phase]int{}
	var failing []check
	for _, r := range resources {
		phases[r.Phase]++
		if r.Phase == informer.PhaseFailing {
			failing = append(failing, check{name: "watch " + r.Scope.String(), err: r.Err})
		}
	}
	note := fmt.Sprintf("%d synced, %d listing, %d gone", phases[informer.PhaseSynced], phases[informer.PhaseListing], phases[informer.PhaseGone])
	return append([]check{{name: "watches", note: note}}, failing...)
}

// listenHealth serves on the address that the configuration names; "" serves nothing.
func listenHealth(cfg config.Health, p probes, measured *metrics.Metrics) (*healthEndpoint, error) {
	e := &healthEndpoint{done: make(chan error, 1)}
	if cfg.Listen == "" {
		return e, nil
	}
	listener, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for health checks: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { answer(w, r, p.alive(time.Now()), p.health()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { answer(w, r, p.ready(time.Now()), p.health()) })
	mux.Handle("GET /metrics", measured.Handler())
	if cfg.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index) // it serves the named profiles too
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	e.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { e.done <- e.server.Serve(listener) }()
	return e, nil
}

// healthAnswer is the body of both probes.
type healthAnswer struct {
	Failing []string `json:"failing,omitempty"` // "check: why"
	Since   string   `json:"since,omitempty"`   // of the oldest failure of git
	Waiting int      `json:"waiting"`           // objects whose push is not acknowledged
	Held    int      `json:"held"`              // deletions that wait for approval
}

// answer tells what the checks came to: as JSON those that fail or, with ?verbose, all of
// them, a line each, as the API server does.
func answer(w http.ResponseWriter, r *http.Request, checks []check, state sync.HealthState) {
	a := healthAnswer{Waiting: state.Waiting, Held: state.Held}
	if state.Failing != nil {
		a.Since = state.Since.UTC().Format(time.RFC3339)
	}
	var lines strings.Builder
	for _, c := range checks {
		if c.err != nil {
			a.Failing = append(a.Failing, c.name+": "+sync.Line(c.err.Error()))
			fmt.Fprintf(&lines, "[-]%s failed: %s\n", c.name, sync.Line(c.err.Error()))
			continue
		}
		fmt.Fprintf(&lines, "[+]%s %s\n", c.name, strings.TrimSpace("ok "+c.note))
	}
	status, outcome := http.StatusOK, "passed"
	if len(a.Failing) > 0 {
		status, outcome = http.StatusServiceUnavailable, "failed"
	}
	w.Header().Set("Cache-Control", "no-store")
	if r.URL.Query().Has("verbose") {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, "%s%s check %s\n", lines.String(), strings.TrimPrefix(r.URL.Path, "/"), outcome) // the prober may be gone
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(a) // the prober may be gone
}

func (e *healthEndpoint) close() error {
	if e.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := e.server.Shutdown(ctx); err != nil {
		return fmt.Errorf("stop the health endpoint: %w", err)
	}
	if err := <-e.done; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve health checks: %w", err)
	}
	return nil
}
