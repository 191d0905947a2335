package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// disaster loses the cluster, and brings its custom resources back in a new one.
func (d *demo) disaster(ctx context.Context) error {
	if err := d.stopAgent(); err != nil {
		return err
	}
	if err := d.lab.Clusters[0].Stop(); err != nil {
		return fmt.Errorf("stop the first cluster: %w", err)
	}
	d.cluster = 1
	d.say("   The API server and its etcd are gone, data and all. There is a new, empty cluster, and the repository.\n")
	d.say("   $ crmirror restore --config crmirror.yaml --dry-run\n   …")
	out, err := d.crmirror(ctx, 0, "restore", "--dry-run")
	if err != nil {
		return err
	}
	d.last(out, 1)
	d.say("\n   $ crmirror restore --config crmirror.yaml\n   …")
	if out, err = d.crmirror(ctx, 0, "restore"); err != nil {
		return err
	}
	d.last(out, 5)
	d.say("\n   $ crmirror verify --config crmirror.yaml")
	if out, err = d.crmirror(ctx, 0, "verify"); err != nil {
		return err
	}
	d.last(out, 2)
	d.say("\n   $ crmirror adopt --config crmirror.yaml")
	if out, err = d.crmirror(ctx, 0, "adopt"); err != nil {
		return err
	}
	d.last(out, 2)
	adopted, err := d.head(ctx)
	if err != nil {
		return err
	}
	return d.goOn(ctx, adopted)
}

// goOn lets the agent continue on the new cluster: it changes no object in git, and holds what was left out.
func (d *demo) goOn(ctx context.Context, adopted string) error {
	d.say("")
	if err := d.startAgent(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		held, err := exec.CommandContext(ctx, "git", "-C", d.lab.RemoteDir(), "for-each-ref", "refs/crmirror/*/held").Output()
		if err == nil && len(held) > 0 {
			break
		}
		select {
		case <-tick.C:
		case err := <-d.done:
			d.agent = nil
			return fmt.Errorf("crmirror ended: %w\n%s", err, d.log.String())
		case <-ctx.Done():
			return fmt.Errorf("wait for the agent's first cycle: %w", ctx.Err())
		}
	}
	out, err := exec.CommandContext(ctx, "git", "-C", d.lab.RemoteDir(), "diff", "--name-only", adopted, "main").Output()
	if err != nil {
		return fmt.Errorf("git diff: %w", err)
	}
	if files := strings.TrimSpace(string(out)); files != "" && files != demoPath+"/.crmirror.yaml" {
		return fmt.Errorf("after the restore the agent committed %s", files)
	}
	d.say("   The agent goes on with the new cluster, and changed no object in git. The files of what was left out stay: their")
	d.say("   deletion is held until somebody approves it.")
	return nil
}

// last prints the last lines of an output.
func (d *demo) last(out string, n int) {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for _, line := range lines[max(0, len(lines)-n):] {
		d.say("   %s", line)
	}
}
