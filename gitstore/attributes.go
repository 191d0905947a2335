package gitstore

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/gitattributes"
)

// attributes answers which files git would filter. It is read again only when
// a .gitattributes file on the way to Options.Path changes.
type attributes struct {
	blobs   []Hash
	matcher gitattributes.Matcher // nil when there is nothing to match
}

// readAttributes reads the .gitattributes files of the tree's top and of the
// folders on the way to Options.Path.
func (s *Store) readAttributes(ctx context.Context) error {
	dirs := []string{""}
	for i, c := range s.opts.Path + "/" {
		if c == '/' && i > 0 {
			dirs = append(dirs, s.opts.Path[:i])
		}
	}
	blobs := make([]Hash, len(dirs))
	for i, dir := range dirs {
		blobs[i], _, _ = s.tree.Lookup(strings.TrimPrefix(dir+"/.gitattributes", "/"))
	}
	if fmt.Sprint(blobs) == fmt.Sprint(s.attributes.blobs) {
		return nil
	}
	var stack []gitattributes.MatchAttribute
	for i, h := range blobs {
		if h.IsZero() {
			continue
		}
		content, err := s.Read(ctx, h)
		if err != nil {
			return fmt.Errorf("read .gitattributes: %w", err)
		}
		var domain []string
		if dirs[i] != "" {
			domain = strings.Split(dirs[i], "/")
		}
		for line := range bytes.Lines(content) {
			// What git cannot parse, git ignores.
			if a, err := gitattributes.ParseAttributesLine(string(line), domain, i == 0); err == nil && a.Name != "" {
				stack = append(stack, a)
			}
		}
	}
	s.attributes = attributes{blobs: blobs}
	if len(stack) > 0 {
		s.attributes.matcher = gitattributes.NewMatcher(stack)
	}
	return nil
}

// checkFilter refuses a file that git would keep in LFS: we write contents, and
// git would take them for changed.
func (a *attributes) checkFilter(path string) error {
	if a.matcher == nil {
		return nil
	}
	found, _ := a.matcher.Match(strings.Split(path, "/"), []string{"filter"})
	if f := found["filter"]; f != nil && f.IsValueSet() && f.Value() == "lfs" {
		return fmt.Errorf("%w: .gitattributes sets filter=lfs for %s; take our files out with a line such as: %s/** -filter",
			ErrUnsupported, path, strings.TrimSuffix(strings.SplitN(path, "/", 2)[0], "/"))
	}
	return nil
}
