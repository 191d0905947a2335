package refs

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestCommitSyncs: a ref is not replaced by what is not on disk. A pipe cannot
// be synced, which shows whether that was tried and believed.
func TestCommitSyncs(t *testing.T) {
	name := filepath.Join(t.TempDir(), "main")
	if err := syscall.Mkfifo(name+".lock", 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name+".lock", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := &File{name: name, f: f}
	if err := file.Commit(); err == nil {
		t.Error("Commit: no error for what cannot be synced")
	}
	for _, path := range []string{name, name + ".lock"} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is there", path)
		}
	}
}
