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
	was, err := s.refTree(ref)
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
	return s.LookupRoot(ref, s.full(path))
}

// LookupRoot returns the blob at a path in the whole tree of one of Options.Refs.
func (s *Store) LookupRoot(ref, path string) (Hash, bool, error) {
	t, err := s.refTree(ref)
	if err != nil {
		return Hash{}, false, s.distrust(fmt.Errorf("look up %s in %s: %w", path, ref, err))
	}
	h, mode, ok := t.Lookup(path)
	return h, ok && mode != filemode.Dir, nil
}

// FilesIn returns the files below Options.Path in the tree of one of Options.Refs.
func (s *Store) FilesIn(ref string) (map[string]Hash, error) {
	t, err := s.refTree(ref)
	if err != nil {
		return nil, s.distrust(fmt.Errorf("list %s: %w", ref, err))
	}
	files := map[string]Hash{}
	t.Sub(s.opts.Path).Walk(func(path string, h Hash, _ filemode.FileMode) bool {
		files[path] = h
		return true
	})
	return files, nil
}

// refTree returns the tree of one of Options.Refs. It is kept until the ref moves.
func (s *Store) refTree(ref string) (tree.Tree, error) {
	at := s.local[ref]
	if kept, ok := s.refTrees[ref]; ok && kept.commit == at {
		return kept.tree, nil
	}
	t, err := s.treeOf(at)
	if err != nil {
		return tree.Tree{}, err
	}
	s.refTrees[ref] = refTree{commit: at, tree: t}
	return t, nil
}

type refTree struct {
	commit Hash
	tree   tree.Tree
}

// LookupFile is Lookup with the file's mode, which tells files from symlinks and
// submodules.
func (s *Store) LookupFile(path string) (Hash, filemode.FileMode, bool) {
	h, mode, ok := s.tree.Lookup(s.full(path))
	return h, mode, ok && mode != filemode.Dir
}
