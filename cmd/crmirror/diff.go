package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/crmirror/crmirror/cmd/internal/unified"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/sync"
	"github.com/crmirror/crmirror/sync/restore"
)

// diffResult is what differs between git and a cluster. Its JSON form is a contract.
type diffResult struct {
	Commit        string       `json:"commit"`
	Objects       []objectDiff `json:"objects"`
	OnlyInCluster []string     `json:"onlyInCluster,omitempty"`
	// NotCompared and Beside are as in verify: what a diff does not show.
	NotCompared []notComparedResult `json:"notCompared,omitempty"`
	Beside      []differenceResult  `json:"beside,omitempty"`
	// Findings are as in verify. A fatal one says that not all could be compared.
	Findings []findingResult `json:"findings,omitempty"`
}

type objectDiff struct {
	Object string `json:"object"`
	State  string `json:"state"`            // as in verify
	Diff   string `json:"diff,omitempty"`   // unified; git is the old side
	Reason string `json:"reason,omitempty"` // why there is no diff
}

func (a *app) diffCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "What differs between git and the cluster, as unified diffs",
		Long: `Show what differs between a commit and the cluster: a unified diff for each object, with git on the left and the cluster
on the right. What git leaves out of objects, or has only digests of, is left out here too. It writes nothing, and may be
run beside the agent. --at takes a commit, a tag or a branch, or a date:
` + dateForms + `.

Exit code: 0 nothing differs; 3 something does, or could not be compared; 1 error; 2 wrong usage.`,
		Example: `  crmirror diff --repo ./backup
  crmirror diff --repo ./backup --at '2h ago' --resources certificates.cert-manager.io -n shop`,
		Args: cobra.NoArgs,
	}
	f := a.addCommitFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.compare(cmd.Context(), f, "diff", a.diff) }
	return cmd
}

func (a *app) diff(ctx context.Context, c *comparison, v *restore.Verification, format outputFormat) error {
	differ, err := restore.NewDiffer(ctx, c.snapshot, c.target, c.opts)
	if err != nil {
		return err
	}
	result := newDiffResult(v)
	color := format == outputText && isTerminal(a.env.stdout)
	for i := range v.Differences {
		d := &v.Differences[i]
		x, err := diffOf(ctx, differ, d, color)
		if err != nil {
			return err
		}
		if format == outputJSON {
			result.Objects = append(result.Objects, x)
		} else if _, err := fmt.Fprint(a.env.stdout, x.text()); err != nil {
			return err
		}
	}
	for _, key := range v.Extra {
		result.OnlyInCluster = append(result.OnlyInCluster, key.String())
		if format == outputText {
			if _, err := fmt.Fprint(a.env.stdout, clean("Only in the cluster: %s\n", key)); err != nil {
				return err
			}
		}
	}
	if format == outputJSON {
		err = writeJSON(a.env.stdout, result)
	} else {
		_, err = fmt.Fprint(a.env.stderr, result.aside()) // no part of a diff
	}
	if err != nil {
		return err
	}
	fatal := slices.ContainsFunc(v.Findings, func(f restore.Finding) bool { return f.Fatal })
	if len(v.Differences) > 0 || len(v.Extra) > 0 || fatal {
		return errDifferences
	}
	return nil
}

// newDiffResult is the result without its diffs.
func newDiffResult(v *restore.Verification) *diffResult {
	return &diffResult{
		Commit: v.Commit.String(), Objects: []objectDiff{}, Findings: findingResults(v.Findings),
		NotCompared: notComparedResults(v.NotCompared), Beside: differenceResults(v.Beside),
	}
}

// aside tells people what the diffs do not show.
func (r *diffResult) aside() string {
	var out strings.Builder
	writeNotCompared(&out, r.NotCompared)
	writeBeside(&out, r.Beside)
	writeFindings(&out, r.Findings)
	return out.String()
}

// diffOf shows one object. One that cannot be shown says why; the error is about cluster or repository.
func diffOf(ctx context.Context, differ *restore.Differ, d *restore.Difference, color bool) (objectDiff, error) {
	x := objectDiff{Object: d.Key.String(), State: string(d.State)}
	git, cluster, err := differ.Texts(ctx, d)
	var file *restore.FileError
	switch {
	case errors.As(err, &file), errors.Is(err, kube.ErrSecret), errors.Is(err, kube.ErrTooLarge):
		x.Reason = err.Error()
		return x, nil
	case err != nil:
		return x, err
	}
	var b strings.Builder
	name := sync.PathOf(d.Key)
	_ = unified.Write(&b, name, name, git, cluster, color) // to memory
	if x.Diff = b.String(); x.Diff == "" {
		x.Reason = d.Reason
	}
	return x, nil
}

func (x *objectDiff) text() string {
	if x.Diff != "" {
		return x.Diff
	}
	if x.Reason == "" {
		return clean("%s: %s\n", x.Object, x.State)
	}
	return clean("%s: %s: %s\n", x.Object, x.State, x.Reason)
}
