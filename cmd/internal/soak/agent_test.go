//go:build long

package soak

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/crmirror/crmirror/cmd/internal/lab"
	"github.com/crmirror/crmirror/gitstore/gittest"
)

// agent is "crmirror run" as a process, whichever of its lives it is in.
type agent struct {
	t      *testing.T
	binary string
	config string // file
	cache  string // folder
	health string // address

	log    *os.File
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process is gone
}

// buildCrmirror builds the binary, with the race detector where the test has it.
func buildCrmirror(t *testing.T) string {
	t.Helper()
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "-race" && setting.Value == "true" {
				return build(t, "-race")
			}
		}
	}
	return build(t)
}

// build builds the binary.
func build(t *testing.T, options ...string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "crmirror")
	args := append([]string{"build", "-o", binary}, options...)
	if out, err := exec.CommandContext(t.Context(), "go", append(args, "../../crmirror")...).CombinedOutput(); err != nil {
		t.Fatalf("build crmirror: %v\n%s", err, out)
	}
	return binary
}

// resident is the memory that the agent has, in MB (10⁶ bytes).
func (a *agent) resident() float64 {
	a.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid))
	if err != nil {
		a.t.Fatal(err)
	}
	var kib float64
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		a.t.Fatalf("resident memory of the agent: %v", err)
	}
	return kib * 1024 / 1e6
}

// keepLog collects the output of all lives in one file; "go test -artifacts" keeps it.
func (a *agent) keepLog(name string) {
	var err error
	if a.log, err = os.OpenFile(filepath.Join(a.t.ArtifactDir(), name), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600); err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() {
		if a.up() {
			a.kill()
		}
		a.log.Close()
	})
}

func (a *agent) note(what string) { fmt.Fprintf(a.log, "--- %s\n", what) }

func (a *agent) start() {
	a.t.Helper()
	a.note("start")
	a.cmd = exec.Command(a.binary, "run", "--config", a.config)
	a.cmd.Stdout, a.cmd.Stderr = a.log, a.log
	if err := a.cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	cmd, exited := a.cmd, make(chan struct{})
	a.exited = exited
	go func() {
		defer close(exited)
		_ = cmd.Wait() // how it ended stands in its state
	}()
}

// up tells whether the agent was started and neither stopped nor seen to have ended.
func (a *agent) up() bool { return a.cmd != nil }

// ended tells how the agent ended without being asked to; "" when it did not.
func (a *agent) ended() string {
	if a.cmd == nil {
		return ""
	}
	select {
	case <-a.exited:
		state := a.cmd.ProcessState.String()
		a.cmd = nil
		return state + "\n" + a.tail()
	default:
		return ""
	}
}

// kill ends it as the kernel would: at once.
func (a *agent) kill() {
	_ = a.cmd.Process.Kill() // unless it is gone already
	<-a.exited
	a.cmd = nil
}

// terminate asks it to stop, and returns its exit code.
func (a *agent) terminate() int {
	a.t.Helper()
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		a.t.Errorf("stop the agent: %v", err)
	}
	select {
	case <-a.exited:
	case <-time.After(time.Minute):
		a.t.Errorf("the agent does not stop\n%s", a.tail())
		a.kill()
		return -1
	}
	code := a.cmd.ProcessState.ExitCode()
	if status, ok := a.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = exitInterrupted // it had only just been started
	}
	a.cmd = nil
	return code
}

// waitReady waits until the agent says that the first sync is done and nothing waits.
func (a *agent) waitReady() {
	a.t.Helper()
	waitFor(a.t, time.Minute, a.tail, func(ctx context.Context) bool {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.health+"/readyz", nil)
		if err != nil {
			a.t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
}

func (a *agent) approve(digest string) {
	a.t.Helper()
	out, err := exec.CommandContext(a.t.Context(), a.binary, "approve", digest, "--config", a.config).CombinedOutput()
	if err != nil { // the held set may just have changed; the next look tells
		a.t.Logf("approve %s: %v\n%s", digest, err, out)
	}
}

// tail returns the last lines that the agent wrote.
func (a *agent) tail() string {
	content, err := os.ReadFile(a.log.Name())
	if err != nil {
		return err.Error()
	}
	lines := strings.SplitAfter(string(content), "\n")
	return strings.Join(lines[max(0, len(lines)-60):], "")
}

// checkLog fails the test when the agent's lives show what none should: a
// crash, a data race, a credential.
func (a *agent) checkLog(l *lab.Lab) {
	a.t.Helper()
	content, err := os.ReadFile(a.log.Name())
	if err != nil {
		a.t.Fatal(err)
	}
	token, err := os.ReadFile(tokenFile(a.t, l))
	if err != nil {
		a.t.Fatal(err)
	}
	for _, bad := range []string{"panic:", "fatal error:", "DATA RACE", strings.TrimSpace(string(token))} {
		if i := strings.Index(string(content), bad); i >= 0 {
			a.t.Errorf("the agent's output has %q:\n%.4000s", bad, string(content)[i:])
		}
	}
}

// checkCache looks at the stopped agent's clone and worktree: sound, and equal to the branch.
func (a *agent) checkCache(head string) {
	a.t.Helper()
	worktree := filepath.Join(a.cache, "worktree")
	gittest.Fsck(a.t, worktree)
	if got := gittest.Git(a.t, worktree, "rev-parse", "HEAD"); got != head {
		a.t.Errorf("head of the clone: got %s, want %s", got, head)
	}
	// Untracked files do not count: once the index is lost, nothing tells which
	// of them were the agent's.
	if status := gittest.Git(a.t, worktree, "status", "--porcelain", "--untracked-files=no"); status != "" {
		a.t.Errorf("the clone's worktree differs from its head:\n%s", status)
	}
}

// damageCache does to the clone of a stopped agent what a crash, a full disk or a
// stray hand can do, and returns what it was.
func damageCache(t *testing.T, rng *rand.Rand, cache string) string {
	t.Helper()
	git := filepath.Join(cache, "repo.git")
	packs, objects, refs, worktree := filesBelow(t, git, "objects/pack"), filesBelow(t, git, "objects"), filesBelow(t, git, "refs"), filesBelow(t, cache, "worktree")
	ending := func(list []string, suffix string) (out []string) {
		for _, name := range list {
			if strings.HasSuffix(name, suffix) {
				out = append(out, name)
			}
		}
		return out
	}
	damages := []struct {
		name  string
		files []string // one of them is the victim
		do    func(file string) error
	}{
		{"a pack index is truncated", ending(packs, ".idx"), truncate(rng)},
		{"a pack is truncated", ending(packs, ".pack"), truncate(rng)},
		{"a byte of a pack is flipped", ending(packs, ".pack"), flip(rng)},
		{"an object file is lost", objects, os.Remove},
		{"a ref is zeroed", refs, empty},
		{"a ref is lost", refs, os.Remove},
		{"a ref is locked", refs, lockBeside},
		{"a lock is left", []string{filepath.Join(git, "HEAD"), filepath.Join(git, "index"), filepath.Join(git, "shallow"), filepath.Join(git, "packed-refs")}, lockBeside},
		{"HEAD, config, index or shallow is zeroed", []string{filepath.Join(git, "HEAD"), filepath.Join(git, "config"), filepath.Join(git, "index"), filepath.Join(git, "shallow")}, empty},
		{"HEAD, config, index or shallow is garbage", []string{filepath.Join(git, "HEAD"), filepath.Join(git, "config"), filepath.Join(git, "index"), filepath.Join(git, "shallow")}, flip(rng)},
		{"a temporary file is left", []string{filepath.Join(git, "objects", "pack", "tmp_pack_soak")}, empty},
		{"a file of the worktree is lost", worktree, os.Remove},
		{"a file of the worktree is zeroed", worktree, empty},
		{"the clone is lost", []string{git}, os.RemoveAll},
		{"the cache is lost", []string{cache}, os.RemoveAll},
	}
	d := damages[rng.IntN(len(damages))]
	if len(d.files) == 0 {
		return "nothing to damage"
	}
	file := d.files[rng.IntN(len(d.files))]
	if err := d.do(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%s: %v", d.name, err)
	}
	return d.name
}

// filesBelow returns all files in a folder, in a fixed order.
func filesBelow(t *testing.T, dir, sub string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(filepath.Join(dir, sub), func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && e.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func truncate(rng *rand.Rand) func(string) error {
	return func(file string) error {
		info, err := os.Stat(file)
		if err != nil || info.Size() == 0 {
			return err
		}
		return os.Truncate(file, rng.Int64N(info.Size()))
	}
}

func flip(rng *rand.Rand) func(string) error {
	return func(file string) error {
		content, err := os.ReadFile(file)
		if err != nil || len(content) == 0 {
			return err
		}
		content[rng.IntN(len(content))] ^= byte(1 + rng.IntN(255))
		return replaceFile(file, content)
	}
}

// replaceFile writes a file anew, whatever its permissions.
func replaceFile(file string, content []byte) error {
	if err := os.Remove(file); err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o600)
}

func empty(file string) error { return os.WriteFile(file, nil, 0o600) }

func lockBeside(file string) error { return os.WriteFile(file+".lock", []byte("stale"), 0o600) }

// freeAddress returns an address on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// tokenFile is the file with the token of the lab's git server.
func tokenFile(t *testing.T, l *lab.Lab) string {
	t.Helper()
	for _, v := range l.Env() {
		if v.Name == "REMOTE_TOKEN_FILE" {
			return v.Value
		}
	}
	t.Fatal("the lab has no token")
	return ""
}

func writeFile(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
