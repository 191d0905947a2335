package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/gitstore/gittest"
)

// measurePush is what a push costs the client: its wall time less the server's.
func measurePush(ctx context.Context, b *bench) error {
	o, err := b.remotes(ctx)
	if err != nil {
		return err
	}
	ours, err := o.ourPushes(ctx, b)
	if err != nil {
		return err
	}
	theirs, err := o.gitPushes(ctx, b)
	if err != nil {
		return err
	}
	mine, reference, err := b.compare(ours, theirs)
	if err != nil {
		return err
	}
	b.add(fmt.Sprintf("push of one object over HTTP, %d files, less the server's time", o.files), "ms", 0.3, mine, reference)
	return nil
}

// clientTime is for how long a push kept its client busy, milliseconds.
func (o *origins) clientTime(push func() error) (float64, error) {
	server, begin := o.server.Busy(), time.Now()
	err := push()
	wall := time.Since(begin)
	return float64((wall - (o.server.Busy() - server)).Microseconds()) / 1e3, err
}

// ourPushes returns what measures pushes of ours, from a clone without worktree.
func (o *origins) ourPushes(ctx context.Context, b *bench) (func() (float64, error), error) {
	name, err := o.copyOf(o.one)
	if err != nil {
		return nil, err
	}
	dir, err := b.folder("push")
	if err != nil {
		return nil, err
	}
	store, err := gitstore.Open(ctx, gitstore.Options{URL: o.server.URL(name), Dir: dir, Branch: "main"})
	if err != nil {
		return nil, err
	}
	b.cleanup(store.Close)
	if err := store.Fetch(ctx); err != nil {
		return nil, err
	}
	made := 0
	return func() (float64, error) {
		times := make([]float64, b.size(30, 10))
		for i := range times {
			made++
			if err := o.commitOne(ctx, store, made); err != nil {
				return 0, err
			}
			if times[i], err = o.clientTime(func() error { return store.Push(ctx) }); err != nil {
				return 0, err
			}
		}
		return median(times), nil
	}, nil
}

// commitOne changes one line of one file.
func (o *origins) commitOne(ctx context.Context, store *gitstore.Store, revision int) error {
	path, content := o.changed(1_000_000 + revision)
	_, err := store.Commit(ctx, gitstore.Commit{Edits: []gitstore.Edit{{Path: path, Content: content}}, Message: "one", When: time.Now()})
	return err
}

// gitPushes returns what measures "git push" from a bare clone.
func (o *origins) gitPushes(ctx context.Context, b *bench) (func() (float64, error), error) {
	name, err := o.copyOf(o.one)
	if err != nil {
		return nil, err
	}
	dir, err := b.folder("git-push")
	if err != nil {
		return nil, err
	}
	if _, err := gittest.Run(ctx, "", "clone", "--quiet", "--bare", o.server.URL(name), dir); err != nil {
		return nil, err
	}
	made := 0
	return func() (float64, error) {
		times := make([]float64, b.size(10, 4))
		for i := range times {
			made++
			var stream strings.Builder
			if err := o.change(&stream, 1_000_000+made, true); err != nil {
				return 0, err
			}
			if _, err := gittest.RunInput(ctx, dir, strings.NewReader(stream.String()), "fast-import", "--quiet"); err != nil {
				return 0, err
			}
			push := func() error { _, err := gittest.Run(ctx, dir, "push", "--quiet", "origin", "main"); return err }
			if times[i], err = o.clientTime(push); err != nil {
				return 0, err
			}
		}
		return median(times), nil
	}, nil
}

// measurePushHistory is what history costs a push: the client's CPU with much of
// it and with next to none, from the clone of a URL and from a repository of
// somebody's own.
func measurePushHistory(ctx context.Context, b *bench) error {
	o, err := b.remotes(ctx)
	if err != nil {
		return err
	}
	for _, kind := range []string{"clone", "own repository"} {
		side := func(name string) func() (float64, error) {
			return func() (float64, error) {
				measured, err := o.pushCPU(ctx, b, name, kind)
				return measured["cpu"], err
			}
		}
		many, one, err := b.compare(side(o.many), side(o.one))
		if err != nil {
			return err
		}
		b.add(fmt.Sprintf("client CPU of a push, %d commits of history against one, %s", o.commits, kind), "ms", 1.5, many, one)
	}
	return nil
}

// pushCPU pushes from a complete clone, in a process of its own.
func (o *origins) pushCPU(ctx context.Context, b *bench, name, kind string) (map[string]float64, error) {
	remote, err := o.copyOf(name)
	if err != nil {
		return nil, err
	}
	dir, err := b.folder("push-history")
	if err != nil {
		return nil, err
	}
	url := o.server.URL(remote)
	if kind == "clone" {
		err = o.completeClone(ctx, dir, url, name)
	} else if _, err = gittest.Run(ctx, "", "clone", "--quiet", "--bare", o.path(name), dir); err == nil {
		_, err = gittest.Run(ctx, dir, "remote", "set-url", "origin", url)
	}
	if err != nil {
		return nil, err
	}
	return child(ctx, "push-cpu", url, dir, kind, strconv.Itoa(o.files), strconv.Itoa(o.folders), strconv.Itoa(b.size(30, 10)))
}

// completeClone makes a clone of ours that has all of the history, as one does
// that was there from the first commit.
func (o *origins) completeClone(ctx context.Context, dir, url, name string) (err error) {
	store, err := gitstore.Open(ctx, gitstore.Options{URL: url, Dir: dir, Branch: "main"})
	if err != nil {
		return err
	}
	if err := store.Close(); err != nil {
		return err
	}
	_, err = gittest.Run(ctx, filepath.Join(dir, "repo.git"), "fetch", "--quiet", o.path(name), "main:main")
	return err
}

// pushCPUChild pushes commits of one object and returns the milliseconds of CPU
// that a push took.
func pushCPUChild(ctx context.Context, args []string) (_ map[string]float64, err error) {
	url, dir, kind := args[0], args[1], args[2]
	var numbers [3]int // of files, folders and pushes
	for i := range numbers {
		if numbers[i], err = strconv.Atoi(args[3+i]); err != nil {
			return nil, err
		}
	}
	options := gitstore.Options{URL: url, Dir: dir, Branch: "main"}
	if kind != "clone" {
		options.URL = ""
	}
	store, err := gitstore.Open(ctx, options)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.Fetch(ctx); err != nil {
		return nil, err
	}
	o := &origins{files: numbers[0], folders: numbers[1]}
	// The mean, so that packs merged now and then count, and without collecting
	// garbage in between, whose giving back of memory would count on both sides.
	var spent time.Duration
	for i := range numbers[2] {
		if err := o.commitOne(ctx, store, i+1); err != nil {
			return nil, err
		}
		before := cpuTime()
		if err := store.Push(ctx); err != nil {
			return nil, err
		}
		spent += cpuTime() - before
	}
	return map[string]float64{"cpu": spent.Seconds() * 1e3 / float64(numbers[2])}, nil
}

// cpuTime is the CPU time of this process so far, user and system.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
