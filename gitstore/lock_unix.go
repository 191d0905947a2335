//go:build unix

package gitstore

import (
	"errors"
	"os"
	"syscall"
)

// lockFile takes a lock that the kernel lets go of when the process dies,
// however it dies.
func lockFile(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrInUse
	}
	return err
}

// unlockFile lets go of the lock. Closing the file alone does not, as long as a child
// process has it too: for a moment after the fork every child does.
func unlockFile(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
}
