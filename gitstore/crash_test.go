package gitstore

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// glob returns the one file that matches.
func glob(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		t.Fatalf("no file matches %s", pattern)
	}
	return found[0]
}

func truncate(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

// TestCacheRepair breaks the cache in every way a kill, a full disk or a stray
// hand can, and goes on: the remote ends as if nothing had happened.
func TestCacheRepair(t *testing.T) {
	bare := bareRepo(t)
	template := filepath.Join(t.TempDir(), "cache")
	s := open(t, Options{URL: bare, Dir: template, Worktree: true})
	fetch(t, s)
	commit(t, s, "one", put("x/a", strings.Repeat("a\n", 100)), put("x/b", "b\n"))
	push(t, s)
	commit(t, s, "two", put("x/a", strings.Repeat("a\n", 99)+"c\n"))
	push(t, s)
	if _, err := s.UpdateWorktree(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		damage func(t *testing.T, repo string)
	}{
		{"nothing", func(*testing.T, string) {}},
		{"index of a pack truncated", func(t *testing.T, repo string) { truncate(t, glob(t, repo+"/objects/pack/*.idx"), 100) }},
		{"index of a pack empty", func(t *testing.T, repo string) { truncate(t, glob(t, repo+"/objects/pack/*.idx"), 0) }},
		{"pack truncated", func(t *testing.T, repo string) { truncate(t, glob(t, repo+"/objects/pack/*.pack"), 40) }},
		{"pack without index", func(t *testing.T, repo string) { remove(t, glob(t, repo+"/objects/pack/*.idx")) }},
		{"index without pack", func(t *testing.T, repo string) { remove(t, glob(t, repo+"/objects/pack/*.pack")) }},
		{"all packs gone", func(t *testing.T, repo string) { remove(t, repo+"/objects/pack") }},
		{"temporary files", func(t *testing.T, repo string) {
			writeFile(t, repo+"/objects/pack/tmp_pack_1", "PACK")
			writeFile(t, repo+"/objects/pack/tmp_idx_1", "")
		}},
		{"ref empty", func(t *testing.T, repo string) { truncate(t, repo+"/refs/heads/main", 0) }},
		{"ref points nowhere", func(t *testing.T, repo string) {
			writeFile(t, repo+"/refs/heads/main", strings.Repeat("1", 40)+"\n")
		}},
		{"ref locked", func(t *testing.T, repo string) { writeFile(t, repo+"/refs/heads/main.lock", "") }},
		{"index locked", func(t *testing.T, repo string) { writeFile(t, repo+"/index.lock", "") }},
		{"index truncated", func(t *testing.T, repo string) { truncate(t, repo+"/index", 30) }},
		{"HEAD empty", func(t *testing.T, repo string) { truncate(t, repo+"/HEAD", 0) }},
		{"config gone", func(t *testing.T, repo string) { remove(t, repo+"/config") }},
		{"config nonsense", func(t *testing.T, repo string) { writeFile(t, repo+"/config", "[core\n") }},
		{"shallow nonsense", func(t *testing.T, repo string) { writeFile(t, repo+"/shallow", "nonsense\n") }},
		{"history lost", func(t *testing.T, repo string) {
			// As when "shallow" is lost: the head's parent is not here.
			h := git(t, repo, "rev-parse", "main")
			writeFile(t, repo+"/shallow", h+"\n")
			git(t, repo, "repack", "-adq")
			git(t, repo, "prune", "--expire=now")
			remove(t, repo+"/shallow")
		}},
		{"everything gone", func(t *testing.T, repo string) { remove(t, repo) }},
		{"worktree gone", func(t *testing.T, repo string) { remove(t, filepath.Dir(repo)+"/worktree") }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "cache")
			if err := os.CopyFS(dir, os.DirFS(template)); err != nil {
				t.Fatal(err)
			}
			remoteCopy := filepath.Join(t.TempDir(), "remote.git")
			if err := os.CopyFS(remoteCopy, os.DirFS(bare)); err != nil {
				t.Fatal(err)
			}
			writeFile(t, dir+"/repo.git/config", strings.ReplaceAll(readFile(t, dir+"/repo.git/config"), bare, remoteCopy))
			tt.damage(t, filepath.Join(dir, "repo.git"))

			s := open(t, Options{URL: remoteCopy, Dir: dir, Worktree: true})
			fetch(t, s)
			commit(t, s, "three", put("x/d", "d\n"))
			push(t, s)
			if _, err := s.UpdateWorktree(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"x/a": strings.Repeat("a\n", 99) + "c\n", "x/b": "b\n", "x/d": "d\n"}
			if diff := cmp.Diff(want, diskFiles(t, dir+"/worktree")); diff != "" {
				t.Errorf("worktree (-want +got):\n%s", diff)
			}
			if got := git(t, dir+"/worktree", "status", "--porcelain"); got != "" {
				t.Errorf("git status: %s", got)
			}
			git(t, dir+"/worktree", "fsck", "--strict")
			git(t, remoteCopy, "fsck", "--strict")
			if got := git(t, remoteCopy, "log", "--format=%s", "main"); got != "three\ntwo\none" {
				t.Errorf("log: %s", got)
			}
		})
	}
}

// TestRenewedWorktree: a clone made anew takes away the files that the old one
// had checked out and the branch has no more.
func TestRenewedWorktree(t *testing.T) {
	bare, dir := bareRepo(t), filepath.Join(t.TempDir(), "cache")
	s := open(t, Options{URL: bare, Dir: dir, Worktree: true})
	fetch(t, s)
	commit(t, s, "one", put("a", "a\n"), put("b", "b\n"))
	push(t, s)
	if _, err := s.UpdateWorktree(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir+"/worktree/beside", "a person's\n")
	other := open(t, Options{URL: bare, Dir: filepath.Join(t.TempDir(), "other")})
	fetch(t, other)
	commit(t, other, "two", Edit{Path: "b", Delete: true})
	push(t, other)

	writeFile(t, dir+"/repo.git/config", "[core\n")
	s = open(t, Options{URL: bare, Dir: dir, Worktree: true})
	fetch(t, s)
	if _, err := s.UpdateWorktree(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a": "a\n", "beside": "a person's\n"}
	if diff := cmp.Diff(want, diskFiles(t, dir+"/worktree")); diff != "" {
		t.Errorf("worktree (-want +got):\n%s", diff)
	}
}

// TestKeepDamagedRef: a ref that is named only after Open is damaged.
func TestKeepDamagedRef(t *testing.T) {
	bare, dir := bareRepo(t), filepath.Join(t.TempDir(), "cache")
	const ref = "refs/crmirror/test/base"
	for range 2 {
		s := open(t, Options{URL: bare, Dir: dir})
		if err := s.KeepRefs(ref); err != nil {
			t.Fatal(err)
		}
		fetch(t, s)
		commit(t, s, "one", put("a", "a\n"))
		want, err := s.Base(t.Context(), ref, "base", when)
		if err != nil {
			t.Fatal(err)
		}
		push(t, s)
		if got := git(t, bare, "rev-parse", ref); got != want.String() {
			t.Errorf("%s at the remote: %s, want %s", ref, got, want)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		truncate(t, filepath.Join(dir, "repo.git", ref), 0)
	}
}

// TestBlobDamage: a file's content in the cache turns out to be unreadable
// only when it is read or pushed.
func TestBlobDamage(t *testing.T) {
	bare := bareRepo(t)
	dir := filepath.Join(t.TempDir(), "cache")
	s := open(t, Options{URL: bare, Dir: dir})
	fetch(t, s)
	hashes, err := s.PutBlobs([][]byte{[]byte(strings.Repeat("x", 5000))})
	if err != nil {
		t.Fatal(err)
	}
	commit(t, s, "one", Edit{Path: "a", Blob: hashes[0]})
	err = filepath.WalkDir(dir+"/repo.git/objects/pack", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".pack") {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i := 18; i < len(b)-20; i++ { // the first entry's header stays
			b[i] ^= 0x55
		}
		if err := os.Chmod(path, 0o644); err != nil {
			return err
		}
		return os.WriteFile(path, b, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Push(t.Context()); err == nil {
		t.Fatal("Push of damaged objects succeeded")
	}
	fetch(t, s)
	commit(t, s, "one", put("a", strings.Repeat("x", 5000)))
	push(t, s)
	cloneFiles(t, bare)
}

// TestInUse: two processes never share one cache.
func TestInUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	open(t, Options{URL: bareRepo(t), Dir: dir})
	_, err := Open(t.Context(), Options{URL: "file:///x", Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "in use by another crmirror") {
		t.Errorf("second Open: %v", err)
	}
}

// TestCloseUnlocks: a store can be opened as soon as it is closed, even while a child process that
// was forked meanwhile still has the lock's file.
func TestCloseUnlocks(t *testing.T) {
	opts := Options{URL: bareRepo(t), Dir: filepath.Join(t.TempDir(), "cache")}
	s := open(t, opts)
	child := exec.CommandContext(t.Context(), "cat")
	child.ExtraFiles = []*os.File{s.lock}
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, opts)
	if err := errors.Join(stdin.Close(), child.Wait()); err != nil {
		t.Error(err)
	}
}

// TestKilledWhileWriting puts the repository into the state that a kill leaves
// at each step of a commit and goes on from there. That the steps come in this
// order is what TestOrderOfNames sees.
func TestKilledWhileWriting(t *testing.T) {
	for _, own := range []bool{false, true} {
		bare := bareRepo(t)
		before, after := filepath.Join(t.TempDir(), "before"), filepath.Join(t.TempDir(), "after")
		o := Options{URL: bare, Dir: before}
		repo := "repo.git"
		if own {
			o.URL, repo = "", ".git"
		}
		s := open(t, o)
		fetch(t, s)
		first := commit(t, s, "one", put("a", "1\n"))
		push(t, s)
		update(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(after, os.DirFS(before)); err != nil {
			t.Fatal(err)
		}
		o.Dir = after
		s = open(t, o)
		second := commit(t, s, "two", put("a", "2\n"))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		var packName string
		for _, path := range globAll(t, after, repo+"/objects/pack/*.pack") {
			if _, err := os.Stat(filepath.Join(before, path)); err != nil {
				packName = path
			}
		}
		idxName := strings.TrimSuffix(packName, ".pack") + ".idx"
		ref, tmp := repo+"/refs/heads/main", repo+"/objects/pack/tmp_"
		pack, idx := readFile(t, filepath.Join(after, packName)), readFile(t, filepath.Join(after, idxName))
		states := []struct {
			name  string
			files map[string]string
		}{
			{"pack half written", map[string]string{tmp + "pack_1": pack[:len(pack)/2]}},
			{"index half written", map[string]string{tmp + "pack_1": pack, tmp + "idx_1": idx[:len(idx)/2]}},
			{"pack renamed", map[string]string{packName: pack, tmp + "idx_1": idx}},
			{"index renamed", map[string]string{packName: pack, idxName: idx}},
			{"ref locked", map[string]string{packName: pack, idxName: idx, ref + ".lock": ""}},
			{"ref half written", map[string]string{packName: pack, idxName: idx, ref + ".lock": second.String()[:10]}},
			{"ref moved", map[string]string{packName: pack, idxName: idx, ref: second.String() + "\n", repo + "/" + behindFile: first.String() + "\n"}},
		}
		for _, st := range states {
			if _, locked := st.files[ref+".lock"]; own && locked {
				continue // a person's lock is reported, never removed: TestOwnKinds
			}
			t.Run(st.name, func(t *testing.T) {
				o := o
				o.Dir = filepath.Join(t.TempDir(), "killed")
				if err := os.CopyFS(o.Dir, os.DirFS(before)); err != nil {
					t.Fatal(err)
				}
				for path, content := range st.files {
					writeFile(t, filepath.Join(o.Dir, path), content)
				}
				s := open(t, o)
				if s.Head() != first && s.Head() != second {
					t.Errorf("head %s after a kill", s.Head())
				}
				commit(t, s, "two", put("a", "2\n"))
				commit(t, s, "three", put("a", "3\n"))
				update(t, s)
				git(t, filepath.Join(o.Dir, repo), "fsck", "--strict")
				if got := git(t, filepath.Join(o.Dir, repo), "show", "main:a"); got != "3" {
					t.Errorf("a is %q", got)
				}
				if own {
					if got := git(t, o.Dir, "status", "--porcelain"); got != "" {
						t.Errorf("git status: %s", got)
					}
				}
			})
		}
	}
}

// globAll returns what matches below dir, relative to it.
func globAll(t *testing.T, dir, pattern string) []string {
	t.Helper()
	found, err := fs.Glob(os.DirFS(dir), pattern)
	if err != nil {
		t.Fatal(err)
	}
	return found
}
