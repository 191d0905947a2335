package refs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// ErrLocked says that a lock file of another git process stands in the way.
var ErrLocked = errors.New("is locked")

// pollLock is how often a lock that is held is looked at again.
const pollLock = 50 * time.Millisecond

// Locks takes locks in one repository.
type Locks struct {
	// Wait bounds how long a lock that somebody else holds is waited for.
	Wait time.Duration
	// Marks is a folder in which each lock has a second name while it is held, a
	// hard link, by which one that a killed process of ours left is told from
	// git's. Only one process may use the folder. Empty for none.
	Marks string
}

// markPrefix begins the names in Locks.Marks.
const markPrefix = "crmirror-lock-"

// File is a file being replaced under git's locking rule: NAME.lock is created
// exclusively, filled, and renamed to NAME.
type File struct {
	name string
	mark string // second name of NAME.lock; "" for none
	f    *os.File
	done bool
}

// Lock takes NAME.lock, waiting at most l.Wait for somebody else to let go of
// it. After that the error is ErrLocked and says which file it is.
func (l Locks) Lock(ctx context.Context, name string) (*File, error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, l.Wait, ErrLocked)
	defer cancel()
	tick := time.NewTicker(pollLock)
	defer tick.Stop()
	for {
		file, err := l.try(name)
		if err == nil {
			return file, nil
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

// try takes NAME.lock if nobody has it. With marks it is born under both names
// at once: first the mark, then the link to it, which fails if there is one.
func (l Locks) try(name string) (*File, error) {
	create := func(path string) (*os.File, error) {
		return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	}
	if l.Marks != "" {
		mark := filepath.Join(l.Marks, markPrefix+rand.Text())
		f, err := create(mark)
		if err != nil {
			return nil, err
		}
		file := &File{name: name, mark: mark, f: f}
		err = os.Link(mark, name+".lock")
		if err == nil {
			return file, nil
		}
		if dropErr := errors.Join(f.Close(), os.Remove(mark)); dropErr != nil || errors.Is(err, fs.ErrExist) {
			return nil, errors.Join(err, dropErr)
		}
		// A file system without hard links: there, a killed lock stays.
	}
	f, err := create(name + ".lock")
	if err != nil {
		return nil, err
	}
	return &File{name: name, f: f}, nil
}

// Sweep removes the locks below dirs that a killed process of ours left, and no
// other.
//
// Invariant: a lock is removed only if it is the same file as a mark of ours,
// and nobody else works with these marks. Test: TestSweep.
func (l Locks) Sweep(dirs ...string) error {
	entries, err := os.ReadDir(l.Marks)
	if err != nil {
		return err
	}
	var marks []string
	var left []fs.FileInfo
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), markPrefix) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // let go of since
		}
		if err != nil {
			return err
		}
		marks, left = append(marks, filepath.Join(l.Marks, e.Name())), append(left, info)
	}
	if len(marks) == 0 {
		return nil
	}
	for _, dir := range dirs {
		if err := removeSame(dir, left); err != nil {
			return err
		}
	}
	for _, mark := range marks {
		if err := os.Remove(mark); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// removeSame removes the locks in a git folder that are one of files.
func removeSame(dir string, files []fs.FileInfo) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && e.Name() == "objects":
			return fs.SkipDir // large, and we lock nothing in there
		case e.IsDir() || !strings.HasSuffix(path, ".lock"):
			return nil
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // git's, and done with
		}
		if err != nil {
			return err
		}
		if slices.ContainsFunc(files, func(f fs.FileInfo) bool { return os.SameFile(f, info) }) {
			return os.Remove(path)
		}
		return nil
	})
}

// Write adds bytes to what will replace the file.
func (l *File) Write(b []byte) (int, error) { return l.f.Write(b) }

// Commit makes the new content durable and moves it in place.
//
// Invariant: the file is never seen with a content that is not on disk.
// Test: TestCommitSyncs.
func (l *File) Commit() error {
	l.done = true
	if err := l.f.Sync(); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", l.name, err), l.drop())
	}
	if err := l.f.Close(); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", l.name, err), l.drop())
	}
	if err := os.Rename(l.name+".lock", l.name); err != nil {
		return errors.Join(err, l.drop())
	}
	return errors.Join(l.unmark(), syncDir(filepath.Dir(l.name)))
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
	// The mark goes last: as long as the lock is there, it is known as ours.
	return errors.Join(err, os.Remove(l.name+".lock"), l.unmark())
}

func (l *File) unmark() error {
	if l.mark == "" {
		return nil
	}
	return os.Remove(l.mark)
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
