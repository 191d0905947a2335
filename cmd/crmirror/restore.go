package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/crmirror/crmirror/cmd/internal/config"
	"github.com/crmirror/crmirror/sync/restore"
)

// restoreRequest is what restore is asked to do.
type restoreRequest struct {
	at          string
	opts        *restore.Options
	saved       *restore.SavedPlan // --plan
	dryRun      bool
	planOut     string
	release     bool
	concurrency int
	save        string   // file for the live objects
	report      *os.File // --report, or nil
	reported    bool     // the report was written, or could not be
	format      outputFormat
}

// restoreFlags are the flags that are restore's own.
type restoreFlags struct {
	*commitFlags
	existing    string
	force       bool
	release     bool
	dryRun      bool
	planOut     string
	plan        string
	concurrency int
	save        string
	report      string
}

func (a *app) restoreCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "restore",
		Short:   "Bring custom resources back from a commit, tag or date",
		Long:    restoreHelp(),
		Example: restoreExamples,
		Args:    cobra.NoArgs,
	}
	f := &restoreFlags{commitFlags: a.addCommitFlags(cmd)}
	flags := cmd.Flags()
	flags.StringVar(&f.existing, "existing", "skip", "what becomes of objects that are there and differ: `skip|update`")
	flags.BoolVar(&f.force, "force", false, "with --existing update, also fields that another tool owns and would set back")
	flags.BoolVar(&f.release, "release-ownership", false, "own no field afterwards: a second write for each object")
	flags.BoolVar(&f.dryRun, "dry-run", false, "only tell what would be done; the server is asked, and stores nothing")
	flags.StringVar(&f.planOut, "plan-out", "", "only write the plan, to `FILE`")
	flags.StringVar(&f.plan, "plan", "", "do what the plan in `FILE` says, and nothing to objects that changed since")
	flags.IntVar(&f.concurrency, "concurrency", 0, "at most `N` requests at once; default: as many as make it quicker, up to 64")
	flags.StringVar(&f.save, "save-existing", "", "`FILE` for the live objects before they are updated; default: crmirror-before-TIME.yaml")
	flags.StringVar(&f.report, "report", "", "write the report to `FILE` too, as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		req, cfg, err := a.restoreRequest(cmd, f)
		if err != nil {
			return err
		}
		if f.report != "" { // before anything is done, so that the report has a place
			if req.report, err = os.OpenFile(f.report, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
				return usagef("--report: %w", err)
			}
			defer func() { _ = req.report.Close() }() // it is closed already if it was written
		}
		err = a.restore(cmd.Context(), cfg, req)
		if err != nil && req.report != nil && !req.reported {
			err = errors.Join(err, writeJSON(req.report, newFailure(cmd.Context(), cmd.Name(), err)), req.report.Close())
		}
		return err
	}
	return cmd
}

const restoreExamples = `  crmirror restore --repo ssh://git@git.example.com/ops/clusters.git --path clusters/prod-eu1 --dry-run
  crmirror restore --repo ./backup
  crmirror restore --repo ./backup --at 2026-11-30
  crmirror restore --repo ./backup --at '2h ago' --resources certificates.cert-manager.io -n shop --existing update
  crmirror restore --repo ./backup -n shop --map-namespace shop=shop-test
  crmirror restore --repo ./backup --plan-out plan.json && crmirror restore --plan plan.json`

func restoreHelp() string {
	return `Bring what a commit has into a cluster: CRDs, then Namespaces, then objects, owners before what they own. It creates what is
missing and leaves alone what is there, unless --existing update says otherwise; then the live objects are saved to
a file first. It deletes nothing. In the end everything is read back and compared.

It needs a kubeconfig and the repository, no configuration and nothing in the cluster; --config takes repository and
credentials from an agent's. Run again, after whatever happened, it does what is left. Controllers of the restored
kinds should be down until it is done.

--at takes a commit, a tag or a branch, or a date: ` + dateForms + `.
A date is the last commit at or before it; a day, its end.

Resources that run when created are skipped unless --resources names them in full:
` + wrapped(restore.DefaultRuns()) + `
--strip-tracking leaves out what other tools know their objects by, so that they do not delete or take over what is
restored:
  ` + strings.Join(restore.Tracking(), "\n  ") + `

Exit code: 0 everything is there, as git has it; 3 something is not, or would not be; 1 error; 2 wrong usage;
130 interrupted.`
}

// wrapped sets words in indented lines of a page's width.
func wrapped(words []string) string {
	var b strings.Builder
	column := 0
	for _, word := range words {
		if column > 0 && column+1+len(word) > 116 {
			b.WriteByte('\n')
			column = 0
		}
		if column == 0 {
			b.WriteString(" ")
			column = 1
		}
		b.WriteString(" " + word)
		column += 1 + len(word)
	}
	return b.String() + "\n"
}

// restoreRequest checks the flags, and tells all mistakes at once.
func (a *app) restoreRequest(cmd *cobra.Command, f *restoreFlags) (*restoreRequest, *config.Config, error) {
	var mistakes []error
	fail := func(err error) { mistakes = append(mistakes, err) }
	req := &restoreRequest{
		at: f.at, dryRun: f.dryRun || f.planOut != "", planOut: f.planOut, release: f.release,
		concurrency: f.concurrency, save: f.save,
	}
	var err error
	if req.format, err = parseOutput(f.output); err != nil {
		fail(err)
	}
	if f.concurrency < 0 {
		fail(fmt.Errorf("--concurrency: %d is negative", f.concurrency))
	}
	if f.force && f.existing != string(restore.ExistingUpdate) && f.plan == "" {
		fail(errors.New("--force goes with --existing update"))
	}
	if req.save == "" {
		req.save = unusedName(time.Now())
	}
	for flag, file := range map[string]string{"--plan-out": f.planOut, "--save-existing": f.save} {
		if _, err := os.Stat(file); file != "" && !errors.Is(err, fs.ErrNotExist) {
			fail(fmt.Errorf("%s: there is such a file: %s; name another one", flag, file))
		}
	}
	req.opts, mistakes = f.options(mistakes)
	req.opts.Existing, req.opts.Force = restore.Existing(f.existing), f.force
	if err := (&restore.Options{Existing: req.opts.Existing}).Check(); err != nil {
		fail(fmt.Errorf("--%w", err))
	}
	if f.plan != "" {
		mistakes = append(mistakes, a.takePlan(cmd, f, req)...)
		if req.saved == nil { // it would have said what is missing otherwise
			return nil, nil, usagef("%w", errors.Join(mistakes...))
		}
	}
	cfg, err := a.loadFor(f.commitFlags, "restore", req.opts, mistakes)
	if err == nil && req.saved != nil {
		if req.opts, err = req.saved.MadeWith(req.opts.RedactKey); err != nil {
			return nil, nil, usagef("--plan: %w", err)
		}
	}
	return req, cfg, err
}

// unusedName is the name of a file of that time for live objects that no other restore has made.
func unusedName(now time.Time) string {
	stem := "crmirror-before-" + now.Format("20060102-150405")
	name := stem + ".yaml"
	for i := 2; ; i++ {
		if _, err := os.Stat(name); err != nil {
			return name
		}
		name = fmt.Sprintf("%s-%d.yaml", stem, i)
	}
}

// takePlan reads the plan, and takes from it what the flags do not say.
func (a *app) takePlan(cmd *cobra.Command, f *restoreFlags, req *restoreRequest) (mistakes []error) {
	for _, flag := range []string{"at", "resources", "namespace", "names", "selector", "map-namespace", "existing", "force",
		"strip-finalizers", "strip-tracking", "runs-file", "plan-out"} {
		if cmd.Flags().Changed(flag) {
			mistakes = append(mistakes, fmt.Errorf("--%s: the plan says that already; leave it out", flag))
		}
	}
	file, err := os.Open(f.plan)
	if err != nil {
		return append(mistakes, fmt.Errorf("--plan: %w", err))
	}
	saved, err := restore.LoadPlan(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return append(mistakes, fmt.Errorf("--plan %s: %w", f.plan, err))
	}
	req.saved, req.at = saved, saved.Commit
	if f.file == "" && *f.values["repository.url"] == "" && a.lookup("CRMIRROR_CONFIG") == "" {
		*f.values["repository.url"] = saved.Repository
		if *f.values["repository.path"] == "" {
			*f.values["repository.path"] = saved.Path
		}
	}
	return mistakes
}

func (a *app) restore(ctx context.Context, cfg *config.Config, req *restoreRequest) (err error) {
	c, err := a.openCommit(ctx, cfg, req.at, req.opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.store.Close()) }()
	req.opts.ReleaseOwnership = req.release // it is no part of a saved plan
	plan, err := restore.Make(ctx, c.snapshot, c.target, req.opts)
	if err != nil {
		return err
	}
	if req.saved != nil {
		if err := restore.Pin(plan, req.saved); err != nil {
			return err
		}
	}
	if req.dryRun {
		if err := restore.Rehearse(ctx, c.snapshot, c.target, plan, req.opts); err != nil {
			return fmt.Errorf("ask the server about the plan: %w", err)
		}
	}
	if req.planOut != "" {
		if err := c.savePlan(plan, req); err != nil {
			return err
		}
	}
	result := newPlanResult(c, plan)
	if !req.dryRun {
		if req.format == outputText {
			if _, err := fmt.Fprint(a.env.stdout, result.head()); err != nil {
				return err
			}
		}
		if result, err = a.carryOut(ctx, c, plan, req); err != nil {
			return err
		}
	}
	if err := result.write(a.env.stdout, req); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	switch {
	case result.Interrupted:
		return context.Canceled
	case !result.Complete:
		return errDifferences
	}
	return nil
}

// carryOut does what the plan says, and proves it. Where there was nothing to do, the plan is the proof.
func (a *app) carryOut(ctx context.Context, c *comparison, plan *restore.Plan, req *restoreRequest) (*restoreResult, error) {
	saver := restore.NewSaver(req.save)
	bar := newProgressBar(a.env.stderr)
	report, err := restore.Execute(ctx, c.snapshot, c.target, plan, restore.ExecuteOptions{
		Options: *req.opts, Concurrency: req.concurrency, Saver: saver, Progress: bar.show,
	})
	bar.finish()
	if err = errors.Join(err, saver.Close()); err != nil {
		return nil, err
	}
	if len(report.Stages) == 0 || report.Interrupted {
		return newReportResult(c, report, nil), nil
	}
	verification, err := restore.Verify(ctx, c.snapshot, c.target, req.opts)
	switch {
	case ctx.Err() != nil:
		report.Interrupted = true
	case err != nil: // what was done is still to be told
		return nil, errors.Join(newReportResult(c, report, nil).unverified().write(a.env.stdout, req),
			fmt.Errorf("read everything back: %w; try: crmirror verify", err))
	}
	return newReportResult(c, report, verification), nil
}

// savePlan writes the plan to its file. A repository on this machine is named in full, so that the plan
// can be carried out from anywhere.
func (c *comparison) savePlan(plan *restore.Plan, req *restoreRequest) (err error) {
	repository := c.repository()
	if c.cfg.Repository.IsPath() {
		if repository, err = filepath.Abs(repository); err != nil {
			return err
		}
	}
	file, err := os.OpenFile(req.planOut, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("save plan: %w", err)
	}
	return errors.Join(plan.Save(file, repository, c.cfg.Repository.Path, req.opts), file.Close())
}
