package gitstore

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/crmirror/crmirror/gitstore/gittest"
)

// TestShallowKilled: a fetch ends between the pack and the note of where its
// history ends, as by a kill. The next one must not take the pack for all there is.
func TestShallowKilled(t *testing.T) {
	bare := bareRepo(t)
	a := open(t, Options{URL: bare, Dir: filepath.Join(t.TempDir(), "a")})
	fetch(t, a)
	for _, content := range []string{"1", "2", "3"} {
		commit(t, a, content, put("a", content))
		push(t, a)
	}
	dir := filepath.Join(t.TempDir(), "b")
	b := open(t, Options{URL: bare, Dir: dir})
	lock := filepath.Join(dir, "repo.git", "shallow.lock")
	writeFile(t, lock, "")
	if err := b.Fetch(t.Context()); err == nil {
		t.Fatal("Fetch wrote a file that is locked")
	}
	if got := globAll(t, dir, "repo.git/objects/pack/*.pack"); len(got) > 0 {
		t.Errorf("%s came before the note", got)
	}
	remove(t, lock)
	fetch(t, b)
	if got := git(t, filepath.Join(dir, "repo.git"), "log", "--format=%s", "main"); got != "3" {
		t.Errorf("log: %s", got)
	}
	git(t, filepath.Join(dir, "repo.git"), "fsck", "--strict")
	commit(t, b, "4", put("a", "4"))
	push(t, b)
	if diff := cmp.Diff(map[string]string{"a": "4"}, cloneFiles(t, bare)); diff != "" {
		t.Errorf("clone (-want +got):\n%s", diff)
	}
}

// TestHistoryCheckedInPart: a start looks for holes in the newest part of history
// only, however much of it there is.
func TestHistoryCheckedInPart(t *testing.T) {
	bare := bareRepo(t)
	var stream strings.Builder
	for i := range checkedCommits + 20 {
		fmt.Fprintf(&stream, "commit refs/heads/main\ncommitter A <a@example.com> %d +0000\ndata 0\nM 644 inline a\ndata 4\n%04d\n", i+1, i)
	}
	if _, err := gittest.RunInput(t.Context(), bare, strings.NewReader(stream.String()), "fast-import", "--quiet"); err != nil {
		t.Fatal(err)
	}
	for _, depth := range []int{checkedCommits + 10, checkedCommits - 10} {
		dir := filepath.Join(t.TempDir(), "cache")
		s := open(t, Options{URL: bare, Dir: dir})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		repo := filepath.Join(dir, "repo.git")
		git(t, repo, "fetch", "-q", fmt.Sprintf("--depth=%d", depth), "file://"+bare, "main:main")
		remove(t, filepath.Join(repo, "shallow"))
		s = open(t, Options{URL: bare, Dir: dir})
		if got, want := !s.Head().IsZero(), depth > checkedCommits; got != want {
			t.Errorf("a clone with a hole %d commits back is kept: %v, want %v", depth, got, want)
		}
	}
}

// TestBranchInTheWay: a cache goes on when a branch's name turns into a folder's
// or the other way round, whether the new branch is at the remote or not.
func TestBranchInTheWay(t *testing.T) {
	for _, tt := range []struct {
		was, is string
		there   bool
	}{
		{"backup", "backup/prod", true},
		{"backup", "backup/prod", false},
		{"backup/prod/a", "backup", true},
		{"backup/prod/a", "backup", false},
	} {
		t.Run(tt.was+" to "+tt.is, func(t *testing.T) {
			bare, dir := bareRepo(t), filepath.Join(t.TempDir(), "cache")
			s := open(t, Options{URL: bare, Dir: dir, Branch: tt.was})
			fetch(t, s)
			commit(t, s, "old", put("a", "a\n"))
			push(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if tt.there {
				git(t, bare, "branch", "-m", tt.was, "between")
				git(t, bare, "branch", "-m", "between", tt.is)
			} else {
				git(t, bare, "update-ref", "-d", "refs/heads/"+tt.was)
			}
			s = open(t, Options{URL: bare, Dir: dir, Branch: tt.is})
			fetch(t, s)
			edits := Commit{Edits: []Edit{put("b", "b\n")}, Message: "new", When: when}
			if _, err := s.Commit(t.Context(), edits); err != nil {
				if tt.there {
					t.Fatalf("Commit: %v", err)
				}
				fetch(t, s) // mends what the commit found
				commit(t, s, "new", edits.Edits...)
			}
			push(t, s)
			if got := git(t, bare, "rev-parse", tt.is); got != s.Head().String() {
				t.Errorf("%s is at %s, want %s", tt.is, got, s.Head())
			}
			git(t, filepath.Join(dir, "repo.git"), "fsck", "--strict")
		})
	}
}

// TestBranchNamedTmp: a branch whose name looks like a left-over's stays.
func TestBranchNamedTmp(t *testing.T) {
	for _, branch := range []string{"tmp_x", "x.pack"} {
		dir := filepath.Join(t.TempDir(), "cache")
		o := Options{URL: bareRepo(t), Dir: dir, Branch: branch}
		s := open(t, o)
		fetch(t, s)
		want := commit(t, s, "one", put("a", "1"))
		push(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		left := []string{"repo.git/tmp_1", "repo.git/objects/pack/tmp_pack_1", "repo.git/objects/pack/pack-1.pack", "repo.git/refs/heads/" + branch + ".lock"}
		for _, path := range left {
			writeFile(t, filepath.Join(dir, path), "")
		}
		if got := open(t, o).Head(); got != want {
			t.Errorf("branch %s: head %s after opening again, want %s", branch, got, want)
		}
		for _, path := range left {
			if len(globAll(t, dir, path)) > 0 {
				t.Errorf("branch %s: %s was left", branch, path)
			}
		}
	}
}

// TestWorktreeTurned: a worktree is turned on over a clone that was made
// without one and without file contents, and off again.
func TestWorktreeTurned(t *testing.T) {
	bare := bareRepo(t)
	git(t, bare, "config", "uploadpack.allowFilter", "true")
	git(t, bare, "config", "uploadpack.allowReachableSHA1InWant", "true")
	a := open(t, Options{URL: bare, Dir: filepath.Join(t.TempDir(), "a")})
	fetch(t, a)
	want := map[string]string{}
	var edits []Edit
	for _, name := range strings.Split("abcdefghij", "") {
		want[name] = "content of " + name
		edits = append(edits, put(name, want[name]))
	}
	commit(t, a, "one", edits...)
	push(t, a)

	dir := filepath.Join(t.TempDir(), "b")
	reopen := func(worktree bool) *Store {
		t.Helper()
		s := open(t, Options{URL: bare, Dir: dir, Worktree: worktree})
		fetch(t, s)
		before := s.db.Packs()
		if _, err := s.UpdateWorktree(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := s.db.Packs() - before; got > 1 {
			t.Errorf("file contents came in %d packs, want one", got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return s
	}
	repo := filepath.Join(dir, "repo.git")
	reopen(false)
	git(t, repo, "config", "user.name", "Ann")
	reopen(true)
	if got := git(t, filepath.Join(dir, "worktree"), "status", "--porcelain"); got != "" {
		t.Errorf("git status: %s", got)
	}
	if diff := cmp.Diff(want, diskFiles(t, filepath.Join(dir, "worktree"))); diff != "" {
		t.Errorf("worktree (-want +got):\n%s", diff)
	}
	reopen(false)
	if got := git(t, repo, "rev-parse", "--is-bare-repository"); got != "true" {
		t.Errorf("is bare: %s", got)
	}
	if got := git(t, repo, "config", "user.name"); got != "Ann" {
		t.Errorf("a person's setting is now %q", got)
	}
}

// TestCacheOfAnotherRemote: a folder that has a clone of another remote is taken over once ours has answered, and not
// before: that clone may be the last copy at hand.
func TestCacheOfAnotherRemote(t *testing.T) {
	first, second := bareRepo(t), bareRepo(t)
	dir := filepath.Join(t.TempDir(), "cache")
	a := open(t, Options{URL: first, Dir: dir})
	fetch(t, a)
	commit(t, a, "1", put("a", "1"))
	push(t, a)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), Options{URL: first + "-gone", Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "it is a clone of "+first) || !strings.Contains(err.Error(), "is kept until") {
		t.Fatalf("another remote that does not answer: got %v, want an error that names the clone", err)
	}
	if got := git(t, filepath.Join(dir, "repo.git"), "log", "--format=%s", "main"); got != "1" {
		t.Errorf("log of the clone: %q, want it as it was", got)
	}
	b := open(t, Options{URL: second, Dir: dir})
	fetch(t, b)
	if !b.Head().IsZero() {
		t.Errorf("head: %s, want that of an empty remote", b.Head())
	}
	commit(t, b, "2", put("b", "2"))
	push(t, b)
	if diff := cmp.Diff(map[string]string{"b": "2"}, cloneFiles(t, second)); diff != "" {
		t.Errorf("clone (-want +got):\n%s", diff)
	}
}
