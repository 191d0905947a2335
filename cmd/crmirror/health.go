package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/crmirror/crmirror/kube/informer"
	"github.com/crmirror/crmirror/sync"
)

// healthEndpoint serves /healthz, /readyz and /metrics.
type healthEndpoint struct {
	server *http.Server
	done   chan error
}

// healthAnswer is the body of both: which checks fail and what waits.
type healthAnswer struct {
	Failing []string `json:"failing,omitempty"`
	Since   string   `json:"since,omitempty"` // of the oldest failure of git
	Waiting int      `json:"waiting"`         // objects whose push is not acknowledged
	Held    int      `json:"held"`            // deletions that wait for approval
}

// stuckAfter is how long cycles may fail before /healthz says so.
const stuckAfter = 10 * time.Minute

// listenHealth serves on an address; "" serves nothing.
func listenHealth(address string, health *sync.Health, fleet *informer.Fleet) (*healthEndpoint, error) {
	e := &healthEndpoint{done: make(chan error, 1)}
	if address == "" {
		return e, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for health checks: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, health.State(), nil, stuckAfter) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, health.State(), fleet.Status(), 0)
	})
	mux.Handle("GET /metrics", metricsHandler(health))
	e.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { e.done <- e.server.Serve(listener) }()
	return e, nil
}

// answer tells the truth about the agent: failures of git that lasted for
// patience, and informers that cannot read.
func answer(w http.ResponseWriter, state sync.HealthState, scopes []informer.ResourceStatus, patience time.Duration) {
	a := healthAnswer{Waiting: state.Waiting, Held: state.Held}
	if state.Failing != nil && time.Since(state.Since) >= patience {
		a.Failing = append(a.Failing, "git: "+state.Failing.Error())
		a.Since = state.Since.UTC().Format(time.RFC3339)
	}
	if scopes != nil && !state.Started {
		a.Failing = append(a.Failing, "start: the first sync is not finished")
	}
	for _, s := range scopes {
		if s.Phase == informer.PhaseFailing {
			a.Failing = append(a.Failing, fmt.Sprintf("watch %s: %v", s.Scope, s.Err))
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if len(a.Failing) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(a) // the prober went away
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
