package gitstore

import "github.com/crmirror/crmirror/gitstore/tree"

// Files is what was below Options.Path at some Head. It shares with the store's
// own tree what did not change since. The zero Files are none.
type Files struct{ tree tree.Tree }

// Files returns what is below Options.Path at Head, for telling later what changed.
func (s *Store) Files() Files { return Files{s.tree.Sub(s.opts.Path)} }

// Changes calls fn for every file that was another one, or none, in old, and for
// every file of old that is not there any more; a zero hash is no file. Paths are
// relative to Options.Path, in their order. Its cost follows the folders that differ.
func (s *Store) Changes(old Files, fn func(path string, was, is Hash)) {
	for _, c := range tree.Diff(old.tree, s.tree.Sub(s.opts.Path)) {
		if c.Old != c.New { // else only the mode differs
			fn(c.Path, c.Old, c.New)
		}
	}
}
