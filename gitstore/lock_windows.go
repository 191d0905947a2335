package gitstore

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockFile takes a lock that the kernel lets go of when the process dies,
// however it dies.
func lockFile(f *os.File) error {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &windows.Overlapped{})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrInUse
	}
	return err
}

// unlockFile does nothing: no child process has the file, and closing it lets go of the lock.
func unlockFile(*os.File) error { return nil }
