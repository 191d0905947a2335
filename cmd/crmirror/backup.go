package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cheggaaa/pb/v3"
	"github.com/spf13/cobra"

	"github.com/crmirror/crmirror/cmd/internal/config"
	"github.com/crmirror/crmirror/kube/informer"
	"github.com/crmirror/crmirror/sync"
)

func (a *app) backupCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "backup",
		Short: "Write every custom resource into a repository, once",
		Long: `Write every selected custom resource into a git repository, one file each, in one commit, and push it if there is a remote.

Without --config it takes every custom resource, their CRDs and the Namespaces they lie in. Run again with nothing
changed it makes no commit. What was deleted in the cluster is deleted in git, unless that looks like an accident:
then it is held, and the report says how to let it through.

Exit code: 0 everything is in git; 3 it is but for what the report lists; 1 error; 2 wrong usage or config.`,
		Example: `  crmirror backup --repo ./backup
  crmirror backup --repo ssh://git@git.example.com/ops/clusters.git --path clusters/prod-eu1
  crmirror backup --repo ./backup --resources '*.cert-manager.io,configmaps' -o json`,
		Args: cobra.NoArgs,
	}
	flags := a.addConfigFlags(cmd)
	cmd.Flags().StringSliceVar(&flags.resources, "resources", nil,
		"`RESOURCES` to take instead of all custom ones: names, *.GROUP, or built-ins by name")
	cmd.Flags().StringVarP(&output, "output", "o", "", "report as `FORMAT`: json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		format, err := parseOutput(output)
		if err != nil {
			return err
		}
		cfg, err := a.load(flags, config.Override{Path: "log.level", Value: "warn", Source: "the default of backup", Default: true})
		if err != nil {
			return err
		}
		return a.backup(cmd.Context(), cfg, format, flags.again(cfg))
	}
	return cmd
}

func (a *app) backup(ctx context.Context, cfg *config.Config, format outputFormat, again string) (err error) {
	s, err := a.open(ctx, cfg, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.store.Close()) }()
	report, err := s.once(ctx, a.env.stderr)
	if err != nil {
		return err
	}
	result := newBackupResult(report, s, again)
	if err := result.write(a.env.stdout, format); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if !report.Clean() {
		return errDifferences
	}
	return nil
}

// once lists everything and carries it into git. The remote is asked what it has
// while the cluster is listed.
func (s *session) once(ctx context.Context, progress io.Writer) (*sync.Report, error) {
	watch, stop := context.WithCancel(ctx)
	fleet := make(chan error, 1)
	go func() { fleet <- s.fleet.Run(watch) }()
	synced := make(chan struct{})
	go func() {
		defer close(synced)
		_ = s.fleet.WaitSynced(watch) // the only error is that watch ended
	}()
	bar := showProgress(watch, s.fleet, progress)
	s.batch.Hold() // until everything is listed
	var report *sync.Report
	err := s.mirror.Prepare(ctx)
	if err == nil {
		loop := sync.NewLoop(s.mirror, s.batch, &sync.Health{}, sync.Pace{}, s.log)
		report, err = loop.Once(ctx, synced)
	}
	stop()
	<-bar
	<-synced
	return report, errors.Join(err, <-fleet)
}

// showProgress draws a bar on a terminal until ctx ends, and closes the channel
// that it returns when it has stopped drawing.
func showProgress(ctx context.Context, fleet *informer.Fleet, w io.Writer) <-chan struct{} {
	done := make(chan struct{})
	if !isTerminal(w) {
		close(done)
		return done
	}
	bar := pb.ProgressBarTemplate(`listed {{counters .}} resources {{bar .}} {{string . "objects"}}`).New(0)
	bar.SetWriter(w).SetMaxWidth(100)
	draw := func() {
		listed, scopes, objects := 0, 0, 0
		for _, st := range fleet.Status() {
			scopes++
			objects += st.Objects
			if st.Phase != informer.PhaseListing {
				listed++
			}
		}
		bar.SetTotal(int64(scopes)).SetCurrent(int64(listed)).Set("objects", fmt.Sprintf("%d objects", objects))
	}
	bar.Start()
	go func() {
		defer close(done)
		defer bar.Finish()
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			draw()
			select {
			case <-ctx.Done():
				draw()
				return
			case <-tick.C:
			}
		}
	}()
	return done
}
