package gitstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/tree"
)

// pushOwn is Push from a person's repository to its remote. What the remote has
// is asked there, unless it is known from the last push; what it lacks is found by
// walking history, because commits may be anybody's.
func (s *Store) pushOwn(ctx context.Context) error {
	if len(s.theirs) > 0 && !s.arrived(s.theirs) {
		theirs := s.theirs
		s.theirs = nil
		err := s.pushBeyond(ctx, theirs)
		if !errors.Is(err, ErrDiverged) && !errors.Is(err, ErrBehind) {
			return err
		}
		// Somebody pushed, here or elsewhere: ask.
	}
	session, err := s.remote.Open(ctx)
	if err != nil {
		return fmt.Errorf("push %s: %w", s.branch, err)
	}
	advertised := session.Refs.Hashes
	if err := session.Close(); err != nil {
		return fmt.Errorf("push %s: %w", s.branch, err)
	}
	return s.pushBeyond(ctx, advertised)
}

// arrived tells whether refs that the remote is known to have are ours already.
func (s *Store) arrived(theirs map[string]Hash) bool {
	for _, name := range s.opts.Refs {
		if theirs[name] != s.local[name] {
			return false
		}
	}
	return theirs[branchRef(s.branch)] == s.head
}

// pushBeyond pushes to a remote that has these refs what it lacks.
func (s *Store) pushBeyond(ctx context.Context, theirs map[string]Hash) error {
	if err := s.expect(theirs); err != nil {
		return fmt.Errorf("push %s: %w", s.branch, err)
	}
	commands := s.commands()
	if len(commands) == 0 {
		return nil
	}
	var tips []Hash
	for _, c := range commands {
		tips = append(tips, c.New)
	}
	lacking, err := s.lacking(tips, slices.Collect(maps.Values(theirs)))
	if err != nil {
		return fmt.Errorf("push %s: %w", s.branch, err)
	}
	objects := newUnsent()
	for _, h := range lacking {
		if err := s.collectCommit(h, objects); err != nil {
			return fmt.Errorf("push %s: %w", s.branch, err)
		}
	}
	if err := s.remote.Push(ctx, s.request(commands, objects)); err != nil {
		return fmt.Errorf("push %s: %w", s.branch, err)
	}
	s.theirs = maps.Clone(s.known)
	for _, c := range commands {
		s.theirs[c.Ref] = c.New
		if c.Ref != branchRef(s.branch) {
			s.origin[c.Ref] = c.New
		}
	}
	s.compact()
	return nil
}

// expect sets what the remote's refs are expected to be: the branch what it
// is, as long as our history contains that, and the others what was read last.
// One that was never read and is there is ErrDiverged, whatever is here.
func (s *Store) expect(advertised map[string]Hash) error {
	s.known = map[string]Hash{}
	if old := advertised[branchRef(s.branch)]; !old.IsZero() {
		s.known[branchRef(s.branch)] = old
		ours, err := s.contains(s.head, old)
		if err != nil {
			return err
		}
		if !ours {
			return fmt.Errorf("%s: %w: it has commits that %s lacks; bring them in with: git -C %s pull --rebase",
				s.remote, ErrBehind, s.opts.Dir, s.opts.Dir)
		}
	}
	for _, name := range s.opts.Refs {
		was, read := s.origin[name]
		if theirs := advertised[name]; theirs != was && theirs != s.local[name] {
			return fmt.Errorf("%s: %w: %s is not what was last read", s.remote, ErrDiverged, name)
		}
		if read || !advertised[name].IsZero() {
			s.known[name] = advertised[name]
		}
	}
	return nil
}

// collectCommit adds a commit and what its tree has beyond its first parent's.
func (s *Store) collectCommit(h Hash, out *unsent) error {
	now, err := s.treeOf(h)
	if err != nil {
		return err
	}
	_, parents, err := s.commitTree(h)
	if err != nil {
		return err
	}
	var before tree.Tree
	if len(parents) > 0 {
		if before, err = s.treeOf(parents[0]); err != nil {
			return err
		}
	}
	tree.News(before, now, func(h, base Hash, kind object.Type) {
		out.add([]send{{hash: h, kind: kind, base: base}})
	})
	out.add([]send{{hash: h, kind: object.Commit}})
	return nil
}
