//go:build unix

package gitstore

import (
	"errors"
	"syscall"
)

// isNoSpace reports whether the disk, or a quota, is full.
func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EROFS)
}
