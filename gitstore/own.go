package gitstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/crmirror/crmirror/gitstore/odb"
	"github.com/crmirror/crmirror/gitstore/pack"
	"github.com/crmirror/crmirror/gitstore/refs"
	"github.com/crmirror/crmirror/gitstore/worktree"
)

// openOwn opens a person's own repository, or makes one where nothing is.
func (s *Store) openOwn(ctx context.Context) error {
	l, found, err := findLayout(s.opts.Dir)
	if err != nil {
		return err
	}
	s.layout = l
	if !found && s.opts.Shared {
		return fmt.Errorf("open repository %s: there is none", s.opts.Dir)
	}
	if !found {
		if err := os.MkdirAll(l.common, 0o777); err != nil {
			return fmt.Errorf("create repository %s: %w", s.opts.Dir, err)
		}
		if err := l.initialize(s.initialBranch(), ""); err != nil {
			return err
		}
	}
	if !s.opts.Shared {
		if err := s.acquire(filepath.Join(l.git, "crmirror.lock")); err != nil {
			return err
		}
	}
	if err := s.attach(); err != nil {
		return s.ownDamage(err)
	}
	if !s.opts.Shared {
		// What a killed crmirror left locked is its own to unlock; git's is not.
		if err := s.refs.Locks.Sweep(l.git, l.common); err != nil {
			return fmt.Errorf("open repository %s: remove locks of a killed crmirror: %w", s.opts.Dir, err)
		}
	}
	if err := s.checkIndex(); err != nil {
		return err
	}
	if err := s.readOwn(ctx); err != nil {
		return err
	}
	if err := s.findOwnRemote(); err != nil {
		return err
	}
	return s.attachWorktree()
}

// fetchOwn is Fetch in a person's repository.
func (s *Store) fetchOwn(ctx context.Context) error {
	was := s.head
	if err := s.readOwn(ctx); err != nil {
		return err
	}
	if was != s.head && !s.opts.Shared {
		// Whoever moved the branch saw to the files. The note that they lag names a
		// commit of before; what it differs in is not ours to carry to disk any more.
		if err := s.unmarkBehind(); err != nil {
			return err
		}
	}
	if s.remote == nil || len(s.opts.Refs) == 0 {
		return nil
	}
	err := s.readOrigin(ctx)
	if err == nil || ctx.Err() != nil || errors.Is(err, ErrDiverged) {
		return err
	}
	// Push will say what is wrong; until then what is here serves.
	s.opts.Log.WithError(err).WithField("remote", s.remote.String()).Warn("refs not read from the remote")
	return nil
}

// checkIndex refuses an index that we could not bring in line after a commit.
func (s *Store) checkIndex() error {
	if s.layout.work == "" {
		return nil
	}
	w := &worktree.Worktree{Dir: s.layout.work, Git: s.layout.git}
	if err := w.Check(); err != nil {
		return fmt.Errorf("open repository %s: %w: %w", s.opts.Dir, ErrUnsupported, err)
	}
	return nil
}

// readOwn reads HEAD and the refs as they are on disk now.
func (s *Store) readOwn(ctx context.Context) error {
	head, err := s.refs.Head()
	if err != nil {
		return s.ownDamage(err)
	}
	if s.branch == "" {
		s.branch = s.opts.Branch
	}
	// HEAD is asked once: a person who checks out another branch does not want
	// our commits there.
	if s.branch == "" {
		if head.Ref == "" {
			return fmt.Errorf("open repository %s: HEAD is detached, so there is no branch to commit to; check one out, or name it in the configuration", s.opts.Dir)
		}
		s.branch = strings.TrimPrefix(head.Ref, "refs/heads/")
	}
	if err := s.loadRefs(); err != nil {
		return s.ownDamage(err)
	}
	if err := s.checkPathInTree(); err != nil {
		return err
	}
	return s.readAttributes(ctx)
}

// ownDamage adds to a person's repository being damaged who can help; we may not.
func (s *Store) ownDamage(err error) error {
	damaged := errors.Is(err, odb.ErrMissing) || errors.Is(err, pack.ErrDamaged) || errors.Is(err, refs.ErrDamaged) || errors.Is(err, ErrDamaged)
	if !damaged {
		return fmt.Errorf("open repository %s: %w", s.opts.Dir, err)
	}
	return fmt.Errorf("open repository %s: %w: %w; it is yours, so crmirror does not repair it; look at: git -C %s fsck", s.opts.Dir, ErrDamaged, err, s.opts.Dir)
}
