package worktree

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestIndexAsGitWritesIt reads indexes of all versions and writes them back;
// git sees the same.
func TestIndexAsGitWritesIt(t *testing.T) {
	run := func(dir string, args ...string) string {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	for _, version := range []string{"2", "3", "4"} {
		dir := t.TempDir()
		run(dir, "init", "-q")
		for _, name := range []string{"a", "a/b", strings.Repeat("long/", 50) + "x", "z"} {
			path := filepath.Join(dir, "files", name, "f")
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(name), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		run(dir, "add", ".")
		run(dir, "update-index", "--index-version", version)
		run(dir, "update-index", "--assume-unchanged", "files/a/f")
		if version != "2" {
			run(dir, "update-index", "--skip-worktree", "files/z/f")
		}
		before := run(dir, "ls-files", "-v", "--stage", "--debug")
		file := filepath.Join(dir, ".git", "index")
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		idx, err := decodeIndex(b)
		if err != nil {
			t.Fatalf("version %s: %v", version, err)
		}
		if err := os.WriteFile(file, idx.encode(), 0o644); err != nil {
			t.Fatal(err)
		}
		if after := run(dir, "ls-files", "-v", "--stage", "--debug"); after != before {
			t.Errorf("version %s: git sees\n%s\nwant\n%s", version, after, before)
		}
		for n := range b {
			if _, err := decodeIndex(b[:n]); err == nil {
				t.Errorf("version %s: an index cut at %d of %d was taken", version, n, len(b))
			}
		}
	}
}

func TestIndexMerge(t *testing.T) {
	idx := &index{}
	for _, p := range []string{"b", "d", "f"} {
		idx.entries = append(idx.entries, indexEntry{path: p})
	}
	puts := map[string]indexEntry{"a": {path: "a"}, "d": {path: "d", flags: 1 << 15}, "e": {path: "e"}, "g": {path: "g"}}
	got := idx.merge(puts, map[string]bool{"b": true})
	var s string
	for _, e := range got.entries {
		s += fmt.Sprint(e.path, e.flags>>15, " ")
	}
	if s != "a0 d1 e0 f0 g0 " {
		t.Errorf("merged: %s", s)
	}
}

func FuzzDecodeIndex(f *testing.F) {
	f.Add((&index{entries: []indexEntry{{path: "a"}, {path: "b", ext: extSkip}}}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		idx, err := decodeIndex(b)
		if err != nil {
			return
		}
		again, err := decodeIndex(idx.encode())
		if err != nil || !bytes.Equal(again.encode(), idx.encode()) {
			t.Fatalf("an index that was read does not read back: %v", err)
		}
	})
}
