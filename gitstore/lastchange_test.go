package gitstore

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLastChanges: each file's newest commit that changed its content, be it deep in the
// history; a file that is gone has the one that took it away, and one that never was has none.
func TestLastChanges(t *testing.T) {
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
	got := map[string]string{}
	for path, c := range s.LastChanges([]string{"a/old", "a/gone", "a/new", "b", "never"}) {
		got[path] = c.Commit
		if c.Author == "" || !c.When.Equal(when) {
			t.Errorf("%s: by %q at %v", path, c.Author, c.When)
		}
	}
	want := map[string]string{"a/old": first, "a/gone": took, "a/new": later, "b": last}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
