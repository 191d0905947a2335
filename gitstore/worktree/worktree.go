// Package worktree brings files on disk and git's index in line with a tree,
// file by file, and leaves alone what somebody else changed.
package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

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
	Dir   string     // the files
	Git   string     // where index, HEAD and the marks of a merge or rebase lie
	Locks refs.Locks // for the index
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
	slots []slot // of the changes' paths, in the index
	read  Reader
	left  []Left

	folder *os.Root // of the file looked at last; nil when none is open
	inside string   // its path
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
	lock, err := w.Locks.Lock(ctx, filepath.Join(w.Git, "index"))
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
	paths := make([]string, len(changes))
	for i, c := range changes {
		paths[i] = c.Path
	}
	u := &update{w: w, root: root, slots: idx.slots(paths), read: read}
	defer func() { err = errors.Join(err, u.leave()) }()
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
	if !slices.ContainsFunc(u.slots, func(s slot) bool { return s.put || s.drop }) {
		return u.left, nil
	}
	if err := idx.write(lock, u.slots); err != nil {
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
	idx, err := parseIndex(b)
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
	files := make(map[string]object.Hash, idx.count)
	err = idx.each(func(path []byte, from, _ int) { files[string(path)] = idx.entry(from).hash })
	return files, err
}

// Check returns why the index could not be brought in line, nil if it can.
func (w *Worktree) Check() error {
	_, err := w.readIndex()
	return err
}

// change brings one file and its index entry in line; each is judged by its
// own content.
func (u *update) change(ctx context.Context, c tree.Change) error {
	if c.NewMode == filemode.Submodule || c.OldMode == filemode.Submodule {
		return nil // the folder of a submodule is not ours to fill
	}
	at := findSlot(u.slots, c.Path)
	staged, entry := at.staged, at.entry
	stageOK := u.w.Ours || entry.hash == c.Old || entry.hash == c.New
	if staged && entry.ext&extSkip != 0 {
		entry.stat = [statLen]byte{} // a sparse checkout does without the file
	} else {
		var err error
		var reason string
		if reason, entry.stat, err = u.file(ctx, c, entry); err != nil {
			if u.w.Ours || !obstructed(err) {
				return err
			}
			// The index follows all the same, or git would show the commit's
			// reversal as staged.
			reason, entry.stat = "it cannot be written: "+err.Error(), [statLen]byte{}
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
		at.drop = staged
	default:
		entry.hash, entry.mode = c.New, c.NewMode
		at.entry, at.put = entry, true
	}
	return nil
}

// obstructed tells whether it is something about this one file or its folders that
// failed: a symbolic link on the way, say, or a folder that is read-only.
func obstructed(err error) bool {
	var path *fs.PathError
	var link *os.LinkError
	return (errors.As(err, &path) || errors.As(err, &link)) && !errors.Is(err, syscall.ENOSPC)
}
