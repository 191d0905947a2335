package gitstore

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/odb"
)

// maxPacks is how many packs may pile up while nothing can be pushed, and how
// many make a repository crowded: small ones are merged as they come, so these
// are large.
const maxPacks = 40

// compact keeps the number of packs bounded. It costs a few milliseconds now
// and then; that it fails is no failure of what was asked for.
func (s *Store) compact() {
	if err := s.db.Compact(false); err != nil {
		s.opts.Log.WithError(s.distrust(err)).WithField("repository", s.layout.common).Warn("packs not merged")
	}
}

// dropSuperseded lets go of commits that our refs named before the last push:
// each was the only thing that named it. In a person's repository they are left
// to git gc.
func (s *Store) dropSuperseded() {
	named := slices.Collect(maps.Values(s.local))
	s.db.Drop(slices.DeleteFunc(s.superseded, func(h Hash) bool { return h == s.head || slices.Contains(named, h) })...)
	s.superseded = nil
}

// Crowded tells whether packs have piled up that only Maintain merges.
func (s *Store) Crowded() bool { return s.db.Packs() > maxPacks && s.db.Mergeable() > maxPacks }

// Maintain merges all packs that are ours to merge into one. In the clone of a
// URL it also leaves out what nothing needs: no ref, nothing that waits to be
// pushed, and not keep, which are blobs that the caller will refer to. It may
// take seconds for a large repository; when ctx ends nothing is changed.
func (s *Store) Maintain(ctx context.Context, keep []Hash) error {
	if s.layout.own {
		return s.db.MergeAll(ctx)
	}
	if s.damaged {
		return nil // it is about to be cloned anew
	}
	live, err := s.live(keep)
	if err == nil {
		err = s.db.Repack(ctx, live)
	}
	s.db.DropCaches()
	if err != nil {
		return s.distrust(fmt.Errorf("maintain the clone: %w", err))
	}
	return nil
}

// live lists what a clone has to keep: all commits that a ref reaches, here or
// as far as is known at the remote, and what was made here and not pushed yet.
func (s *Store) live(keep []Hash) (odb.Live, error) {
	refs, err := s.refs.All()
	if err != nil {
		return odb.Live{}, err
	}
	tips := slices.Concat([]Hash{s.head}, refs, slices.Collect(maps.Values(s.local)), slices.Collect(maps.Values(s.known)))
	for i, h := range tips {
		if tips[i], err = s.peel(h); err != nil {
			return odb.Live{}, err
		}
	}
	parents := map[Hash][]Hash{}
	for todo := slices.Clone(tips); len(todo) > 0; {
		h := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if _, met := parents[h]; met {
			continue
		}
		// Beyond where history is shallow there is nothing.
		w, ok, err := s.visit(h)
		if err != nil {
			return odb.Live{}, err
		}
		if ok {
			parents[h] = w.parents
			todo = append(todo, w.parents...)
		}
	}
	if _, here := parents[s.head]; !here && !s.head.IsZero() {
		return odb.Live{}, fmt.Errorf("read commit %s: %w", s.head, ErrMissing)
	}
	live := odb.Live{Commits: odb.ParentsFirst(tips, parents), Objects: slices.Concat(keep, refs)}
	for _, u := range s.unsent.list {
		live.Objects = append(live.Objects, u.hash, u.base)
	}
	return live, nil
}

// peel returns the commit that a tag names, and anything else as it is.
func (s *Store) peel(h Hash) (Hash, error) {
	for !h.IsZero() && s.db.Has(h) {
		t, content, err := s.db.Read(h)
		if err != nil || t != object.Tag {
			return h, err
		}
		if h, err = object.DecodeTag(content); err != nil {
			return h, err
		}
	}
	return h, nil
}
