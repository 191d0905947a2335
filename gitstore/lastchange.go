package gitstore

import (
	"strings"
	"time"

	"github.com/crmirror/crmirror/gitstore/object"
)

// Change is a commit that changed a file.
type Change struct {
	Commit string // abbreviated; "" when history here does not tell
	Author string
	When   time.Time
}

// maxWalk bounds how far back LastChange looks.
const maxWalk = 1000

// LastChange returns the newest commit of the branch's first-parent history that gave a
// file, by its path relative to Options.Path, the content that it has at Head (or took it away).
func (s *Store) LastChange(path string) *Change {
	at := s.head
	now, ok := s.blobAt(at, s.full(path))
	for range maxWalk {
		if !ok {
			break
		}
		_, parents, err := s.commitTree(at)
		if err != nil {
			break
		}
		var before Hash
		if len(parents) > 0 {
			if before, ok = s.blobAt(parents[0], s.full(path)); !ok {
				break
			}
		}
		if before != now {
			info, err := s.Info(at)
			if err != nil {
				break
			}
			return &Change{Commit: at.String()[:10], Author: info.Author, When: info.When}
		}
		if len(parents) == 0 {
			break
		}
		at = parents[0]
	}
	return &Change{}
}

// blobAt returns the file at a path of a commit's tree, zero for none; ok is false
// when that is not here. Only the folders on the way are read.
func (s *Store) blobAt(commit Hash, path string) (Hash, bool) {
	at, _, err := s.commitTree(commit)
	if err != nil {
		return Hash{}, false
	}
	for name := range strings.SplitSeq(path, "/") {
		t, content, err := s.db.Read(at)
		if err != nil {
			return Hash{}, false
		}
		if t != object.Tree {
			return Hash{}, true
		}
		at = Hash{}
		for e, err := range object.Entries(content) {
			if err != nil {
				return Hash{}, false
			}
			if e.Name == name {
				at = e.Hash
				break
			}
		}
		if at.IsZero() {
			return Hash{}, true
		}
	}
	return at, true
}
