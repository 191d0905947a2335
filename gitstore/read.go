package gitstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/odb"
	"github.com/crmirror/crmirror/gitstore/pack"
	"github.com/crmirror/crmirror/gitstore/remote"
)

// Read returns the content of a blob. One that the clone lacks is fetched;
// ErrMissing when it is nowhere.
func (s *Store) Read(ctx context.Context, h Hash) ([]byte, error) {
	t, content, err := s.db.Read(h)
	if err != nil && !s.layout.own && (errors.Is(err, odb.ErrMissing) || errors.Is(err, pack.ErrDamaged)) {
		if fetchErr := s.fetchBlobs(ctx, []Hash{h}); fetchErr != nil {
			return nil, fmt.Errorf("%w; fetch it: %w", err, fetchErr)
		}
		t, content, err = s.db.Read(h)
	}
	if err != nil {
		return nil, err
	}
	if t != object.Blob {
		return nil, fmt.Errorf("read file %s: it is a %s", h, t)
	}
	return content, nil
}

// Prefetch fetches those of the blobs that the clone lacks in one go, for
// callers about to Read many.
func (s *Store) Prefetch(ctx context.Context, hashes []Hash) error {
	missing := slices.DeleteFunc(slices.Clone(hashes), s.db.Has)
	if s.layout.own || len(missing) == 0 {
		return nil
	}
	return s.fetchBlobs(ctx, missing)
}

// fetchBlobs asks for single blobs where the server gives them out, else for
// the whole head anew.
func (s *Store) fetchBlobs(ctx context.Context, hashes []Hash) (err error) {
	session, err := s.remote.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	if session.Refs.Can(capability.AllowReachableSHA1InWant) {
		_, err := session.Fetch(remote.FetchRequest{Wants: hashes}, false, s.db.Receive)
		return err
	}
	return s.get(ctx, session, map[string]Hash{branchRef(s.branch): session.Refs.Hashes[branchRef(s.branch)]}, true)
}

// ReadFile returns the content of one file of any commit that is here, by its
// path in the whole tree; ok is false when the commit has no such file.
func (s *Store) ReadFile(ctx context.Context, commit Hash, path string) (content []byte, ok bool, err error) {
	t, err := s.treeOf(commit)
	if err != nil {
		return nil, false, err
	}
	h, _, ok := t.Lookup(path)
	if !ok {
		return nil, false, nil
	}
	content, err = s.Read(ctx, h)
	return content, err == nil, err
}
