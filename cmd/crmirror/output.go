package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/crmirror/crmirror/sync"
)

// outputFormat is how a command reports: for people, or for programs.
type outputFormat string

const (
	outputText outputFormat = ""
	outputJSON outputFormat = "json"
)

func parseOutput(s string) (outputFormat, error) {
	switch f := outputFormat(s); f {
	case outputText, outputJSON:
		return f, nil
	}
	return "", usagef("unknown output format %q; there is: json", s)
}

// backupResult is what a backup reports. Its JSON form is a contract.
type backupResult struct {
	Repository string                `json:"repository"`
	Branch     string                `json:"branch"`
	Path       string                `json:"path"`
	Commit     string                `json:"commit"` // empty when nothing changed
	Pushed     bool                  `json:"pushed"`
	Resources  []sync.ResourceReport `json:"resources"`
	Held       *heldResult           `json:"held,omitempty"`
	Findings   []finding             `json:"findings,omitempty"`
	Orphans    []string              `json:"orphans,omitempty"`
}

type heldResult struct {
	Digest  string   `json:"digest"`
	Objects []string `json:"objects"`
	Approve string   `json:"approve"` // the command that lets them through
}

// finding is something that a person should look at.
type finding struct {
	What string `json:"what"` // file, object or resource
	Text string `json:"text"`
}

// findingsOf lists everything in a report that is not as it should be, sorted.
func findingsOf(r *sync.Report) []finding {
	var out []finding
	add := func(what, text string) { out = append(out, finding{What: what, Text: text}) }
	for _, f := range r.Findings {
		add(cmp.Or(f.At(), f.Key.String()), f.Text+"; it is neither written nor deleted")
	}
	for key, err := range r.Refused {
		add(key.String(), "not mirrored: "+err.Error())
	}
	for scope, err := range r.Failing {
		add(scope.String(), "cannot be read, its files stay as they are: "+err.Error())
	}
	for key, err := range r.Postponed {
		add(key.String(), "not settled yet, tried again next time: "+err.Error())
	}
	for _, left := range r.Left {
		add(cmp.Or(left.Path, "worktree"), "left as it is: "+left.Reason)
	}
	slices.SortFunc(out, func(a, b finding) int { return cmp.Or(cmp.Compare(a.What, b.What), cmp.Compare(a.Text, b.Text)) })
	return out
}

// newBackupResult sums a report up. again is what to add to another command so
// that it means the same repository and cluster.
func newBackupResult(r *sync.Report, s *session, again string) backupResult {
	result := backupResult{
		Repository: s.repository(), Branch: s.store.Branch(), Path: s.cfg.Repository.Path, Commit: r.Commit, Pushed: r.Pushed,
		Resources: r.Resources(), Findings: findingsOf(r),
	}
	for _, key := range r.Orphans {
		result.Orphans = append(result.Orphans, key.String())
	}
	if len(r.Held) > 0 {
		result.Held = &heldResult{Digest: r.Held.Digest(), Approve: "crmirror approve " + r.Held.Digest() + again}
		for _, h := range r.Held {
			result.Held.Objects = append(result.Held.Objects, h.Key.String())
		}
	}
	return result
}

func (b backupResult) write(w io.Writer, format outputFormat) error {
	if format == outputJSON {
		return writeJSON(w, b)
	}
	_, err := io.WriteString(w, b.text())
	return err
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// text is the report for people: a table by resource, the outcome, and what
// needs attention, with the next thing to type.
func (b backupResult) text() string {
	var out strings.Builder
	tw := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprint(tw, clean("RESOURCE\tOBJECTS\tCREATED\tCHANGED\tDELETED\tSKIPPED\tREFUSED\n"))
	total := sync.ResourceReport{Resource: "total"}
	for _, r := range b.Resources {
		total.Objects += r.Objects
		total.Created += r.Created
		total.Changed += r.Changed
		total.Deleted += r.Deleted
		total.Skipped += r.Skipped
		total.Refused += r.Refused
		if r.Objects+r.Created+r.Changed+r.Deleted+r.Skipped+r.Refused > 0 || r.Failing != "" {
			writeRow(tw, r)
		}
	}
	writeRow(tw, total)
	_ = tw.Flush() // writes to memory
	out.WriteString(clean("\n%s\n", b.outcome()))
	b.attention(&out)
	return out.String()
}

func writeRow(w io.Writer, r sync.ResourceReport) {
	name := r.Resource
	if r.Failing != "" {
		name += " (failing)"
	}
	fmt.Fprint(w, clean("%s\t%d\t%d\t%d\t%d\t%d\t%d\n", name, r.Objects, r.Created, r.Changed, r.Deleted, r.Skipped, r.Refused))
}

func (b backupResult) outcome() string {
	where := placeOf(b.Repository, b.Path)
	switch {
	case b.Commit == "" && (b.Held != nil || len(b.Findings) > 0):
		return fmt.Sprintf("Nothing was committed to branch %s of %s.", b.Branch, where)
	case b.Commit == "":
		return fmt.Sprintf("Nothing changed: branch %s of %s equals the cluster.", b.Branch, where)
	case b.Pushed:
		return fmt.Sprintf("Committed %.12s and pushed it to branch %s of %s.", b.Commit, b.Branch, where)
	}
	return fmt.Sprintf("Committed %.12s to branch %s of %s.", b.Commit, b.Branch, where)
}

// listed bounds what is printed of a long list; -o json has all of it.
const listed = 20

func (b backupResult) attention(out *strings.Builder) {
	if b.Held != nil {
		out.WriteString(clean("\n%d deletions are held:\n", len(b.Held.Objects)))
		for i, object := range b.Held.Objects {
			if i == listed {
				out.WriteString(clean("  and %d more; see -o json\n", len(b.Held.Objects)-i))
				break
			}
			out.WriteString(clean("  %s\n", object))
		}
		out.WriteString(clean("If they are meant: %s\n", b.Held.Approve))
	}
	if len(b.Orphans) > 0 {
		out.WriteString(clean("\n%d files are selected by no rule any more; they are kept as they are.\n", len(b.Orphans)))
	}
	if len(b.Findings) > 0 {
		out.WriteString(clean("\nPlease look at:\n"))
	}
	for i, f := range b.Findings {
		if i == listed {
			out.WriteString(clean("  and %d more; see -o json\n", len(b.Findings)-i))
			break
		}
		out.WriteString(clean("  %s: %s\n", f.What, f.Text))
	}
}
