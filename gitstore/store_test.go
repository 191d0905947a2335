package gitstore

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRoundTrip commits and pushes to each kind of remote and reads it back
// through the git command line.
func TestRoundTrip(t *testing.T) {
	for _, kind := range []string{"path", "file", "http"} {
		t.Run(kind, func(t *testing.T) {
			bare := bareRepo(t)
			o := Options{Dir: filepath.Join(t.TempDir(), "cache"), Path: "clusters/a", Worktree: true}
			switch kind {
			case "path":
				o.URL = bare
			case "file":
				o.URL = "file://" + bare
			case "http":
				o.URL, o.Auth.TokenFile = serveHTTP(t, bare)
			}
			s := open(t, o)
			fetch(t, s)
			if s.Branch() != "main" || !s.Head().IsZero() {
				t.Fatalf("empty remote: branch %q, head %s", s.Branch(), s.Head())
			}
			commit(t, s, "one", put("x/a.yaml", "a: 1\n"), put("x/b.yaml", "b: 1\n"))
			push(t, s)
			commit(t, s, "two", put("x/a.yaml", "a: 2\n"), Edit{Path: "x/b.yaml", Delete: true}, put("y/c.yaml", "c: 1\n"))
			commit(t, s, "three", put("y/c.yaml", "c: 2\n"))
			push(t, s)
			want := map[string]string{"clusters/a/x/a.yaml": "a: 2\n", "clusters/a/y/c.yaml": "c: 2\n"}
			if diff := cmp.Diff(want, cloneFiles(t, bare)); diff != "" {
				t.Errorf("clone (-want +got):\n%s", diff)
			}
			if got := git(t, bare, "log", "--format=%s %an", "main"); got != "three crmirror\ntwo crmirror\none crmirror" {
				t.Errorf("log: %s", got)
			}
			if _, err := s.UpdateWorktree(t.Context()); err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(o.Dir, "worktree")
			if diff := cmp.Diff(want, diskFiles(t, dir)); diff != "" {
				t.Errorf("worktree (-want +got):\n%s", diff)
			}
			if got := git(t, dir, "status", "--porcelain"); got != "" {
				t.Errorf("git status: %s", got)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}

			o.Dir = filepath.Join(t.TempDir(), "second")
			o.Worktree = false
			second := open(t, o)
			fetch(t, second)
			if second.Head() != s.Head() {
				t.Errorf("second clone: head %s, want %s", second.Head(), s.Head())
			}
			h, ok := second.Lookup("y/c.yaml")
			content, err := second.Read(t.Context(), h)
			if !ok || err != nil || string(content) != "c: 2\n" {
				t.Errorf("second clone: %q, %v, %v", content, ok, err)
			}
			commit(t, second, "four", put("z", "z\n"))
			push(t, second)

			// The first catches up, in its old cache.
			o.Dir, o.Worktree = s.opts.Dir, true
			s = open(t, o)
			fetch(t, s)
			if s.Head() != second.Head() {
				t.Errorf("first clone: head %s, want %s", s.Head(), second.Head())
			}
			git(t, dir, "fsck", "--strict")
		})
	}
}

func TestOwnRepository(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "backup")
	s := open(t, Options{Dir: dir})
	fetch(t, s)
	commit(t, s, "one", put("x/a.yaml", "a: 1\n"), put("x/b.yaml", "b: 1\n"))
	if left, err := s.UpdateWorktree(t.Context()); err != nil || left != nil {
		t.Fatal(left, err)
	}
	commit(t, s, "two", put("x/a.yaml", "a: 2\n"), Edit{Path: "x/b.yaml", Delete: true})
	if left, err := s.UpdateWorktree(t.Context()); err != nil || left != nil {
		t.Fatal(left, err)
	}
	push(t, s)
	if got := git(t, dir, "status", "--porcelain"); got != "" {
		t.Errorf("git status: %s", got)
	}
	git(t, dir, "fsck", "--strict")
	if got := git(t, dir, "log", "--format=%s"); got != "two\none" {
		t.Errorf("log: %s", got)
	}
	if diff := cmp.Diff(map[string]string{"x/a.yaml": "a: 2\n"}, diskFiles(t, dir)); diff != "" {
		t.Errorf("worktree (-want +got):\n%s", diff)
	}
}

// TestOwnRepositoryPushes: a person's repository with an upstream sends both
// our commits and theirs.
func TestOwnRepositoryPushes(t *testing.T) {
	bare := bareRepo(t)
	dir := filepath.Join(t.TempDir(), "work")
	git(t, t.TempDir(), "clone", "-q", bare, dir)
	git(t, dir, "checkout", "-q", "-b", "main")
	writeFile(t, filepath.Join(dir, "README"), "mine\n")
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-q", "-m", "first")
	git(t, dir, "push", "-q", "-u", "origin", "main")
	writeFile(t, filepath.Join(dir, "README"), "mine, changed\n")
	git(t, dir, "commit", "-q", "-am", "second")

	s := open(t, Options{Dir: dir, Path: "sub"})
	commit(t, s, "third", put("a", "a\n"))
	push(t, s)
	want := map[string]string{"README": "mine, changed\n", "sub/a": "a\n"}
	if diff := cmp.Diff(want, cloneFiles(t, bare)); diff != "" {
		t.Errorf("clone (-want +got):\n%s", diff)
	}

	// Somebody else pushes: nothing is overwritten.
	other := filepath.Join(t.TempDir(), "other")
	git(t, t.TempDir(), "clone", "-q", bare, other)
	git(t, other, "commit", "-q", "--allow-empty", "-m", "theirs")
	git(t, other, "push", "-q")
	commit(t, s, "fourth", put("a", "b\n"))
	if err := s.Push(t.Context()); !errors.Is(err, ErrBehind) || errors.Is(err, ErrDiverged) || !strings.Contains(err.Error(), "pull --rebase") {
		t.Errorf("Push: %v, want ErrBehind", err)
	}
	if got := git(t, bare, "log", "-1", "--format=%s", "main"); got != "theirs" {
		t.Errorf("remote is at %q", got)
	}
}
