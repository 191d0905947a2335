package gitstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/crmirror/crmirror/gitstore/worktree"
)

// checkBusy is ErrBusy while a commit to the branch would break what a person
// is doing: a merge would record our change as undone, a rebase could not move
// the branch at its end, and the files of another worktree would fall behind.
func (s *Store) checkBusy() error {
	if !s.layout.own {
		return nil
	}
	other, err := s.checkedOutElsewhere()
	if err != nil {
		return err
	}
	if other != "" {
		return fmt.Errorf("%w: it is checked out in the worktree %s; give crmirror that one, or another branch", ErrBusy, other)
	}
	if s.layout.work == "" {
		return nil
	}
	w := &worktree.Worktree{Dir: s.layout.work, Git: s.layout.git}
	reason := w.Busy()
	if reason == "" {
		return nil
	}
	mine, err := s.onBranch()
	if err != nil || !mine {
		return err
	}
	return fmt.Errorf("%w: %s in %s; finish or abort it (git status says how), crmirror waits until then", ErrBusy, reason, s.opts.Dir)
}

// onBranch tells whether HEAD is our branch, or will be again when the rebase
// that is under way ends.
func (s *Store) onBranch() (bool, error) {
	head, err := s.refs.Head()
	if err != nil {
		return false, s.ownDamage(err)
	}
	if head.Ref == branchRef(s.branch) {
		return true, nil
	}
	for _, dir := range []string{"rebase-merge", "rebase-apply"} {
		b, err := os.ReadFile(filepath.Join(s.layout.git, dir, "head-name"))
		if err == nil && strings.TrimSpace(string(b)) == branchRef(s.branch) {
			return true, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	return false, nil
}

// checkedOutElsewhere returns the worktree, other than ours, that has our
// branch checked out, "" for none.
func (s *Store) checkedOutElsewhere() (string, error) {
	ref := "ref: " + branchRef(s.branch)
	on := func(gitDir string) bool {
		b, err := os.ReadFile(filepath.Join(gitDir, "HEAD"))
		return err == nil && strings.TrimSpace(string(b)) == ref
	}
	if s.layout.git != s.layout.common && !s.config.Core.IsBare && on(s.layout.common) {
		return filepath.Dir(s.layout.common), nil
	}
	entries, err := os.ReadDir(filepath.Join(s.layout.common, "worktrees"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for _, e := range entries {
		dir := filepath.Join(s.layout.common, "worktrees", e.Name())
		if same(dir, s.layout.git) || !on(dir) {
			continue
		}
		// One whose folder is gone waits for git worktree prune.
		if pointer, err := readPointer(filepath.Join(dir, "gitdir"), ""); err == nil {
			if _, err := os.Stat(pointer); err == nil {
				return filepath.Dir(pointer), nil
			}
		}
	}
	return "", nil
}

// same tells whether two paths are one folder.
func same(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}
