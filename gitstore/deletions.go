package gitstore

import (
	"context"
	"fmt"
	"time"

	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/crmirror/crmirror/gitstore/object"
)

// Deletion is a file that a commit took away.
type Deletion struct {
	Path   string // relative to Options.Path
	Commit Hash
	Info   CommitInfo
	Last   Hash // the commit before, which has the file still
	Blob   Hash // what it was
}

// Deletions calls fn for every file below Options.Path that a commit took away, newest
// first and by path within one, until fn returns false. It goes along first parents
// from a commit that is here, as far as to the first one committed before a time (zero: to the
// beginning); a merge counts as one change. A file that became a folder, a
// symlink or a submodule is gone, too. No blob is read, and no tree that did not change.
//
// ErrShallow, after all that is known was told, when history here ends early.
func (s *Store) Deletions(ctx context.Context, from Hash, since time.Time, fn func(Deletion) bool) error {
	w := deletionWalk{s: s, since: since, finder: s.newFinder(s.opts.Path), trees: map[Hash][]byte{}, fn: fn}
	err := s.firstParents(ctx, from, w.step)
	if err == nil {
		err = w.err
	}
	if err != nil {
		return fmt.Errorf("read the history of %s: %w", s.branch, s.distrust(err))
	}
	return nil
}

// keptTrees bounds the bytes of trees kept for the next commits of a walk.
const keptTrees = 32 << 20

// deletionWalk compares each commit with the one before it on the walk, which is its child.
type deletionWalk struct {
	s      *Store
	since  time.Time
	finder *finder
	child  *commitRead
	info   *CommitInfo  // of child; nil before it is needed
	below  object.Entry // what lies at Options.Path in child
	trees  map[Hash][]byte
	kept   int // bytes in trees
	fn     func(Deletion) bool
	err    error
}

func (w *deletionWalk) step(c *commitRead) bool {
	below, err := w.finder.find(c.root)
	if err != nil {
		w.err = err
		return false
	}
	goOn := true
	if w.child != nil {
		d := Deletion{Commit: w.child.hash, Last: c.hash}
		goOn, w.err = w.compare("", folder(below), folder(w.below), d)
	}
	if !w.since.IsZero() && time.Unix(commitTime(c.content), 0).Before(w.since) {
		return false
	}
	w.child, w.info, w.below = c, nil, below
	return goOn && w.err == nil
}

// folder is the hash of an entry that is a folder, else the empty tree's.
func folder(e object.Entry) Hash {
	if e.Mode != filemode.Dir {
		return object.EmptyTree
	}
	return e.Hash
}

// compare tells of the files of a tree that another lacks in the same place; d says in which commits.
func (w *deletionWalk) compare(prefix string, old, new Hash, d Deletion) (goOn bool, err error) {
	if old == new || old == object.EmptyTree {
		return true, nil
	}
	was, err := w.tree(old)
	if err != nil {
		return false, err
	}
	is, err := w.tree(new)
	if err != nil {
		return false, err
	}
	for c, err := range object.Compared(was, is) {
		if err != nil {
			return false, fmt.Errorf("compare trees %s and %s: %w", old, new, err)
		}
		switch {
		case c.Old.Mode == filemode.Dir:
			goOn, err = w.compare(prefix+c.Old.Name+"/", c.Old.Hash, folder(c.New), d)
		case isFile(c.Old.Mode) && !isFile(c.New.Mode):
			if w.info == nil {
				info := infoOf(w.child.parents, w.child.content)
				w.info = &info
			}
			d.Info, d.Path, d.Blob = *w.info, prefix+c.Old.Name, c.Old.Hash
			goOn = w.fn(d)
		default:
			goOn = true
		}
		if err != nil || !goOn {
			return false, err
		}
	}
	return true, nil
}

func isFile(mode filemode.FileMode) bool {
	return mode == filemode.Regular || mode == filemode.Executable || mode == filemode.Deprecated
}

// tree returns the content of a tree, from memory if it was read lately.
func (w *deletionWalk) tree(h Hash) ([]byte, error) {
	if h == object.EmptyTree {
		return nil, nil
	}
	if content, ok := w.trees[h]; ok {
		return content, nil
	}
	t, content, err := w.s.db.Read(h)
	if err != nil {
		return nil, err
	}
	if t != object.Tree {
		return nil, fmt.Errorf("read tree %s: it is a %s", h, t)
	}
	if w.kept += len(content); w.kept > keptTrees {
		clear(w.trees)
		w.kept = len(content)
	}
	w.trees[h] = content
	return content, nil
}
