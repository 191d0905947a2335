package gitstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/odb"
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
	s.known = map[string]Hash{}
	for _, name := range append([]string{branchRef(s.branch)}, s.opts.Refs...) {
		if h, ok := advertised[name]; ok {
			s.known[name] = h
		}
	}
	commands := s.commands()
	if len(commands) == 0 {
		return nil
	}
	theirs, err := s.ancestors(advertised)
	if err != nil {
		return fmt.Errorf("push %s: %w", s.branch, err)
	}
	if old := s.known[branchRef(s.branch)]; !old.IsZero() {
		ours, err := s.ancestors(map[string]Hash{"": s.head})
		if err != nil {
			return fmt.Errorf("push %s: %w", s.branch, err)
		}
		if !ours[old] {
			return fmt.Errorf("push %s: %s: %w and has commits that %s lacks; bring them in with: git -C %s pull --rebase",
				s.branch, s.remote, ErrDiverged, s.opts.Dir, s.opts.Dir)
		}
	}
	objects := newUnsent()
	for _, c := range commands {
		if err := s.collect(c.New, theirs, objects); err != nil {
			return fmt.Errorf("push %s: %w", s.branch, err)
		}
	}
	if err := s.remote.Push(ctx, s.request(commands, objects)); err != nil {
		return fmt.Errorf("push %s: %w", s.branch, err)
	}
	return nil
}

// ancestors returns all commits that can be reached from those that are here.
func (s *Store) ancestors(from map[string]Hash) (map[Hash]bool, error) {
	seen := map[Hash]bool{}
	var queue []Hash
	for _, h := range from {
		queue = append(queue, h)
	}
	for len(queue) > 0 {
		h := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if h.IsZero() || seen[h] {
			continue
		}
		t, content, err := s.db.Read(h)
		if errors.Is(err, odb.ErrMissing) {
			continue // the remote has what we lack, or history is shallow
		}
		if err != nil {
			return nil, err
		}
		seen[h] = true
		if t != object.Commit {
			continue // a tag
		}
		_, parents, err := object.DecodeCommit(content)
		if err != nil {
			return nil, err
		}
		queue = append(queue, parents...)
	}
	return seen, nil
}

// collect adds the objects of a commit and of its ancestors, down to those
// that the remote has, parents first.
func (s *Store) collect(tip Hash, theirs map[Hash]bool, out *unsent) error {
	if tip.IsZero() || theirs[tip] {
		return nil
	}
	// A commit stays on the stack until its parents are done, so that it comes
	// after all of them, however history forks and joins.
	seen, stack := map[Hash]bool{}, []Hash{tip}
	for len(stack) > 0 {
		h := stack[len(stack)-1]
		if seen[h] {
			stack = stack[:len(stack)-1]
			continue
		}
		_, parents, err := s.commitTree(h)
		if err != nil {
			return err
		}
		waits := len(stack)
		for _, p := range parents {
			if !theirs[p] && !seen[p] {
				stack = append(stack, p)
			}
		}
		if len(stack) > waits {
			continue
		}
		seen[h] = true
		if err := s.collectCommit(h, out); err != nil {
			return err
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
