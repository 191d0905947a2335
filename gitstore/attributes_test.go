package gitstore

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

// TestFilteredPaths: files that git would filter are refused by name, at Open
// where that can be told, and others' filters are none of our business.
func TestFilteredPaths(t *testing.T) {
	tests := []struct {
		name, file, content string
		open, commit        bool   // which one is refused
		says                string // by the error
	}{
		{"LFS for all", ".gitattributes", "* filter=lfs diff=lfs -text\n", true, true, "filter=lfs"},
		{"git-crypt", ".gitattributes", "p/** filter=git-crypt diff=git-crypt\n", true, true, "filter=git-crypt"},
		{"by a macro", ".gitattributes", "[attr]big filter=lfs diff=lfs\np/** big\n", true, true, "filter=lfs"},
		{"with more said later", ".gitattributes", "p/** filter=git-crypt\n*.yaml diff=yaml text\n", true, true, "filter=git-crypt"},
		{"taken back", ".gitattributes", "* filter=lfs\np/** -filter\n", false, false, ""},
		{"elsewhere", ".gitattributes", "*.png filter=lfs\nq/** filter=lfs\n", false, false, ""},
		{"in our folder", "p/.gitattributes", "*.yaml filter=git-crypt\n", true, true, "p/.gitattributes"},
		{"in a folder below", "p/n/.gitattributes", "* filter=git-crypt\n", false, true, "p/n/.gitattributes"},
		{"beside the repository", ".git/info/attributes", "p/** filter=git-crypt\n", true, true, "info/attributes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir, s := ownRepo(t)
			writeFile(t, filepath.Join(dir, tt.file), tt.content)
			if !strings.HasPrefix(tt.file, ".git/") {
				git(t, dir, "add", tt.file)
				git(t, dir, "commit", "-q", "-m", "attributes")
			}
			check := func(what string, err error, want bool) {
				t.Helper()
				if !want && err != nil || want && (!errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), tt.says)) {
					t.Errorf("%s: %v, want refused: %v, with %q", what, err, want, tt.says)
				}
			}
			check("Fetch", s.Fetch(t.Context()), tt.open)
			_, err := s.Commit(t.Context(), Commit{Edits: []Edit{put("n/x.yaml", "x\n")}, Message: "ours", When: when})
			check("Commit", err, tt.commit)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s, err = Open(t.Context(), Options{Dir: dir, Path: "p"})
			check("Open", err, tt.open)
			if err == nil {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
