package gitstore

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
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
