package sync

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
)

// Archive is what the history of objects is read from: a *gitstore.Store.
type Archive interface {
	Versions(ctx context.Context, from gitstore.Hash, path string, fn func(gitstore.Version) bool) error
	Deletions(ctx context.Context, from gitstore.Hash, since time.Time, fn func(gitstore.Deletion) bool) error
	FilesAt(ctx context.Context, commit gitstore.Hash) (map[string]gitstore.TreeFile, error)
	Prefetch(ctx context.Context, hashes []gitstore.Hash) error
	Read(ctx context.Context, h gitstore.Hash) ([]byte, error)
}

// What became of an object in a commit, in words.
const (
	wasCreated  = "created"
	wasChanged  = "changed"
	wasDeleted  = "deleted"
	wasRestored = "restored" // created after it had been deleted
)

// ObjectVersion is a commit in which an object's file became another one. All text in it is
// fit to be shown.
type ObjectVersion struct {
	Commit  gitstore.Hash
	When    time.Time // of committing
	Author  string
	What    string   // created, changed, deleted, restored, unselected or re-encoded
	Fields  []string // changed field paths; none when the contents cannot be compared as objects
	Manager string   // the field manager that our commit message tells; "" when it does not
	Undoes  string   // whose commit to the file it undoes, as the message tells
	Last    gitstore.Hash
	Old     []byte // content before; nil: there was none
	New     []byte // content after; nil: the file went
}

// ObjectLog returns what became of an object, newest first, along first parents from a commit. With
// gitstore.ErrShallow what history here tells is returned, too.
func ObjectLog(ctx context.Context, from Archive, at gitstore.Hash, key kube.Key) ([]ObjectVersion, error) {
	var versions []gitstore.Version
	var blobs []gitstore.Hash
	short := from.Versions(ctx, at, PathOf(key), func(v gitstore.Version) bool {
		versions = append(versions, v)
		for _, h := range []gitstore.Hash{v.Blob, v.Before} {
			if !h.IsZero() {
				blobs = append(blobs, h)
			}
		}
		return true
	})
	if len(versions) == 0 {
		return nil, short
	}
	slices.SortFunc(blobs, func(a, b gitstore.Hash) int { return cmp.Compare(a.String(), b.String()) })
	if err := from.Prefetch(ctx, slices.Compact(blobs)); err != nil {
		return nil, err
	}
	read := reader{from: from}
	out := make([]ObjectVersion, 0, len(versions))
	for _, v := range versions {
		x, err := read.version(ctx, key, v)
		if err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	gone := false
	for i := range slices.Backward(out) {
		if gone && out[i].Old == nil {
			out[i].What = wasRestored
		}
		gone = gone || out[i].New == nil
	}
	return out, short
}

// reader reads contents; of two versions in turn one's content before is the other's.
type reader struct {
	from    Archive
	hash    gitstore.Hash
	content []byte
}

func (r *reader) read(ctx context.Context, h gitstore.Hash) ([]byte, error) {
	if h.IsZero() {
		return nil, nil
	}
	if h != r.hash {
		content, err := r.from.Read(ctx, h)
		if err != nil {
			return nil, err
		}
		if content == nil {
			content = []byte{} // an empty file is a file
		}
		r.hash, r.content = h, content
	}
	return r.content, nil
}

func (r *reader) version(ctx context.Context, key kube.Key, v gitstore.Version) (ObjectVersion, error) {
	x := ObjectVersion{Commit: v.Commit, When: v.Info.When, Author: Printable(v.Info.Author, nameRunes), What: wasChanged}
	var err error
	if x.New, err = r.read(ctx, v.Blob); err != nil {
		return x, err
	}
	if x.Old, err = r.read(ctx, v.Before); err != nil {
		return x, err
	}
	switch {
	case x.Old == nil:
		x.What = wasCreated
	case x.New == nil:
		x.What = wasDeleted
		x.Last = v.Info.Parents[0]
	default:
		// Of what people wrote some is no object: then there are no fields to name.
		fields, _ := kube.DiffPaths(x.Old, x.New, fieldsPerObject)
		for _, f := range fields {
			x.Fields = append(x.Fields, Printable(f, fieldRunes))
		}
	}
	if told, ok := toldOf(v.Info.Message, key); ok {
		x.Manager, x.Undoes = told.manager, told.undoes
		x.What = told.refine(x.What)
	}
	return x, nil
}

// DeletedObject is an object whose file a commit took away. All text in it is fit to be shown.
type DeletedObject struct {
	Key    kube.Key
	Commit gitstore.Hash
	When   time.Time // of committing
	Author string
	What   string        // deleted or unselected
	Last   gitstore.Hash // the commit before, which has it still
	Again  bool          // the commit that was asked about has it again
}

// DeletedLog returns the objects that match among those that were deleted, newest first, along first
// parents from a commit back to a time (zero: the beginning). With gitstore.ErrShallow what history
// here tells is returned, too.
func DeletedLog(ctx context.Context, from Archive, at gitstore.Hash, since time.Time, match func(kube.Key) bool) ([]DeletedObject, error) {
	var gone []gitstore.Deletion
	var blobs []gitstore.Hash // of files whose path does not tell all of the key
	short := from.Deletions(ctx, at, since, func(d gitstore.Deletion) bool {
		_, isCut, err := KeyOf(d.Path)
		if err == nil {
			gone = append(gone, d)
		}
		if isCut {
			blobs = append(blobs, d.Blob)
		}
		return true
	})
	if len(gone) == 0 {
		return nil, short
	}
	if err := from.Prefetch(ctx, blobs); err != nil {
		return nil, err
	}
	files, err := from.FilesAt(ctx, at)
	if err != nil {
		return nil, err
	}
	var out []DeletedObject
	for _, d := range gone {
		key, ours, err := keyOfDeleted(ctx, from, d)
		if err != nil {
			return nil, err
		}
		if !ours || !match(key) {
			continue
		}
		x := DeletedObject{
			Key: key, Commit: d.Commit, When: d.Info.When, Author: Printable(d.Info.Author, nameRunes), What: wasDeleted, Last: d.Last,
		}
		_, x.Again = files[d.Path]
		if told, ok := toldOf(d.Info.Message, key); ok {
			x.What = told.refine(x.What)
		}
		out = append(out, x)
	}
	return out, short
}

// keyOfDeleted returns the key of a file that is gone; ours is false when its content names another object.
func keyOfDeleted(ctx context.Context, from Archive, d gitstore.Deletion) (key kube.Key, ours bool, err error) {
	key, isCut, err := KeyOf(d.Path)
	if err != nil || !isCut {
		return key, err == nil, nil
	}
	content, err := from.Read(ctx, d.Blob)
	if err != nil {
		return key, false, err
	}
	key, _, err = decodeAt(d.Path, content)
	return key, err == nil, nil
}
