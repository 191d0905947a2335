package gitstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/gitattributes"
)

// attributes answers which files git would filter. It is read again only when
// something that it came from changes.
type attributes struct {
	key    string          // what it was read from
	rules  []attributeRule // the more important ones later
	macros map[string][]gitattributes.Attribute
}

// attributeRule is one line, and the file that it stands in.
type attributeRule struct {
	gitattributes.MatchAttribute
	file string
}

// attributesFile is what git calls the files.
const attributesFile = ".gitattributes"

// attributesProbe is a path like those that callers write, three folders deep
// at most. What is filtered there is refused before there is anything to commit.
const attributesProbe = "a/b/c.yaml"

// readAttributes reads the .gitattributes files that can have a say in files
// below Options.Path: those of the tree's top, of the folders on the way, and
// below; and the repository's own info/attributes, which counts most. It
// refuses a repository that filters what we write.
func (s *Store) readAttributes(ctx context.Context) error {
	info, err := os.ReadFile(filepath.Join(s.layout.common, "info", "attributes"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read attributes: %w", err)
	}
	ours := s.tree.Sub(s.opts.Path)
	key := fmt.Sprintf("%s %q", ours.Hash(), info)
	type file struct {
		path string
		blob Hash
	}
	var files []file
	for _, dir := range s.dirsAbove() {
		name := path.Join(dir, attributesFile)
		if h, mode, ok := s.tree.Lookup(name); ok && mode.IsFile() {
			files = append(files, file{name, h})
			key += " " + h.String()
		}
	}
	if key != s.attributes.key {
		ours.Dirs(func(dir string, _ Hash) {
			name := path.Join(dir, attributesFile)
			if h, mode, ok := ours.Lookup(name); ok && mode.IsFile() {
				files = append(files, file{s.full(name), h})
			}
		})
		next := attributes{key: key, macros: map[string][]gitattributes.Attribute{}}
		for _, f := range files {
			content, err := s.Read(ctx, f.blob)
			if err != nil {
				return fmt.Errorf("read %s: %w", f.path, err)
			}
			next.add(f.path, path.Dir(f.path), content)
		}
		next.add(filepath.Join(s.layout.common, "info", "attributes"), ".", info)
		s.attributes = next
	}
	return s.attributes.checkFilter(s.full(attributesProbe))
}

// dirsAbove are the folders that lead to Options.Path, the tree's top first;
// Options.Path itself is not among them.
func (s *Store) dirsAbove() []string {
	if s.opts.Path == "" {
		return nil
	}
	dirs := []string{""}
	for i, c := range s.opts.Path {
		if c == '/' {
			dirs = append(dirs, s.opts.Path[:i])
		}
	}
	return dirs
}

// add takes one file's lines. What git cannot parse, git ignores.
func (a *attributes) add(file, dir string, content []byte) {
	var domain []string
	if dir != "." {
		domain = strings.Split(dir, "/")
	}
	for line := range bytes.Lines(content) {
		m, err := gitattributes.ParseAttributesLine(strings.TrimSpace(string(line)), domain, domain == nil)
		switch {
		case err != nil || m.Name == "":
		case m.Pattern == nil:
			a.macros[m.Name] = m.Attributes
		default:
			a.rules = append(a.rules, attributeRule{m, file})
		}
	}
}

// filterOf returns what a list of attributes says of the filter, macros
// followed; nil when it says nothing.
func (a *attributes) filterOf(list []gitattributes.Attribute, depth int) (found gitattributes.Attribute) {
	for _, attr := range list {
		if attr.Name() == "filter" {
			found = attr
		} else if macro, ok := a.macros[attr.Name()]; ok && attr.IsSet() && depth < 10 {
			if f := a.filterOf(macro, depth+1); f != nil {
				found = f
			}
		}
	}
	return found
}

// checkFilter refuses a file that git would keep filtered, as in LFS or
// encrypted: we write contents as they are, and git would take them for changed.
func (a *attributes) checkFilter(name string) error {
	if len(a.rules) == 0 {
		return nil
	}
	var filter gitattributes.Attribute
	file, parts := "", strings.Split(name, "/")
	for _, r := range a.rules {
		f := a.filterOf(r.Attributes, 0)
		if f != nil && r.Pattern.Match(parts) {
			filter, file = f, r.file
		}
	}
	if filter == nil || !filter.IsValueSet() {
		return nil
	}
	pattern := strings.TrimPrefix(name, strings.TrimPrefix(path.Dir(file)+"/", "./"))
	pattern, _, _ = strings.Cut(pattern, "/")
	return fmt.Errorf("%w: %s sets filter=%s for %s, and crmirror writes files as they are; take ours out with a line at that file's end such as: %s/** -filter",
		ErrUnsupported, file, filter.Value(), name, pattern)
}
