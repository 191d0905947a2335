// Package tree holds a whole git tree in memory as folders of names and
// hashes, and derives new trees from edits at a cost that follows the edits.
// Trees are values: an edited one shares with the old one what did not change.
package tree

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/crmirror/crmirror/gitstore/object"
)

// Tree is a tree in memory. The zero Tree is empty. It is safe to read from
// several goroutines, for nothing ever changes it.
type Tree struct{ root *dir }

type dir struct {
	hash    object.Hash
	size    int64 // of its content as an object
	entries []entry
}

// entry is one name of a folder, about 60 bytes and the name.
type entry struct {
	name string
	hash object.Hash
	mode filemode.FileMode
	dir  *dir // of a folder
}

var empty = &dir{hash: object.EmptyTree}

func (t Tree) top() *dir {
	if t.root == nil {
		return empty
	}
	return t.root
}

// Hash is the tree's name as an object.
func (t Tree) Hash() object.Hash { return t.top().hash }

// Load reads a tree and all trees below it; blobs are not read. Folders that
// prev has with the same hash at the same place are shared with it.
func Load(read func(object.Hash) (object.Type, []byte, error), root object.Hash, prev Tree) (Tree, error) {
	d, err := load(read, root, prev.root)
	return Tree{d}, err
}

// maxDepth bounds folders in folders, so that a malformed tree cannot exhaust the stack.
const maxDepth = 1000

func load(read func(object.Hash) (object.Type, []byte, error), h object.Hash, prev *dir) (*dir, error) {
	return loadDir(read, h, prev, 0)
}

func loadDir(read func(object.Hash) (object.Type, []byte, error), h object.Hash, prev *dir, depth int) (*dir, error) {
	if prev != nil && prev.hash == h {
		return prev, nil
	}
	if h == object.EmptyTree {
		return empty, nil
	}
	t, content, err := read(h)
	if err != nil {
		return nil, err
	}
	if t != object.Tree || depth > maxDepth {
		return nil, fmt.Errorf("read tree %s: it is a %s, %d folders deep", h, t, depth)
	}
	d := &dir{hash: h, size: int64(len(content)), entries: make([]entry, 0, object.CountEntries(content))}
	for e, err := range object.Entries(content) {
		if err != nil {
			return nil, fmt.Errorf("read tree %s: %w", h, err)
		}
		sub := entry{name: e.Name, hash: e.Hash, mode: e.Mode}
		if e.Mode == filemode.Dir {
			old, _ := prev.find(e.Name)
			if sub.dir, err = loadDir(read, e.Hash, old.dir, depth+1); err != nil {
				return nil, err
			}
		}
		d.entries = append(d.entries, sub)
	}
	return d, nil
}

// find returns the entry of that name, be it a file or a folder.
func (d *dir) find(name string) (entry, bool) {
	if d == nil {
		return entry{}, false
	}
	for _, asDir := range [2]bool{false, true} {
		if i, ok := d.search(name, asDir); ok {
			return d.entries[i], true
		}
	}
	return entry{}, false
}

func (d *dir) search(name string, asDir bool) (int, bool) {
	return slices.BinarySearchFunc(d.entries, name, func(e entry, name string) int {
		return object.Compare(e.name, e.mode == filemode.Dir, name, asDir)
	})
}

// Lookup returns what lies at a slash path; ok is false for nothing.
func (t Tree) Lookup(path string) (h object.Hash, mode filemode.FileMode, ok bool) {
	d := t.top()
	for {
		name, rest, more := strings.Cut(path, "/")
		e, found := d.find(name)
		switch {
		case !found:
			return h, 0, false
		case !more:
			return e.hash, e.mode, true
		case e.dir == nil:
			return h, 0, false
		}
		d, path = e.dir, rest
	}
}

// Sub returns the tree below a slash path, empty when there is none. The empty
// path is the tree itself.
func (t Tree) Sub(path string) Tree {
	if path == "" {
		return t
	}
	d := t.top()
	for name := range strings.SplitSeq(path, "/") {
		e, _ := d.find(name)
		if e.dir == nil {
			return Tree{}
		}
		d = e.dir
	}
	return Tree{d}
}

// Walk calls fn for everything that is not a folder, in the byte order of the
// paths, until fn returns false; then Walk does too.
func (t Tree) Walk(fn func(path string, h object.Hash, mode filemode.FileMode) bool) bool {
	return t.top().walk("", fn)
}

func (d *dir) walk(prefix string, fn func(string, object.Hash, filemode.FileMode) bool) bool {
	for i := range d.entries {
		e := &d.entries[i]
		if e.dir != nil {
			if !e.dir.walk(prefix+e.name+"/", fn) {
				return false
			}
		} else if !fn(prefix+e.name, e.hash, e.mode) {
			return false
		}
	}
	return true
}

// Dirs calls fn for every folder, the tree itself first with an empty path.
func (t Tree) Dirs(fn func(path string, h object.Hash)) { t.top().dirs("", fn) }

func (d *dir) dirs(path string, fn func(string, object.Hash)) {
	fn(path, d.hash)
	for i := range d.entries {
		if e := &d.entries[i]; e.dir != nil {
			e.dir.dirs(join(path, e.name), fn)
		}
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "/" + name
}

// Change is one file that differs between two trees. A zero hash is no file.
type Change struct {
	Path             string
	Old, New         object.Hash
	OldMode, NewMode filemode.FileMode
}

// Diff returns the files that differ, ordered by path. Its cost follows the
// folders that differ.
func Diff(old, new Tree) []Change {
	var changes []Change
	diff("", old.top(), new.top(), &changes)
	return changes
}

func diff(prefix string, old, new *dir, out *[]Change) {
	if old == new || old.hash == new.hash {
		return
	}
	i, j := 0, 0
	for i < len(old.entries) || j < len(new.entries) {
		var a, b *entry
		c := 0
		switch {
		case i == len(old.entries):
			c = 1
		case j == len(new.entries):
			c = -1
		default:
			a, b = &old.entries[i], &new.entries[j]
			c = object.Compare(a.name, a.dir != nil, b.name, b.dir != nil)
		}
		switch {
		case c < 0:
			old.entries[i].tell(prefix, false, out)
			i++
		case c > 0:
			new.entries[j].tell(prefix, true, out)
			j++
		default:
			i, j = i+1, j+1
			switch {
			case a.hash == b.hash && a.mode == b.mode:
			case a.dir != nil && b.dir != nil:
				diff(prefix+a.name+"/", a.dir, b.dir, out)
			default:
				*out = append(*out, Change{prefix + a.name, a.hash, b.hash, a.mode, b.mode})
			}
		}
	}
}

// tell adds every file of an entry that only one side has.
func (e *entry) tell(prefix string, isNew bool, out *[]Change) {
	add := func(path string, h object.Hash, mode filemode.FileMode) bool {
		c := Change{Path: path, Old: h, OldMode: mode}
		if isNew {
			c = Change{Path: path, New: h, NewMode: mode}
		}
		*out = append(*out, c)
		return true
	}
	if e.dir != nil {
		e.dir.walk(prefix+e.name+"/", add)
		return
	}
	add(prefix+e.name, e.hash, e.mode)
}

// News calls fn for every object of new, the tree itself included, that does
// not stand at the same place in old, with what stood there instead (zero for
// nothing).
func News(old, new Tree, fn func(h, base object.Hash, kind object.Type)) {
	news(old.top(), new.top(), fn)
}

func news(old, new *dir, fn func(h, base object.Hash, kind object.Type)) {
	if old.hash == new.hash {
		return
	}
	base := old.hash
	if len(old.entries) == 0 {
		base = object.Hash{}
	}
	fn(new.hash, base, object.Tree)
	for i := range new.entries {
		e := &new.entries[i]
		was, _ := old.find(e.name)
		switch {
		case e.hash == was.hash || e.mode == filemode.Submodule:
		case e.dir == nil && was.dir == nil:
			fn(e.hash, was.hash, object.Blob)
		case e.dir == nil:
			fn(e.hash, object.Hash{}, object.Blob)
		case was.dir == nil:
			news(empty, e.dir, fn)
		default:
			news(was.dir, e.dir, fn)
		}
	}
}
