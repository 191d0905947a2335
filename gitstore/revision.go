package gitstore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/refs"
	"github.com/crmirror/crmirror/gitstore/tree"
)

// minAbbreviation is how many digits an abbreviated hash has at least, as in git.
const minAbbreviation = 4

// Resolve returns the commit that a revision names: a hash, an abbreviated one, a tag
// (an annotated one for the commit that it is of), a branch, a ref's full name, or HEAD,
// which is the store's branch. With a URL it needs a Fetch before; names are looked up
// at the remote, and what they name is fetched when it is not here. An abbreviated hash is
// looked for here only: Options.History lets all commits of the branch be here.
//
// ErrNoRevision when there is none, or it is no commit; ErrAmbiguous when an
// abbreviated hash is that of several commits.
func (s *Store) Resolve(ctx context.Context, rev string) (Hash, error) {
	h, err := s.resolve(ctx, rev)
	if err != nil && rev == "" {
		return Hash{}, fmt.Errorf("find the newest commit: %w", err)
	}
	if err != nil {
		return Hash{}, fmt.Errorf("find revision %q: %w", rev, err)
	}
	return h, nil
}

func (s *Store) resolve(ctx context.Context, rev string) (Hash, error) {
	if rev == "HEAD" || rev == "" {
		if s.head.IsZero() {
			return Hash{}, s.noCommits(ctx)
		}
		return s.head, nil
	}
	if plumbing.IsHash(rev) {
		return s.resolveHash(ctx, plumbing.NewHash(rev))
	}
	named, err := s.resolveName(ctx, rev)
	if err != nil {
		return Hash{}, err
	}
	if named.IsZero() && len(rev) >= minAbbreviation {
		if named, err = s.resolveAbbreviation(rev); err != nil {
			return Hash{}, err
		}
	}
	if named.IsZero() {
		return Hash{}, fmt.Errorf("%w in %s", ErrNoRevision, s.where())
	}
	return s.commitOf(named)
}

// noCommits says why the store's branch has no commit, and where there are some.
func (s *Store) noCommits(ctx context.Context) error {
	if s.layout.own {
		all, err := s.refs.All()
		switch {
		case err != nil:
			return err
		case len(all) == 0:
			return fmt.Errorf("%w: %s has no commits yet", ErrNoRevision, s.where())
		}
		return fmt.Errorf("%w: %s has none on branch %s; those that have some are listed by: git -C %s branch", ErrNoRevision, s.where(), s.branch, s.opts.Dir)
	}
	session, err := s.remote.Open(ctx)
	if err != nil {
		return err
	}
	var branches []string
	for ref := range session.Refs.Hashes {
		if name, ok := strings.CutPrefix(ref, "refs/heads/"); ok {
			branches = append(branches, name)
		}
	}
	slices.Sort(branches)
	more := ""
	if n := len(branches) - maxNamed; n > 0 {
		branches, more = branches[:maxNamed], fmt.Sprintf(" and %d more", n)
	}
	err = fmt.Errorf("%w: %s has no commits yet", ErrNoRevision, s.where())
	if len(branches) > 0 {
		err = fmt.Errorf("%w: %s has none on branch %s, but on %s%s", ErrNoRevision, s.where(), s.branch, strings.Join(branches, ", "), more)
	}
	return errors.Join(err, session.Close())
}

// maxNamed bounds how many branches an error names.
const maxNamed = 10

// where names the repository, for errors.
func (s *Store) where() string {
	if s.layout.own {
		return s.opts.Dir
	}
	return s.remote.String()
}

// resolveHash returns the commit of a hash, fetched if it is not here.
func (s *Store) resolveHash(ctx context.Context, h Hash) (commit Hash, err error) {
	if s.db.Has(h) {
		return s.commitOf(h)
	}
	if s.layout.own {
		return Hash{}, fmt.Errorf("%w in %s", ErrNoRevision, s.where())
	}
	session, err := s.remote.Open(ctx)
	if err != nil {
		return Hash{}, err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	if !session.Refs.Can(capability.AllowReachableSHA1InWant) {
		return Hash{}, fmt.Errorf("%w in %s that its branches and tags name", ErrNoRevision, s.where())
	}
	if err := s.get(ctx, session, map[string]Hash{"": h}, false); err != nil {
		if errors.Is(err, ErrRefused) || errors.Is(err, ErrUnreachable) && strings.Contains(err.Error(), "not our ref") {
			return Hash{}, fmt.Errorf("%w: %w", ErrNoRevision, err)
		}
		return Hash{}, err
	}
	return s.commitOf(h)
}

// resolveName returns what the ref of that name, full or not, points at; zero when there is none.
func (s *Store) resolveName(ctx context.Context, rev string) (h Hash, err error) {
	names := refNames(rev)
	if len(names) == 0 {
		return Hash{}, nil
	}
	if s.layout.own {
		for _, name := range names {
			if h, err := s.refs.Read(name); err != nil || !h.IsZero() {
				return h, err
			}
		}
		return Hash{}, nil
	}
	session, err := s.remote.Open(ctx)
	if err != nil {
		return Hash{}, err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	for _, name := range names {
		if h, ok := session.Refs.Hashes[name]; ok {
			return h, s.get(ctx, session, map[string]Hash{name: h}, false)
		}
	}
	return Hash{}, nil
}

// refNames are the full names that a short one may stand for, in git's order.
func refNames(rev string) []string {
	var names []string
	for _, prefix := range []string{"", "refs/", "refs/tags/", "refs/heads/", "refs/remotes/"} {
		if name := prefix + rev; refs.ValidName(name) {
			names = append(names, name)
		}
	}
	return names
}

// resolveAbbreviation returns the one commit here (or tag of one) whose hash begins so; zero for none.
func (s *Store) resolveAbbreviation(digits string) (Hash, error) {
	digits = strings.ToLower(digits)
	if strings.Trim(digits, "0123456789abcdef") != "" || len(digits) > hex.EncodedLen(len(Hash{})) {
		return Hash{}, nil
	}
	found, err := s.db.Abbreviated(digits)
	if err != nil {
		return Hash{}, err
	}
	var commits []Hash
	for _, h := range found {
		if commit, err := s.commitOf(h); err == nil {
			commits = append(commits, commit)
		} else if !errors.Is(err, ErrNoRevision) {
			return Hash{}, err
		}
	}
	switch commits = slices.Compact(commits); len(commits) { // a tag may begin like its commit
	case 0:
		return Hash{}, nil
	case 1:
		return commits[0], nil
	}
	return Hash{}, fmt.Errorf("%w: it begins the hashes of %s and %s; give more digits", ErrAmbiguous, commits[0], commits[1])
}

// maxTags bounds tags of tags.
const maxTags = 16

// commitOf returns the commit that an object is, or is a tag of.
func (s *Store) commitOf(h Hash) (Hash, error) {
	for range maxTags {
		t, content, err := s.db.Read(h)
		switch {
		case err != nil:
			return Hash{}, s.distrust(err)
		case t == object.Commit:
			return h, nil
		case t != object.Tag:
			return Hash{}, fmt.Errorf("%w: %s is a %s", ErrNoRevision, h, t)
		}
		if h, err = object.DecodeTag(content); err != nil {
			return Hash{}, fmt.Errorf("read tag %s: %w", h, err)
		}
	}
	return Hash{}, fmt.Errorf("%w: it is a tag of a tag of a tag, %d deep", ErrNoRevision, maxTags)
}

// At returns the branch's commit at a time: going back from Head along first parents,
// the first that was committed at or before it. First parents, since the commits of
// a branch that was merged were never the state of this one. Where a committer's
// clock went backwards, a commit with too early a time hides those before it, and one with
// too late a time is passed over: a commit that was the state at some time
// by its neighbours' clocks is found.
//
// ErrNoRevision when all are later, ErrShallow when history here does not go back so far.
func (s *Store) At(ctx context.Context, when time.Time) (Hash, error) {
	var found Hash
	var first time.Time
	err := s.firstParents(ctx, s.head, func(c *commitRead) bool {
		first = time.Unix(commitTime(c.content), 0)
		if first.After(when) {
			return true
		}
		found = c.hash
		return false
	})
	switch {
	case err != nil:
		return Hash{}, fmt.Errorf("find the commit of %s: %w", when.Format(time.RFC3339), err)
	case found.IsZero() && s.head.IsZero():
		return Hash{}, fmt.Errorf("find the commit of %s: %w: branch %s has no commits", when.Format(time.RFC3339), ErrNoRevision, s.branch)
	case found.IsZero():
		return Hash{}, fmt.Errorf("find the commit of %s: %w: the first one of branch %s is of %s", when.Format(time.RFC3339), ErrNoRevision,
			s.branch, first.In(when.Location()).Format(time.RFC3339))
	}
	return found, nil
}

// TreeFile is a file in a commit's tree. The mode tells files from symlinks and submodules.
type TreeFile struct {
	Blob Hash
	Mode filemode.FileMode
}

// FilesAt returns the files below Options.Path in a commit that is here, by their paths
// relative to it; none when the commit has no such folder.
func (s *Store) FilesAt(ctx context.Context, commit Hash) (map[string]TreeFile, error) {
	below, err := s.treeBelow(ctx, commit)
	if err != nil {
		return nil, fmt.Errorf("list the files of commit %s: %w", commit, s.distrust(err))
	}
	files := map[string]TreeFile{}
	below.Walk(func(path string, h Hash, mode filemode.FileMode) bool {
		files[path] = TreeFile{Blob: h, Mode: mode}
		return true
	})
	return files, nil
}

// treeBelow loads what lies below Options.Path in a commit; what lies beside it is not read.
func (s *Store) treeBelow(ctx context.Context, commit Hash) (tree.Tree, error) {
	mine := s.tree.Sub(s.opts.Path)
	if commit == s.head || commit.IsZero() && s.head.IsZero() {
		return mine, ctx.Err()
	}
	root, _, err := s.commitTree(commit)
	if err != nil {
		return tree.Tree{}, err
	}
	e, err := s.newFinder(s.opts.Path).find(root)
	if err != nil || e.Mode != filemode.Dir {
		return tree.Tree{}, err
	}
	t, err := tree.Load(s.db.Read, e.Hash, mine)
	s.db.DropCaches()
	return t, err
}
