package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/gitstore/gittest"
)

// growthFiles bounds how many files a repository may have after any number of commits.
const growthFiles = 100

// growthPushes is how many commits go out with one push: the server's work is
// not what is measured, and a push merges no more often than it commits.
const growthPushes = 20

// growth lets a repository take many one-line commits, with the base ref that
// moves along, and compares it with what git makes of the same history.
func growth(ctx context.Context, b *bench) error {
	dir, server, err := b.server()
	if err != nil {
		return err
	}
	for _, kind := range []string{"cache", "own repository"} {
		folder, err := b.folder("growth")
		if err != nil {
			return err
		}
		name := "growth.git"
		bare := filepath.Join(dir, name)
		git, url := filepath.Join(folder, ".git"), "-"
		if kind == "cache" {
			if err := gittest.InitBare(ctx, bare, "main"); err != nil {
				return err
			}
			// The server is not to pack while we measure.
			for _, setting := range []string{"receive.autogc", "gc.auto"} {
				if _, err := gittest.Run(ctx, bare, "config", setting, "0"); err != nil {
					return err
				}
			}
			git, url = filepath.Join(folder, "repo.git"), server.URL(name)
		}
		measured, err := child(ctx, "growth", folder, url, strconv.Itoa(b.size(20000, 2000)), strconv.Itoa(b.size(10000, 1000)))
		if err != nil {
			return err
		}
		if kind != "cache" {
			bare = git
		}
		if err := b.growthRows(ctx, kind, git, bare, measured); err != nil {
			return err
		}
	}
	return nil
}

// growthRows adds the rows of one repository; history is where git finds the same history.
func (b *bench) growthRows(ctx context.Context, kind, git, history string, measured map[string]float64) error {
	packed, err := b.folder("repack")
	if err != nil {
		return err
	}
	packed = filepath.Join(packed, "r.git")
	// By the transport, so that nothing comes along that no ref reaches.
	if _, err := gittest.Run(ctx, "", "clone", "--quiet", "--mirror", "--no-local", history, packed); err != nil {
		return err
	}
	begin := time.Now()
	if _, err := gittest.Run(ctx, packed, "repack", "-adfq"); err != nil {
		return err
	}
	took := time.Since(begin).Seconds()
	reference, _, err := usage(filepath.Join(packed, "objects"))
	if err != nil {
		return err
	}
	commits := b.size(10000, 1000)
	after := fmt.Sprintf("%s after %d commits: ", kind, commits)
	b.add(after+"bytes of objects, beside git repack -adf", "MB", 2, []float64{measured["MB"]}, []float64{reference / 1e6})
	b.report(after+"files", "files", growthFiles, measured["files"])
	b.report(after+"time of each, merges included", "ms", 0, measured["ms"])
	b.report(after+"longest commit", "ms", 0, measured["commit"])
	b.report(after+"longest push or merge", "ms", 0, measured["push"])
	b.report(after+"peak memory above that before", "MB", 120, measured["peak"])
	b.add(after+"maintenance in full, beside git repack -adf", "s", 0, []float64{measured["maintain"]}, []float64{took})
	b.add(after+"bytes after maintenance in full, beside git repack -adf", "MB", 0, []float64{measured["least"]}, []float64{reference / 1e6})
	_, err = gittest.Run(ctx, git, "fsck", "--strict", "--connectivity-only")
	return err
}

// growthChild is a process that makes the commits. Arguments: the store's
// folder, the remote's address or "-", how many files, how many commits.
func growthChild(ctx context.Context, args []string) (_ map[string]float64, err error) {
	n, err1 := strconv.Atoi(args[2])
	commits, err2 := strconv.Atoi(args[3])
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	const base = "refs/crmirror/bench/base"
	opts := gitstore.Options{Dir: args[0], Refs: []string{base}}
	git := filepath.Join(args[0], ".git")
	if args[1] != "-" {
		opts.URL, git = args[1], filepath.Join(args[0], "repo.git")
	}
	store, err := gitstore.Open(ctx, opts)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	g := &grower{store: store, base: base, rnd: rand.New(rand.NewPCG(1, 2)), revisions: make([]int, n)}
	if err := g.first(ctx); err != nil {
		return nil, err
	}
	debug.FreeOSMemory() // the files' contents are the input, not the store
	steady, _, err := memory(0)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	for range commits {
		if err := g.one(ctx); err != nil {
			return nil, err
		}
	}
	took := time.Since(begin)
	bytes, _, err := usage(filepath.Join(git, "objects"))
	if err != nil {
		return nil, err
	}
	_, files, err := usage(git)
	if err != nil {
		return nil, err
	}
	begin = time.Now()
	if err := store.Maintain(ctx, nil); err != nil {
		return nil, err
	}
	maintained := time.Since(begin)
	// What was merged stays one generation.
	if err := g.one(ctx); err != nil {
		return nil, err
	}
	if err := store.Maintain(ctx, nil); err != nil {
		return nil, err
	}
	least, _, err := usage(filepath.Join(git, "objects"))
	if err != nil {
		return nil, err
	}
	_, peak, err := memory(0)
	return map[string]float64{
		"MB": bytes / 1e6, "files": files, "least": least / 1e6,
		"ms":     took.Seconds() * 1e3 / float64(commits),
		"commit": g.commit.Seconds() * 1e3, "push": g.push.Seconds() * 1e3,
		"maintain": maintained.Seconds(), "peak": peak - steady,
	}, err
}

// grower makes commits, each of one line.
type grower struct {
	store     *gitstore.Store
	base      string
	rnd       *rand.Rand
	revisions []int // of each file
	made      int

	commit, push time.Duration // the longest of each
}

// path of the i-th file: half of them lie in one folder.
func (g *grower) path(i int) string {
	if i < len(g.revisions)/2 {
		return fmt.Sprintf("flat/file-%06d.yaml", i)
	}
	return fmt.Sprintf("folder-%04d/file-%06d.yaml", i%100, i)
}

func (g *grower) edit(i int) gitstore.Edit {
	return gitstore.Edit{Path: g.path(i), Content: fileContent(i, g.revisions[i])}
}

func (g *grower) first(ctx context.Context) error {
	if err := g.store.Fetch(ctx); err != nil {
		return err
	}
	edits := make([]gitstore.Edit, len(g.revisions))
	for i := range edits {
		edits[i] = g.edit(i)
	}
	if err := g.save(ctx, edits); err != nil {
		return err
	}
	return g.store.Push(ctx)
}

// agree is the message of the base commits.
const agree = "Agree"

func (g *grower) save(ctx context.Context, edits []gitstore.Edit) error {
	g.made++
	when := time.Unix(1_700_000_000+int64(g.made), 0)
	if _, err := g.store.Commit(ctx, gitstore.Commit{Edits: edits, Message: fmt.Sprintf("Change %d", g.made), When: when, BaseMessage: agree}); err != nil {
		return err
	}
	_, err := g.store.Base(ctx, g.base, agree, when)
	return err
}

// one makes the next commit.
func (g *grower) one(ctx context.Context) error {
	i := g.rnd.IntN(len(g.revisions))
	g.revisions[i]++
	edits := []gitstore.Edit{g.edit(i)}
	begin := time.Now()
	if err := g.save(ctx, edits); err != nil {
		return err
	}
	g.commit = max(g.commit, time.Since(begin))
	if g.made%growthPushes != 0 {
		return nil
	}
	begin = time.Now()
	if err := g.store.Push(ctx); err != nil {
		return err
	}
	g.push = max(g.push, time.Since(begin))
	return nil
}

// usage is how many bytes and files a folder has in all.
func usage(dir string) (bytes, files float64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err == nil {
			bytes += float64(info.Size())
			files++
		}
		return err
	})
	return bytes, files, err
}
