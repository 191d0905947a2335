package gitstore

import (
	"context"
	"errors"
	"fmt"
	"io"

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
	if s.known == nil {
		return errors.New("push: nothing is known of the remote yet; fetch first")
	}
	commands := s.commands()
	if len(commands) == 0 {
		return nil
	}
	if err := s.remote.Push(ctx, s.request(commands, s.unsent)); err != nil {
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
