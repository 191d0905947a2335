package gitstore

import (
	"context"
	"fmt"

	"github.com/go-git/go-git/v5/plumbing/filemode"
)

// Version is a commit in which a file became another one.
type Version struct {
	Commit Hash
	Info   CommitInfo
	Blob   Hash              // zero: the commit took the file away
	Mode   filemode.FileMode // of the file; zero when it went
	Before Hash              // the blob in the commit's first parent; zero: there was none
}

// Versions calls fn for every commit in which the file at a path relative to Options.Path
// became another one, newest first, until fn returns false. It goes along first parents
// from a commit that is here: a merge counts as one change. No blob is read, and no
// tree that did not change.
//
// ErrShallow, after all that is known was told, when history here ends before the file's does.
func (s *Store) Versions(ctx context.Context, from Hash, path string, fn func(Version) bool) error {
	w := fileWalk{finder: s.newFinder(s.full(path))}
	err := s.firstParents(ctx, from, func(c *commitRead) bool { return w.step(c, fn) })
	if err == nil {
		err = w.end(fn)
	}
	if err != nil {
		return fmt.Errorf("read the history of %s: %w", s.full(path), s.distrust(err))
	}
	return nil
}

// fileWalk compares a file between each commit and the one before it on the walk, which is its child.
type fileWalk struct {
	finder *finder
	child  *commitRead
	file   TreeFile // in child
	err    error
	done   bool
}

// step looks at the next commit, and tells of the one before if the file differs.
func (w *fileWalk) step(c *commitRead, fn func(Version) bool) bool {
	e, err := w.finder.find(c.root)
	if err != nil {
		w.err = err
		return false
	}
	file := TreeFile{Blob: e.Hash, Mode: e.Mode}
	if e.Mode == filemode.Dir {
		file = TreeFile{}
	}
	goOn := true
	if w.child != nil && file != w.file {
		goOn = fn(w.version(file.Blob))
	}
	w.child, w.file, w.done = c, file, !goOn
	return goOn
}

// end tells of the oldest commit, which has no parent.
func (w *fileWalk) end(fn func(Version) bool) error {
	if w.err == nil && !w.done && w.child != nil && w.file != (TreeFile{}) {
		fn(w.version(Hash{}))
	}
	return w.err
}

func (w *fileWalk) version(before Hash) Version {
	return Version{Commit: w.child.hash, Info: infoOf(w.child.parents, w.child.content), Blob: w.file.Blob, Mode: w.file.Mode, Before: before}
}
