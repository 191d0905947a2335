package worktree

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/tree"
)

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
