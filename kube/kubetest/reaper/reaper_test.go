package reaper

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const parentEnv = "CRMIRROR_TEST_REAPER_PARENT"

// TestMain turns this binary into the parent process of
// TestChildDoesNotSurviveItsParent when that asks for it.
func TestMain(m *testing.M) {
	if folder := os.Getenv(parentEnv); folder != "" {
		beParent(folder)
	}
	os.Exit(m.Run())
}

// beParent starts a process that would run for an hour, says its pid and waits.
func beParent(folder string) {
	r, err := New(folder)
	if err != nil {
		panic(err)
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		panic(err)
	}
	path, err := r.Wrap(sleep)
	if err != nil {
		panic(err)
	}
	child := exec.Command(path, "3600")
	if err := child.Start(); err != nil {
		panic(err)
	}
	if _, err := os.Stdout.WriteString(strconv.Itoa(child.Process.Pid) + "\n"); err != nil {
		panic(err)
	}
	select {}
}

func TestChildDoesNotSurviveItsParent(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentEnv+"="+folder)
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if !running(pid) {
		t.Fatalf("child %d does not run", pid)
	}

	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // it says "killed"
	eventually(t, "the child is gone", func() bool { return !running(pid) })
	eventually(t, "the folder is gone", func() bool {
		_, err := os.Stat(folder)
		return errors.Is(err, os.ErrNotExist)
	})
}

// A process that comes up after the end of the reaper is the one that nobody
// would kill: it must not become the wrapped binary.
func TestWrapperOfAClosedReaperRefuses(t *testing.T) {
	r, err := New()
	if err != nil {
		t.Fatal(err)
	}
	path, err := r.Wrap("/bin/echo")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(path, "running").Output(); err != nil || string(out) != "running\n" {
		t.Fatalf("wrapped echo: got %q, %v", out, err)
	}
	if err := os.Remove(filepath.Join(r.dir, "open")); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("/bin/sh", "-c", string(script), "echo", "running").Output(); err == nil {
		t.Errorf("wrapped echo under a closed reaper: got %q, want a refusal", out)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(r.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder of the reaper after Close: got %v, want it gone", err)
	}
}

// The process of a wrapped binary has ended and its id is another's now: that
// one is none of ours, whether we were told of the end or not.
func TestReusedProcessIDIsLeftAlone(t *testing.T) {
	other := exec.Command("sleep", "3600")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	})
	for _, forget := range []bool{true, false} {
		r, err := New()
		if err != nil {
			t.Fatal(err)
		}
		pidFile := filepath.Join(r.dir, "pids", strconv.Itoa(other.Process.Pid))
		if err := os.WriteFile(pidFile, []byte("server\n123\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if forget {
			if err := r.Forget("server"); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(pidFile); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("announcement after Forget: got %v, want it gone", err)
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if !running(other.Process.Pid) {
			t.Fatalf("after Forget: %t: the reaper killed a process that is not its own", forget)
		}
	}
}

// running tells whether a process exists and is no zombie: where nobody collects
// orphans, a killed one stays in the table.
func running(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return !errors.Is(err, os.ErrNotExist) || !isDir("/proc/self")
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}
