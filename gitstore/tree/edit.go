package tree

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/pack"
)

// Edit sets the file at a slash path to a blob; a zero Blob removes it. A file
// that exists keeps its mode, a new one is a regular file.
type Edit struct {
	Path string
	Blob object.Hash
}

// New is a tree object that an edit made.
type New struct {
	Hash    object.Hash
	Content []byte
	// Base is the tree that stood in its place and Delta what leads from it to
	// Content; nil where there was none.
	Base  object.Hash
	Delta []byte
}

// Apply returns the tree with the edits done, and the tree objects that are
// new, deepest first. Folders left empty disappear, as git knows none. An edit
// that says what is there already is no change. A path that needs a folder
// where a file is, or a file where a folder is, is an error. The edits get sorted.
func (t Tree) Apply(edits []Edit) (Tree, []New, error) {
	slices.SortFunc(edits, func(a, b Edit) int { return strings.Compare(a.Path, b.Path) })
	for i := 1; i < len(edits); i++ {
		if edits[i].Path == edits[i-1].Path {
			return t, nil, fmt.Errorf("edit %s: it is there twice", edits[i].Path)
		}
	}
	var news []New
	root, err := apply(t.top(), "", edits, &news)
	if err != nil {
		return t, nil, err
	}
	if root != t.top() && len(root.entries) == 0 {
		news = append(news, New{Hash: object.EmptyTree})
	}
	return Tree{root}, news, nil
}

// apply edits one folder; the edits' paths all begin with prefix.
func apply(old *dir, prefix string, edits []Edit, news *[]New) (*dir, error) {
	changed := make([]entry, 0, names(prefix, edits))
	for len(edits) > 0 {
		name, below, n := first(prefix, edits)
		if name == "" {
			return nil, fmt.Errorf("edit %q: not a path", edits[0].Path)
		}
		e, err := edited(old, prefix, name, below, edits[:n], news)
		if err != nil {
			return nil, err
		}
		changed = append(changed, e)
		edits = edits[n:]
	}
	return old.with(changed, news), nil
}

// first returns the name in the folder prefix that the first edits are about,
// whether they lie below it, and how many they are.
func first(prefix string, edits []Edit) (name string, below bool, n int) {
	name, _, below = strings.Cut(edits[0].Path[len(prefix):], "/")
	n = 1
	if below {
		under := edits[0].Path[:len(prefix)+len(name)+1]
		for n < len(edits) && strings.HasPrefix(edits[n].Path, under) {
			n++
		}
	}
	return name, below, n
}

// names is how many names in the folder prefix the edits are about.
func names(prefix string, edits []Edit) int {
	count := 0
	for len(edits) > 0 {
		_, _, n := first(prefix, edits)
		edits = edits[n:]
		count++
	}
	return count
}

// edited returns a folder's entry after edits to it or below it, with a zero
// hash when it is gone.
func edited(old *dir, prefix, name string, below bool, edits []Edit, news *[]New) (entry, error) {
	was, exists := old.find(name)
	if exists {
		name = was.name
	} else {
		name = strings.Clone(name) // the path is the caller's, and longer
	}
	if !below {
		e := entry{name: name, hash: edits[0].Blob, mode: filemode.Regular}
		switch {
		case exists && was.dir != nil:
			return e, fmt.Errorf("edit %s: a folder is there", edits[0].Path)
		case exists && was.mode == filemode.Executable:
			e.mode = was.mode
		}
		return e, nil
	}
	if exists && was.dir == nil {
		return entry{}, fmt.Errorf("edit %s: %s is a file", edits[0].Path, prefix+name)
	}
	sub := was.dir
	if sub == nil {
		sub = empty
	}
	d, err := apply(sub, prefix+name+"/", edits, news)
	if err != nil {
		return entry{}, err
	}
	e := entry{name: name, hash: d.hash, mode: filemode.Dir, dir: d}
	if len(d.entries) == 0 {
		e.hash = object.Hash{}
	}
	return e, nil
}

// with returns the folder with entries replaced, added or (zero hash) removed.
// One pass over both writes the new content and the delta that leads to it.
func (d *dir) with(changed []entry, news *[]New) *dir {
	slices.SortFunc(changed, compare)
	if len(d.entries) == 0 {
		return fill(changed, news)
	}
	w := rewriter{old: d, next: &dir{entries: make([]entry, 0, len(d.entries)+len(changed))}}
	w.content = make([]byte, 0, int(d.size)+64*len(changed))
	same := true
	for _, e := range changed {
		at, exists := slices.BinarySearchFunc(d.entries[w.done:], e, compare)
		w.keep(at)
		if exists {
			if was := d.entries[w.done]; was.hash == e.hash && was.mode == e.mode {
				continue
			}
			w.skip()
		}
		if !e.hash.IsZero() {
			w.add(e)
		}
		same = same && !exists && e.hash.IsZero()
	}
	if same {
		return d
	}
	w.keep(len(d.entries) - w.done)
	next := w.next
	next.entries = slices.Clip(next.entries)
	next.size = int64(len(w.content))
	next.hash = object.Sum(object.Tree, w.content)
	if len(next.entries) > 0 {
		*news = append(*news, w.made())
	}
	return next
}

// rewriter writes a folder's next version, and the delta that leads to it.
type rewriter struct {
	old, next *dir
	content   []byte // of next
	delta     pack.Delta
	done      int   // how many entries of old were looked at
	at        int64 // where they end in old's content
}

// keep takes over the next n entries.
func (w *rewriter) keep(n int) {
	run := w.old.entries[w.done : w.done+n]
	from := len(w.content)
	for i := range run {
		w.content = object.AppendEntry(w.content, run[i].name, run[i].mode, run[i].hash)
	}
	size := int64(len(w.content) - from)
	w.next.entries = append(w.next.entries, run...)
	w.delta.Copy(w.at, size)
	w.done, w.at = w.done+n, w.at+size
}

// skip leaves out the next entry.
func (w *rewriter) skip() {
	e := &w.old.entries[w.done]
	w.done, w.at = w.done+1, w.at+int64(object.EntryLen(e.name, e.mode))
}

// add writes an entry that the old folder does not have.
func (w *rewriter) add(e entry) {
	from := len(w.content)
	w.content = object.AppendEntry(w.content, e.name, e.mode, e.hash)
	w.next.entries = append(w.next.entries, e)
	w.delta.Insert(w.content[from:])
}

// fill returns a new folder with these entries, whose list it keeps, but those
// that are to be removed.
func fill(entries []entry, news *[]New) *dir {
	entries = slices.DeleteFunc(entries, func(e entry) bool { return e.hash.IsZero() })
	if len(entries) == 0 {
		return empty
	}
	next := &dir{entries: entries}
	for i := range entries {
		next.size += int64(object.EntryLen(entries[i].name, entries[i].mode))
	}
	content := make([]byte, 0, next.size)
	for i := range entries {
		content = object.AppendEntry(content, entries[i].name, entries[i].mode, entries[i].hash)
	}
	next.hash = object.Sum(object.Tree, content)
	*news = append(*news, New{Hash: next.hash, Content: content})
	return next
}

// made describes the new folder as an object. Its delta is dropped when it
// saves less than half, or when the old object was not written as we would
// (its end is not where we think it is).
func (w *rewriter) made() New {
	n := New{Hash: w.next.hash, Content: w.content}
	if w.at != w.old.size {
		return n
	}
	if b := w.delta.Bytes(w.old.size); 2*len(b) < len(w.content) {
		n.Base, n.Delta = w.old.hash, b
	}
	return n
}

func compare(a, b entry) int {
	return object.Compare(a.name, a.mode == filemode.Dir, b.name, b.mode == filemode.Dir)
}

// Nest returns a tree that holds nothing but t, at a slash path, and the tree
// objects above t that are new. The empty path is t itself.
func Nest(path string, t Tree) (Tree, []New) {
	if path == "" || len(t.top().entries) == 0 {
		if len(t.top().entries) == 0 {
			return Tree{}, []New{{Hash: object.EmptyTree}}
		}
		return t, nil
	}
	d := t.top()
	var news []New
	names := strings.Split(path, "/")
	for _, name := range slices.Backward(names) {
		d = empty.with([]entry{{name: name, hash: d.hash, mode: filemode.Dir, dir: d}}, &news)
	}
	return Tree{d}, news
}
