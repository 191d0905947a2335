package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/gitstore/gittest"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/sync"
)

// objectHistory finds the versions of one object among many commits, with their changed fields, from
// a repository that is opened for it.
func objectHistory(ctx context.Context, b *bench) error {
	folder, err := b.folder("history")
	if err != nil {
		return err
	}
	dir := filepath.Join(folder, "history.git")
	files, commits := b.size(10000, 2000), b.size(10000, 1000)
	if err := gittest.InitBare(ctx, dir, "main"); err != nil {
		return err
	}
	if _, err := gittest.RunInput(ctx, dir, strings.NewReader(historyStream(files, commits)), "fast-import", "--quiet"); err != nil {
		return err
	}
	key := historyKey(historyObject)
	path := sync.PathOf(key)
	var found, want int
	ours, reference, err := b.compare(func() (float64, error) {
		begin := time.Now()
		found, err = logOf(ctx, dir, key)
		return time.Since(begin).Seconds(), err
	}, func() (float64, error) {
		begin := time.Now()
		out, err := gittest.Run(ctx, dir, "log", "--first-parent", "--format=%H", "main", "--", path)
		want = len(strings.Fields(out))
		return time.Since(begin).Seconds(), err
	})
	if err != nil {
		return err
	}
	if found != want || want < 2 {
		return fmt.Errorf("log of %s: %d versions, git log has %d", path, found, want)
	}
	b.add(fmt.Sprintf("log of one object of %d in %d commits (git log --first-parent -- path)", files, commits), "s", 1, ours, reference)
	return nil
}

// logOf opens the repository and returns how many versions an object has.
func logOf(ctx context.Context, dir string, key kube.Key) (n int, err error) {
	store, err := gitstore.Open(ctx, gitstore.Options{Dir: dir, Shared: true})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	versions, err := sync.ObjectLog(ctx, store, store.Head(), key)
	return len(versions), err
}

// historyObject is the object whose history is looked for; every hundredth commit changes it.
const historyObject = 1234

func historyKey(i int) kube.Key {
	return kube.Key{
		Group: "bench.example.dev", Resource: fmt.Sprintf("kind%ds", i%10), Namespace: fmt.Sprintf("ns-%02d", i%40), Name: fmt.Sprintf("object-%05d", i),
	}
}

// historyStream is the history as git fast-import reads it: the first commit has all files, each later
// one changes one of them.
func historyStream(files, commits int) string {
	var b strings.Builder
	random := rand.New(rand.NewPCG(1, 2)) // the same history each time
	write := func(i, value int) {
		key := historyKey(i)
		content := fmt.Sprintf("apiVersion: %s/v1\nkind: Kind\nmetadata:\n  name: %s\n  namespace: %s\nspec:\n  value: %d\n", key.Group, key.Name, key.Namespace, value)
		fmt.Fprintf(&b, "M 644 inline %s\ndata %d\n%s\n", sync.PathOf(key), len(content), content)
	}
	for n := range commits {
		fmt.Fprintf(&b, "commit refs/heads/main\ncommitter crmirror <crmirror@localhost> %d +0000\ndata 0\n", 1_700_000_000+60*n)
		switch {
		case n == 0:
			for i := range files {
				write(i, 0)
			}
		case n%100 == 0:
			write(historyObject, n)
		default:
			write(random.IntN(files), n)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
