package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/crmirror/crmirror/sync/restore"
)

// columns are what a table by resource counts, in its order.
var (
	actionColumns = [...]string{"create", "update", "unchanged", "skip", "conflict", "blocked"}
	resultColumns = [...]string{"created", "configured", "unchanged", "skipped", "conflict", "blocked", "failed", "left"}
)

// head says what is restored from where to where, and what to look at first.
func (r *restoreResult) head() string {
	var out strings.Builder
	out.WriteString(clean("From %s\n", r.from))
	out.WriteString(clean("To %s (cluster %s)\n", r.server, r.ClusterUID))
	writeFindings(&out, r.Findings)
	out.WriteString("\n")
	return out.String()
}

// text is the result for people; of a restore without its head, which was told before it began.
func (r *restoreResult) text(req *restoreRequest) string {
	var out strings.Builder
	if r.DryRun {
		out.WriteString(r.head())
		r.table(&out, actionColumns[:])
		r.list(&out, actionColumns[:])
		r.wouldDo(&out, req)
		return out.String()
	}
	r.table(&out, resultColumns[:])
	r.list(&out, resultColumns[:])
	r.did(&out)
	return out.String()
}

func (o *objectResult) word() string { return cmp.Or(o.Action, o.Result) }

// table counts by resource. Columns that count nothing are left out.
func (r *restoreResult) table(out *strings.Builder, columns []string) {
	columns = slices.DeleteFunc(slices.Clone(columns), func(c string) bool { return r.Totals[c] == 0 })
	counts := map[string]map[string]int{}
	var resources []string
	for i := range r.Objects {
		o := &r.Objects[i]
		if counts[o.resource] == nil {
			counts[o.resource] = map[string]int{}
			resources = append(resources, o.resource)
		}
		counts[o.resource][o.word()]++
	}
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(tw, "RESOURCE")
	for _, c := range columns {
		fmt.Fprint(tw, "\t"+strings.ToUpper(c))
	}
	row := func(name string, counted map[string]int) {
		fmt.Fprint(tw, clean("\n%s", name))
		for _, c := range columns {
			fmt.Fprintf(tw, "\t%d", counted[c])
		}
	}
	for _, resource := range resources {
		row(resource, counts[resource])
	}
	row("total", r.Totals)
	fmt.Fprintln(tw)
	_ = tw.Flush() // writes to memory
}

// list names the objects, but for those where there is nothing to say: in the order of the columns, and cut.
func (r *restoreResult) list(out *strings.Builder, columns []string) {
	for _, column := range columns {
		var objects []*objectResult
		for i := range r.Objects {
			o := &r.Objects[i]
			quiet := column == string(restore.Unchanged) || column == string(restore.WasCreated)
			if o.word() == column && (!quiet || len(o.Notes) > 0) {
				objects = append(objects, o)
			}
		}
		if len(objects) == 0 {
			continue
		}
		out.WriteString(clean("\n%s:\n", column))
		for i, group := range grouped(objects) {
			if i == listed {
				out.WriteString("  and more; see -o json\n")
				break
			}
			writeGroup(out, group)
		}
	}
}

// grouped puts objects of one resource for which the same is to be said together. Those of which fields are listed
// stay alone.
func grouped(objects []*objectResult) [][]*objectResult {
	type kind struct{ resource, reason, notes string }
	var groups [][]*objectResult
	at := map[kind]int{}
	for _, o := range objects {
		if len(o.Changes) > 0 {
			groups = append(groups, []*objectResult{o})
			continue
		}
		k := kind{o.resource, o.Reason, strings.Join(o.Notes, "\n")}
		i, ok := at[k]
		if !ok {
			i = len(groups)
			at[k] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], o)
	}
	return groups
}

// named is how many objects of a group are named.
const named = 5

func writeGroup(out *strings.Builder, group []*objectResult) {
	names := make([]string, 0, named)
	for i, o := range group {
		if i == named {
			break
		}
		names = append(names, strings.TrimPrefix(o.Object, o.resource+" "))
	}
	text := group[0].resource + " " + strings.Join(names, ", ")
	if n := len(group) - named; n > 0 {
		text += fmt.Sprintf(" and %d more (-o json names them)", n)
	}
	if reason := group[0].Reason; reason != "" {
		text += ": " + reason
	}
	out.WriteString(clean("  %s\n", text))
	writeChanges(out, group[0].Changes)
	for _, note := range group[0].Notes {
		out.WriteString(clean("    %s\n", note))
	}
}

// shownChanges bounds the fields that are listed of one object.
const shownChanges = 10

func writeChanges(out *strings.Builder, changes []restore.Change) {
	for i, c := range changes {
		if i == shownChanges {
			out.WriteString(clean("    and %s more; see -o json\n", counted(len(changes)-i, "field")))
			break
		}
		text := c.Field + ": "
		switch {
		case c.Git == "" && c.Cluster == "":
			text += c.Kind
		case c.Git == "":
			text += c.Cluster + " " + c.Kind
		case c.Cluster == "":
			text += c.Git + " " + c.Kind
		default:
			text += c.Git + " in git, " + c.Cluster + " in the cluster"
		}
		if c.Cause != "" {
			text += " (" + c.Cause + ")"
		}
		out.WriteString(clean("    %s\n", text))
	}
}

func writeFindings(out *strings.Builder, findings []findingResult) {
	if len(findings) == 0 {
		return
	}
	out.WriteString("\nPlease look at:\n")
	for i, f := range findings {
		if i == listed {
			out.WriteString(clean("  and %d more; see -o json\n", len(findings)-i))
			break
		}
		text := f.What + ": " + f.Text
		if f.Fatal && len(f.Objects) > 0 {
			text += fmt.Sprintf(" (keeps back %s)", counted(len(f.Objects), "object"))
		}
		out.WriteString(clean("  %s\n", text))
	}
}

// wouldDo ends a dry run.
func (r *restoreResult) wouldDo(out *strings.Builder, req *restoreRequest) {
	n := r.Totals[string(restore.Create)] + r.Totals[string(restore.Update)]
	switch {
	case n == 0 && r.Complete:
		out.WriteString(clean("\nNothing would be done: %s\n", r.equal()))
	case n == 0:
		out.WriteString("\nNothing would be done.\n")
	default:
		out.WriteString(clean("\n%s would be written. Nothing was.\n", counted(n, "object")))
	}
	if req.planOut != "" {
		out.WriteString(clean("The plan is in %s: crmirror restore --plan %s\n", req.planOut, shellWord(req.planOut)))
	}
}

func (r *restoreResult) equal() string {
	return fmt.Sprintf("%s equal commit %.10s.", counted(r.Totals[string(restore.Unchanged)], "object"), r.Commit)
}

// did ends a restore: how long it took, and the proof.
func (r *restoreResult) did(out *strings.Builder) {
	out.WriteString("\n")
	for _, s := range r.Stages {
		out.WriteString(clean("%s: %d of %d in %.1f s, %.0f a second\n", s.Stage, s.Done, s.Total, s.Seconds, s.Rate))
	}
	if r.Saved != "" {
		out.WriteString(clean("The objects that were updated are in %s as they were before, secrets included.\n", r.Saved))
	}
	switch {
	case r.Interrupted:
		out.WriteString(clean("Interrupted: %s left.\n", counted(r.Totals[string(restore.WasLeft)], "object")))
	case r.Unverified:
		out.WriteString("Written, not verified: crmirror verify compares it with the commit.\n")
	case r.Verification != nil:
		out.WriteString(r.Verification.text(r.told()))
	case r.Complete:
		out.WriteString(clean("Nothing was to be done: %s\n", r.equal()))
	default:
		out.WriteString(clean("Nothing was written; %s\n", r.equal()))
	}
}

// told are the objects of which the list says why they are not as git has them.
func (r *restoreResult) told() map[string]bool {
	told := map[string]bool{}
	for i := range r.Objects {
		if o := &r.Objects[i]; o.Reason != "" {
			told[o.Object] = true
		}
	}
	return told
}

// writeText writes a text for people, or the value as JSON.
func writeText(w io.Writer, format outputFormat, v any, text func() string) error {
	if format == outputJSON {
		return writeJSON(w, v)
	}
	_, err := io.WriteString(w, text())
	return err
}
