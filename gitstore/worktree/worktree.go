// Package worktree brings files on disk and git's index in line with a tree,
// file by file, and leaves alone what somebody else changed.
package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/refs"
	"github.com/crmirror/crmirror/gitstore/tree"
)

// Left is a file that was not brought in line, and why. An empty path means
// the whole worktree.
type Left struct{ Path, Reason string }

// Worktree is a folder of checked-out files and its index.
type Worktree struct {
	Dir  string        // the files
	Git  string        // where index, HEAD and the marks of a merge or rebase lie
	Wait time.Duration // how long the index's lock is waited for
	// Ours says that nobody else may keep changes here: what differs is
	// overwritten. Else a file is touched only if it is what the change says
	// was there before, or absent.
	Ours bool
}

// Reader returns the content of a blob.
type Reader func(ctx context.Context, h object.Hash) ([]byte, error)

// Busy says what a person has under way that forbids touching index and
// files, "" for nothing.
func (w *Worktree) Busy() string {
	for _, mark := range []struct{ file, what string }{
		{"MERGE_HEAD", "a merge"}, {"rebase-merge", "a rebase"}, {"rebase-apply", "a rebase or git am"},
		{"CHERRY_PICK_HEAD", "a cherry-pick"}, {"REVERT_HEAD", "a revert"}, {"BISECT_LOG", "a bisect"},
	} {
		if _, err := os.Lstat(filepath.Join(w.Git, mark.file)); err == nil {
			return mark.what + " is under way"
		}
	}
	return ""
}

// update is one Update's state.
type update struct {
	w     *Worktree
	root  *os.Root
	idx   *index
	read  Reader
	puts  map[string]indexEntry
	drops map[string]bool
	left  []Left
}

// Update applies changes to the files and the index.
//
// Invariant: without Ours, neither a file nor an index entry is changed whose
// content is not the change's old content (or its new one already). A kill in
// the middle leaves both states for a second Update to finish.
// Test: TestPersonsWorkSurvives.
func (w *Worktree) Update(ctx context.Context, changes []tree.Change, read Reader) (left []Left, err error) {
	if err := os.MkdirAll(w.Dir, 0o777); err != nil {
		return nil, err
	}
	lock, err := refs.Lock(ctx, filepath.Join(w.Git, "index"), w.Wait)
	if err != nil {
		return nil, fmt.Errorf("update worktree: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Abort()) }()
	idx, err := w.readIndex()
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(w.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	u := &update{w: w, root: root, idx: idx, read: read, puts: map[string]indexEntry{}, drops: map[string]bool{}}
	// Removals first: a file may stand where a folder is to come.
	for _, removals := range [2]bool{true, false} {
		for _, c := range changes {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if c.New.IsZero() != removals {
				continue
			}
			if err := u.change(ctx, c); err != nil {
				return nil, fmt.Errorf("update worktree: %s: %w", c.Path, err)
			}
		}
	}
	if len(u.puts)+len(u.drops) == 0 {
		return u.left, nil
	}
	if _, err := lock.Write(idx.merge(u.puts, u.drops).encode()); err != nil {
		return nil, fmt.Errorf("update index: %w", err)
	}
	return u.left, lock.Commit()
}

func (w *Worktree) readIndex() (*index, error) {
	file := filepath.Join(w.Git, "index")
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return &index{}, nil
	}
	if err != nil {
		return nil, err
	}
	idx, err := decodeIndex(b)
	if err != nil && w.Ours {
		return &index{}, nil // it is rebuilt from the changes
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return idx, nil
}

// Tracked returns what the index has, as changes from it to nothing would.
func (w *Worktree) Tracked() (map[string]object.Hash, error) {
	idx, err := w.readIndex()
	if err != nil {
		return nil, err
	}
	files := make(map[string]object.Hash, len(idx.entries))
	for _, e := range idx.entries {
		files[e.path] = e.hash
	}
	return files, nil
}

// change brings one file and its index entry in line; each is judged by its
// own content.
func (u *update) change(ctx context.Context, c tree.Change) error {
	if c.NewMode == filemode.Submodule || c.OldMode == filemode.Submodule {
		return nil // the folder of a submodule is not ours to fill
	}
	i, staged := u.idx.find(c.Path)
	var entry indexEntry
	if staged {
		entry = u.idx.entries[i]
	}
	stageOK := u.w.Ours || entry.hash == c.Old || entry.hash == c.New
	if staged && entry.ext&extSkip != 0 {
		entry.stat = [statLen]byte{} // a sparse checkout does without the file
	} else {
		var err error
		var reason string
		if reason, entry.stat, err = u.file(ctx, c, entry); err != nil {
			return err
		}
		if reason != "" {
			u.left = append(u.left, Left{c.Path, reason})
		}
	}
	if !stageOK {
		u.left = append(u.left, Left{c.Path, "changes to it are staged"})
		return nil
	}
	switch {
	case c.New.IsZero():
		if staged {
			u.drops[c.Path] = true
		}
	default:
		entry.path, entry.hash, entry.mode = c.Path, c.New, c.NewMode
		u.puts[c.Path] = entry
	}
	return nil
}

// file brings one file in line, or says why it was left. The stat that is
// returned is zero unless the file now has the new content.
func (u *update) file(ctx context.Context, c tree.Change, entry indexEntry) (left string, stat [statLen]byte, err error) {
	now, err := u.look(c.Path, entry)
	if err != nil {
		return "", stat, err
	}
	switch {
	case now.blocked && !u.w.Ours:
		return "a folder or a symlink is in its place", stat, nil
	case now.hash == c.New && !now.blocked && now.mode == c.NewMode:
		return "", now.stat, nil
	case !u.w.Ours && !now.hash.IsZero() && now.hash != c.Old && now.hash != c.New:
		return "it has changes that are not committed", stat, nil
	case c.New.IsZero():
		return "", stat, u.remove(c.Path)
	}
	if now.blocked {
		if err := u.unblock(c.Path); err != nil {
			return "", stat, err
		}
	}
	content, err := u.read(ctx, c.New)
	if err != nil {
		return "", stat, err
	}
	stat, err = u.write(c.Path, content, c.NewMode)
	return "", stat, err
}

// found is what lies at a path: a zero hash for nothing.
type found struct {
	hash    object.Hash
	mode    filemode.FileMode
	stat    [statLen]byte
	blocked bool // a folder is there, or a file or symlink where a folder must be
}

// look finds out what a file's content is. When stat says what the index
// remembers, the file is not read.
func (u *update) look(name string, entry indexEntry) (found, error) {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		info, err := u.root.Lstat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil && strings.Contains(err.Error(), "not a directory"):
			continue // a parent of it is a file: found below
		case err != nil:
			return found{}, err
		case !info.IsDir():
			return found{blocked: true}, nil
		}
	}
	info, err := u.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return found{}, nil
	}
	if err != nil {
		return found{}, err
	}
	f := found{mode: filemode.Regular, stat: statBytes(info)}
	switch {
	case info.IsDir():
		return found{blocked: true}, nil
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := u.root.Readlink(name)
		f.mode, f.hash = filemode.Symlink, object.Sum(object.Blob, []byte(target))
		return f, err
	case info.Mode()&0o100 != 0:
		f.mode = filemode.Executable
	}
	if f.stat != ([statLen]byte{}) && f.stat == entry.stat && !racy(info) {
		f.hash = entry.hash
		return f, nil
	}
	content, err := u.root.ReadFile(name)
	f.hash = object.Sum(object.Blob, content)
	return f, err
}

// racy reports whether a file is so young that a change after it was indexed
// may not show in its times.
func racy(info fs.FileInfo) bool { return time.Since(info.ModTime()) < 2*time.Second }

// write replaces a file atomically and returns its stat.
func (u *update) write(name string, content []byte, mode filemode.FileMode) (stat [statLen]byte, err error) {
	if dir := path.Dir(name); dir != "." {
		if err := u.root.MkdirAll(dir, 0o777); err != nil {
			return stat, err
		}
	}
	temp := path.Join(path.Dir(name), tempName)
	if err := u.root.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return stat, err
	}
	switch mode {
	case filemode.Symlink:
		err = u.root.Symlink(string(content), temp)
	case filemode.Executable:
		err = u.root.WriteFile(temp, content, 0o777)
	default:
		err = u.root.WriteFile(temp, content, 0o666)
	}
	if err != nil {
		return stat, errors.Join(err, u.root.Remove(temp))
	}
	if err := u.root.Rename(temp, name); err != nil {
		return stat, errors.Join(err, u.root.Remove(temp))
	}
	info, err := u.root.Lstat(name)
	if err != nil {
		return stat, err
	}
	return statBytes(info), nil
}

// tempName is a file being written; a killed process may leave one, and the
// next write in that folder takes its place.
const tempName = ".crmirror-tmp"

// remove deletes a file and the folders that it leaves empty.
func (u *update) remove(name string) error {
	if err := u.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if u.root.Remove(dir) != nil {
			return nil // not empty, or gone: both are fine
		}
	}
	return nil
}

// unblock makes room for a file in a worktree of ours.
func (u *update) unblock(name string) error {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if info, err := u.root.Lstat(dir); err == nil && !info.IsDir() {
			return u.root.Remove(dir)
		}
	}
	return u.root.RemoveAll(name)
}
