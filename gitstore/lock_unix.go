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
