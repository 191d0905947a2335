package gitstore

import (
	"io/fs"
	"os"
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
			git(t, remoteCopy, "fsck", "--strict")
			if got := git(t, remoteCopy, "log", "--format=%s", "main"); got != "three\ntwo\none" {
				t.Errorf("log: %s", got)
			}
		})
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
	pack := glob(t, dir+"/repo.git/objects/pack/*.pack")
	for _, p := range []string{pack} {
		if err := os.Chmod(p, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	err = filepath.WalkDir(dir+"/repo.git/objects/pack", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".pack") {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i := 14; i < len(b)-20; i++ {
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
