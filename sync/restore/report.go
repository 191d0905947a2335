package restore

import (
	"slices"
	"time"

	"github.com/crmirror/crmirror/kube"
)

// Result is what became of one object.
type Result string

// The results.
const (
	WasCreated    Result = "created"
	WasConfigured Result = "configured" // it differed, and is as git has it now
	WasUnchanged  Result = "unchanged"
	WasSkipped    Result = "skipped"
	InConflict    Result = "conflict"
	WasBlocked    Result = "blocked" // it was not tried: what it stands on is missing, or the plan says so
	HasFailed     Result = "failed"  // the server refused it
	WasLeft       Result = "left"    // the restore was interrupted before
)

// Outcome is what became of one object. Its JSON form is a contract and holds no values of fields.
type Outcome struct {
	Result Result   `json:"result"`
	Key    kube.Key `json:"key"`
	From   kube.Key `json:"from"`
	Path   string   `json:"path"`
	// Reason says why the object is not as git has it, in the server's words where it refused it.
	Reason string `json:"reason,omitempty"`
	// Notes are those of the plan, and what came to light since.
	Notes   []string `json:"notes,omitempty"`
	Changes []Change `json:"changes,omitempty"` // of what was configured, is skipped or in conflict

	there  bool // the cluster has the object, though maybe another one than git
	behind bool // it is skipped since its owner is
}

// StageReport says how long a stage took.
type StageReport struct {
	Stage Stage         `json:"stage"`
	Total int           `json:"total"` // objects to be written, or kinds to be served
	Done  int           `json:"done"`  // without those that failed
	Took  time.Duration `json:"took"`  // nanoseconds
	// Requests is how many were under way at once in the end.
	Requests int `json:"requests,omitempty"`
}

// Rate is how many were done in a second.
func (s StageReport) Rate() float64 {
	if s.Took <= 0 {
		return 0
	}
	return float64(s.Done) / s.Took.Seconds()
}

// Report is what a restore did.
type Report struct {
	Commit     Commit        `json:"commit"`
	Time       time.Time     `json:"time"` // of the commit
	ClusterUID string        `json:"clusterUID"`
	Outcomes   []Outcome     `json:"outcomes"` // in the order of the plan
	Findings   []Finding     `json:"findings,omitempty"`
	Stages     []StageReport `json:"stages"`
	// Saved is the file that has the objects as they were before they were configured.
	Saved string `json:"saved,omitempty"`
	// Interrupted says that not all was tried. Another run does what is left.
	Interrupted bool `json:"interrupted,omitempty"`
}

// Totals counts the objects by result.
func (r *Report) Totals() map[Result]int {
	totals := map[Result]int{}
	for i := range r.Outcomes {
		totals[r.Outcomes[i].Result]++
	}
	return totals
}

// Complete tells whether all that was asked for is there, as git has it. What would run again
// and was not asked for by name does not count.
//
// Invariant: nothing that a fatal finding or the owner of an object keeps from being there is complete
// (TestComplete).
func (r *Report) Complete() bool {
	if r.Interrupted || slices.ContainsFunc(r.Findings, isFatal) {
		return false
	}
	for i := range r.Outcomes {
		switch o := &r.Outcomes[i]; o.Result {
		case InConflict, WasBlocked, HasFailed, WasLeft:
			return false
		case WasSkipped:
			if o.there || o.behind {
				return false
			}
		}
	}
	return true
}

func isFatal(f Finding) bool { return f.Fatal }

// newReport takes over what the plan says already. With release, unchanged objects that are held are
// still to be done.
func newReport(plan *Plan, release bool) *Report {
	r := &Report{
		Commit: plan.Commit, Time: plan.Time, ClusterUID: plan.ClusterUID, Findings: plan.Findings,
		Outcomes: make([]Outcome, len(plan.Actions)),
	}
	results := map[Verb]Result{
		Create: WasLeft, Update: WasLeft, Unchanged: WasUnchanged, Skip: WasSkipped, Conflict: InConflict, Blocked: WasBlocked,
	}
	for i := range plan.Actions {
		a := &plan.Actions[i]
		r.Outcomes[i] = Outcome{
			Result: results[a.Verb], Key: a.Key, From: a.From, Path: a.Path, Reason: a.Reason,
			Notes: a.Notes, Changes: a.Changes, there: a.UID != "", behind: a.Behind,
		}
		if a.Verb == Unchanged && a.Held && release {
			r.Outcomes[i].Result = WasLeft
		}
	}
	return r
}
