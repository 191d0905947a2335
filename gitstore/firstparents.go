package gitstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/crmirror/crmirror/gitstore/object"
)

// commitRead is a commit on a walk along first parents.
type commitRead struct {
	hash    Hash
	root    Hash // its tree
	parents []Hash
	content []byte
}

func (s *Store) readCommit(h Hash) (*commitRead, error) {
	t, content, err := s.db.Read(h)
	if err != nil {
		return nil, err
	}
	if t != object.Commit {
		return nil, fmt.Errorf("read commit %s: it is a %s", h, t)
	}
	root, parents, err := object.DecodeCommit(content)
	if err != nil {
		return nil, fmt.Errorf("read commit %s: %w", h, err)
	}
	return &commitRead{hash: h, root: root, parents: parents, content: content}, nil
}

// firstParents calls fn for a commit and what lies before it along first parents, until fn
// returns false. Where history here ends though the commits have parents, it is ErrShallow.
func (s *Store) firstParents(ctx context.Context, from Hash, fn func(*commitRead) bool) error {
	defer s.db.DropCaches()
	for last, at := (Hash{}), from; !at.IsZero(); {
		if err := ctx.Err(); err != nil {
			return err
		}
		c, err := s.readCommit(at)
		if errors.Is(err, ErrMissing) && !last.IsZero() {
			return s.endOfHistory(last, err)
		}
		if err != nil {
			return s.distrust(err)
		}
		if !fn(c) {
			return nil
		}
		last, at = at, Hash{}
		if len(c.parents) > 0 {
			at = c.parents[0]
		}
	}
	return nil
}

// endOfHistory is why the parent of a commit is not here.
func (s *Store) endOfHistory(last Hash, missing error) error {
	ends, err := s.readShallow()
	switch {
	case err != nil:
		return err
	case !slices.Contains(ends, last) && s.layout.own:
		return s.ownDamage(missing)
	case !slices.Contains(ends, last):
		return s.distrust(missing)
	case s.layout.own:
		return fmt.Errorf("%w: it begins with commit %s; get the rest with: git -C %s fetch --unshallow", ErrShallow, last, s.opts.Dir)
	}
	return fmt.Errorf("%w: it begins with commit %s", ErrShallow, last)
}

// finder looks one path up in many root trees. It reads a tree once only, and of
// each folder on the way no more than it has to.
type finder struct {
	s     *Store
	names []string
	seen  []map[Hash]object.Entry // for each name, by the folder's hash
}

func (s *Store) newFinder(path string) *finder {
	f := &finder{s: s}
	if path != "" {
		f.names = strings.Split(path, "/")
	}
	for range f.names {
		f.seen = append(f.seen, map[Hash]object.Entry{})
	}
	return f
}

// find returns what lies at the path below a root tree; a zero entry is nothing.
func (f *finder) find(root Hash) (object.Entry, error) {
	at := object.Entry{Mode: filemode.Dir, Hash: root}
	for i, name := range f.names {
		if at.Mode != filemode.Dir {
			return object.Entry{}, nil
		}
		next, ok := f.seen[i][at.Hash]
		if !ok {
			var err error
			if next, err = f.s.entryIn(at.Hash, name); err != nil {
				return object.Entry{}, err
			}
			f.seen[i][at.Hash] = next
		}
		at = next
	}
	return at, nil
}

// entryIn returns the entry of that name in a tree; zero for none.
func (s *Store) entryIn(h Hash, name string) (object.Entry, error) {
	if h == object.EmptyTree {
		return object.Entry{}, nil
	}
	t, content, err := s.db.Read(h)
	if err != nil {
		return object.Entry{}, err
	}
	if t != object.Tree {
		return object.Entry{}, fmt.Errorf("read tree %s: it is a %s", h, t)
	}
	e, err := object.FindEntry(content, name)
	if err != nil {
		return object.Entry{}, fmt.Errorf("read tree %s: %w", h, err)
	}
	return e, nil
}
