// Package refs reads and moves the refs of a repository on disk, as files and
// packed, with git's locks.
package refs

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

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/crmirror/crmirror/gitstore/object"
)

// ErrMoved says that a ref is not what the caller last saw.
var ErrMoved = errors.New("ref moved meanwhile")

// ErrDamaged says that a ref file cannot be read as a ref.
var ErrDamaged = errors.New("damaged ref")

// ErrConflict says that another ref's name is in the way: refs are files, so
// there is none below another.
var ErrConflict = errors.New("another ref is in the way")

// Dir is where the refs of a repository lie.
type Dir struct {
	Git    string // HEAD and what belongs to one worktree
	Common string // refs/ and packed-refs; equal to Git but in a linked worktree
	Locks  Locks
}

// Head is what HEAD says: a branch (its full ref name) or, detached, a commit.
type Head struct {
	Ref      string
	Detached object.Hash
}

// Head reads HEAD.
func (d *Dir) Head() (Head, error) {
	path := filepath.Join(d.Git, "HEAD")
	b, err := os.ReadFile(path)
	if err != nil {
		return Head{}, err
	}
	if ref, ok := bytes.CutPrefix(b, []byte("ref:")); ok {
		if name := string(bytes.TrimSpace(ref)); ValidName(name) {
			return Head{Ref: name}, nil
		}
		return Head{}, fmt.Errorf("%w: %s", ErrDamaged, path)
	}
	h, ok := parseHash(bytes.TrimSpace(b))
	if !ok {
		return Head{}, fmt.Errorf("%w: %s", ErrDamaged, path)
	}
	return Head{Detached: h}, nil
}

// SetHead lets HEAD name a branch.
func (d *Dir) SetHead(ctx context.Context, ref string) error {
	return d.replace(ctx, filepath.Join(d.Git, "HEAD"), []byte("ref: "+ref+"\n"))
}

func (d *Dir) replace(ctx context.Context, path string, content []byte) error {
	lock, err := d.Locks.Lock(ctx, path)
	if err != nil {
		return err
	}
	if _, err := lock.Write(content); err != nil {
		return errors.Join(err, lock.Abort())
	}
	return lock.Commit()
}

// Read returns what a full ref name points at, the zero hash when there is no
// such ref. Symbolic refs are followed.
func (d *Dir) Read(name string) (object.Hash, error) {
	_, h, err := d.resolve(name)
	return h, err
}

// resolve follows symbolic refs to the ref that holds a hash, or would.
func (d *Dir) resolve(name string) (string, object.Hash, error) {
	for range 5 {
		path := d.path(name)
		b, err := os.ReadFile(path)
		if absent(err) {
			h, err := d.packed(name)
			return name, h, err
		}
		if err != nil {
			return name, object.Hash{}, err
		}
		if target, ok := bytes.CutPrefix(b, []byte("ref:")); ok {
			if name = string(bytes.TrimSpace(target)); !ValidName(name) {
				return name, object.Hash{}, fmt.Errorf("%w: %s", ErrDamaged, path)
			}
			continue
		}
		h, ok := parseHash(bytes.TrimSpace(b))
		if !ok {
			return name, object.Hash{}, fmt.Errorf("%w: %s", ErrDamaged, path)
		}
		return name, h, nil
	}
	return name, object.Hash{}, fmt.Errorf("%w: %s is a symbolic ref to itself", ErrDamaged, name)
}

func (d *Dir) path(name string) string { return filepath.Join(d.Common, filepath.FromSlash(name)) }

// absent tells a ref that is not there from one that cannot be read. A folder
// in its place, or a file in place of a folder, is no ref.
func absent(err error) bool {
	if err == nil {
		return false
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		if info, statErr := os.Stat(pe.Path); statErr == nil && info.IsDir() {
			return true
		}
	}
	return errors.Is(err, fs.ErrNotExist) || strings.HasSuffix(err.Error(), "not a directory")
}

func parseHash(b []byte) (object.Hash, bool) {
	if len(b) != 40 || !plumbing.IsHash(string(b)) {
		return object.Hash{}, false
	}
	return plumbing.NewHash(string(b)), true
}

func (d *Dir) packed(name string) (object.Hash, error) {
	b, err := os.ReadFile(filepath.Join(d.Common, "packed-refs"))
	if errors.Is(err, fs.ErrNotExist) {
		return object.Hash{}, nil
	}
	if err != nil {
		return object.Hash{}, err
	}
	for line := range bytes.Lines(b) {
		hash, ref, ok := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte(" "))
		if ok && string(ref) == name {
			if h, ok := parseHash(hash); ok {
				return h, nil
			}
			return object.Hash{}, fmt.Errorf("%w: %s in packed-refs", ErrDamaged, name)
		}
	}
	return object.Hash{}, nil
}

// Update moves a ref from old to new; old zero means that it must not exist,
// new zero deletes it. A symbolic ref stays one: what it names is moved.
//
// Invariant: the ref is compared and replaced under its lock, so of two
// writers that saw the same old value one gets ErrMoved. Test: TestUpdateCompares.
func (d *Dir) Update(ctx context.Context, name string, old, new object.Hash) (err error) {
	if !ValidName(name) {
		return fmt.Errorf("update ref %q: not a ref name", name)
	}
	target, _, err := d.resolve(name)
	if err != nil {
		return fmt.Errorf("update ref %s: %w", name, err)
	}
	name = target
	lock, err := d.Locks.Lock(ctx, d.path(name))
	if err != nil {
		return fmt.Errorf("update ref %s: %w", name, d.conflict(name, err))
	}
	defer func() { err = errors.Join(err, lock.Abort()) }()
	now, err := d.Read(name)
	if err != nil {
		return fmt.Errorf("update ref %s: %w", name, err)
	}
	if now != old {
		return fmt.Errorf("update ref %s: %w: it is at %s, not at %s", name, ErrMoved, short(now), short(old))
	}
	if new.IsZero() {
		return d.remove(ctx, name)
	}
	if _, err := lock.Write([]byte(new.String() + "\n")); err != nil {
		return fmt.Errorf("update ref %s: %w", name, err)
	}
	if err := removeEmpty(d.path(name)); err != nil {
		return fmt.Errorf("update ref %s: %w", name, d.conflict(name, err))
	}
	return lock.Commit()
}

// removeEmpty removes the folders that refs which are gone left in the place of
// a ref. It is an error when there is a ref in them.
func removeEmpty(path string) error {
	info, err := os.Stat(path)
	if absent(err) || err == nil && !info.IsDir() {
		return nil
	}
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			return fmt.Errorf("%s is not empty", path)
		}
		if err := removeEmpty(filepath.Join(path, e.Name())); err != nil {
			return err
		}
	}
	return os.Remove(path)
}

// conflict makes an error an ErrConflict if a file stands where a ref needs a
// folder, or a folder where it needs a file.
func (d *Dir) conflict(name string, err error) error {
	if info, statErr := os.Stat(d.path(name)); statErr == nil && info.IsDir() {
		return fmt.Errorf("%w: below %s: %w", ErrConflict, name, err)
	}
	for up := path.Dir(name); up != "."; up = path.Dir(up) {
		if info, statErr := os.Stat(d.path(up)); statErr == nil && !info.IsDir() {
			return fmt.Errorf("%w: %s: %w", ErrConflict, up, err)
		}
	}
	return err
}

func short(h object.Hash) string {
	if h.IsZero() {
		return "nothing"
	}
	return h.String()[:10]
}

// remove deletes a ref whose lock is held: packed first, or the old packed
// value would show for a moment.
func (d *Dir) remove(ctx context.Context, name string) error {
	path := filepath.Join(d.Common, "packed-refs")
	h, err := d.packed(name)
	if err != nil {
		return err
	}
	if !h.IsZero() {
		if err := d.removePacked(ctx, path, name); err != nil {
			return err
		}
	}
	if err := os.Remove(d.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncDir(filepath.Dir(d.path(name)))
}

func (d *Dir) removePacked(ctx context.Context, path, name string) error {
	lock, err := d.Locks.Lock(ctx, path)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return errors.Join(err, lock.Abort())
	}
	var out []byte
	skip := false
	for line := range bytes.Lines(b) {
		if line[0] != '^' { // the peeled value of the tag before
			_, ref, _ := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte(" "))
			skip = string(ref) == name
		}
		if !skip {
			out = append(out, line...)
		}
	}
	if _, err := lock.Write(out); err != nil {
		return errors.Join(err, lock.Abort())
	}
	return lock.Commit()
}

// ValidName reports whether name is a full ref name that git accepts.
func ValidName(name string) bool {
	if !strings.HasPrefix(name, "refs/") || strings.ContainsAny(name, " ~^:?*[\\\x7f") {
		return false
	}
	if strings.Contains(name, "..") || strings.Contains(name, "@{") || strings.HasSuffix(name, ".") {
		return false
	}
	for _, r := range name {
		if r < ' ' {
			return false
		}
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return true
}
