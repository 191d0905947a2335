package gitstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"github.com/crmirror/crmirror/gitstore/odb"
	"github.com/crmirror/crmirror/gitstore/pack"
	"github.com/crmirror/crmirror/gitstore/refs"
	"github.com/crmirror/crmirror/gitstore/remote"
)

// Fetch makes the branch and Options.Refs what they are at the remote. Commits
// that were not pushed are dropped: the cache is ours, and the caller derives
// them again. An empty remote or an absent branch is no error; Head is zero
// then. A branch that was rewritten or recreated is taken as it is now.
//
// In a person's own repository it reads refs and tree again from disk, and
// Options.Refs from where it pushes to; when that cannot be reached it goes on
// with what is here.
func (s *Store) Fetch(ctx context.Context) error {
	if s.layout.own {
		if err := s.db.Rescan(); err != nil {
			return s.ownDamage(err)
		}
		return s.fetchOwn(ctx)
	}
	err := s.fetchCache(ctx)
	if errors.Is(err, refs.ErrConflict) {
		// A ref of ours from before the configuration changed; none there is worth keeping.
		s.damaged = true
		err = s.fetchCache(ctx)
	}
	return err
}

// fetchCache is Fetch in a URL's clone.
func (s *Store) fetchCache(ctx context.Context) error {
	if s.damaged {
		if err := s.renew(); err != nil {
			return fmt.Errorf("fetch: %w", err)
		}
	}
	seen, head, err := s.list(ctx)
	if err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	if s.opts.Branch == "" {
		s.branch = head
	}
	if err := s.take(ctx, seen); err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	s.known = seen
	s.unsent = newUnsent()
	if err := s.checkPathInTree(); err != nil {
		return err
	}
	return s.readAttributes(ctx)
}

// list asks the remote for its refs and gets the objects that are missing.
func (s *Store) list(ctx context.Context) (seen map[string]Hash, head string, err error) {
	session, err := s.remote.Open(ctx)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	head = strings.TrimPrefix(session.Refs.Head, "refs/heads/")
	if head == "" {
		head = defaultBranch
	}
	seen = map[string]Hash{}
	branch := s.opts.Branch
	if branch == "" {
		branch = head
	}
	for _, name := range append([]string{branchRef(branch)}, s.opts.Refs...) {
		if h, ok := session.Refs.Hashes[name]; ok {
			seen[name] = h
		}
	}
	if err := s.get(ctx, session, seen, false); err != nil || !s.opts.History {
		return seen, head, err
	}
	return seen, head, s.deepen(ctx, seen[branchRef(branch)])
}

// infinite is a depth that no history reaches; git itself asks for it by this number.
const infinite = 1<<31 - 1

// deepen gets the history that a clone made without Options.History lacks.
func (s *Store) deepen(ctx context.Context, tip Hash) (err error) {
	shallows, err := s.readShallow()
	if err != nil {
		s.damaged = errors.Is(err, ErrDamaged)
		return err
	}
	if len(shallows) == 0 || tip.IsZero() {
		return nil
	}
	session, err := s.remote.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	req := remote.FetchRequest{Wants: []Hash{tip}, Haves: s.haves(), Shallows: shallows, Depth: infinite, NoBlobs: s.canOmitBlobs(session.Refs)}
	result, err := session.Fetch(req, false, s.db.Receive)
	if err != nil {
		return err
	}
	return s.writeShallow(ctx, nil, result.Unshallow)
}

// get fetches the commits that are not here. With anew, everything is fetched
// as if nothing were here.
func (s *Store) get(ctx context.Context, session *remote.Session, seen map[string]Hash, anew bool) error {
	var wants []Hash
	for _, h := range seen {
		if (anew || !s.db.Has(h)) && !slices.Contains(wants, h) {
			wants = append(wants, h)
		}
	}
	if len(wants) == 0 {
		return nil
	}
	req := remote.FetchRequest{Wants: wants, NoBlobs: s.canOmitBlobs(session.Refs)}
	req.Before = func(r remote.FetchResult) error { return s.writeShallow(ctx, r.Shallow, nil) }
	if !anew {
		req.Haves = s.haves()
	}
	if len(req.Haves) > 0 {
		shallows, err := s.readShallow()
		if err != nil {
			s.damaged = errors.Is(err, ErrDamaged) // the next Fetch clones anew
			return err
		}
		req.Shallows = shallows
		result, err := session.Fetch(req, true, s.db.Receive)
		if err != nil {
			return err
		}
		if result.Common {
			return s.writeShallow(ctx, nil, result.Unshallow)
		}
		// The remote knows nothing of what we have: it was rewritten or
		// recreated, and its whole history may be large.
		return s.reget(ctx, seen)
	}
	if session.Refs.Can(capability.Shallow) && !s.opts.History {
		req.Depth = 1
	}
	result, err := session.Fetch(req, false, s.db.Receive)
	if err != nil {
		return err
	}
	return s.writeShallow(ctx, nil, result.Unshallow)
}

// reget fetches everything as if nothing were here.
func (s *Store) reget(ctx context.Context, seen map[string]Hash) (err error) {
	session, err := s.remote.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	return s.get(ctx, session, seen, true)
}

// canOmitBlobs reports whether file contents can be left at the remote until
// they are needed. A worktree needs them all.
func (s *Store) canOmitBlobs(r *remote.Refs) bool {
	return s.layout.work == "" && r.Can(capability.Filter) && r.Can(capability.AllowReachableSHA1InWant)
}

// maxHaves bounds how far back the remote is told of our history.
const maxHaves = 16

// haves are commits that we have completely, newest first: the branch, some of
// its ancestors (unpushed ones come first), and the other refs.
func (s *Store) haves() []Hash {
	var list []Hash
	for h := s.head; !h.IsZero() && len(list) < maxHaves; {
		_, parents, err := s.commitTree(h)
		if err != nil {
			break // the history ends here: this is where the clone is shallow
		}
		list = append(list, h)
		h = Hash{}
		if len(parents) > 0 {
			h = parents[0]
		}
	}
	for _, h := range s.known {
		if s.db.Has(h) && !slices.Contains(list, h) {
			list = append(list, h)
		}
	}
	return list
}

// take moves our refs to what the remote has and loads the branch's tree.
func (s *Store) take(ctx context.Context, seen map[string]Hash) error {
	err := s.setHead(seen[branchRef(s.branch)])
	if errors.Is(err, odb.ErrMissing) || errors.Is(err, pack.ErrDamaged) {
		s.opts.Log.WithError(err).WithField("cache", s.opts.Dir).Warn("cache lacks objects, fetching them anew")
		if err = s.reget(ctx, seen); err == nil {
			err = s.setHead(seen[branchRef(s.branch)])
		}
	}
	if err != nil {
		return err
	}
	for _, name := range append([]string{branchRef(s.branch)}, s.opts.Refs...) {
		was, err := s.refs.Read(name)
		if err != nil {
			return err
		}
		if was != seen[name] {
			if err := s.refs.Update(ctx, name, was, seen[name]); err != nil {
				return err
			}
		}
		if name != branchRef(s.branch) {
			s.setLocal(name, seen[name])
		}
	}
	if head, err := s.refs.Head(); err != nil || head.Ref != branchRef(s.branch) {
		return s.refs.SetHead(ctx, branchRef(s.branch))
	}
	return nil
}

// readShallow returns the commits that are here without their parents.
func (s *Store) readShallow() ([]Hash, error) {
	file := filepath.Join(s.layout.common, "shallow")
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []Hash
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); !plumbing.IsHash(line) {
			return nil, fmt.Errorf("%w: %s", ErrDamaged, file)
		}
		list = append(list, plumbing.NewHash(line))
	}
	return list, nil
}

// writeShallow notes where history now ends, which git has to know before it
// misses the parents.
//
// Invariant: an end is noted before the pack that has it gets its name, and
// forgotten after the pack that has its parents did. Test: TestShallowKilled.
func (s *Store) writeShallow(ctx context.Context, ends, no []Hash) error {
	if len(ends) == 0 && len(no) == 0 {
		return nil
	}
	list, err := s.readShallow()
	if err != nil {
		return err
	}
	// What a fetch that was cut short noted is not here.
	list = slices.DeleteFunc(list, func(h Hash) bool { return !s.db.Has(h) })
	set := map[string]bool{}
	for _, h := range slices.Concat(list, ends) {
		set[h.String()] = true
	}
	for _, h := range no {
		delete(set, h.String())
	}
	file := filepath.Join(s.layout.common, "shallow")
	if len(set) == 0 {
		return os.Remove(file) // git takes the file's being there for shallowness
	}
	lock, err := s.refs.Locks.Lock(ctx, file)
	if err != nil {
		return err
	}
	if _, err := lock.Write([]byte(strings.Join(slices.Sorted(maps.Keys(set)), "\n") + "\n")); err != nil {
		return errors.Join(err, lock.Abort())
	}
	return lock.Commit()
}
