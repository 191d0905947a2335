package main

import (
	"errors"
	"io"
	"time"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/sync/restore"
)

// restoreResult is what restore reports: of a dry run what would be done, otherwise what was. Its JSON
// form is a contract; it holds no values of fields.
type restoreResult struct {
	Repository string          `json:"repository"`
	Path       string          `json:"path"`
	Commit     string          `json:"commit"`
	Time       time.Time       `json:"time"`       // of the commit
	ClusterUID string          `json:"clusterUID"` // of the Namespace kube-system
	DryRun     bool            `json:"dryRun,omitempty"`
	Complete   bool            `json:"complete"` // everything asked for is, or would be, there as git has it
	Totals     map[string]int  `json:"totals"`   // objects by action, or result
	Objects    []objectResult  `json:"objects"`
	Findings   []findingResult `json:"findings,omitempty"`
	Stages     []stageResult   `json:"stages,omitempty"`
	// Saved is the file that has the objects as they were before they were updated.
	Saved       string `json:"saved,omitempty"`
	Interrupted bool   `json:"interrupted,omitempty"` // run it again to do what is left
	// Verification is what reading everything back came to. It is missing when nothing was written:
	// then the plan compared everything.
	Verification *verification `json:"verification,omitempty"`

	// Unverified says that reading everything back failed after it was written.
	Unverified bool `json:"unverified,omitempty"`

	from   string // the commit, for people
	server string
}

// objectResult is one object. Action is of a dry run: create, update, unchanged, skip, conflict or blocked.
// Otherwise Result is created, configured, unchanged, skipped, conflict, blocked, failed or left.
type objectResult struct {
	Action  string           `json:"action,omitempty"`
	Result  string           `json:"result,omitempty"`
	Object  string           `json:"object"`
	From    string           `json:"from,omitempty"` // in git, where it has another name there
	File    string           `json:"file"`
	Reason  string           `json:"reason,omitempty"`
	Changes []restore.Change `json:"changes,omitempty"`
	Notes   []string         `json:"notes,omitempty"`

	resource string
}

// findingResult is something that a person should look at; a fatal one keeps its objects from being written.
type findingResult struct {
	What    string   `json:"what"`
	Text    string   `json:"text"`
	Fatal   bool     `json:"fatal,omitempty"`
	Objects []string `json:"objects,omitempty"`
}

type stageResult struct {
	Stage    string  `json:"stage"`
	Total    int     `json:"total"`
	Done     int     `json:"done"`
	Seconds  float64 `json:"seconds"`
	Rate     float64 `json:"rate"`               // a second
	Requests int     `json:"requests,omitempty"` // under way at once, in the end
}

func newRestoreResult(c *comparison) *restoreResult {
	return &restoreResult{
		Repository: c.repository(), Path: c.cfg.Repository.Path, Commit: c.snapshot.Commit.String(), Time: c.snapshot.Time,
		Totals: map[string]int{}, Objects: []objectResult{}, from: c.source(), server: c.server,
	}
}

// newPlanResult is the result of a dry run.
func newPlanResult(c *comparison, plan *restore.Plan) *restoreResult {
	r := newRestoreResult(c)
	r.DryRun, r.Complete, r.ClusterUID, r.Findings = true, plan.Complete(), plan.ClusterUID, findingResults(plan.Findings)
	for i := range plan.Actions {
		a := &plan.Actions[i]
		o := objectResult{Action: string(a.Verb), Object: a.Key.String(), File: a.Path, Reason: a.Reason, Changes: a.Changes,
			Notes: a.Notes, From: fromOf(a.Key, a.From), resource: a.Key.GroupResource().String()}
		r.Objects = append(r.Objects, o)
		r.Totals[o.Action]++
	}
	return r
}

// newReportResult is the result of a restore. Without a verification, nothing was written, or not all.
func newReportResult(c *comparison, report *restore.Report, v *restore.Verification) *restoreResult {
	r := newRestoreResult(c)
	r.ClusterUID, r.Findings = report.ClusterUID, findingResults(report.Findings)
	r.Saved, r.Interrupted = report.Saved, report.Interrupted
	for i := range report.Outcomes {
		x := &report.Outcomes[i]
		r.Objects = append(r.Objects, objectResult{Result: string(x.Result), Object: x.Key.String(), File: x.Path, Reason: x.Reason,
			Changes: x.Changes, Notes: x.Notes, From: fromOf(x.Key, x.From), resource: x.Key.GroupResource().String()})
		r.Totals[string(x.Result)]++
	}
	for _, s := range report.Stages {
		r.Stages = append(r.Stages, stageResult{
			Stage: string(s.Stage), Total: s.Total, Done: s.Done, Seconds: s.Took.Seconds(), Rate: s.Rate(), Requests: s.Requests,
		})
	}
	r.Complete = report.Complete()
	if v != nil {
		r.Verification = newVerification(c, v)
		r.Complete = r.Complete && v.Same()
	}
	return r
}

// unverified takes note that what was written could not be read back: nothing proves then that it is there.
func (r *restoreResult) unverified() *restoreResult {
	r.Unverified, r.Complete = true, false
	return r
}

func fromOf(key, from kube.Key) string {
	if key == from {
		return ""
	}
	return from.String()
}

func findingResults(findings []restore.Finding) []findingResult {
	var out []findingResult
	for _, f := range findings {
		x := findingResult{What: f.What, Text: f.Text, Fatal: f.Fatal}
		for _, key := range f.Objects {
			x.Objects = append(x.Objects, key.String())
		}
		out = append(out, x)
	}
	return out
}

// write writes the result as it was asked for, and the report's file. The one is written though the other
// cannot be.
func (r *restoreResult) write(w io.Writer, req *restoreRequest) error {
	var mistakes []error
	req.reported = true
	if req.report != nil {
		mistakes = append(mistakes, writeJSON(req.report, r), req.report.Close())
	}
	if req.format == outputJSON {
		return errors.Join(append(mistakes, writeJSON(w, r))...)
	}
	_, err := io.WriteString(w, r.text(req))
	return errors.Join(append(mistakes, err)...)
}
