package gitstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/odb"
	"github.com/crmirror/crmirror/gitstore/refs"
	"github.com/crmirror/crmirror/gitstore/remote"
	"github.com/crmirror/crmirror/gitstore/tree"
)

// Store is one branch of one repository. One goroutine owns it: even what only
// reads may fetch what the clone lacks.
type Store struct {
	opts   Options
	layout layout
	lock   *os.File
	config *config.Config
	remote *remote.Remote // nil when there is none to push to
	db     *odb.DB
	refs   *refs.Dir

	branch string // short name, "" until a first Fetch names it
	head   Hash
	tree   tree.Tree       // of head
	local  map[string]Hash // refs besides the branch, here
	known  map[string]Hash // all of them at the remote, as last seen; nil before Fetch
	// origin is what Options.Refs were where a person's repository pushes to, when
	// last read; a name that it lacks was never read.
	origin map[string]Hash
	// theirs is what a person's repository's remote has since the last push; nil when
	// that is to be asked.
	theirs map[string]Hash
	unsent *unsent // objects made here since
	// superseded are commits that Options.Refs named since.
	superseded []Hash

	attributes attributes
	refTrees   map[string]refTree
	damaged    bool       // the cache cannot be trusted; Fetch clones anew
	checkedOut *tree.Tree // what a cache's worktree holds; nil when not known
}

// Open opens the store without any network: it creates what is not there,
// and repairs or re-creates a damaged cache. A person's own repository is
// never repaired: an error names what is wrong.
func Open(ctx context.Context, opts Options) (*Store, error) {
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	s := &Store{opts: opts, local: map[string]Hash{}, origin: map[string]Hash{}, refTrees: map[string]refTree{}, unsent: newUnsent()}
	if opts.URL != "" {
		err = s.openCache(ctx)
	} else {
		err = s.openOwn(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// acquire takes the lock that keeps two processes out of one folder.
func (s *Store) acquire(file string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return fmt.Errorf("open store: %w", err)
	}
	s.lock = f
	if err := lockFile(f); err != nil {
		return fmt.Errorf("open store: %s is %w", filepath.Dir(file), err)
	}
	return nil
}

// packsFile lists, in a person's repository, the packs that crmirror wrote, and
// wherever people run git those that were merged and are still to be deleted.
const packsFile = "crmirror-packs"

// attach opens the parts of the repository that is there.
func (s *Store) attach() (err error) {
	if s.config, err = s.layout.readConfig(); err != nil {
		return err
	}
	locks := refs.Locks{Wait: s.opts.LockWait}
	// In a cache, all locks are ours. A shared open leaves no marks: the agent,
	// starting, would take its locks for those of a killed process.
	if s.layout.own && !s.opts.Shared {
		locks.Marks = s.layout.git
	}
	s.refs = &refs.Dir{Git: s.layout.git, Common: s.layout.common, Locks: locks}
	if s.db, err = odb.Open(filepath.Join(s.layout.common, "objects")); err != nil {
		return err
	}
	switch {
	case !s.layout.own:
		s.db.OwnAll()
		if s.layout.work == "" {
			// Without a worktree nobody runs git here.
			s.db.AllowThin()
			return nil
		}
	case s.opts.Shared:
		return nil
	}
	return s.db.Remember(filepath.Join(s.layout.git, packsFile))
}

// Branch is the branch's short name; with a URL and no name configured it is
// empty before the first Fetch of an empty cache.
func (s *Store) Branch() string { return s.branch }

// Head is the branch's newest commit here; zero when it does not exist.
func (s *Store) Head() Hash { return s.head }

// Ref is what a ref points at here; zero when it does not exist.
func (s *Store) Ref(name string) Hash { return s.local[name] }

// Lookup returns the blob at a path relative to Options.Path, in Head's tree.
func (s *Store) Lookup(path string) (Hash, bool) {
	h, _, ok := s.LookupFile(path)
	return h, ok
}

// Walk calls fn for every file below a prefix (a folder, empty for all), in
// the byte order of paths, until fn returns false. Paths are relative to
// Options.Path. The mode tells files from symlinks and submodules.
func (s *Store) Walk(prefix string, fn func(path string, h Hash, mode filemode.FileMode) bool) bool {
	prefix = strings.Trim(prefix, "/")
	sub := s.tree.Sub(s.full(prefix))
	if prefix != "" {
		prefix += "/"
	}
	return sub.Walk(func(path string, h object.Hash, mode filemode.FileMode) bool {
		return fn(prefix+path, h, mode)
	})
}

// full is a path in the whole tree.
func (s *Store) full(path string) string {
	switch {
	case s.opts.Path == "":
		return path
	case path == "":
		return s.opts.Path
	}
	return s.opts.Path + "/" + path
}

// setHead takes a commit as the branch's newest and loads its tree.
func (s *Store) setHead(h Hash) error {
	if h.IsZero() {
		s.head, s.tree = h, tree.Tree{}
		return nil
	}
	t, _, err := s.commitTree(h)
	if err != nil {
		return err
	}
	loaded, err := tree.Load(s.db.Read, t, s.tree)
	if err != nil {
		return fmt.Errorf("read tree of commit %s: %w", h, err)
	}
	s.db.DropCaches()
	s.head, s.tree = h, loaded
	return nil
}

// commitTree returns the tree and the parents of a commit.
func (s *Store) commitTree(h Hash) (Hash, []Hash, error) {
	t, content, err := s.db.Read(h)
	if err != nil {
		return Hash{}, nil, err
	}
	if t != object.Commit {
		return Hash{}, nil, fmt.Errorf("read commit %s: it is a %s", h, t)
	}
	root, parents, err := object.DecodeCommit(content)
	if err != nil {
		return Hash{}, nil, fmt.Errorf("read commit %s: %w", h, err)
	}
	return root, parents, nil
}

// loadRefs reads the branch and the other refs from disk.
func (s *Store) loadRefs() error {
	head := Hash{}
	if s.branch != "" {
		var err error
		if head, err = s.refs.Read(branchRef(s.branch)); err != nil {
			return err
		}
	}
	for _, name := range s.opts.Refs {
		h, err := s.refs.Read(name)
		if err != nil {
			return err
		}
		s.setLocal(name, h)
	}
	return s.setHead(head)
}

func (s *Store) setLocal(name string, h Hash) {
	if h.IsZero() {
		delete(s.local, name)
		return
	}
	s.local[name] = h
}

// Close lets go of the repository. It changes nothing in it.
func (s *Store) Close() error {
	var err error
	if s.remote != nil {
		s.remote.Close()
	}
	if s.db != nil {
		err = s.db.Close()
	}
	if s.lock != nil {
		err = errors.Join(err, unlockFile(s.lock), s.lock.Close())
		s.lock = nil
	}
	return err
}
