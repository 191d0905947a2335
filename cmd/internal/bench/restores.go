package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/crmirror/crmirror/gitstore/gittest"
	"github.com/crmirror/crmirror/kube/kubetest"
)

// restores measures a restore into an empty API server beside a plain loop of creates.
type restores struct {
	b        *bench
	n        int // objects
	program  string
	repo     string
	parallel int // requests of the loop at once: what was best
}

// measureRestore measures the object phase of a restore, what one with nothing to do takes, and its memory.
func measureRestore(ctx context.Context, b *bench) error {
	r := &restores{b: b, n: b.size(5000, 500)}
	if err := r.prepare(ctx); err != nil {
		return err
	}
	var again, list, peaks []float64
	ours := func() (float64, error) {
		c, err := r.empty(ctx)
		if err != nil {
			return 0, err
		}
		seconds, _, peak, err := r.restore(ctx, c)
		if err != nil {
			return 0, err
		}
		_, second, _, err := r.restore(ctx, c)
		if err != nil {
			return 0, err
		}
		reading, err := (&backups{b: b, cluster: c}).list(ctx)
		again, list, peaks = append(again, second), append(list, reading.wall), append(peaks, peak)
		return seconds, errors.Join(err, c.Stop())
	}
	loop := func() (float64, error) {
		c, err := r.empty(ctx)
		if err != nil {
			return 0, err
		}
		client, err := r.open(ctx, c)
		if err != nil {
			return 0, err
		}
		seconds, err := create(ctx, client, 0, r.n, r.parallel)
		return seconds, errors.Join(err, c.Stop())
	}
	mine, reference, err := b.compare(ours, loop)
	if err != nil {
		return err
	}
	b.add(fmt.Sprintf("restore of %d objects, the object phase (a loop of creates, %d at once)", r.n, r.parallel), "s", 1/0.85, mine, reference)
	b.add(fmt.Sprintf("restore of %d objects with nothing to do (LIST)", r.n), "s", 1.3, again, list)
	b.report(fmt.Sprintf("restore of %d objects, resident", r.n), "MB", 0, peaks...)
	return nil
}

// prepare makes the backup, and finds out at which concurrency the loop is quickest.
func (r *restores) prepare(ctx context.Context) (err error) {
	if r.program, err = r.b.binary(ctx); err != nil {
		return err
	}
	if r.repo, err = r.b.folder("restore"); err != nil {
		return err
	}
	c, err := r.empty(ctx)
	if err != nil {
		return err
	}
	client, err := r.open(ctx, c)
	if err != nil {
		return err
	}
	best, from := 0.0, 0
	for _, parallel := range []int{4, 8, 16, 32, 64} {
		to := from + r.n/5
		seconds, err := create(ctx, client, from, to, parallel)
		if err != nil {
			return err
		}
		if rate := float64(to-from) / seconds; rate > best {
			best, r.parallel = rate, parallel
		}
		from = to
	}
	if _, err := finish(exec.CommandContext(ctx, r.program, "backup", "--repo", r.repo, "--kubeconfig", c.Kubeconfig)); err != nil {
		return err
	}
	if _, err := gittest.Run(ctx, r.repo, "rev-parse", "HEAD"); err != nil {
		return err
	}
	return c.Stop()
}

// empty starts an empty control plane. It ends with the benchmarks at the latest.
func (r *restores) empty(ctx context.Context) (*kubetest.Cluster, error) {
	c, err := kubetest.Start(ctx, kubetest.Options{})
	if err == nil {
		r.b.cleanup(c.Stop)
	}
	return c, err
}

// open creates kinds and namespaces.
func (r *restores) open(ctx context.Context, c *kubetest.Cluster) (dynamic.Interface, error) {
	client, err := dynamic.NewForConfig(unlimited(c.Config))
	if err != nil {
		return nil, err
	}
	return client, prepare(ctx, client)
}

// create creates some of the objects, so many at once, and returns the seconds it took.
func create(ctx context.Context, client dynamic.Interface, from, to, parallel int) (float64, error) {
	begin := time.Now()
	creating, within := errgroup.WithContext(ctx)
	creating.SetLimit(parallel)
	for i := from; i < to; i++ {
		creating.Go(func() error {
			resource, namespace, _ := place(i)
			_, err := client.Resource(resource).Namespace(namespace).
				Create(within, object(i, objectSize), metav1.CreateOptions{FieldManager: "bench"})
			return err
		})
	}
	if err := creating.Wait(); err != nil {
		return 0, fmt.Errorf("create objects: %w", err)
	}
	return time.Since(begin).Seconds(), nil
}

// restore runs "crmirror restore" once: the seconds of its object phase and of the whole, and the most
// memory that it was seen to have, in megabytes.
func (r *restores) restore(ctx context.Context, c *kubetest.Cluster) (phase, wall, peak float64, err error) {
	report := r.repo + ".json"
	cmd := exec.CommandContext(ctx, r.program, "restore", "--repo", r.repo, "--kubeconfig", c.Kubeconfig, "--report", report)
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, 0, 0, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ended := false; !ended; {
		select {
		case err = <-done:
			wall, ended = time.Since(begin).Seconds(), true
		case <-tick.C:
			if _, high, err := memory(cmd.Process.Pid); err == nil { // else it has just ended
				peak = max(peak, high)
			}
		}
	}
	if err != nil {
		return 0, 0, 0, fmt.Errorf("crmirror restore: %w", err)
	}
	content, err := os.ReadFile(report)
	if err != nil {
		return 0, 0, 0, err
	}
	var told struct {
		Stages []struct {
			Stage   string
			Done    int
			Seconds float64
		}
	}
	if err := json.Unmarshal(content, &told); err != nil {
		return 0, 0, 0, err
	}
	for _, s := range told.Stages {
		if s.Stage != "objects" {
			continue
		}
		if s.Done != r.n {
			return 0, 0, 0, fmt.Errorf("crmirror restore created %d objects, not %d", s.Done, r.n)
		}
		phase = s.Seconds
	}
	return phase, wall, peak, nil
}
