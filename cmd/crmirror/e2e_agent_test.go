package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	gosync "sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/crmirror/crmirror/gitstore/gittest"
)

// agent is a running "crmirror run".
type agent struct {
	u   *user
	cmd *exec.Cmd
	log lockedBuffer
	end chan struct{} // closed when the process has ended
}

// lockedBuffer is written by a process and read by a test.
type lockedBuffer struct {
	mu     gosync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// start starts the agent with a configuration; the test ends it if nobody did.
func (u *user) start(config string) *agent {
	u.t.Helper()
	a := &agent{u: u, cmd: u.command("run", "--config", u.file("config.yaml", config)), end: make(chan struct{})}
	a.cmd.Stdout, a.cmd.Stderr = &a.log, &a.log
	if err := a.cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	go func() {
		_ = a.cmd.Wait() // the exit code tells
		close(a.end)
	}()
	u.t.Cleanup(func() {
		_ = a.cmd.Process.Kill() // for an agent that is still there
		<-a.end
		u.checkSecrets(a.log.String())
		if u.t.Failed() {
			u.t.Logf("log of the agent:\n%s", a.log.String())
		}
	})
	return a
}

// signal sends a signal.
func (a *agent) signal(s syscall.Signal) {
	a.u.t.Helper()
	if err := a.cmd.Process.Signal(s); err != nil {
		a.u.t.Fatal(err)
	}
}

// wait waits for the process to end, and returns its exit code.
func (a *agent) wait() int {
	a.u.t.Helper()
	select {
	case <-a.end:
	case <-time.After(patience):
		a.u.t.Fatal("the agent did not end")
	}
	return a.cmd.ProcessState.ExitCode()
}

// stop ends the agent as a supervisor would, and wants exit code 0.
func (a *agent) stop() {
	a.u.t.Helper()
	a.signal(syscall.SIGTERM)
	if code := a.wait(); code != 0 {
		a.u.t.Errorf("exit code after SIGTERM: got %d, want 0", code)
	}
}

// waitLog waits until the log matches, and returns the match.
func (a *agent) waitLog(pattern string) []string {
	a.u.t.Helper()
	var match []string
	eventually(a.u.t, "log line "+pattern, func() error {
		match = regexp.MustCompile(pattern).FindStringSubmatch(a.log.String())
		select {
		case <-a.end:
			if match == nil {
				a.u.t.Fatalf("the agent ended before it logged %s", pattern)
			}
		default:
		}
		if match == nil {
			return errors.New("not there yet")
		}
		return nil
	})
	return match
}

// configFor is an agent's configuration for the widgets of one group, in a hurry.
func configFor(url, group, more string) string {
	return fmt.Sprintf(`apiVersion: crmirror.dev/v1alpha1
kind: Config
cluster: e2e
repository:
  url: %s
  branch: main
  path: clusters/e2e
  auth: {tokenFile: %s}
select:
- resources: ["*.%s"]
batch: {quiet: 300ms, max: 3s}
apply: {poll: 1s}
%s`, url, tokenFile(), group, more)
}

// served is a git server of one test, with an empty repository; it takes the
// lab's token.
type served struct {
	*gittest.HTTP
	dir string // the bare repository
}

func (s served) url() string { return s.URL("repo.git") }

func newServer(t *testing.T) served {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "repo.git")
	if err := gittest.InitBare(t.Context(), dir, "main"); err != nil {
		t.Fatal(err)
	}
	server, err := gittest.NewHTTP(root, world.token)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return served{server, dir}
}

// subjects returns those of main, oldest first; none while there is no main.
func (s served) subjects(t *testing.T) []string {
	t.Helper()
	if gittest.Git(t, s.dir, "for-each-ref", "refs/heads/main") == "" {
		return nil
	}
	log := gittest.Log(t, s.dir, "main")
	slices.Reverse(log)
	return log
}

// waitSubjects waits until main has exactly those commits, oldest first.
func (s served) waitSubjects(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, "commits", func() error {
		if d := cmp.Diff(want, s.subjects(t)); d != "" {
			return fmt.Errorf("subjects (-want +got):\n%s", d)
		}
		return nil
	})
}

// wantEqual compares main with the cluster's widgets.
func (s served) wantEqual(t *testing.T, w *widgets) {
	t.Helper()
	if d := diff(t, s.dir, "main", "clusters/e2e", cluster(t, w.group)); d != "" {
		t.Errorf("the remote differs from the cluster (-cluster +remote):\n%s", d)
	}
	gittest.Fsck(t, s.dir)
}
