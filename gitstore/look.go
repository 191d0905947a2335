package gitstore

import (
	"bytes"
	"fmt"
	"path"
	"strings"

	"github.com/crmirror/crmirror/gitstore/object"
)

// FullPath returns a path relative to Options.Path as seen from the
// repository's root.
func (s *Store) FullPath(rel string) string { return path.Join(s.opts.Path, rel) }

// Pushes tells whether there is a remote that Push sends to.
func (s *Store) Pushes() bool { return s.remote != nil }

// Unpushed tells whether something made here has still to be pushed. In a
// person's own repository nothing waits: a commit there has arrived.
func (s *Store) Unpushed() bool {
	return s.remote != nil && !s.layout.own && (s.known == nil || len(s.commands()) > 0)
}

// KeepRefs adds full names of refs to those of Options.Refs; the next Fetch
// learns what the remote says of them.
func (s *Store) KeepRefs(names ...string) error {
	s.opts.Refs = append(s.opts.Refs, names...)
	for _, name := range names {
		h, err := s.refs.Read(name)
		if err != nil {
			return err
		}
		s.setLocal(name, h)
	}
	return nil
}

// Author returns the name of the author of a commit that is here.
func (s *Store) Author(commit Hash) (string, error) {
	t, content, err := s.db.Read(commit)
	if err != nil {
		return "", err
	}
	if t != object.Commit {
		return "", fmt.Errorf("read commit %s: it is a %s", commit, t)
	}
	for line := range bytes.Lines(content) {
		if rest, ok := strings.CutPrefix(string(line), "author "); ok {
			name, _, _ := strings.Cut(rest, " <")
			return name, nil
		}
	}
	return "", fmt.Errorf("read commit %s: it has no author", commit)
}

// Has tells whether an object is here.
func (s *Store) Has(h Hash) bool { return s.db.Has(h) }
