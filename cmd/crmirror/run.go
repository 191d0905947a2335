package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/crmirror/crmirror/cmd/internal/config"
	"github.com/crmirror/crmirror/cmd/internal/metrics"
	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/sync"
)

func (a *app) runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run --config FILE",
		Short: "Run the agent: every change in the cluster becomes a pushed commit",
		Long: `Run the agent. It watches the selected resources and pushes one commit per batch of changes, until it gets SIGINT or
SIGTERM. Then it flushes once more; a second signal ends it at once.

What it cannot push is kept, and pushed when the remote is back.`,
		Example: `  crmirror run --config crmirror.yaml`,
		Args:    cobra.NoArgs,
	}
	flags := a.addConfigFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if flags.file == "" && a.lookup("CRMIRROR_CONFIG") == "" {
			return usagef("run needs a configuration: crmirror run --config FILE; the README has one to start from")
		}
		cfg, err := a.load(flags)
		if err != nil {
			return err
		}
		return a.run(cmd.Context(), cfg)
	}
	return cmd
}

// maxHold bounds how long listings keep a batch open: one that never ends must
// not hold up the commits of everything else.
const maxHold = 15 * time.Minute

func (a *app) run(ctx context.Context, cfg *config.Config) (err error) {
	a.measured = metrics.New(version)
	s, err := a.open(ctx, cfg, maxHold)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.store.Close()) }()
	s.log.WithFields(logrus.Fields{
		"version": version, "cluster": cfg.Cluster, "repository": s.repository(),
		"branch": s.store.Branch(), "path": cfg.Repository.Path,
	}).Info("starting")
	if cfg.Schedule.SnapshotTag != "" {
		s.log.Warn("schedule.snapshotTag is not built yet; no tags are made")
	}
	// What a person has to put right ends the start. A remote that is only
	// away does not: changes are kept until it is back.
	if err := s.mirror.Prepare(ctx); errors.Is(err, gitstore.ErrUnreachable) {
		s.log.WithError(err).Warn("the remote cannot be reached; changes are kept until it can")
	} else if err != nil {
		return err
	}
	return s.serve(ctx, a.measured)
}

// serve runs informers, loop, schedule and health endpoint until ctx ends, and
// waits for all of them.
func (s *session) serve(ctx context.Context, measured *metrics.Metrics) error {
	health := &sync.Health{}
	measured.Watch(metrics.Sources{
		Health: health.State, Resources: s.fleet.Status, Quarantined: s.inbox.Quarantined,
		Dirty: func() int { n, _ := s.batch.Size(); return n },
	})
	endpoint, err := listenHealth(s.cfg.Health, probes{
		health: health.State, pulse: s.fleet.Pulse, resources: s.fleet.Status, synced: s.fleet.Synced, running: measured.Running,
		note: s.standing, lease: s.leaseErr,
	}, measured)
	if err != nil {
		return err
	}
	watch, stop := context.WithCancel(ctx)
	defer stop()
	if s.events != nil {
		s.inbox.Tell(s.events.start(watch)) // before anything is seen
	}
	fleet := make(chan error, 1)
	s.batch.Hold() // until everything is listed: the initial sync is one commit
	go func() { fleet <- s.fleet.Run(watch) }()
	tidied := make(chan struct{})
	go func() {
		defer close(tidied)
		tidy(watch)
	}()
	bounded := make(chan struct{})
	go func() {
		defer close(bounded)
		bound(watch, s.objects)
	}()
	released := make(chan struct{})
	go func() {
		defer close(released)
		_ = s.fleet.WaitSynced(watch) // the only error is that watch ended
		s.batch.Release()
		s.batch.Kick()
	}()
	loop := sync.NewLoop(s.mirror, s.batch, health, sync.Pace{Poll: s.cfg.Apply.Poll, Follow: s.cfg.Mode == config.ModeTwoWay, Grace: s.cfg.Timeouts.Grace}, s.log)
	loop.Observe(measured)
	if s.events != nil {
		loop.Tell(s.events)
	}
	schedule, err := s.schedule(loop)
	if err != nil {
		return err
	}
	schedule.Start()
	err = s.work(ctx, loop, measured.SetLeader)
	stop()
	<-schedule.Stop().Done()
	<-released
	<-tidied
	<-bounded
	return errors.Join(err, <-fleet, endpoint.close())
}

// objects is how many objects the informers have seen.
func (s *session) objects() int {
	n := 0
	for _, status := range s.fleet.Status() {
		n += status.Objects
	}
	return n
}

// schedule sets up what runs by the clock.
func (s *session) schedule(loop *sync.Loop) (*cron.Cron, error) {
	c := cron.New()
	for _, job := range []struct {
		key, spec string
		do        func()
	}{
		{"schedule.resync", s.cfg.Schedule.Resync, func() {
			s.log.Debug("resync: listing everything again")
			loop.Recheck()
			s.fleet.Relist()
		}},
		{"schedule.maintenance", s.cfg.Schedule.Maintenance, loop.Maintain},
	} {
		if job.spec == "" {
			continue
		}
		if _, err := c.AddFunc(job.spec, job.do); err != nil {
			return nil, fmt.Errorf("%s: %w", job.key, err)
		}
	}
	return c, nil
}
