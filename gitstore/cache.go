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

	"github.com/sirupsen/logrus"

	"github.com/crmirror/crmirror/gitstore/pack"
	"github.com/crmirror/crmirror/gitstore/refs"
	"github.com/crmirror/crmirror/gitstore/remote"
	"github.com/crmirror/crmirror/gitstore/tree"
)

// openCache opens a URL's clone.
//
// Invariant: whatever a kill, a full disk or a stray hand left in the cache,
// Open succeeds and the next Fetch brings back what is missing; nothing in it
// is the only copy of anything the remote acknowledged. Test: TestCacheRepair.
func (s *Store) openCache(ctx context.Context) error {
	var err error
	if s.remote, err = remote.New(s.opts.URL, s.opts.Auth, s.opts.Timeout); err != nil {
		return err
	}
	s.layout = cacheLayout(s.opts)
	s.remote.SpoolDir = s.opts.Dir
	if err := os.MkdirAll(s.opts.Dir, 0o777); err != nil {
		return fmt.Errorf("create cache: %w", err)
	}
	if err := s.acquire(filepath.Join(s.opts.Dir, "lock")); err != nil {
		return err
	}
	left, err := filepath.Glob(filepath.Join(s.opts.Dir, "tmp_push_*"))
	if err != nil {
		return err
	}
	for _, file := range left {
		if err := os.Remove(file); err != nil {
			return fmt.Errorf("clean cache: %w", err)
		}
	}
	fresh, err := s.layout.absent()
	if err != nil {
		return err
	}
	if !fresh {
		err := s.reopenCache()
		if err == nil {
			return nil
		}
		if isDiskError(err) || ctx.Err() != nil {
			return fmt.Errorf("open cache %s: %w", s.opts.Dir, err)
		}
		var other *otherRemoteError
		if errors.As(err, &other) {
			return s.turnTo(ctx, other)
		}
		s.opts.Log.WithError(err).WithField("cache", s.opts.Dir).Warn("cache cannot be used")
		return s.renew()
	}
	if err := s.layout.initialize(s.initialBranch(), s.remote.String()); err != nil {
		return err
	}
	return s.reopenCache()
}

func (l layout) absent() (bool, error) {
	_, err := os.Stat(l.git)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}

// initialBranch is what HEAD of a new repository names.
func (s *Store) initialBranch() string {
	if s.opts.Branch != "" {
		return s.opts.Branch
	}
	return defaultBranch
}

const defaultBranch = "main"

// isDiskError tells trouble of the machine, which cloning anew would not mend.
func isDiskError(err error) bool {
	return errors.Is(err, fs.ErrPermission) || isNoSpace(err)
}

// wipe removes the clone. The worktree stays, and with it the index, which
// tells what of it is ours: its files are brought in line with the next head,
// and what people put beside them is theirs.
func (s *Store) wipe() error {
	if s.db != nil {
		if err := s.db.Close(); err != nil {
			return err
		}
		s.db = nil
	}
	entries, err := os.ReadDir(s.layout.git)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove damaged cache: %w", err)
	}
	for _, e := range entries {
		if e.Name() == "index" {
			continue
		}
		if err := os.RemoveAll(filepath.Join(s.layout.git, e.Name())); err != nil {
			return fmt.Errorf("remove damaged cache: %w", err)
		}
	}
	s.head, s.tree, s.local, s.checkedOut = Hash{}, tree.Tree{}, map[string]Hash{}, nil
	s.damaged = false
	return nil
}

// reopenCache opens the clone that is there, after sweeping what a killed
// process left, and proves that the head's tree can be read.
func (s *Store) reopenCache() error {
	if err := sweep(s.layout.git); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(s.layout.git, damagedFile)); err == nil {
		return errors.New("an object in it could not be read")
	}
	if err := s.attach(); err != nil {
		return err
	}
	if was := s.config.Raw.Section("remote").Subsection("origin").Option("url"); was != s.remote.String() {
		return &otherRemoteError{was: was}
	}
	if err := s.db.Check(); err != nil {
		return err
	}
	if s.layout.work != "" && s.config.Core.IsBare {
		// It had no worktree: its packs may be such as git cannot read.
		if err := s.db.Solidify(); err != nil {
			return err
		}
	}
	if err := s.layout.turnWorktree(s.config); err != nil {
		return err
	}
	head, err := s.refs.Head()
	if err != nil {
		return err
	}
	s.branch = s.opts.Branch
	if s.branch == "" {
		s.branch = strings.TrimPrefix(head.Ref, "refs/heads/")
	}
	if err := s.loadRefs(); err != nil {
		return err
	}
	for name, h := range s.local {
		if _, _, err := s.commitTree(h); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := s.checkHistory(); err != nil {
		return err
	}
	return s.attachWorktree()
}

// checkedCommits bounds how far back a start looks for holes in history.
const checkedCommits = 1000

// checkHistory proves that our commits' history, the newest part of it, ends only
// where the file "shallow" says so: else git, which people may run in the clone,
// refuses it.
func (s *Store) checkHistory() error {
	list, err := s.readShallow()
	if err != nil {
		return err
	}
	seen := map[Hash]bool{} // the ends, and what was visited
	for _, h := range list {
		seen[h] = true
	}
	queue := append(slices.Collect(maps.Values(s.local)), s.head)
	for n := 0; len(queue) > 0 && n < checkedCommits; {
		h := queue[0]
		queue = queue[1:]
		if h.IsZero() || seen[h] {
			continue
		}
		seen[h] = true
		n++
		_, parents, err := s.commitTree(h)
		if err != nil {
			return fmt.Errorf("read history of %s: %w", s.branch, err)
		}
		queue = append(queue, parents...)
	}
	s.db.DropCaches()
	return nil
}

// otherRemoteError says that a cache is a sound clone, of another remote.
type otherRemoteError struct{ was string }

func (e *otherRemoteError) Error() string { return "it is a clone of " + e.was }

// turnTo gives up a clone of another remote for one of ours.
//
// Invariant: that clone may be the last copy at hand, so it goes only once our remote has answered
// (TestCacheOfAnotherRemote).
func (s *Store) turnTo(ctx context.Context, other *otherRemoteError) error {
	session, err := s.remote.Open(ctx)
	if err == nil {
		err = session.Close()
	}
	if err != nil {
		return fmt.Errorf("open cache %s: %w, and is kept until %s can be read: %w", s.opts.Dir, other, s.remote, err)
	}
	s.opts.Log.WithFields(logrus.Fields{"cache": s.opts.Dir, "was": other.was, "remote": s.remote.String()}).
		Warn("cache is a clone of another repository, cloning anew")
	return s.replace()
}

// damagedFile marks, in the clone, that something in it could not be read.
const damagedFile = "crmirror-damaged"

// distrust looks at an error: if it says that our cache lacks or cannot read
// what it should have, the next Fetch or Open clones anew.
func (s *Store) distrust(err error) error {
	if err == nil || s.layout.own || !errors.Is(err, ErrMissing) && !errors.Is(err, pack.ErrDamaged) && !errors.Is(err, refs.ErrConflict) {
		return err
	}
	s.damaged = true
	mark := os.WriteFile(filepath.Join(s.layout.git, damagedFile), nil, 0o666)
	return errors.Join(fmt.Errorf("%w (the cache will be cloned anew)", err), mark)
}

// renew replaces a clone that is not to be trusted by an empty one.
func (s *Store) renew() error {
	s.opts.Log.WithField("cache", s.opts.Dir).Warn("cache is damaged, cloning anew")
	return s.replace()
}

// replace makes an empty clone of the remote out of whatever is there.
func (s *Store) replace() error {
	if err := s.wipe(); err != nil {
		return err
	}
	if err := s.layout.initialize(s.initialBranch(), s.remote.String()); err != nil {
		return err
	}
	return s.reopenCache()
}

// isRef tells whether a file in a git folder is a ref or its log.
func isRef(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	top, _, _ := strings.Cut(filepath.ToSlash(rel), "/")
	return err != nil || top == "refs" || top == "logs"
}

// sweep removes locks and temporary files: with the cache's own lock held,
// nobody else can be using them.
func sweep(dir string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name := e.Name()
		stale := strings.HasSuffix(name, ".lock") || strings.HasPrefix(name, "tmp_")
		if isRef(dir, path) {
			stale = strings.HasSuffix(name, ".lock") // else a name that a branch may have
		} else if strings.HasSuffix(name, ".pack") {
			// A pack whose index never came is a left-over, too.
			_, err := os.Stat(strings.TrimSuffix(path, ".pack") + ".idx")
			stale = errors.Is(err, fs.ErrNotExist)
		}
		if !stale {
			return nil
		}
		return os.Remove(path)
	})
}
