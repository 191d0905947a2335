package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/crmirror/crmirror/gitstore/gittest"
)

// latencies measures how long it takes from the API server's answer to a change
// until the branch at the remote has it, by the agent with its batch windows at
// zero, and by a bare informer whose event starts a "git push".
type latencies struct {
	b          *bench
	config     *rest.Config
	kubeconfig string
	writer     *writer
	remotes    string
	git        *gittest.HTTP
}

// latency adds the rows.
func latency(ctx context.Context, b *bench) error {
	l := &latencies{b: b}
	c, err := b.cluster(ctx)
	if err != nil {
		return err
	}
	l.config, l.kubeconfig = c.Config, c.Kubeconfig
	if l.writer, err = newWriter(c.Config, b.objects()); err != nil {
		return err
	}
	if l.remotes, l.git, err = b.server(); err != nil {
		return err
	}
	if err := gittest.InitBare(ctx, l.remote("ours"), "main"); err != nil {
		return err
	}
	if err := l.ours(ctx, func(*agent) error { return nil }); err != nil { // the first sync
		return err
	}
	if err := os.CopyFS(l.remote("reference"), os.DirFS(l.remote("ours"))); err != nil {
		return err
	}
	var ours, reference [2][]float64 // p50 and p99 of each round
	note := func(to *[2][]float64, measured []float64) {
		to[0] = append(to[0], quantile(measured, 0.5))
		to[1] = append(to[1], quantile(measured, 0.99))
	}
	n := b.size(500, 30) / b.runs
	for range b.runs {
		measured, err := l.informerAndPush(ctx, n)
		if err != nil {
			return err
		}
		note(&reference, measured)
		if measured, err = l.changesByAgent(ctx, n); err != nil {
			return err
		}
		note(&ours, measured)
	}
	b.add("one change until its push is acknowledged, p50 (informer's event + git push)", "ms", 1.2, ours[0], reference[0])
	b.add("the same, p99", "ms", 2, ours[1], reference[1])
	return nil
}

func (l *latencies) remote(name string) string { return filepath.Join(l.remotes, name+".git") }

// ours runs do beside an agent that is in sync.
func (l *latencies) ours(ctx context.Context, do func(*agent) error) (err error) {
	a, err := l.b.agent(ctx, agentOptions{kubeconfig: l.kubeconfig, remote: l.git.URL("ours.git")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.stop()) }()
	if err := a.synced(ctx); err != nil {
		return err
	}
	return do(a)
}

// changesByAgent measures n changes, one after the other, in milliseconds.
func (l *latencies) changesByAgent(ctx context.Context, n int) (measured []float64, err error) {
	return measured, l.ours(ctx, func(*agent) error {
		for i := range n {
			before, err := tip(l.remote("ours"))
			if err != nil {
				return err
			}
			_, at, err := l.writer.change(ctx, i)
			if err != nil {
				return err
			}
			moved, err := l.moved(ctx, "ours", before)
			if err != nil {
				return err
			}
			measured = append(measured, moved.Sub(at).Seconds()*1000)
		}
		return nil
	})
}

// informerAndPush measures the same, n times: the event, and the push of a commit of one
// object that was made beforehand.
func (l *latencies) informerAndPush(ctx context.Context, n int) (measured []float64, err error) {
	clone, commits, err := l.prepare(ctx, n)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	seen := make(chan int64, n)
	if err := watchAll(ctx, l.config, func(live *unstructured.Unstructured) {
		revision, _, _ := unstructured.NestedInt64(live.Object, "spec", "revision")
		seen <- revision
	}); err != nil {
		return nil, err
	}
	for i, commit := range commits {
		before, err := tip(l.remote("reference"))
		if err != nil {
			return nil, err
		}
		revision, at, err := l.writer.change(ctx, i)
		if err != nil {
			return nil, err
		}
		for event := int64(0); event != revision; {
			select {
			case event = <-seen:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		pushed := make(chan error, 1)
		go func() {
			_, err := gittest.Run(ctx, clone, "push", "--quiet", "origin", commit+":refs/heads/main")
			pushed <- err
		}()
		moved, err := l.moved(ctx, "reference", before)
		if err := errors.Join(err, <-pushed); err != nil {
			return nil, err
		}
		measured = append(measured, moved.Sub(at).Seconds()*1000)
	}
	return measured, nil
}

// revisionLine is the line of a file that a change of its object changes.
var revisionLine = regexp.MustCompile(`(?m)^  revision: .*$`)

// prepare clones the reference's remote and makes n commits, each of which changes
// one file.
func (l *latencies) prepare(ctx context.Context, n int) (clone string, commits []string, err error) {
	dir, err := l.b.folder("clone")
	if err != nil {
		return "", nil, err
	}
	clone = filepath.Join(dir, "clone.git")
	if _, err := gittest.Run(ctx, "", "clone", "--quiet", "--bare", l.git.URL("reference.git"), clone); err != nil {
		return "", nil, err
	}
	paths, err := gittest.Run(ctx, clone, "ls-tree", "-r", "--name-only", "main", "namespaces/team-00/")
	if err != nil {
		return "", nil, err
	}
	list := strings.Fields(paths)
	for i := range n {
		stream, path := filepath.Join(dir, "stream"), list[i%len(list)]
		content, err := gittest.Run(ctx, clone, "cat-file", "blob", "main:"+path)
		if err != nil {
			return "", nil, err
		}
		changed := revisionLine.ReplaceAllString(content, fmt.Sprintf("  revision: %d", time.Now().UnixMicro()))
		if err := fastImport(stream, []file{{path, []byte(changed)}}, "refs/heads/main^0"); err != nil {
			return "", nil, err
		}
		if err := feedImport(ctx, clone, stream); err != nil {
			return "", nil, err
		}
		commit, err := tip(clone)
		if err != nil {
			return "", nil, err
		}
		commits = append(commits, commit)
	}
	return clone, commits, nil
}

// tip is the commit that main names in a bare repository, "" when there is none.
func tip(gitDir string) (string, error) {
	content, err := os.ReadFile(filepath.Join(gitDir, "refs", "heads", "main"))
	if errors.Is(err, os.ErrNotExist) { // packed
		content, err = os.ReadFile(filepath.Join(gitDir, "packed-refs"))
		if i := bytes.Index(content, []byte(" refs/heads/main\n")); i >= 40 {
			return string(content[i-40 : i]), nil
		}
		if errors.Is(err, os.ErrNotExist) {
			return "", nil
		}
	}
	return strings.TrimSpace(string(content)), err
}

// moved waits until main of a remote is no longer what it was, and returns when
// that was seen: at most half a millisecond late, for either side.
func (l *latencies) moved(ctx context.Context, remote, before string) (time.Time, error) {
	const patience = time.Minute
	ticker := time.NewTicker(500 * time.Microsecond)
	defer ticker.Stop()
	for begin := time.Now(); time.Since(begin) < patience; {
		now, err := tip(l.remote(remote))
		if err != nil {
			return time.Time{}, err
		}
		if now != before {
			return time.Now(), nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
	return time.Time{}, fmt.Errorf("the branch of %s did not move within %s", remote, patience)
}
