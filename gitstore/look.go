package gitstore

import (
	"bytes"
	"errors"
	"path"
	"strings"
	"time"

	"github.com/crmirror/crmirror/gitstore/refs"
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

// Moves tells whether the next push moves a ref at the remote.
func (s *Store) Moves(ref string) bool { return s.known != nil && s.known[ref] != s.local[ref] }

// KeepRefs adds full names of refs to those of Options.Refs; the next Fetch
// learns what the remote says of them. A cache in which one is damaged is made anew.
func (s *Store) KeepRefs(names ...string) error {
	s.opts.Refs = append(s.opts.Refs, names...)
	for _, name := range names {
		h, err := s.refs.Read(name)
		if errors.Is(err, refs.ErrDamaged) && !s.layout.own {
			s.opts.Log.WithError(err).WithField("cache", s.opts.Dir).Warn("cache cannot be used")
			return s.renew()
		}
		if err != nil {
			return err
		}
		s.setLocal(name, h)
	}
	return nil
}

// CommitInfo is what a commit says of itself.
type CommitInfo struct {
	Author  string    // name
	When    time.Time // of committing, by the committer's clock
	Parents []Hash
	Message string
}

// Info returns what a commit that is here says of itself.
func (s *Store) Info(commit Hash) (CommitInfo, error) {
	c, err := s.readCommit(commit)
	if err != nil {
		return CommitInfo{}, err
	}
	return infoOf(c.parents, c.content), nil
}

func infoOf(parents []Hash, content []byte) CommitInfo {
	info, rest := CommitInfo{Parents: parents}, content
	for line := range bytes.Lines(content) {
		rest = rest[len(line):]
		text := strings.TrimSpace(string(line))
		if text == "" {
			info.Message = string(rest)
			break
		}
		if who, ok := strings.CutPrefix(text, "author "); ok {
			info.Author, _, _ = strings.Cut(who, " <")
		}
		if strings.HasPrefix(text, "committer ") {
			info.When = time.Unix(commitTime(content), 0)
		}
	}
	return info
}

// Descends tells whether one commit is another or has it in its history, as far
// as that is here. It walks newest first: a yes costs what lies between the two.
func (s *Store) Descends(commit, from Hash) bool {
	ok, err := s.contains(commit, from)
	return err == nil && ok
}

// Has tells whether an object is here.
func (s *Store) Has(h Hash) bool { return s.db.Has(h) }
