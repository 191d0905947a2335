package gitstore

import (
	"fmt"

	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/crmirror/crmirror/gitstore/tree"
)

// FileChange is a file that differs between a ref's tree and Head's. A zero hash
// is no file.
type FileChange struct {
	Path      string // relative to Options.Path
	Ref, Head Hash
	Mode      filemode.FileMode // in Head's tree
}

// Compare returns the files below Options.Path that differ between the tree of
// one of Options.Refs and Head's, ordered by path. An absent ref has no files.
// The cost follows the folders that differ.
func (s *Store) Compare(ref string) ([]FileChange, error) {
	was, err := s.treeOf(s.local[ref])
	if err != nil {
		return nil, s.distrust(fmt.Errorf("compare %s with %s: %w", ref, s.branch, err))
	}
	var changes []FileChange
	for _, c := range tree.Diff(was.Sub(s.opts.Path), s.tree.Sub(s.opts.Path)) {
		changes = append(changes, FileChange{Path: c.Path, Ref: c.Old, Head: c.New, Mode: c.NewMode})
	}
	return changes, nil
}

// LookupIn returns the blob at a path relative to Options.Path in the tree of one
// of Options.Refs.
func (s *Store) LookupIn(ref, path string) (Hash, bool, error) {
	t, err := s.treeOf(s.local[ref])
	if err != nil {
		return Hash{}, false, s.distrust(fmt.Errorf("look up %s in %s: %w", path, ref, err))
	}
	h, mode, ok := t.Lookup(s.full(path))
	return h, ok && mode != filemode.Dir, nil
}
