package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/gitstore/gittest"
)

// perFolder is how many files lie in one folder where it is not said otherwise.
const perFolder = 100

// openStore opens our clone of a remote that is not asked for anything: a cache
// without a worktree, as the agent has it.
func (b *bench) openStore(ctx context.Context, url string) (*gitstore.Store, error) {
	dir, err := b.folder("cache")
	if err != nil {
		return nil, err
	}
	return openStore(ctx, dir, url)
}

func openStore(ctx context.Context, dir, url string) (*gitstore.Store, error) {
	return gitstore.Open(ctx, gitstore.Options{URL: url, Dir: filepath.Join(dir, "cache"), Branch: "main"})
}

// edits are the edits that write files.
func edits(list []file) []gitstore.Edit {
	to := make([]gitstore.Edit, len(list))
	for i, f := range list {
		to[i] = gitstore.Edit{Path: f.path, Content: f.content}
	}
	return to
}

// timeCommit is how long one commit takes, in seconds: from contents in memory
// until the branch names it, on disk.
func timeCommit(ctx context.Context, s *gitstore.Store, changes []gitstore.Edit) (float64, error) {
	begin := time.Now()
	_, err := s.Commit(ctx, gitstore.Commit{Edits: changes, Message: "change", When: begin})
	return time.Since(begin).Seconds(), err
}

// timeImport is how long "git fast-import" takes for a stream, in seconds.
func timeImport(ctx context.Context, repository, stream string, options ...string) (float64, error) {
	begin := time.Now()
	err := feedImport(ctx, repository, stream, options...)
	return time.Since(begin).Seconds(), err
}

// firstCommit measures the first commit of many files.
func firstCommit(ctx context.Context, b *bench) error {
	n := b.size(100000, 10000)
	list := files(n, n/perFolder)
	dir, err := b.folder("first")
	if err != nil {
		return err
	}
	stream := filepath.Join(dir, "stream")
	if err := fastImport(stream, list, ""); err != nil {
		return err
	}
	newBare := func() (string, error) {
		dir, err := b.folder("import")
		if err != nil {
			return "", err
		}
		return dir, gittest.InitBare(ctx, dir, "main")
	}
	var oursBytes, gitsBytes []float64
	ours := func() (float64, error) {
		dir, err := b.folder("ours")
		if err != nil {
			return 0, err
		}
		took, err := commitAll(ctx, dir, list)
		if err != nil {
			return 0, err
		}
		bytes, err := packBytes(filepath.Join(dir, "cache", "repo.git"))
		oursBytes = append(oursBytes, bytes)
		return took, err
	}
	gits := func() (float64, error) {
		bare, err := newBare()
		if err != nil {
			return 0, err
		}
		return timeImport(ctx, bare, stream)
	}
	o, r, err := b.compare(ours, gits)
	if err != nil {
		return err
	}
	b.add(fmt.Sprintf("first commit of %d files", n), "s", 0.35, o, r)
	bare, err := newBare()
	if err != nil {
		return err
	}
	if _, err := timeImport(ctx, bare, stream, "--depth=0"); err != nil {
		return err
	}
	bytes, err := packBytes(bare)
	if err != nil {
		return err
	}
	b.add(fmt.Sprintf("its pack of %d files, reference without deltas", n), "bytes", 1.2, oursBytes, append(gitsBytes, bytes))
	return firstMemory(ctx, b, n)
}

// commitAll makes the first commit of files in a new clone.
func commitAll(ctx context.Context, dir string, list []file) (took float64, err error) {
	s, err := openStore(ctx, dir, filepath.Join(dir, "remote.git"))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return timeCommit(ctx, s, edits(list))
}

// firstMemory measures what the first commit takes besides the files themselves.
func firstMemory(ctx context.Context, b *bench, n int) error {
	var took []float64
	for range b.runs {
		dir, err := b.folder("memory")
		if err != nil {
			return err
		}
		measured, err := child(ctx, "first-commit", dir, strconv.Itoa(n))
		if err != nil {
			return err
		}
		took = append(took, measured["memory"])
	}
	b.report(fmt.Sprintf("memory of the first commit of %d files, besides them", n), "MB", 60, took...)
	return nil
}

// firstCommitChild makes the first commit in a process of its own. The garbage
// of making the files is given back before, so the peak is the commit's.
func firstCommitChild(ctx context.Context, args []string) (map[string]float64, error) {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return nil, err
	}
	changes := edits(files(n, n/perFolder))
	s, err := openStore(ctx, args[0], filepath.Join(args[0], "remote.git"))
	if err != nil {
		return nil, err
	}
	debug.FreeOSMemory()
	if err := resetPeak(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	before, _, err := memory(0)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	_, err = timeCommit(ctx, s, changes)
	_, peak, memoryErr := memory(0)
	runtime.KeepAlive(changes)
	return map[string]float64{"memory": peak - before}, errors.Join(err, memoryErr, s.Close())
}

// resetPeak lets this process's peak of resident memory begin anew.
func resetPeak() error { return os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// filled is a clone of ours with so many files in one commit, of which one after
// the other can be changed.
type filled struct {
	*gitstore.Store
	list     []file
	revision int
}

// fill makes such a clone with its files over so many folders.
func (b *bench) fill(ctx context.Context, url string, n, folders int) (*filled, error) {
	s, err := b.openStore(ctx, url)
	if err != nil {
		return nil, err
	}
	b.cleanup(s.Close)
	f := &filled{Store: s, list: files(n, folders)}
	_, err = timeCommit(ctx, s, edits(f.list))
	return f, err
}

// change returns count files in their next revision, spread over all of them.
func (f *filled) change(count int) []file {
	f.revision++
	changed := make([]file, count)
	for k := range changed {
		i := (f.revision*7919 + k*(len(f.list)/count)) % len(f.list)
		changed[k] = file{f.list[i].path, fileContent(i, f.revision)}
	}
	return changed
}

// timeCommits is the median of one-object commits.
func (f *filled) timeCommits(ctx context.Context, count int) (float64, error) {
	times := make([]float64, count)
	for i := range times {
		var err error
		if times[i], err = timeCommit(ctx, f.Store, edits(f.change(1))); err != nil {
			return 0, err
		}
	}
	return median(times), nil
}

// oneObject measures the commit of one changed object.
func oneObject(ctx context.Context, b *bench) error {
	n, inner := b.size(100000, 10000), 50
	large, err := b.fill(ctx, filepath.Join(b.dir, "none.git"), n, n/perFolder)
	if err != nil {
		return err
	}
	small, err := b.fill(ctx, filepath.Join(b.dir, "none.git"), n/10, n/10/perFolder)
	if err != nil {
		return err
	}
	work, err := b.checkout(ctx, large.list)
	if err != nil {
		return err
	}
	revision := 0
	gits := func() (float64, error) {
		times := make([]float64, 5)
		for k := range times {
			revision++
			f := large.list[revision*7919%n]
			if err := os.WriteFile(filepath.Join(work, f.path), fileContent(revision*7919%n, revision), 0o666); err != nil {
				return 0, err
			}
			begin := time.Now()
			if _, err := gittest.Run(ctx, work, "add", f.path); err != nil {
				return 0, err
			}
			if _, err := gittest.Run(ctx, work, "commit", "-q", "-m", "change"); err != nil {
				return 0, err
			}
			times[k] = time.Since(begin).Seconds()
		}
		return median(times), nil
	}
	ours := func() (float64, error) { return large.timeCommits(ctx, inner) }
	o, r, err := b.compare(ours, gits)
	if err != nil {
		return err
	}
	// Git reads and writes its whole index: among fewer files it is the faster, and
	// the bar the higher.
	b.add(fmt.Sprintf("commit of one object among %d", n), "s", 0.02*100000/float64(n), o, r)
	o, r, err = b.compare(ours, func() (float64, error) { return small.timeCommits(ctx, inner) })
	if err != nil {
		return err
	}
	b.add(fmt.Sprintf("commit of one object among %d, reference among %d", n, n/10), "s", 1.5, o, r)
	return nil
}

// checkout makes a worktree of git's with these files, committed.
func (b *bench) checkout(ctx context.Context, list []file) (string, error) {
	dir, err := b.folder("checkout")
	if err != nil {
		return "", err
	}
	bare, work := filepath.Join(dir, "bare"), filepath.Join(dir, "work")
	if err := importFiles(ctx, bare, list); err != nil {
		return "", err
	}
	_, err = gittest.Run(ctx, dir, "clone", "-q", "--local", bare, work)
	return work, err
}

// batchCommit measures the commit of many changed objects.
func batchCommit(ctx context.Context, b *bench) error {
	n, count := b.size(100000, 10000), 1000
	f, err := b.fill(ctx, filepath.Join(b.dir, "none.git"), n, n/perFolder)
	if err != nil {
		return err
	}
	dir, err := b.folder("batch")
	if err != nil {
		return err
	}
	bare := filepath.Join(dir, "bare")
	if err := importFiles(ctx, bare, f.list); err != nil {
		return err
	}
	changed := f.change(count)
	stream := filepath.Join(dir, "stream")
	if err := fastImport(stream, changed, "refs/heads/main^0"); err != nil {
		return err
	}
	ours := func() (float64, error) {
		took, err := timeCommit(ctx, f.Store, edits(changed))
		changed = f.change(count)
		return took, errors.Join(err, fastImport(stream, changed, "refs/heads/main^0"))
	}
	// The reference comes first, with the same files.
	o, r, err := b.compare(ours, func() (float64, error) { return timeImport(ctx, bare, stream) })
	if err != nil {
		return err
	}
	b.add(fmt.Sprintf("commit of %d objects among %d", count, n), "s", 0.3, o, r)
	return nil
}
