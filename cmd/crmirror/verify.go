package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/crmirror/crmirror/sync/restore"
)

// verification is what comparing a cluster with a commit came to. Its JSON form is a contract; it holds
// no values of fields.
type verification struct {
	Repository  string             `json:"repository"`
	Path        string             `json:"path"`
	Commit      string             `json:"commit"`
	Time        time.Time          `json:"time"` // of the commit
	ClusterUID  string             `json:"clusterUID"`
	Same        bool               `json:"same"`    // but for what would run again
	Objects     int                `json:"objects"` // of the commit that were looked for, without those in Beside
	Equal       int                `json:"equal"`
	Differences []differenceResult `json:"differences"`
	// NotCompared are objects of which git has only digests of some fields. They count as equal if the rest is.
	NotCompared []notComparedResult `json:"notCompared,omitempty"`
	// Beside are CRDs and Namespaces that differ, and are only what the selected objects stand on. They are no difference.
	Beside []differenceResult `json:"beside,omitempty"`
	// OnlyInCluster are objects of the same resources. They are no difference.
	OnlyInCluster []string        `json:"onlyInCluster,omitempty"`
	Findings      []findingResult `json:"findings,omitempty"`
}

// differenceResult is an object that is not as git has it.
type differenceResult struct {
	State   string           `json:"state"` // missing, differs, being deleted, unknown, left out
	Object  string           `json:"object"`
	From    string           `json:"from,omitempty"` // in git, where it has another name there
	File    string           `json:"file"`
	Reason  string           `json:"reason,omitempty"`
	Changes []restore.Change `json:"changes,omitempty"`

	resource string
}

type notComparedResult struct {
	Object string   `json:"object"`
	Fields []string `json:"fields"`
}

func (a *app) verifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare a cluster with a commit: is it what git says?",
		Long: `Read back everything that a commit has and compare it with the cluster, field by field. Each difference is told with its
likely cause: a default, or the field manager that made it; of many objects of which the same is to be said, the first five
are named, and all with -o json. It writes nothing, and may be run beside the agent.

Objects that only the cluster has are listed, and are no difference. --at takes a commit, a tag or a branch, or a date:
` + dateForms + `.

Exit code: 0 the cluster is what the commit says; 3 it is not; 1 error; 2 wrong usage.`,
		Example: `  crmirror verify --repo ./backup
  crmirror verify --repo ./backup --at 2026-11-30 --resources '*.cert-manager.io'
  crmirror verify --config crmirror.yaml -o json`,
		Args: cobra.NoArgs,
	}
	f := a.addCommitFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.compare(cmd.Context(), f, "verify", func(ctx context.Context, c *comparison, v *restore.Verification, format outputFormat) error {
			result := newVerification(c, v)
			err := writeText(a.env.stdout, format, result, func() string { return c.heading(v) + result.text(nil) })
			if err != nil {
				return fmt.Errorf("write the report: %w", err)
			}
			if !result.Same {
				return errDifferences
			}
			return nil
		})
	}
	return cmd
}

// compare holds a commit against the cluster and hands over what differs.
func (a *app) compare(ctx context.Context, f *commitFlags, command string,
	then func(context.Context, *comparison, *restore.Verification, outputFormat) error) (err error) {
	var mistakes []error
	format, err := parseOutput(f.output)
	if err != nil {
		mistakes = append(mistakes, err)
	}
	opts, mistakes := f.options(mistakes)
	cfg, err := a.loadFor(f, command, opts, mistakes)
	if err != nil {
		return err
	}
	c, err := a.openCommit(ctx, cfg, f.at, opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.store.Close()) }()
	v, err := restore.Verify(ctx, c.snapshot, c.target, opts)
	if err != nil {
		return err
	}
	return then(ctx, c, v, format)
}

func (c *comparison) heading(v *restore.Verification) string {
	return clean("Compared with %s\nCluster %s at %s\n\n", c.source(), v.ClusterUID, c.server)
}

func newVerification(c *comparison, v *restore.Verification) *verification {
	out := &verification{
		Repository: c.repository(), Path: c.cfg.Repository.Path, Commit: v.Commit.String(), Time: v.Time, ClusterUID: v.ClusterUID,
		Same: v.Same(), Objects: v.Objects, Equal: v.Equal, Findings: findingResults(v.Findings),
		Differences: append([]differenceResult{}, differenceResults(v.Differences)...), Beside: differenceResults(v.Beside),
		NotCompared: notComparedResults(v.NotCompared),
	}
	for _, key := range v.Extra {
		out.OnlyInCluster = append(out.OnlyInCluster, key.String())
	}
	return out
}

func notComparedResults(objects []restore.NotCompared) []notComparedResult {
	var out []notComparedResult
	for _, n := range objects {
		out = append(out, notComparedResult{Object: n.Key.String(), Fields: n.Fields})
	}
	return out
}

func differenceResults(differences []restore.Difference) []differenceResult {
	var out []differenceResult
	for i := range differences {
		d := &differences[i]
		out = append(out, differenceResult{
			State: string(d.State), Object: d.Key.String(), From: fromOf(d.Key, d.From), File: d.Path, Reason: d.Reason, Changes: d.Changes,
			resource: d.Key.GroupResource().String(),
		})
	}
	return out
}

// object is the difference as a list of objects has it.
func (d *differenceResult) object() *objectResult {
	reason := d.State
	if d.Reason != "" {
		reason += ": " + d.Reason
	}
	return &objectResult{Object: d.Object, Reason: reason, Changes: d.Changes, resource: d.resource}
}

// text is the result for people, without the differences of objects that were told of already.
func (v *verification) text(told map[string]bool) string {
	var out strings.Builder
	runs := 0
	var objects []*objectResult
	for i := range v.Differences {
		d := &v.Differences[i]
		if d.State == string(restore.WouldRun) {
			runs++
			continue
		}
		if told[d.Object] {
			continue
		}
		objects = append(objects, d.object())
	}
	if v.Equal == v.Objects {
		out.WriteString(clean("%s equal commit %.10s.\n", counted(v.Objects, "object"), v.Commit))
	} else {
		out.WriteString(clean("%d of %s equal commit %.10s.\n", v.Equal, counted(v.Objects, "object"), v.Commit))
	}
	if runs > 0 {
		out.WriteString(clean("%s would run again if created, and may be missing; restore --resources names them.\n", counted(runs, "object")))
	}
	if len(objects) > 0 {
		out.WriteString("\nNot as git has them:\n")
	}
	writeGroups(&out, objects)
	writeNotCompared(&out, v.NotCompared)
	writeBeside(&out, v.Beside)
	v.aside(&out)
	return out.String()
}

func writeGroups(out *strings.Builder, objects []*objectResult) {
	for i, group := range grouped(objects) {
		if i == listed {
			out.WriteString("  and more; see -o json\n")
			break
		}
		writeGroup(out, group)
	}
}

// writeNotCompared tells of what counts as equal only as far as it could be compared.
func writeNotCompared(out *strings.Builder, objects []notComparedResult) {
	if len(objects) == 0 {
		return
	}
	fields := 0
	for _, n := range objects {
		fields += len(n.Fields)
	}
	out.WriteString(clean("Not compared: %s of %s, of which git has only digests; compare them with --redaction-key-file.\n",
		counted(fields, "field"), counted(len(objects), "object")))
}

// writeBeside tells of what differs and was not asked for.
func writeBeside(out *strings.Builder, beside []differenceResult) {
	if len(beside) == 0 {
		return
	}
	out.WriteString("\nNot selected, only what the others stand on, which is no difference:\n")
	var objects []*objectResult
	for i := range beside {
		objects = append(objects, beside[i].object())
	}
	writeGroups(out, objects)
}

// aside tells what only the cluster has, and what to look at.
func (v *verification) aside(out *strings.Builder) {
	if len(v.OnlyInCluster) > 0 {
		out.WriteString(clean("\nOnly in the cluster, which is no difference:\n"))
	}
	for i, object := range v.OnlyInCluster {
		if i == listed {
			out.WriteString(clean("  and %d more; see -o json\n", len(v.OnlyInCluster)-i))
			break
		}
		out.WriteString(clean("  %s\n", object))
	}
	writeFindings(out, v.Findings)
}
