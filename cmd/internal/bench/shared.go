package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/crmirror/crmirror/kube/kubetest"
)

// objectSize is how large the objects of the shared cluster are, bytes of JSON.
const objectSize = 2000

// cluster is the control plane that scenarios share: b.objects() objects of
// objectSize. Who changes objects puts up with that the others see it.
func (b *bench) cluster(ctx context.Context) (*kubetest.Cluster, error) {
	if b.shared == nil {
		c, err := b.newCluster(ctx, b.objects(), objectSize)
		if err != nil {
			return nil, err
		}
		b.shared = c
	}
	return b.shared, nil
}

// objects is how many objects the shared cluster has.
func (b *bench) objects() int { return b.size(20000, 2000) }

// binary builds crmirror as "make build" does, once, and returns its path.
func (b *bench) binary(ctx context.Context) (string, error) {
	name := filepath.Join(b.dir, "bin", "crmirror")
	if _, err := os.Stat(name); err == nil {
		return name, nil
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", name, "./cmd/crmirror")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build crmirror: %w\n%s", err, out)
	}
	return name, nil
}

// used is what a finished process took.
type used struct{ wall, cpu float64 } // seconds

// finish runs a command to its end. Its standard error goes along with an error.
func finish(cmd *exec.Cmd) (used, error) {
	begin := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return used{}, fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, out)
	}
	state := cmd.ProcessState
	return used{wall: time.Since(begin).Seconds(), cpu: (state.UserTime() + state.SystemTime()).Seconds()}, nil
}
