package gitstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/crmirror/crmirror/gitstore/refs"
	"github.com/crmirror/crmirror/gitstore/remote"
)

// readOrigin reads Options.Refs from where a person's repository pushes to, and
// brings those here in line.
//
// Invariant: a ref there is deleted or replaced by a push only if its value
// was read here before, and taken into account. Test: TestOwnRefsOfOthers.
func (s *Store) readOrigin(ctx context.Context) (err error) {
	s.theirs = nil // what the last push left there may have changed
	session, err := s.remote.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	theirs := session.Refs.Hashes
	if err := s.getOrigin(session); err != nil {
		return err
	}
	for _, name := range s.opts.Refs {
		next := s.merged(name, theirs[name])
		if was := s.local[name]; next != was {
			err := s.refs.Update(ctx, name, was, next)
			if errors.Is(err, refs.ErrMoved) {
				return fmt.Errorf("fetch %s: %w: %w", name, ErrDiverged, err)
			}
			if err != nil {
				return fmt.Errorf("fetch: %w", err)
			}
		}
		s.setLocal(name, next)
		s.origin[name] = theirs[name]
	}
	return nil
}

// merged is what a ref becomes that is theirs at the remote: what was changed
// only here stays, to be pushed; else theirs counts. Before a first look a ref
// that is only here counts as made here.
func (s *Store) merged(name string, theirs Hash) Hash {
	ours := s.local[name]
	seen, ok := s.origin[name]
	switch {
	case !ok && theirs.IsZero():
		return ours
	case ok && theirs == seen:
		return ours
	}
	return theirs
}

// getOrigin gets the commits that Options.Refs name at the remote. A person's
// history is never made shallow by it.
func (s *Store) getOrigin(session *remote.Session) error {
	req := remote.FetchRequest{Haves: s.haves()}
	for _, h := range session.Refs.Hashes {
		if len(req.Haves) < 2*maxHaves && !slices.Contains(req.Haves, h) && s.db.Has(h) {
			req.Haves = append(req.Haves, h)
		}
	}
	for _, name := range s.opts.Refs {
		if h, ok := session.Refs.Hashes[name]; ok && !s.db.Has(h) && !slices.Contains(req.Wants, h) {
			req.Wants = append(req.Wants, h)
		}
	}
	if len(req.Wants) == 0 {
		return nil
	}
	shallows, err := s.readShallow()
	if err != nil {
		return err
	}
	req.Shallows = shallows
	_, err = session.Fetch(req, false, s.db.Receive)
	return err
}
