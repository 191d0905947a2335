package refs

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crmirror/crmirror/gitstore/object"
)

func hash(c byte) object.Hash { return object.Sum(object.Blob, []byte{c}) }

func newDir(t *testing.T) *Dir {
	t.Helper()
	dir := t.TempDir()
	return &Dir{Git: dir, Common: dir, Locks: Locks{Wait: 5 * time.Millisecond}}
}

// TestUpdateCompares: a ref moves only from what the caller saw.
func TestUpdateCompares(t *testing.T) {
	d := newDir(t)
	const name = "refs/heads/a/b"
	steps := []struct {
		old, new object.Hash
		want     error
	}{
		{hash('x'), hash('1'), ErrMoved}, // absent, not x
		{object.Hash{}, hash('1'), nil},
		{object.Hash{}, hash('2'), ErrMoved},
		{hash('1'), hash('2'), nil},
		{hash('1'), object.Hash{}, ErrMoved},
		{hash('2'), object.Hash{}, nil},
		{object.Hash{}, hash('3'), nil},
	}
	now := object.Hash{}
	for i, s := range steps {
		if err := d.Update(t.Context(), name, s.old, s.new); !errors.Is(err, s.want) {
			t.Errorf("step %d: %v, want %v", i, err, s.want)
		}
		if s.want == nil {
			now = s.new
		}
		if got, err := d.Read(name); err != nil || got != now {
			t.Errorf("step %d: ref is %s, %v, want %s", i, got, err, now)
		}
	}
	if _, err := os.Stat(filepath.Join(d.Common, name+".lock")); err == nil {
		t.Error("a lock was left")
	}
}

// TestUpdateRace: of writers that saw the same value, exactly one wins.
func TestUpdateRace(t *testing.T) {
	d := newDir(t)
	d.Locks.Wait = 10 * time.Second
	const name = "refs/heads/main"
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range byte(8) {
		wg.Go(func() {
			err := d.Update(t.Context(), name, object.Hash{}, hash(i))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if !errors.Is(err, ErrMoved) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d writers won", won)
	}
}

// A killed process's lock is found by its mark; git's own lock, the lock of
// another process and a mark whose lock came through stay as they are.
func TestSweep(t *testing.T) {
	git := t.TempDir()
	ours := Locks{Wait: 5 * time.Millisecond, Marks: git}
	lock := func(l Locks, name string) *File {
		t.Helper()
		f, err := l.Lock(t.Context(), filepath.Join(git, name))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	lock(ours, "refs/heads/killed")
	lock(ours, "index")
	lock(Locks{Marks: t.TempDir()}, "refs/heads/theirs")
	lock(Locks{}, "packed-refs")
	done := lock(ours, "refs/heads/done")
	if _, err := done.Write([]byte("done")); err != nil {
		t.Fatal(err)
	}
	mark := filepath.Join(git, markPrefix+"between") // killed after the rename
	if err := os.Link(done.mark, mark); err != nil {
		t.Fatal(err)
	}
	if err := done.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := lock(ours, "refs/heads/dropped").Abort(); err != nil {
		t.Fatal(err)
	}
	if err := ours.Sweep(git); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := filepath.WalkDir(git, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			got = append(got, strings.TrimPrefix(path, git+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"packed-refs.lock", "refs/heads/done", "refs/heads/theirs.lock"}
	if !slices.Equal(got, want) {
		t.Errorf("left after the sweep: %q, want %q", got, want)
	}
	lock(ours, "refs/heads/killed") // free again
	if _, err := ours.Lock(t.Context(), filepath.Join(git, "packed-refs")); !errors.Is(err, ErrLocked) {
		t.Errorf("lock what git holds: %v, want ErrLocked", err)
	}
}

func TestLocked(t *testing.T) {
	d := newDir(t)
	const name = "refs/heads/main"
	lock := filepath.Join(d.Common, name+".lock")
	if err := os.MkdirAll(filepath.Dir(lock), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(lock, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	err := d.Update(t.Context(), name, object.Hash{}, hash('1'))
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), lock) {
		t.Errorf("Update: %v, want ErrLocked with the file", err)
	}
	if _, err := os.Stat(lock); err != nil {
		t.Error("somebody else's lock is gone")
	}
}

// TestPackedRefs: what git packed is read, moved and deleted, as git sees it.
func TestPackedRefs(t *testing.T) {
	run := func(dir string, args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	dir := t.TempDir()
	run(dir, "init", "-q", "-b", "main")
	run(dir, "commit", "-q", "--allow-empty", "-m", "x")
	for _, name := range []string{"one", "two"} {
		run(dir, "tag", "-a", "-m", "t", name)
	}
	run(dir, "pack-refs", "--all")
	d := &Dir{Git: dir + "/.git", Common: dir + "/.git", Locks: Locks{Wait: time.Second}}
	head, err := d.Read("refs/heads/main")
	if err != nil || head.String() != run(dir, "rev-parse", "main") {
		t.Fatalf("main is %s, %v", head, err)
	}
	tag, err := d.Read("refs/tags/one")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Update(t.Context(), "refs/tags/one", tag, object.Hash{}); err != nil {
		t.Fatal(err)
	}
	if got := run(dir, "tag"); got != "two" {
		t.Errorf("tags: %q", got)
	}
	if err := d.Update(t.Context(), "refs/heads/main", object.Hash{}, head); !errors.Is(err, ErrMoved) {
		t.Errorf("creating over a packed ref: %v", err)
	}
	run(dir, "fsck", "--strict")
}

func TestValidName(t *testing.T) {
	for name, want := range map[string]bool{
		"refs/heads/main": true, "refs/crmirror/prod-eu1-0a/base": true, "refs/heads/a.b": true,
		"main": false, "refs/heads/": false, "refs/heads/../x": false, "refs/heads/a..b": false, "refs/heads/.a": false,
		"refs/heads/a.lock": false, "refs/heads/a b": false, "refs/heads/a~1": false, "refs/heads/a\n": false, "refs/heads/a.": false,
	} {
		if got := ValidName(name); got != want {
			t.Errorf("ValidName(%q) = %v", name, got)
		}
	}
}

// TestUpdateSymbolic: a symbolic ref stays one, and what it names moves, or
// begins to be.
func TestUpdateSymbolic(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=x", "-c", "user.email=x@example.com"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q", "-b", "trunk", ".")
	git("commit", "-q", "--allow-empty", "-m", "one")
	git("symbolic-ref", "refs/heads/main", "refs/heads/trunk")
	git("symbolic-ref", "refs/heads/next", "refs/heads/unborn")
	d := &Dir{Git: dir + "/.git", Common: dir + "/.git", Locks: Locks{Wait: time.Second}}
	first, err := d.Read("refs/heads/main")
	if err != nil {
		t.Fatal(err)
	}
	git("commit", "-q", "--allow-empty", "-m", "two")
	second, err := d.Read("refs/heads/main")
	if err != nil || first == second {
		t.Fatalf("main is at %s, then at %s: %v", first, second, err)
	}
	if err := d.Update(t.Context(), "refs/heads/main", second, first); err != nil {
		t.Fatal(err)
	}
	if err := d.Update(t.Context(), "refs/heads/next", object.Hash{}, first); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"refs/heads/main": "refs/heads/trunk", "refs/heads/next": "refs/heads/unborn"} {
		if got := git("symbolic-ref", name); got != target {
			t.Errorf("%s names %s, want %s", name, got, target)
		}
		if got := git("rev-parse", target); got != first.String() {
			t.Errorf("%s is at %s, want %s", target, got, first)
		}
	}
}
