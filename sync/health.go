package sync

import (
	"context"
	"errors"
	"maps"
	gosync "sync"
	"time"
)

// Health is what the agent tells of itself to those who watch it. The zero
// Health is ready for use.
type Health struct {
	mu       gosync.Mutex
	started  bool
	standing bool // another agent leads
	failing  error
	since    time.Time // of failing
	last     time.Time // the last cycle that finished
	waiting  int
	held     int
	// Of the last cycle that finished.
	conflicts map[string]int
	refused   int
	findings  int
	orphans   int
	postponed int
}

// HealthState is a snapshot of Health.
type HealthState struct {
	Started bool      // a cycle has finished since the start
	Standby bool      // another agent leads; there are no cycles then
	Failing error     // why cycles do not finish; nil when they do
	Since   time.Time // since when
	Last    time.Time // when the last cycle finished
	Waiting int       // objects whose push is not acknowledged
	Held    int       // deletions that wait for approval

	Conflicts map[string]int // of mode two-way, by resource
	Refused   int            // of mode two-way: objects whose change in git is not applied
	Findings  int            // files in git that a person should look at
	Orphans   int            // files that no rule selects any more
	Postponed int            // deletions that could not be proven now
}

// State returns a snapshot.
func (h *Health) State() HealthState {
	h.mu.Lock()
	defer h.mu.Unlock()
	return HealthState{
		Started: h.started, Standby: h.standing, Failing: h.failing, Since: h.since, Last: h.last, Waiting: h.waiting, Held: h.held,
		Conflicts: maps.Clone(h.conflicts), Refused: h.refused,
		Findings: h.findings, Orphans: h.orphans, Postponed: h.postponed,
	}
}

// cycle notes a cycle's outcome. It tells whether this error is a new one, or
// whether an error has ended, and since when there was one.
func (h *Health) cycle(report *Report, err error) (first, ended bool, since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting, h.held = report.Waiting, len(report.Held)
	if err == nil {
		h.started, h.last = true, time.Now()
		h.conflicts, h.refused = map[string]int{}, len(report.Refusals)
		h.findings, h.orphans, h.postponed = len(report.Findings), len(report.Orphans), len(report.Postponed)
		for _, c := range report.Conflicts {
			h.conflicts[c.Key.GroupResource().String()]++
		}
	}
	return h.outcome(err)
}

// outcome notes whether something failed.
func (h *Health) outcome(err error) (first, ended bool, since time.Time) {
	since = h.since
	if errors.Is(err, context.Canceled) { // it was told to stop
		return false, false, since
	}
	if err == nil {
		ended = h.failing != nil
		h.failing, h.since = nil, time.Time{}
		return false, ended, since
	}
	first = h.failing == nil || h.failing.Error() != err.Error()
	if h.failing == nil {
		h.since = time.Now()
	}
	h.failing = err
	return first, false, h.since
}

// standby notes whether another agent leads.
func (h *Health) standby(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.standing = on
}

// followed notes how a standby fares. What it returns is as of cycle.
func (h *Health) followed(waiting int, err error) (first, ended bool, since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting = waiting
	return h.outcome(err)
}
