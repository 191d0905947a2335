package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/crmirror/crmirror/gitstore/gittest"
)

// What an agent may hold: megabytes of its own, bytes for each object, megabytes
// above that at its highest.
const (
	baseMemory   = 60.0
	objectMemory = 600.0
	peakMemory   = 120.0
)

// agentMemory measures the resident memory of "crmirror run" after its first sync,
// and at its highest, which includes that sync and, in a full run, maintenance.
func agentMemory(ctx context.Context, b *bench) error {
	for _, load := range []struct {
		n, size  int
		worktree bool // the default, and what takes more
		quick    bool // there is time for it in a quick run
	}{
		{b.size(20000, 2000), 2000, false, false},
		{b.size(20000, 2000), 2000, true, false},
		{b.size(20000, 2000), 20000, true, true},
		{b.size(100000, 10000), 2000, true, true},
	} {
		if b.quick && !load.quick {
			continue
		}
		server := newSynthetic(load.n, load.size)
		err := b.memoryOf(ctx, server, load.worktree)
		server.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) memoryOf(ctx context.Context, server *synthetic, worktree bool) error {
	var steady, peak []float64
	for range b.size(b.runs, 1) {
		s, p, err := b.residentOf(ctx, server, worktree)
		if err != nil {
			return err
		}
		steady, peak = append(steady, s), append(peak, p)
	}
	where := "worktree off"
	if worktree {
		where = "worktree on"
	}
	what := fmt.Sprintf("of the agent, %d objects of %d KB, %s", server.n, server.size/1000, where)
	bound := baseMemory + float64(server.n)*objectMemory/1e6
	b.report("resident memory "+what+", steady", "MB", bound, steady...)
	b.report("resident memory "+what+", highest", "MB", bound+peakMemory, peak...)
	return nil
}

// residentOf runs an agent until it has been idle for a while after its first
// sync, and then, in a full run, has maintained its clone.
func (b *bench) residentOf(ctx context.Context, server *synthetic, worktree bool) (steady, peak float64, err error) {
	dir, err := b.folder("memory")
	if err != nil {
		return 0, 0, err
	}
	remote, kubeconfig := filepath.Join(dir, "remote.git"), filepath.Join(dir, "kubeconfig")
	if err := errors.Join(gittest.InitBare(ctx, remote, "main"), server.kubeconfig(kubeconfig)); err != nil {
		return 0, 0, err
	}
	git, err := gittest.NewHTTP(dir, "")
	if err != nil {
		return 0, 0, err
	}
	defer git.Close()
	o := agentOptions{
		kubeconfig: kubeconfig, remote: git.URL("remote.git"), worktree: worktree, quiet: time.Second, max: time.Second,
	}
	if !b.quick {
		o.maintenance = "@every 1m" // after the rest below
	}
	a, err := b.agent(ctx, o)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, a.stop()) }()
	if err := a.synced(ctx); err != nil {
		return 0, 0, err
	}
	// Time to rest: what the first sync took is given back some seconds after it.
	if err := pause(ctx, time.Duration(b.size(20, 11))*time.Second); err != nil {
		return 0, 0, err
	}
	if steady, peak, err = memory(a.cmd.Process.Pid); err != nil || o.maintenance == "" {
		return steady, peak, err
	}
	if err := a.logged(ctx, "repository maintained"); err != nil {
		return 0, 0, err
	}
	_, peak, err = memory(a.cmd.Process.Pid)
	return steady, peak, err
}

// pause waits for so long.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
