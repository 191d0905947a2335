package refs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// ErrLocked says that a lock file of another git process stands in the way.
var ErrLocked = errors.New("is locked")

// pollLock is how often a lock that is held is looked at again.
const pollLock = 50 * time.Millisecond

// File is a file being replaced under git's locking rule: NAME.lock is created
// exclusively, filled, and renamed to NAME.
type File struct {
	name string
	f    *os.File
	done bool
}

// Lock takes NAME.lock, waiting at most wait for somebody else to let go of
// it. After that the error is ErrLocked and says which file it is.
func Lock(ctx context.Context, name string, wait time.Duration) (*File, error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, ErrLocked)
	defer cancel()
	tick := time.NewTicker(pollLock)
	defer tick.Stop()
	for {
		f, err := os.OpenFile(name+".lock", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if err == nil {
			return &File{name: name, f: f}, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, ErrLocked) {
				return nil, cause
			}
			return nil, fmt.Errorf("%s %w by another git process; if none is running, remove %s.lock", name, ErrLocked, name)
		case <-tick.C:
		}
	}
}

// Write adds bytes to what will replace the file.
func (l *File) Write(b []byte) (int, error) { return l.f.Write(b) }

// Commit makes the new content durable and moves it in place.
func (l *File) Commit() error {
	l.done = true
	if err := l.f.Sync(); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", l.name, err), l.drop())
	}
	if err := l.f.Close(); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", l.name, err), l.drop())
	}
	if err := os.Rename(l.f.Name(), l.name); err != nil {
		return errors.Join(err, l.drop())
	}
	return syncDir(filepath.Dir(l.name))
}

// Abort lets go of the lock and leaves the file as it was. After Commit it
// does nothing.
func (l *File) Abort() error {
	if l.done {
		return nil
	}
	l.done = true
	return l.drop()
}

func (l *File) drop() error {
	err := l.f.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	return errors.Join(err, os.Remove(l.f.Name()))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrInvalid) {
		err = nil // a system that cannot orders its renames itself
	}
	return errors.Join(err, d.Close())
}
