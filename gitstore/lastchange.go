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

// maxWalk bounds how far back LastChanges looks.
const maxWalk = 1000

// LastChanges returns, by path relative to Options.Path, the newest commit of the branch's
// first-parent history that gave a file the content that it has at Head, or took it away.
// A path of which the history here does not tell is not in the result. All paths are found
// in one walk, whose cost follows what the commits changed.
func (s *Store) LastChanges(paths []string) map[string]Change {
	found := map[string]Change{}
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
			delete(wanted, c.Path)
			if info, err := s.Info(at); err == nil {
				found[c.Path] = Change{Commit: at.String()[:10], Author: info.Author, When: info.When}
			}
		}
		at, now = parent, before
	}
	return found
}
