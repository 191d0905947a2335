package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/gitstore/gittest"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/kubetest"
	"github.com/crmirror/crmirror/sync"
)

// load measures an agent under as many changes as the API server takes.
type load struct {
	b       *bench
	cluster *kubetest.Cluster
	writer  *writer
	length  time.Duration
	remote  string // folder
	url     string
}

// strain is what one round with the agent showed.
type strain struct {
	rate   float64 // changes a second
	cpu    float64 // of the agent, in milliseconds for each change
	behind float64 // seconds from the last change until the remote had everything
	lost   float64 // objects that the remote's head has otherwise than the cluster
}

// sustained adds the rows.
func sustained(ctx context.Context, b *bench) error {
	l := &load{b: b, length: time.Duration(b.size(60, 5)) * time.Second}
	var err error
	if l.cluster, err = b.cluster(ctx); err != nil {
		return err
	}
	if l.writer, err = newWriter(l.cluster.Config, b.objects()); err != nil {
		return err
	}
	remotes, git, err := b.server()
	if err != nil {
		return err
	}
	l.remote, l.url = filepath.Join(remotes, "sustained.git"), git.URL("sustained.git")
	if err := gittest.InitBare(ctx, l.remote, "main"); err != nil {
		return err
	}
	var reference, ours, perChange, behind, lost []float64
	for range b.runs {
		rate, err := l.withInformer(ctx)
		if err != nil {
			return err
		}
		s, err := l.withAgent(ctx)
		if err != nil {
			return err
		}
		reference, ours = append(reference, 1000/rate), append(ours, 1000/s.rate)
		perChange, behind, lost = append(perChange, s.cpu), append(behind, s.behind), append(lost, s.lost)
	}
	b.add("time of a change under load, with the agent (a bare informer) attached", "ms", 1/(1-0.05), ours, reference)
	b.report("CPU of the agent for each change under load", "ms", 0.6, perChange...)
	b.report("from the last change until the remote has everything", "s", 5, behind...)
	b.add("objects lost under load", "objects", 0, lost, []float64{0})
	for _, n := range lost {
		if n > 0 {
			return fmt.Errorf("%.0f objects at the remote are not what they are in the cluster", n)
		}
	}
	return nil
}

// withInformer returns the writer's rate beside a bare informer.
func (l *load) withInformer(ctx context.Context) (rate float64, err error) {
	i, err := l.b.informer(ctx, l.cluster.Kubeconfig)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, i.stop()) }()
	rate, _, err = l.writer.flood(ctx, l.length)
	return rate, err
}

// withAgent returns what is seen beside an agent with its default windows.
func (l *load) withAgent(ctx context.Context) (s strain, err error) {
	a, err := l.b.agent(ctx, agentOptions{
		kubeconfig: l.cluster.Kubeconfig, remote: l.url, quiet: 2 * time.Second, max: 30 * time.Second,
	})
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, a.stop()) }()
	if err := a.synced(ctx); err != nil {
		return s, err
	}
	before, err := cpu(a.cmd.Process.Pid)
	if err != nil {
		return s, err
	}
	rate, changes, err := l.writer.flood(ctx, l.length)
	if err != nil {
		return s, err
	}
	stopped := time.Now()
	for range patience { // on a busy machine a push can take longer than a branch stands still
		heads, err := l.settle(ctx)
		if err != nil {
			return s, err
		}
		after, err := cpu(a.cmd.Process.Pid) // with what the backlog took
		if err != nil {
			return s, err
		}
		s.rate, s.cpu = rate, (after-before)*1000/float64(changes)
		if s.behind, s.lost, err = l.judge(ctx, heads, stopped); err != nil || s.lost == 0 {
			return s, err
		}
	}
	return s, nil
}

// patience is how often the remote may stand still without having everything
// before what it lacks is called lost.
const patience = 6

// head is what the remote's branch was at a time.
type head struct {
	at     time.Time
	commit string
}

// settle notes where the remote's branch is until it has stood still for a while.
func (l *load) settle(ctx context.Context) ([]head, error) {
	const still = 6 * time.Second
	var heads []head
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		commit, err := tip(l.remote)
		if err != nil {
			return nil, err
		}
		now := time.Now()
		if len(heads) == 0 || heads[len(heads)-1].commit != commit {
			heads = append(heads, head{now, commit})
		}
		if now.Sub(heads[len(heads)-1].at) > still {
			return heads, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// judge compares what the cluster has now with what the remote had: when it had
// everything first, and what it lacks in the end.
func (l *load) judge(ctx context.Context, heads []head, stopped time.Time) (behind, lost float64, err error) {
	want, err := wanted(ctx, l.cluster.Config)
	if err != nil {
		return 0, 0, err
	}
	for _, h := range heads {
		n, err := l.differing(ctx, h.commit, want)
		if err != nil {
			return 0, 0, err
		}
		behind, lost = max(0, h.at.Sub(stopped).Seconds()), float64(n)
		if n == 0 {
			break
		}
	}
	return behind, lost, nil
}

// differing is how many objects lie otherwise in a commit of the remote.
func (l *load) differing(ctx context.Context, commit string, want map[string]gitstore.Hash) (int, error) {
	out, err := gittest.Run(ctx, l.remote, "ls-tree", "-r", "-z", commit)
	if err != nil {
		return 0, err
	}
	missing := len(want)
	for line := range strings.SplitSeq(out, "\x00") {
		meta, path, _ := strings.Cut(line, "\t")
		if fields := strings.Fields(meta); len(fields) == 3 && want[path].String() == fields[2] {
			missing--
		}
	}
	return missing, nil
}

// wanted is what a mirror of the cluster holds, by path.
func wanted(ctx context.Context, config *rest.Config) (map[string]gitstore.Hash, error) {
	client, err := dynamic.NewForConfig(unlimited(config))
	if err != nil {
		return nil, err
	}
	want := map[string]gitstore.Hash{}
	for kind := range kinds {
		resource := resourceOf(kind)
		for options := (metav1.ListOptions{Limit: 500}); ; {
			list, err := client.Resource(resource).List(ctx, options)
			if err != nil {
				return nil, err
			}
			for i := range list.Items {
				live := &list.Items[i]
				content, err := kube.Encode(live, nil)
				if err != nil {
					return nil, err
				}
				key := kube.Key{Group: resource.Group, Resource: resource.Resource, Namespace: live.GetNamespace(), Name: live.GetName()}
				want[sync.PathOf(key)] = gitstore.BlobHash(content)
			}
			if options.Continue = list.GetContinue(); options.Continue == "" {
				break
			}
		}
	}
	return want, nil
}
