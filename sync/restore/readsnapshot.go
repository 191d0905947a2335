package restore

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/sync"
)

// unknownKey stands in for a redaction key that is not at hand: the rules do not compile
// without one. No digest made with it is compared.
var unknownKey = []byte("the key is not known")

// ReadSnapshot reads which objects a commit has. redactKey may be nil: redacted values are
// not compared then. A file that cannot be read as an object is a finding; the error is
// about the commit, or about a marker that this version does not understand.
func ReadSnapshot(ctx context.Context, repo Repository, commit gitstore.Hash, redactKey []byte) (*Snapshot, error) {
	files, err := repo.FilesAt(ctx, commit)
	if err != nil {
		return nil, fmt.Errorf("read commit %s: %w", commit, err)
	}
	info, err := repo.Info(commit)
	if err != nil {
		return nil, fmt.Errorf("read commit %s: %w", commit, err)
	}
	s := &Snapshot{Commit: commit, Time: info.When, repo: &lockedRepository{Repository: repo}, byKey: map[kube.Key]int{}}
	if err := s.readMarker(ctx, files, redactKey); err != nil {
		return nil, fmt.Errorf("read %s at %s: %w", sync.MarkerName, commit, err)
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if err := s.addFile(ctx, path, files[path]); err != nil {
			return nil, fmt.Errorf("read %s at %s: %w", path, commit, err)
		}
	}
	slices.SortFunc(s.Items, func(a, b Item) int { return sync.CompareKeys(a.Key, b.Key) })
	for i := range s.Items {
		s.byKey[s.Items[i].Key] = i
	}
	if err := s.findStrays(ctx, files); err != nil {
		return nil, fmt.Errorf("look for objects beside their paths at %s: %w", commit, err)
	}
	return s, nil
}

// readMarker reads the rules that the tree was written under.
func (s *Snapshot) readMarker(ctx context.Context, files map[string]gitstore.TreeFile, redactKey []byte) error {
	tree := &sync.Tree{}
	if file, ok := files[sync.MarkerName]; ok {
		content, err := s.repo.Read(ctx, file.Blob)
		if err != nil {
			return err
		}
		if tree, err = sync.ParseTree(content); err != nil {
			return err
		}
		s.Tree = tree
	} else {
		s.find(sync.MarkerName, "is missing: whose files these are, and what was left out of them, is not known; "+
			"they are compared as whole objects")
	}
	s.keyKnown = tree.HasKey(redactKey)
	if len(redactKey) > 0 && tree.RedactKey != "" && !s.keyKnown {
		s.find(sync.MarkerName, "values were redacted with another key than the one given; they are not compared")
	}
	if !s.keyKnown {
		redactKey = unknownKey
	}
	selection, err := tree.Selection(redactKey)
	if err == nil {
		s.rules, err = selection.Compile()
	}
	return err
}

func (s *Snapshot) find(what, text string) {
	s.Findings = append(s.Findings, Finding{What: what, Text: text})
}

// addFile notes the object of a file whose path is one of ours.
func (s *Snapshot) addFile(ctx context.Context, path string, file gitstore.TreeFile) error {
	key, isCut, err := sync.KeyOf(path)
	if err != nil {
		return nil // somebody else's file, or a stray one
	}
	switch file.Mode {
	case filemode.Regular, filemode.Executable, filemode.Deprecated:
	default:
		f := Finding{What: path, Fatal: true, of: key,
			Text: fmt.Sprintf("is a %s, not a file: its object is not restored", modeName(file.Mode))}
		if isCut {
			f.of.Name = ""
		} else {
			f.Objects = []kube.Key{key}
		}
		s.Findings = append(s.Findings, f)
		return nil
	}
	if isCut { // the content names the object
		content, err := s.repo.Read(ctx, file.Blob)
		if err != nil {
			return err
		}
		obj, err := s.decode(path, content)
		if err != nil {
			key.Name = ""
			s.Findings = append(s.Findings, Finding{What: path, Fatal: true, of: key, Text: err.Error() + ": its object is not restored"})
			return nil
		}
		key = keyOf(key.Resource, obj)
	}
	s.Items = append(s.Items, Item{Key: key, Path: path, Blob: file.Blob})
	return nil
}

func modeName(mode filemode.FileMode) string {
	switch mode {
	case filemode.Symlink:
		return "symbolic link"
	case filemode.Submodule:
		return "submodule"
	}
	return mode.String()
}
