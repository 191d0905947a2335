package gitstore

import (
	"os"
	"path/filepath"
	"testing"
)

// A person's symbolic link where a folder of ours should be: nothing is written
// through it, it is reported, and git shows no staged reversal of the commit.
func TestSymlinkInTheWorktree(t *testing.T) {
	dir, s := ownRepo(t)
	elsewhere := t.TempDir()
	if err := os.Symlink(elsewhere, filepath.Join(dir, "p", "folder")); err != nil {
		t.Fatal(err)
	}
	commit(t, s, "in a folder", put("folder/a", "1\n"), put("b", "1\n"))
	left := update(t, s)
	if len(left) != 1 || left[0].Path != "folder/a" && left[0].Path != "p/folder/a" {
		t.Errorf("left: %v, want the file behind the link", left)
	}
	if entries, err := os.ReadDir(elsewhere); err != nil || len(entries) != 0 {
		t.Errorf("written through the link: %v, %v", entries, err)
	}
	if staged := git(t, dir, "diff", "--cached", "--name-only"); staged != "" {
		t.Errorf("staged: %s", staged)
	}
}
