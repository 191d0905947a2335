package gitstore

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFileChanges: each file's commits that changed its content, newest first, be they deep in the
// history, until one is enough; a file that is gone begins with the one that took it away, and
// one that never was has none.
func TestFileChanges(t *testing.T) {
	s := open(t, Options{URL: bareRepo(t), Dir: filepath.Join(t.TempDir(), "cache"), Path: "top", History: true})
	fetch(t, s)
	commit := func(edits ...Edit) string {
		h, err := s.Commit(t.Context(), Commit{Edits: edits, Message: "change", When: when})
		if err != nil {
			t.Fatal(err)
		}
		return h.String()[:10]
	}
	first := commit(put("a/old", "1"), put("a/gone", "1"), put("b", "1"))
	took := commit(Edit{Path: "a/gone", Delete: true})
	later := commit(put("b", "2"), put("a/new", "1"))
	last := commit(put("b", "3"))
	got := map[string][]string{}
	s.FileChanges([]string{"a/old", "a/gone", "a/new", "b", "never"}, func(path string, c Change, was, is Hash) bool {
		got[path] = append(got[path], c.Commit)
		if c.Author == "" || !c.When.Equal(when) || was == is || path == "a/gone" && c.Commit == took && !is.IsZero() {
			t.Errorf("%s: by %q at %v, %s to %s", path, c.Author, c.When, was, is)
		}
		return c.Commit == later
	})
	want := map[string][]string{"a/old": {first}, "a/gone": {took, first}, "a/new": {later}, "b": {last, later}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
