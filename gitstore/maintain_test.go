package gitstore

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing/filemode"
)

// mergingVariable makes the test's binary a process that merges until it is killed.
const mergingVariable = "CRMIRROR_TEST_MERGING"

func TestMain(m *testing.M) {
	if args := os.Getenv(mergingVariable); args != "" {
		fmt.Fprintln(os.Stderr, mergeUntilKilled(context.Background(), strings.Split(args, "\n")))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

const mergedBase = "refs/crmirror/test/base"

// mergingOptions are those of a store: a URL ("" for a person's repository), its
// folder, and whether a clone has a worktree.
func mergingOptions(args []string) Options {
	return Options{URL: args[0], Dir: args[1], Worktree: args[2] == "true", Refs: []string{mergedBase}}
}

// mergeUntilKilled commits, pushes and maintains, and says when a merge begins and ends.
func mergeUntilKilled(ctx context.Context, args []string) error {
	s, err := Open(ctx, mergingOptions(args))
	if err != nil {
		return err
	}
	if err := s.Fetch(ctx); err != nil {
		return err
	}
	for n := 0; ; n++ {
		edits := make([]Edit, 0, 200)
		for i := range cap(edits) {
			if !s.head.IsZero() && i > 0 {
				break
			}
			edits = append(edits, put(fmt.Sprintf("folder/file-%03d", (i+n)%200), fmt.Sprint(text(i), os.Getpid(), n, "\n")))
		}
		if _, err := s.Commit(ctx, Commit{Edits: edits, Message: "one", When: when}); err != nil {
			return err
		}
		if _, err := s.Base(ctx, mergedBase, "base", when); err != nil {
			return err
		}
		if err := s.Push(ctx); err != nil {
			return err
		}
		if n%3 != 2 {
			continue
		}
		fmt.Println("begin")
		if err := s.Maintain(ctx, nil); err != nil {
			return err
		}
		fmt.Println("end")
	}
}

// TestKilledWhileMerging kills processes in the midst of merges, with SIGKILL,
// and finds all of history each time, and nothing left over.
func TestKilledWhileMerging(t *testing.T) {
	for _, kind := range []string{"clone", "clone with a worktree", "own"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir, repo, url := filepath.Join(t.TempDir(), "store"), ".git", ""
			if kind != "own" {
				repo, url = "repo.git", bareRepo(t)
			}
			args := []string{url, dir, fmt.Sprint(kind == "clone with a worktree")}
			repo = filepath.Join(dir, repo)
			for life := range 4 {
				killMerging(t, args, repo, life)
				s, err := Open(t.Context(), mergingOptions(args))
				if err != nil {
					t.Fatal(err)
				}
				left, err := filepath.Glob(repo + "/objects/pack/tmp_*")
				if err != nil {
					t.Fatal(err)
				}
				if url != "" && len(left) > 0 {
					t.Errorf("left over: %v", left)
				}
				readAll(t, s)
				if kind != "clone" { // without a worktree its packs are for us alone
					git(t, repo, "fsck", "--strict", "--full")
				}
				if err := s.Maintain(t.Context(), nil); err != nil {
					t.Error(err)
				}
				readAll(t, s)
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
			git(t, repo, "fsck", "--strict", "--full")
		})
	}
}

// killMerging starts a process that merges, and kills it during a merge: as soon
// as it begins, or once there is a file for the new pack.
func killMerging(t *testing.T, args []string, repo string, life int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), mergingVariable+"="+strings.Join(args, "\n"))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for n := 0; n <= life && lines.Scan(); {
		if lines.Text() == "begin" {
			n++
		}
	}
	deadline := time.Now().Add(10 * time.Second)
	for life%2 == 1 && time.Now().Before(deadline) {
		if found, err := filepath.Glob(repo + "/objects/pack/tmp_*"); err != nil || len(found) > 0 {
			break
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatalf("it ended before it was killed: %v", err)
	}
	_ = cmd.Wait() // it was killed
}

// readAll reads all commits, trees and files that the branch reaches, from disk alone.
func readAll(t *testing.T, s *Store) {
	t.Helper()
	count := 0
	for h := s.Head(); !h.IsZero(); count++ {
		files, err := s.treeOf(h)
		if err != nil {
			t.Fatalf("commit %d from the head: %v", count, err)
		}
		files.Walk(func(path string, blob Hash, _ filemode.FileMode) bool {
			if _, _, err := s.db.Read(blob); err != nil {
				t.Fatalf("%s, %d commits from the head: %v", path, count, err)
			}
			return true
		})
		w, ok, err := s.visit(h)
		if err != nil || !ok {
			t.Fatalf("commit %d from the head: %v", count, err)
		}
		h = Hash{}
		if len(w.parents) > 0 {
			h = w.parents[0]
		}
	}
	if count < 3 {
		t.Errorf("history has %d commits only", count)
	}
}

// TestMaintainDropsDead: a clone lets go of base commits with the push after
// them, and of commits that lost a race and of contents that nobody waits for at
// a maintenance; a person's tags in it stay, and what is given to keep.
func TestMaintainDropsDead(t *testing.T) {
	bare := bareRepo(t)
	dir := filepath.Join(t.TempDir(), "cache")
	s := open(t, Options{URL: bare, Dir: dir, Worktree: true, Refs: []string{mergedBase}})
	fetch(t, s)
	var bases []Hash
	step := func(message string, edits ...Edit) Hash {
		t.Helper()
		c := commit(t, s, message, edits...)
		base, err := s.Base(t.Context(), mergedBase, message, when)
		if err != nil {
			t.Fatal(err)
		}
		bases = append(bases, base)
		return c
	}
	step("first", put("a", text(1)), put("b", text(2)))
	push(t, s)
	tagged := step("tagged", put("a", text(3)))
	git(t, dir+"/repo.git", "tag", "-a", "-m", "a person's", "mine", tagged.String())
	// Somebody else is faster, and the commit is derived again.
	other := open(t, Options{URL: bare, Dir: filepath.Join(t.TempDir(), "other")})
	fetch(t, other)
	commit(t, other, "theirs", put("c", "c\n"))
	push(t, other)
	if err := s.Push(t.Context()); err == nil {
		t.Fatal("pushed over somebody else's commit")
	}
	fetch(t, s)
	lost := step("lost too", put("a", text(4)))
	fetch(t, s)
	step("last", put("a", text(5)))
	push(t, s)
	blobs, err := s.PutBlobs([][]byte{[]byte("waits\n"), []byte("nobody's\n")})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Maintain(t.Context(), blobs[:1]); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		what string
		h    Hash
		want bool
	}{
		{"the head", s.Head(), true},
		{"what a person tagged", tagged, true},
		{"a commit that lost", lost, false},
		{"its content", BlobHash([]byte(text(4))), false},
		{"the first base", bases[0], false},
		{"the last base", bases[len(bases)-1], true},
		{"a content that waits", blobs[0], true},
		{"a content that does not", blobs[1], false},
	} {
		if got := s.Has(tt.h); got != tt.want {
			t.Errorf("%s is there: %v, want %v", tt.what, got, tt.want)
		}
	}
	update(t, s)
	git(t, dir+"/worktree", "fsck", "--strict", "--full")
	// What was merged goes with the next merge, of another process too.
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Options{URL: bare, Dir: dir, Worktree: true, Refs: []string{mergedBase}})
	fetch(t, s)
	step("more", put("a", text(6)))
	push(t, s)
	for range 2 {
		if err := s.Maintain(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		step("more yet", put("a", text(7+len(bases))))
		push(t, s)
	}
	if found := globAll(t, dir, "repo.git/objects/pack/*.pack"); len(found) > 6 {
		t.Errorf("%d packs are there: %v", len(found), found)
	}
	if s.Has(blobs[0]) {
		t.Error("a content is there that nobody waits for any more")
	}
}

// TestMaintainOwn: in a person's repository nothing is dropped, and their packs
// are left alone.
func TestMaintainOwn(t *testing.T) {
	dir := t.TempDir()
	git(t, dir, "init", "-q", "-b", "main")
	writeFile(t, dir+"/theirs", "theirs\n")
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-q", "-m", "theirs")
	git(t, dir, "repack", "-adq")
	theirs := globAll(t, dir, ".git/objects/pack/*.pack")
	s := open(t, Options{Dir: dir, Refs: []string{mergedBase}})
	var bases []Hash
	for i := range 5 {
		commit(t, s, "ours", put("a", text(i)))
		base, err := s.Base(t.Context(), mergedBase, "base", when)
		if err != nil {
			t.Fatal(err)
		}
		bases = append(bases, base)
	}
	for range 2 {
		if err := s.Maintain(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	for i, base := range bases {
		if !s.Has(base) {
			t.Errorf("base commit %d is gone", i)
		}
	}
	readAll(t, s)
	if _, err := os.Stat(filepath.Join(dir, theirs[0])); err != nil {
		t.Errorf("their pack: %v", err)
	}
	git(t, dir, "fsck", "--strict", "--full")
}
