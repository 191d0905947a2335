package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/gitstore/gittest"
)

// measureStart is a start with an empty cache until every path's digest is known.
func measureStart(ctx context.Context, b *bench) error {
	o, err := b.remotes(ctx)
	if err != nil {
		return err
	}
	var peaks []float64
	ours := func() (float64, error) {
		seconds, measured, err := o.start(ctx, b, "bare")
		peaks = append(peaks, measured["peak"])
		return seconds, err
	}
	theirs := func() (float64, error) {
		dir, err := b.folder("git-start")
		if err != nil {
			return 0, err
		}
		begin := time.Now()
		_, err = gittest.Run(ctx, "", "clone", "--quiet", "--bare", "--depth=1", "--filter=blob:none", o.server.URL(o.many), dir)
		return time.Since(begin).Seconds(), err
	}
	mine, reference, err := b.compare(ours, theirs)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("start from the remote, %d files, %d commits", o.files, o.commits)
	b.add(what, "s", 1.6, mine, reference)
	b.report(what+", resident", "MB", 50, peaks...)
	return o.measureWorktree(ctx, b, what)
}

// start is a start in a process of its own.
func (o *origins) start(ctx context.Context, b *bench, kind string) (seconds float64, measured map[string]float64, err error) {
	dir, err := b.folder("start")
	if err != nil {
		return 0, nil, err
	}
	begin := time.Now()
	measured, err = child(ctx, "start", o.server.URL(o.many), dir, kind)
	if err == nil && int(measured["files"]) != o.files {
		err = fmt.Errorf("%v files are there, not %d", measured["files"], o.files)
	}
	return time.Since(begin).Seconds(), measured, err
}

// startChild opens an empty cache and fetches.
func startChild(ctx context.Context, args []string) (_ map[string]float64, err error) {
	store, err := gitstore.Open(ctx, gitstore.Options{URL: args[0], Dir: args[1], Branch: "main", Worktree: args[2] == "worktree"})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.Fetch(ctx); err != nil {
		return nil, err
	}
	if _, err := store.UpdateWorktree(ctx); err != nil {
		return nil, err
	}
	files := 0
	store.Walk("", func(string, gitstore.Hash, filemode.FileMode) bool { files++; return true })
	_, peak, err := memory(0)
	return map[string]float64{"files": float64(files), "peak": peak}, err
}

// measureWorktree is what a worktree costs: at the start, and with each commit of
// one object. It has no bar.
func (o *origins) measureWorktree(ctx context.Context, b *bench, what string) error {
	seconds, measured, err := o.start(ctx, b, "worktree")
	if err != nil {
		return err
	}
	b.report(what+", with the worktree written", "s", 0, seconds)
	b.report(what+", with the worktree written, resident", "MB", 0, measured["peak"])
	ours, err := o.ourWorktree(ctx, b)
	if err != nil {
		return err
	}
	theirs, err := o.gitWorktree(ctx, b)
	if err != nil {
		return err
	}
	mine, reference, err := b.compare(ours, theirs)
	if err != nil {
		return err
	}
	b.add(fmt.Sprintf("commit of one object of %d, the worktree and its index brought in line", o.files), "ms", 0, mine, reference)
	return nil
}

// ourWorktree returns what measures commits of ours that the worktree follows.
func (o *origins) ourWorktree(ctx context.Context, b *bench) (func() (float64, error), error) {
	dir, err := b.folder("worktree")
	if err != nil {
		return nil, err
	}
	store, err := gitstore.Open(ctx, gitstore.Options{URL: o.server.URL(o.one), Dir: dir, Branch: "main", Worktree: true})
	if err != nil {
		return nil, err
	}
	b.cleanup(store.Close)
	if err := store.Fetch(ctx); err != nil {
		return nil, err
	}
	if _, err := store.UpdateWorktree(ctx); err != nil {
		return nil, err
	}
	made := 0
	return func() (float64, error) {
		times := make([]float64, b.size(20, 10))
		for i := range times {
			made++
			begin := time.Now()
			if err := o.commitOne(ctx, store, made); err != nil {
				return 0, err
			}
			if _, err := store.UpdateWorktree(ctx); err != nil {
				return 0, err
			}
			times[i] = milliseconds(begin)
		}
		return median(times), nil
	}, nil
}

// gitWorktree returns what measures "git add" and "git commit" of the same.
func (o *origins) gitWorktree(ctx context.Context, b *bench) (func() (float64, error), error) {
	clone, err := b.folder("git-worktree")
	if err != nil {
		return nil, err
	}
	if _, err := gittest.Run(ctx, "", "clone", "--quiet", o.path(o.one), clone); err != nil {
		return nil, err
	}
	made := 0
	return func() (float64, error) {
		times := make([]float64, b.size(5, 3))
		for i := range times {
			made++
			path, content := o.changed(1_000_000 + made)
			if err := os.WriteFile(filepath.Join(clone, path), content, 0o666); err != nil {
				return 0, err
			}
			begin := time.Now()
			if _, err := gittest.Run(ctx, clone, "add", path); err != nil {
				return 0, err
			}
			if _, err := gittest.Run(ctx, clone, "commit", "--quiet", "--message=one"); err != nil {
				return 0, err
			}
			times[i] = milliseconds(begin)
		}
		return median(times), nil
	}, nil
}

// milliseconds since then.
func milliseconds(begin time.Time) float64 { return float64(time.Since(begin).Microseconds()) / 1e3 }
