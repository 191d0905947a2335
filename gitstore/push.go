package gitstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/crmirror/crmirror/gitstore/remote"
)

// Push sends everything that the remote lacks, the branch and all changed
// refs, in one session, atomically when the server can. Each ref is moved from
// what Fetch or the last Push saw, so nothing of anybody else is overwritten:
// ErrDiverged then. Several commits go out together. Without a remote, as in a
// person's repository that has none, it does nothing. From a person's repository
// whose remote has commits that it lacks, it is ErrBehind: only the person can
// bring them in.
func (s *Store) Push(ctx context.Context) error {
	if s.remote == nil {
		return nil
	}
	if s.layout.own {
		return s.pushOwn(ctx)
	}
	return s.pushCache(ctx, false)
}

// PushIf is Push that succeeds only if the branch and every one of Options.Refs
// are, at the remote, what Fetch or the last Push saw, those that it does not
// move included: what was derived from them was derived from the present. All of
// it happens together or not at all. Of a ref that is absent there and that it does
// not make, git's protocol cannot say so. With nothing to move it asks nothing. Errors besides Push's: ErrNotAtomic.
func (s *Store) PushIf(ctx context.Context) error {
	if s.remote == nil || s.layout.own {
		return fmt.Errorf("push %s: %w: only the clone of a remote can", s.branch, ErrUnsupported)
	}
	return s.pushCache(ctx, true)
}

// pushCache pushes from a cache, on condition that nothing moved or not, and notes what
// the remote has from then on.
func (s *Store) pushCache(ctx context.Context, unmoved bool) error {
	if s.known == nil {
		return errors.New("push: nothing is known of the remote yet; fetch first")
	}
	commands := s.commands()
	if len(commands) == 0 {
		return nil
	}
	if unmoved {
		commands = append(commands, s.conditions(commands)...)
	}
	request := s.request(commands, s.unsent)
	request.MustBeAtomic = unmoved
	if err := s.remote.Push(ctx, request); err != nil {
		return s.distrust(fmt.Errorf("push %s: %w", s.branch, err))
	}
	for _, c := range commands {
		s.known[c.Ref] = c.New
	}
	s.unsent = newUnsent()
	s.dropSuperseded()
	s.compact()
	return nil
}

// conditions are commands that move nothing, for the refs that the others do not move.
func (s *Store) conditions(commands []remote.Command) []remote.Command {
	var rest []remote.Command
	for name, at := range s.known {
		moved := slices.ContainsFunc(commands, func(c remote.Command) bool { return c.Ref == name })
		if !moved && !at.IsZero() {
			rest = append(rest, remote.Command{Ref: name, Old: at, New: at})
		}
	}
	return rest
}

func (s *Store) request(commands []remote.Command, objects *unsent) remote.PushRequest {
	return remote.PushRequest{
		Commands: commands,
		Atomic:   true,
		Pack:     func(w io.Writer, thin bool) error { return objects.write(w, s.db, thin) },
	}
}

// commands says how the remote's refs become ours.
func (s *Store) commands() []remote.Command {
	var commands []remote.Command
	add := func(name string, to Hash) {
		if old := s.known[name]; old != to {
			commands = append(commands, remote.Command{Ref: name, Old: old, New: to})
		}
	}
	if !s.head.IsZero() {
		add(branchRef(s.branch), s.head)
	}
	for _, name := range s.opts.Refs {
		add(name, s.local[name])
	}
	return commands
}
