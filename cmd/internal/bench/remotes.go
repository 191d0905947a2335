package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/gitstore/gittest"
)

// origins are bare repositories of the same files behind one server, made once
// per run.
type origins struct {
	dir     string
	server  *gittest.HTTP
	files   int
	folders int
	commits int
	one     string // the name of the one whose history is one commit
	many    string // of the one with so many commits on top of that
	copies  int
}

// remotes makes the repositories at the first call.
func (b *bench) remotes(ctx context.Context) (*origins, error) {
	if b.origins != nil {
		return b.origins, nil
	}
	o := &origins{files: b.size(100_000, 10_000), folders: b.size(1000, 100), commits: b.size(10_000, 1_000), one: "one.git", many: "many.git"}
	var err error
	if o.dir, o.server, err = b.server(); err != nil {
		return nil, err
	}
	if err := importFiles(ctx, o.path(o.one), files(o.files, o.folders)); err != nil {
		return nil, err
	}
	if err := o.copyTo(o.one, o.many); err != nil {
		return nil, err
	}
	if err := o.history(ctx, o.path(o.many), o.commits); err != nil {
		return nil, err
	}
	b.origins = o
	return o, nil
}

func (o *origins) path(name string) string { return filepath.Join(o.dir, name) }

func (o *origins) copyTo(from, to string) error {
	return os.CopyFS(o.path(to), os.DirFS(o.path(from)))
}

// copyOf makes a repository for one measurement that changes it.
func (o *origins) copyOf(name string) (string, error) {
	o.copies++
	to := fmt.Sprintf("copy-%02d.git", o.copies)
	return to, o.copyTo(name, to)
}

// history adds commits that each change one line of one file.
func (o *origins) history(ctx context.Context, bare string, commits int) error {
	read, write := io.Pipe()
	go func() {
		var err error
		for i := range commits {
			if err = o.change(write, i, i == 0); err != nil {
				break
			}
		}
		_ = write.CloseWithError(err) // never fails
	}()
	_, err := gittest.RunInput(ctx, bare, read, "-c", "fastimport.unpackLimit=1", "fast-import", "--quiet")
	return errors.Join(err, read.Close())
}

// change writes the stream of the i-th commit, of one file, on main.
func (o *origins) change(w io.Writer, i int, first bool) error {
	from := ""
	if first {
		from = "from refs/heads/main^0\n"
	}
	path, content := o.changed(i)
	_, err := fmt.Fprintf(w, "commit refs/heads/main\ncommitter Bench <bench@example.com> %d +0000\ndata 3\none\n%sM 100644 inline %s\ndata %d\n%s\n",
		time.Now().Unix(), from, path, len(content), content)
	return err
}

// changed is what the i-th commit makes of one of the files.
func (o *origins) changed(i int) (path string, content []byte) {
	n := i * 7919 % o.files
	return filePath(n, o.folders), fileContent(n, i+1)
}

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
	var spent []float64
	for i := range numbers[2] {
		if err := o.commitOne(ctx, store, i+1); err != nil {
			return nil, err
		}
		runtime.GC() // of what was done before
		before := cpuTime()
		if err := store.Push(ctx); err != nil {
			return nil, err
		}
		spent = append(spent, (cpuTime()-before).Seconds()*1e3)
	}
	return map[string]float64{"cpu": median(spent)}, nil
}

// cpuTime is the CPU time of this process so far, user and system.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

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
	dir, err := b.folder("worktree")
	if err != nil {
		return err
	}
	store, err := gitstore.Open(ctx, gitstore.Options{URL: o.server.URL(o.one), Dir: dir, Branch: "main", Worktree: true})
	if err != nil {
		return err
	}
	b.cleanup(store.Close)
	if err := store.Fetch(ctx); err != nil {
		return err
	}
	if _, err := store.UpdateWorktree(ctx); err != nil {
		return err
	}
	made := 0
	ours := func() (float64, error) {
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
			times[i] = float64(time.Since(begin).Microseconds()) / 1e3
		}
		return median(times), nil
	}
	clone, err := b.folder("git-worktree")
	if err != nil {
		return err
	}
	if _, err := gittest.Run(ctx, "", "clone", "--quiet", o.path(o.one), clone); err != nil {
		return err
	}
	theirs := func() (float64, error) {
		times := make([]float64, b.size(5, 3))
		for i := range times {
			made++
			path, content := o.changed(2_000_000 + made)
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
			times[i] = float64(time.Since(begin).Microseconds()) / 1e3
		}
		return median(times), nil
	}
	mine, reference, err := b.compare(ours, theirs)
	if err != nil {
		return err
	}
	b.add(fmt.Sprintf("commit of one object of %d, the worktree and its index brought in line", o.files), "ms", 0, mine, reference)
	return nil
}
