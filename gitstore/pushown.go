package gitstore

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/tree"
)

// pushOwn is Push from a person's repository to its remote. What the remote
// has is asked there; what it lacks is found by walking history, because
// commits may be anybody's.
func (s *Store) pushOwn(ctx context.Context) error {
	session, err := s.remote.Open(ctx)
	if err != nil {
		return fmt.Errorf("push %s: %w", s.branch, err)
	}
	advertised := session.Refs.Hashes
	if err := session.Close(); err != nil {
		return fmt.Errorf("push %s: %w", s.branch, err)
	}
	if err := s.expect(advertised); err != nil {
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
	lacking, err := s.lacking(tips, slices.Collect(maps.Values(advertised)))
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
	for _, c := range commands {
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
