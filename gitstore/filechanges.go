package gitstore

import (
	"time"

	"github.com/crmirror/crmirror/gitstore/tree"
)

// Change is a commit that changed a file.
type Change struct {
	Commit string // abbreviated
	Author string
	When   time.Time
}

// maxWalk bounds how many commits FileChanges looks at.
const maxWalk = 1000

// FileChanges calls fn for every commit of the branch's first-parent history that changed the
// content of one of the files at paths, relative to Options.Path, newest first, until fn returns
// true for the path; was and is are the blobs, zero for no file. It is one walk for all of
// them, whose cost follows what the commits changed, and looks at maxWalk commits at most.
func (s *Store) FileChanges(paths []string, fn func(path string, c Change, was, is Hash) (done bool)) {
	wanted := map[string]bool{}
	for _, path := range paths {
		wanted[path] = true
	}
	at, now := s.head, s.tree
	for step := 0; step < maxWalk && len(wanted) > 0 && !at.IsZero(); step++ {
		_, parents, err := s.commitTree(at)
		if err != nil {
			break
		}
		parent, before := Hash{}, tree.Tree{}
		if len(parents) > 0 {
			parent = parents[0]
			root, _, err := s.commitTree(parent)
			if err != nil {
				break
			}
			if before, err = tree.Load(s.db.Read, root, now); err != nil {
				break
			}
		}
		for _, c := range tree.Diff(before.Sub(s.opts.Path), now.Sub(s.opts.Path)) {
			if !wanted[c.Path] || c.Old == c.New {
				continue
			}
			info, err := s.Info(at)
			if err != nil || fn(c.Path, Change{Commit: at.String()[:10], Author: info.Author, When: info.When}, c.Old, c.New) {
				delete(wanted, c.Path)
			}
		}
		at, now = parent, before
	}
}
