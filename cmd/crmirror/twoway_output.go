package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/sync"
)

// applyResult is what a two-way cycle reports. Its JSON form is a contract.
type applyResult struct {
	backupResult
	DryRun    bool             `json:"dryRun,omitempty"`
	Applied   []appliedResult  `json:"applied"`
	Conflicts []conflictResult `json:"conflicts"`
	Refused   []finding        `json:"refused,omitempty"`
}

type appliedResult struct {
	Object string   `json:"object"`
	Action string   `json:"action"` // created, configured, deleted
	Fields []string `json:"fields,omitempty"`
	Notes  []string `json:"notes,omitempty"`
}

// conflictResult is one conflict. Its JSON form is a contract.
type conflictResult struct {
	Object  string        `json:"object"`
	File    string        `json:"file"`
	Line    int           `json:"line,omitempty"`
	Field   string        `json:"field,omitempty"` // none: the object
	Reason  string        `json:"reason"`
	Base    sync.Shown    `json:"base"`
	Git     sync.Shown    `json:"git"`
	Cluster sync.Shown    `json:"cluster"`
	Owners  []ownerResult `json:"owners,omitempty"`
	Commit  string        `json:"commit,omitempty"` // that gave git its value
	Author  string        `json:"author,omitempty"`
	Instead string        `json:"instead,omitempty"` // of taking git's value, where that cannot be applied
	Settle  []string      `json:"settle"`
}

type ownerResult struct {
	Manager   string `json:"manager"`
	Operation string `json:"operation"`
	Time      string `json:"time,omitempty"`
}

func newApplyResult(r *sync.Report, s *session, dryRun bool, again string) applyResult {
	for _, refused := range r.Refusals { // told once
		delete(r.Postponed, refused.Key)
	}
	out := applyResult{backupResult: newBackupResult(r, s, again), DryRun: dryRun, Conflicts: conflictResults(r.Conflicts, again)}
	for _, x := range r.Applied {
		a := appliedResult{Object: x.Key.String(), Action: x.Action, Fields: x.Fields, Notes: x.Notes}
		for _, d := range x.Displaced {
			a.Notes = append(a.Notes, fmt.Sprintf("%s was %s's", d.Path, d.Owner.Name))
		}
		out.Applied = append(out.Applied, a)
	}
	for _, x := range r.Refusals {
		out.Refused = append(out.Refused, finding{What: sync.At(x.File, x.Line), Text: x.Text})
	}
	return out
}

func conflictResults(conflicts []sync.Conflict, again string) []conflictResult {
	out := make([]conflictResult, 0, len(conflicts))
	for _, c := range conflicts {
		x := conflictResult{
			Object: c.Key.String(), File: c.File, Line: c.Line, Field: c.Field, Reason: c.Reason,
			Base: c.Base, Git: c.Git, Cluster: c.Cluster, Commit: c.Commit, Author: c.Author, Instead: c.Instead,
		}
		for _, command := range c.Settle() {
			x.Settle = append(x.Settle, command+again)
		}
		for _, o := range c.Owners {
			x.Owners = append(x.Owners, ownerOf(o.Manager))
		}
		out = append(out, x)
	}
	return out
}

func ownerOf(m kube.Manager) ownerResult {
	o := ownerResult{Manager: m.Name, Operation: m.Operation}
	if !m.Time.IsZero() {
		o.Time = m.Time.UTC().Format(time.RFC3339)
	}
	return o
}

func (a applyResult) write(w io.Writer, format outputFormat) error {
	if format == outputJSON {
		return writeJSON(w, a)
	}
	_, err := io.WriteString(w, a.text())
	return err
}

func (a applyResult) text() string {
	var out strings.Builder
	for _, x := range a.Applied {
		if a.DryRun {
			out.WriteString("Would be ")
		}
		out.WriteString(clean("%s %s", x.Action, x.Object))
		if len(x.Fields) > 0 {
			out.WriteString(clean(": %s", strings.Join(x.Fields, ", ")))
		}
		out.WriteByte('\n')
		for _, note := range x.Notes {
			out.WriteString(clean("  %s\n", note))
		}
	}
	if len(a.Applied) > 0 {
		out.WriteByte('\n')
	}
	if !a.DryRun {
		out.WriteString(a.backupResult.text())
	} else if n := a.changes(); n > 0 {
		out.WriteString(clean("%s would be committed to git, of what changed in the cluster.\n", counted(n, "file")))
	} else if len(a.Applied) == 0 {
		out.WriteString("Nothing would be done.\n")
	}
	if a.DryRun {
		a.attention(&out)
	}
	if len(a.Refused) > 0 {
		out.WriteString(clean("\nNot applied:\n"))
	}
	for _, r := range a.Refused {
		out.WriteString(clean("  %s: %s\n", r.What, r.Text))
	}
	if len(a.Conflicts) > 0 {
		out.WriteString(clean("\n%s:\n\n", counted(len(a.Conflicts), "conflict")))
		writeConflictText(&out, a.Conflicts)
	}
	return out.String()
}

// changes is how many files a cycle changed.
func (a applyResult) changes() int {
	n := 0
	for _, r := range a.Resources {
		n += r.Created + r.Changed + r.Deleted
	}
	return n
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// writeConflicts writes the list of conflicts. What else is known not to be applied, or wanting a
// look, goes after it for people, and to beside it where w takes JSON.
func writeConflicts(w, beside io.Writer, format outputFormat, report *sync.Report, again string) error {
	results := conflictResults(report.Conflicts, again)
	if format == outputJSON {
		if _, err := io.WriteString(beside, notApplied(report)); err != nil {
			return err
		}
		return writeJSON(w, results)
	}
	var out strings.Builder
	if len(results) == 0 {
		out.WriteString("No conflicts.\n")
	}
	writeConflictText(&out, results)
	out.WriteString(notApplied(report))
	_, err := io.WriteString(w, out.String())
	return err
}

// notApplied lists what a look without writing, not even on trial, tells of changes that are no
// conflict and not applied; "" when that is nothing.
func notApplied(report *sync.Report) string {
	var out strings.Builder
	if len(report.Refusals) > 0 {
		out.WriteString("\nNot applied:\n")
	}
	for _, r := range report.Refusals {
		out.WriteString(clean("  %s: %s; the agent tries again %s\n", sync.At(r.File, r.Line), r.Text, r.Every()))
	}
	findings := findingsOf(report)
	if len(findings) > 0 {
		out.WriteString("\nPlease look at:\n")
	}
	for _, f := range findings {
		out.WriteString(clean("  %s: %s\n", f.What, f.Text))
	}
	if out.Len() > 0 {
		out.WriteString("\nThe server was not asked what else it would refuse; this asks it: crmirror apply --dry-run\n")
	}
	return out.String()
}

func writeConflictText(out *strings.Builder, conflicts []conflictResult) {
	for i, c := range conflicts {
		if i == listed {
			out.WriteString(clean("and %d more; see -o json, or settle many with: crmirror resolve --all\n", len(conflicts)-i))
			return
		}
		out.WriteString(clean("%s  %s\n  %s: %s\n", c.Object, cmp.Or(c.Field, "(the object)"), sync.At(c.File, c.Line), c.Reason))
		out.WriteString(clean("  agreed %s, git %s, cluster %s\n", c.Base, c.Git, c.Cluster))
		if owners := ownersText(c.Owners); owners != "" {
			out.WriteString(clean("  in the cluster owned by %s\n", owners))
		}
		if c.Commit != "" {
			out.WriteString(clean("  in git since %s by %s\n", c.Commit, c.Author))
		}
		if c.Instead != "" {
			out.WriteString(clean("  git's value cannot be applied: %s\n", c.Instead))
		}
		for _, command := range c.Settle {
			out.WriteString(clean("  %s\n", command))
		}
		out.WriteByte('\n')
	}
}

func ownersText(owners []ownerResult) string {
	var names []string
	for _, o := range owners {
		name := fmt.Sprintf("%s (%s", o.Manager, o.Operation)
		if o.Time != "" {
			name += ", last " + o.Time
		}
		names = append(names, name+")")
	}
	return strings.Join(slices.Compact(names), ", ")
}
