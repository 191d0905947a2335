package odb

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestSettleSyncs: a file gets no name before it is on disk. A pipe cannot be
// synced, which shows whether that was tried and believed.
func TestSettleSyncs(t *testing.T) {
	temp, name := filepath.Join(t.TempDir(), "tmp_pack_1"), filepath.Join(t.TempDir(), "pack")
	if err := syscall.Mkfifo(temp, 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(temp, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := settle(f, name); err == nil {
		t.Error("settle: no error for what cannot be synced")
	}
	if err := discard(f); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(name); err == nil {
		t.Error("what is not on disk got its name")
	}
}
