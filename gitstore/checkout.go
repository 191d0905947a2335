package gitstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/crmirror/crmirror/gitstore/tree"
	"github.com/crmirror/crmirror/gitstore/worktree"
)

// Left is a file that UpdateWorktree did not touch, and why; an empty Path
// means all of them.
type Left = worktree.Left

// behindFile names, below the git folder, the commit that the worktree is at
// while it lags behind the branch. It is written before the branch moves and
// removed once the files followed, so a kill in between heals at the next start.
const behindFile = "crmirror-worktree"

// attachWorktree looks whether the worktree is known to be in line. A cache's
// worktree without a note was never completed.
func (s *Store) attachWorktree() error {
	if s.layout.work == "" || s.layout.own {
		return nil
	}
	if err := os.MkdirAll(s.layout.work, 0o777); err != nil {
		return fmt.Errorf("create worktree: %w", err)
	}
	pointer := filepath.Join(s.layout.work, ".git")
	want := "gitdir: ../" + filepath.Base(s.layout.git) + "\n"
	if b, err := os.ReadFile(pointer); err == nil && string(b) == want {
		return nil
	}
	return os.WriteFile(pointer, []byte(want), 0o666)
}

// markBehind notes, in a person's repository, the commit that the worktree is
// at, unless it lags already. A cache's worktree needs no note: its index
// tells what it holds. It reports whether it made the note.
func (s *Store) markBehind(ctx context.Context) (noted bool, err error) {
	if s.layout.work == "" || !s.layout.own {
		return false, nil
	}
	file := filepath.Join(s.layout.git, behindFile)
	if _, err := os.Stat(file); err == nil {
		return false, nil
	}
	lock, err := s.refs.Locks.Lock(ctx, file)
	if err != nil {
		return false, err
	}
	if _, err := lock.Write([]byte(s.head.String() + "\n")); err != nil {
		return false, errors.Join(err, lock.Abort())
	}
	return true, lock.Commit()
}

// unmarkBehind removes the note, if there is one.
func (s *Store) unmarkBehind() error {
	err := os.Remove(filepath.Join(s.layout.git, behindFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// UpdateWorktree brings the files on disk and the index to Head, each file
// atomically. In a person's repository it does so only while HEAD is our
// branch and nothing is under way, and only to files and index entries whose
// content is what crmirror last wrote; what is left is returned. Without a
// worktree it does nothing.
func (s *Store) UpdateWorktree(ctx context.Context) ([]Left, error) {
	if s.layout.work == "" || s.branch == "" {
		return nil, nil
	}
	w := &worktree.Worktree{Dir: s.layout.work, Git: s.layout.git, Locks: s.refs.Locks, Ours: !s.layout.own}
	if !s.layout.own {
		return nil, s.updateCacheWorktree(ctx, w)
	}
	file := filepath.Join(s.layout.git, behindFile)
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if reason, err := s.whyNot(w); err != nil || reason != "" {
		return []Left{{Reason: reason}}, err
	}
	old, err := s.treeOf(plumbing.NewHash(strings.TrimSpace(string(b))))
	if err != nil {
		return nil, s.ownDamage(err)
	}
	left, err := w.Update(ctx, s.ourChanges(old), s.Read)
	if err != nil {
		return left, err
	}
	return left, s.unmarkBehind()
}

// ourChanges is what leads from an older tree to Head's below Options.Path:
// crmirror never wrote anything else, however the rest came to differ.
func (s *Store) ourChanges(old tree.Tree) []tree.Change {
	changes := tree.Diff(old.Sub(s.opts.Path), s.tree.Sub(s.opts.Path))
	for i := range changes {
		changes[i].Path = s.full(changes[i].Path)
	}
	return changes
}

// whyNot says what keeps a person's worktree from being touched, "" for nothing.
func (s *Store) whyNot(w *worktree.Worktree) (string, error) {
	if reason := w.Busy(); reason != "" {
		return reason + "; the files follow once it is done", nil
	}
	head, err := s.refs.Head()
	if err != nil {
		return "", s.ownDamage(err)
	}
	switch head.Ref {
	case branchRef(s.branch):
		return "", nil
	case "":
		return fmt.Sprintf("HEAD is detached; the commits are on %s", s.branch), nil
	}
	return fmt.Sprintf("%s is checked out; the commits are on %s", strings.TrimPrefix(head.Ref, "refs/heads/"), s.branch), nil
}

// treeOf loads the tree of a commit; the zero hash has an empty one.
func (s *Store) treeOf(commit Hash) (tree.Tree, error) {
	if commit.IsZero() {
		return tree.Tree{}, nil
	}
	if commit == s.head {
		return s.tree, nil
	}
	root, _, err := s.commitTree(commit)
	if err != nil {
		return tree.Tree{}, err
	}
	return tree.Load(s.db.Read, root, s.tree)
}

// updateCacheWorktree looks at every file the first time in this process, and
// then only at what changed since.
func (s *Store) updateCacheWorktree(ctx context.Context, w *worktree.Worktree) error {
	var changes []tree.Change
	if s.checkedOut != nil {
		changes = tree.Diff(*s.checkedOut, s.tree)
	} else {
		var err error
		if changes, err = s.cacheChanges(w); err != nil {
			return err
		}
	}
	s.checkedOut = nil
	// A clone that was made without a worktree has no contents, which git wants, too.
	var contents []Hash
	for _, c := range changes {
		if !c.New.IsZero() && c.NewMode != filemode.Submodule {
			contents = append(contents, c.New)
		}
	}
	if err := s.Prefetch(ctx, contents); err != nil {
		return fmt.Errorf("get file contents: %w", err)
	}
	if _, err := w.Update(ctx, changes, s.Read); err != nil {
		return err
	}
	now := s.tree
	s.checkedOut = &now
	return nil
}

// cacheChanges is what leads from a worktree's index to Head, every file of
// Head included.
func (s *Store) cacheChanges(w *worktree.Worktree) ([]tree.Change, error) {
	tracked, err := w.Tracked()
	if err != nil {
		return nil, err
	}
	var changes []tree.Change
	s.tree.Walk(func(path string, h Hash, mode filemode.FileMode) bool {
		changes = append(changes, tree.Change{Path: path, Old: tracked[path], New: h, NewMode: mode})
		delete(tracked, path)
		return true
	})
	for path, h := range tracked {
		changes = append(changes, tree.Change{Path: path, Old: h})
	}
	return changes, nil
}

// checkPathInTree refuses an Options.Path that runs through something that is
// no folder.
func (s *Store) checkPathInTree() error {
	path := s.opts.Path
	for i, c := range path + "/" {
		if c != '/' {
			continue
		}
		_, mode, ok := s.tree.Lookup(path[:i])
		if !ok || mode == filemode.Dir {
			continue
		}
		what := "a file"
		switch mode {
		case filemode.Symlink:
			what = "a symlink"
		case filemode.Submodule:
			what = "a submodule"
		}
		return fmt.Errorf("repository path %s: %w: %s is %s in branch %s; choose a path of plain folders", path, ErrUnsupported, path[:i], what, s.branch)
	}
	return nil
}
