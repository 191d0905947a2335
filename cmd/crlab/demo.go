package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"

	"github.com/crmirror/crmirror/cmd/internal/lab"
	"github.com/crmirror/crmirror/kube/kubetest"
)

const (
	demoCluster = "demo"
	demoPath    = "clusters/demo"
	// demoPatience bounds each wait: for a first sync on a slow machine.
	demoPatience = 3 * time.Minute
)

func demoCommand(out io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Show crmirror at work, as a short story; needs bin/crmirror beside bin/crlab",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) (err error) {
			d := &demo{out: out}
			defer func() { err = errors.Join(err, d.end()) }()
			return d.tell(command.Context())
		},
	}
}

// demo is a story told on a real API server and a real git server.
type demo struct {
	out    io.Writer
	lab    *lab.Lab
	client dynamic.Interface
	agent  *exec.Cmd
	binary string       // crmirror
	config string       // file
	twin   live         // the object that Ada creates
	log    bytes.Buffer // the agent's
	done   chan error   // the agent's end
	// cluster is that of the lab which crmirror speaks to, from 0.
	cluster int
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

func (d *demo) chapter(n int, title string) { d.say("\n── %d. %s\n", n, title) }

func (d *demo) tell(ctx context.Context) error {
	corpus, err := kubetest.CorpusDir()
	if err != nil {
		return err
	}
	d.chapter(1, "A cluster full of custom resources, and an empty repository")
	options := lab.Options{Clusters: 2, Load: []string{corpus}, Progress: func(line string) {
		if !strings.HasPrefix(line, "refused:") { // the corpus has negative cases on purpose
			d.say("   %s", line)
		}
	}}
	if d.lab, err = lab.Start(ctx, options); err != nil {
		return err
	}
	if d.client, err = dynamic.NewForConfig(d.lab.Clusters[0].Config); err != nil {
		return err
	}

	d.chapter(2, "Point crmirror at both")
	if err := d.configure(); err != nil {
		return err
	}
	if err := d.startAgent(); err != nil {
		return err
	}
	first, err := d.nextCommit(ctx, "")
	if err != nil {
		return err
	}
	d.say("   Everything is in git, in one commit:\n")
	d.git("log", "--format=   %h  %an  %s", "-1", first)
	d.say("")
	d.shell("sed 's/^/   /' | sed -n '1,12p'", "ls-tree", "-r", "--name-only", first)

	d.chapter(3, "People and controllers work, with plain API calls")
	commits, err := d.work(ctx, first)
	if err != nil {
		return err
	}

	d.chapter(4, "What a person sees in git")
	d.say("   $ git log --oneline")
	d.git("log", "--format=   %h %s", "main")
	d.say("\n   $ git show %s", commits[0][:7])
	d.shell("sed 's/^/   /'", "show", "--format=commit %h%nAuthor: %an <%ae>%nDate:   %ad%n%n%w(0,4,4)%B", commits[0])

	d.chapter(5, "The proof: git equals the cluster")
	proof, err := d.prove(ctx)
	if err != nil {
		return err
	}
	d.say("   %s", proof)

	if err := d.stopAgent(); err != nil {
		return err
	}

	d.chapter(6, "The other way: a change in git reaches the cluster")
	if err := d.bothWays(ctx); err != nil {
		return err
	}

	d.chapter(7, "Both sides change the same field")
	if err := d.conflict(ctx); err != nil {
		return err
	}

	d.chapter(8, "The cluster is lost, and comes back")
	if err := d.disaster(ctx); err != nil {
		return err
	}

	d.chapter(9, "The end")
	if err := d.stopAgent(); err != nil {
		return err
	}
	d.say(`   Everything that ran is stopped now. To keep the lab running and try by hand:

     bin/crlab --dir /tmp/lab --load %s

   and in another terminal:

     . /tmp/lab/env
     bin/crmirror backup --repo ./backup
     git -C ./backup log -p`, relative(corpus))
	return nil
}

func relative(dir string) string {
	if wd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(wd, dir); err == nil {
			return rel
		}
	}
	return dir
}

// configure writes a configuration and shows it.
func (d *demo) configure() error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find crmirror: %w", err)
	}
	d.binary = filepath.Join(filepath.Dir(self), "crmirror")
	if _, err := os.Stat(d.binary); err != nil {
		return fmt.Errorf("find crmirror: %w; type: make build", err)
	}
	config := fmt.Sprintf(`apiVersion: crmirror.dev/v1alpha1
kind: Config
cluster: %s
repository:
  url: %s
  path: %s
  auth: {tokenFile: %s}
batch: {quiet: 1s, max: 10s}
`, demoCluster, d.lab.RemoteHTTP(), demoPath, filepath.Join(d.lab.Dir, "token"))
	d.say("   %s\n", strings.ReplaceAll(strings.TrimSpace(config), "\n", "\n   "))
	d.config = filepath.Join(d.lab.Dir, "git", "crmirror.yaml")
	if err := os.WriteFile(d.config, []byte(config), 0o600); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	return nil
}

// startAgent starts crmirror.
func (d *demo) startAgent() error {
	d.say("   $ crmirror run --config crmirror.yaml\n")
	d.agent = exec.Command(d.binary, "run", "--config", d.config, "--cache-dir", filepath.Join(d.lab.Dir, "git", "cache"),
		"--kubeconfig", d.lab.Kubeconfig(d.cluster))
	d.agent.Stdout, d.agent.Stderr = &d.log, &d.log
	if err := d.agent.Start(); err != nil {
		return fmt.Errorf("start crmirror: %w", err)
	}
	d.done = make(chan error, 1)
	go func() { d.done <- d.agent.Wait() }()
	return nil
}

// stopAgent ends the agent as Kubernetes would, and waits for it.
func (d *demo) stopAgent() error {
	if d.agent == nil {
		return nil
	}
	agent := d.agent
	d.agent = nil
	if err := agent.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop crmirror: %w", err)
	}
	if err := <-d.done; err != nil {
		return fmt.Errorf("crmirror: %w\n%s", err, d.log.String())
	}
	return nil
}

func (d *demo) end() error {
	err := d.stopAgent()
	if d.lab != nil {
		err = errors.Join(err, d.lab.Stop())
	}
	return err
}

// nextCommit waits until the branch has moved on from a commit.
func (d *demo) nextCommit(ctx context.Context, from string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		head, err := d.head(ctx)
		if err == nil && head != from {
			return head, nil
		}
		select {
		case <-tick.C:
		case err := <-d.done:
			d.agent = nil
			return "", fmt.Errorf("crmirror ended: %w\n%s", err, d.log.String())
		case <-ctx.Done():
			return "", fmt.Errorf("wait for a commit: %w\n%s", ctx.Err(), d.log.String())
		}
	}
}

func (d *demo) head(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "git", "-C", d.lab.RemoteDir(), "rev-parse", "--verify", "--quiet", "main").Output()
	return strings.TrimSpace(string(out)), err
}

// git runs a git command on the remote repository and prints what it says.
func (d *demo) git(args ...string) { d.shell("cat", args...) }

// shell does the same through a filter.
func (d *demo) shell(filter string, args ...string) {
	cmd := exec.Command("sh", append([]string{"-c", `git -C "$0" "$@" | ` + filter, d.lab.RemoteDir()}, args...)...)
	cmd.Stdout, cmd.Stderr = d.out, d.out
	if err := cmd.Run(); err != nil {
		d.say("   git %s: %v", args[0], err)
	}
}
