package gitstore

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestBaseStoredAlong: a commit that is told of the base that follows stores both
// as one pack, with the content that Base gives it without.
func TestBaseStoredAlong(t *testing.T) {
	const ref, message = "refs/crmirror/test/base", "agree"
	for _, path := range []string{"", "clusters/a"} {
		var bases []Hash
		for _, along := range []string{"", message, "another message"} {
			bare := bareRepo(t)
			s := open(t, Options{URL: bare, Dir: filepath.Join(t.TempDir(), "cache"), Path: path, Refs: []string{ref}})
			fetch(t, s)
			c := Commit{Edits: []Edit{put("a/b", "b\n"), put("c", "c\n")}, Message: "one", When: when, BaseMessage: along}
			if _, err := s.Commit(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if got := len(globAll(t, s.layout.git, "objects/pack/*.pack")); got != 1 {
				t.Errorf("path %q, told %q: %d packs after the commit", path, along, got)
			}
			h, err := s.Base(t.Context(), ref, message, when)
			if err != nil {
				t.Fatal(err)
			}
			bases = append(bases, h)
			want := 2
			if along == message {
				want = 1
			}
			if got := len(globAll(t, s.layout.git, "objects/pack/*.pack")); got != want {
				t.Errorf("path %q, told %q: %d packs after the base, want %d", path, along, got, want)
			}
			push(t, s)
			git(t, bare, "fsck", "--strict")
			inBase := git(t, bare, "ls-tree", "-r", "--name-only", ref)
			if want := strings.Join([]string{s.FullPath("a/b"), s.FullPath("c")}, "\n"); inBase != want {
				t.Errorf("path %q, told %q: the base has %q, want %q", path, along, inBase, want)
			}
		}
		if bases[0] != bases[1] || bases[0] != bases[2] {
			t.Errorf("path %q: the base is %s, told beforehand %s", path, bases[0], bases[1:])
		}
	}
}
