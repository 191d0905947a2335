package worktree

import (
	"context"
	"errors"
	"io/fs"
	"os"
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
	blocked, err := u.enter(path.Dir(name))
	if err != nil || blocked || u.folder == nil {
		return found{blocked: blocked}, err
	}
	name = path.Base(name)
	info, err := u.folder.Lstat(name)
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
		target, err := u.folder.Readlink(name)
		f.mode, f.hash = filemode.Symlink, object.Sum(object.Blob, []byte(target))
		return f, err
	case info.Mode()&0o100 != 0:
		f.mode = filemode.Executable
	}
	if f.stat != ([statLen]byte{}) && f.stat == entry.stat && !racy(info) {
		f.hash = entry.hash
		return f, nil
	}
	content, err := u.folder.ReadFile(name)
	f.hash = object.Sum(object.Blob, content)
	return f, err
}

// racy reports whether a file is so young that a change after it was indexed
// may not show in its times.
func racy(info fs.FileInfo) bool { return time.Since(info.ModTime()) < 2*time.Second }

// enter opens a folder, which stays open for the files that follow in it: a path
// of several names costs the system several times as much. It tells whether
// something that is no folder is in the way. One that does not exist is nil.
func (u *update) enter(dir string) (blocked bool, err error) {
	if u.folder != nil && u.inside == dir {
		return false, nil
	}
	if err := u.leave(); err != nil {
		return false, err
	}
	for above := dir; above != "."; above = path.Dir(above) {
		info, err := u.root.Lstat(above)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil && strings.Contains(err.Error(), "not a directory"):
			continue // a parent of it is a file: found below
		case err != nil:
			return false, err
		case !info.IsDir():
			return true, nil
		}
	}
	folder, err := u.root.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		u.folder, u.inside = folder, dir
	}
	return false, err
}

// leave closes the folder that is open.
func (u *update) leave() error {
	if u.folder == nil {
		return nil
	}
	err := u.folder.Close()
	u.folder = nil
	return err
}

// write replaces a file atomically and returns its stat.
func (u *update) write(name string, content []byte, mode filemode.FileMode) (stat [statLen]byte, err error) {
	if _, err := u.enter(path.Dir(name)); err != nil {
		return stat, err
	}
	if u.folder == nil {
		if err := u.root.MkdirAll(path.Dir(name), 0o777); err != nil {
			return stat, err
		}
		if _, err := u.enter(path.Dir(name)); err != nil {
			return stat, err
		}
	}
	if u.folder == nil {
		return stat, &fs.PathError{Op: "open", Path: path.Dir(name), Err: fs.ErrNotExist} // it is gone already
	}
	name = path.Base(name)
	err = u.writeTemp(content, mode)
	if errors.Is(err, fs.ErrExist) {
		if err = u.folder.Remove(tempName); err == nil {
			err = u.writeTemp(content, mode)
		}
	}
	if err == nil {
		err = u.folder.Rename(tempName, name)
	}
	if err != nil {
		if rm := u.folder.Remove(tempName); !errors.Is(rm, fs.ErrNotExist) {
			err = errors.Join(err, rm)
		}
		return stat, err
	}
	info, err := u.folder.Lstat(name)
	if err != nil {
		return stat, err
	}
	return statBytes(info), nil
}

// writeTemp writes a file beside the one that it is to replace.
func (u *update) writeTemp(content []byte, mode filemode.FileMode) error {
	perm := fs.FileMode(0o666)
	switch mode {
	case filemode.Symlink:
		return u.folder.Symlink(string(content), tempName)
	case filemode.Executable:
		perm = 0o777
	}
	f, err := u.folder.OpenFile(tempName, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// tempName is a file being written; a killed process may leave one, and the
// next write in that folder takes its place.
const tempName = ".crmirror-tmp"

// remove deletes a file and the folders that it leaves empty.
func (u *update) remove(name string) error {
	if err := u.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := u.leave(); err != nil {
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
	if err := u.leave(); err != nil {
		return err
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if info, err := u.root.Lstat(dir); err == nil && !info.IsDir() {
			return u.root.Remove(dir)
		}
	}
	return u.root.RemoveAll(name)
}
