package odb

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/pack"
)

// Packs are kept in classes of size, each so many times the one below. When a
// class has fanIn packs they become one, so each byte is copied a few times
// only, and the number of packs grows with the logarithm of their size.
const (
	smallPack   = 256 << 10 // bytes, the upper bound of the lowest class
	classFactor = 16
	fanIn       = 16
)

// Compact merges packs that this process wrote (or, with OwnAll, any) where
// too many of about the same size lie. With all, it merges every one of them.
// Those replaced are deleted one Compact later: a reader may have them open.
//
// Invariant: a pack is deleted only after the pack that holds all its objects
// is complete on disk. Test: TestCompactKeepsObjects.
func (db *DB) Compact(all bool) error {
	if db.multiIndexed() {
		return nil
	}
	for {
		group, err := db.group(all)
		if err != nil || len(group) < 2 {
			return err
		}
		if err := db.merge(group); err != nil {
			return fmt.Errorf("merge %d packs: %w", len(group), err)
		}
		if all {
			return nil
		}
	}
}

// multiIndexed tells whether git keeps an index over several packs, which would
// name what we delete. In a folder of our own nobody makes one.
func (db *DB) multiIndexed() bool {
	if db.ownAll {
		return false
	}
	for _, name := range []string{"multi-pack-index", "multi-pack-index.d"} {
		if _, err := os.Stat(filepath.Join(db.dirs[0], "pack", name)); err == nil {
			return true
		}
	}
	return false
}

// OwnAll says that every pack in the folder is ours to merge.
func (db *DB) OwnAll() { db.ownAll = true }

// group finds packs to be merged.
func (db *DB) group(all bool) ([]*pack.Pack, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	classes := map[int][]*pack.Pack{}
	for _, p := range db.packs {
		if filepath.Dir(p.Path()) != filepath.Join(db.dirs[0], "pack") || !db.ownAll && !db.wrote[p.Path()] {
			continue
		}
		if _, err := os.Stat(strings.TrimSuffix(p.Path(), ".pack") + ".keep"); err == nil {
			continue
		}
		info, err := os.Stat(p.Path())
		if errors.Is(err, fs.ErrNotExist) {
			continue // somebody repacked
		}
		if err != nil {
			return nil, err
		}
		class := 0
		for limit := int64(smallPack); info.Size() > limit && !all; limit *= classFactor {
			class++
		}
		classes[class] = append(classes[class], p)
	}
	for class := 0; class < 16; class++ {
		if g := classes[class]; len(g) >= fanIn || all && len(g) > 1 {
			slices.Reverse(g) // the list has the newest first; deltas want history's order
			return g, nil
		}
	}
	return nil, nil
}

// merge writes the objects of several packs as one and retires the packs.
func (db *DB) merge(group []*pack.Pack) error {
	m := &merger{db: db, at: map[object.Hash]int64{}, depth: map[object.Hash]int{}}
	if err := m.plan(group); err != nil {
		return err
	}
	if err := db.place(m.write); err != nil {
		return err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	err := db.deleteRetired()
	for _, p := range group {
		if p.Path() == m.name(db) {
			continue // the merged pack is one of those that went in
		}
		err = errors.Join(err, p.Close())
		db.packs = slices.DeleteFunc(db.packs, func(q *pack.Pack) bool { return q == p })
		delete(db.wrote, p.Path())
		db.retired = append(db.retired, p.Path())
	}
	clear(db.bases)
	db.kept = 0
	return errors.Join(err, db.noteWrote())
}

// deleteRetired removes packs that were replaced a generation ago: index
// first, for readers find packs by it.
func (db *DB) deleteRetired() error {
	if db.multiIndexed() {
		return nil // they wait
	}
	var err error
	for _, path := range db.retired {
		if !db.ownAll && !db.elsewhere(path) {
			continue // a person's git pruned what it was merged into: it is theirs now
		}
		for _, suffix := range []string{".idx", ".rev", ".pack"} {
			if rm := os.Remove(strings.TrimSuffix(path, ".pack") + suffix); rm != nil && !errors.Is(rm, fs.ErrNotExist) {
				err = errors.Join(err, rm)
			}
		}
	}
	db.retired = nil
	return err
}

// elsewhere tells whether every object of a retired pack is in the others.
func (db *DB) elsewhere(path string) bool {
	p := pack.Open(path)
	defer func() { _ = p.Close() }() // a read-only file; its error says nothing about the data
	entries, err := p.Entries()
	if errors.Is(err, fs.ErrNotExist) {
		return true // nothing is left to delete but a piece
	}
	if err != nil {
		return false
	}
	for _, e := range entries {
		if !db.packed(e.Hash) {
			return false
		}
	}
	return true
}

// Remember keeps, in a file, which packs are ours to merge, so that a process
// that starts again and again merges what its forerunners wrote.
func (db *DB) Remember(file string) error {
	b, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.list = file
	for line := range strings.Lines(string(b)) {
		name, retired := strings.CutPrefix(strings.TrimSpace(line), retiredMark)
		// A list that was cut short, or touched, is no reason to merge anything else.
		if name != filepath.Base(name) || !strings.HasPrefix(name, "pack-") || !strings.HasSuffix(name, ".pack") {
			continue
		}
		path := filepath.Join(db.dirs[0], "pack", name)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		if retired {
			db.retired = append(db.retired, path)
		} else {
			db.wrote[path] = true
		}
	}
	return db.rescan()
}

// retiredMark stands in the list before packs that wait to be deleted.
const retiredMark = "merged "

// noteWrote writes the file of Remember: our packs, and those that wait to be
// deleted. Until a merge is noted its packs count as ours, to be merged again.
func (db *DB) noteWrote() error {
	if db.list == "" {
		return nil
	}
	var lines []string
	for path := range db.wrote {
		lines = append(lines, filepath.Base(path)+"\n")
	}
	for _, path := range db.retired {
		lines = append(lines, retiredMark+filepath.Base(path)+"\n")
	}
	slices.Sort(lines)
	temp := db.list + ".tmp"
	if err := os.WriteFile(temp, []byte(strings.Join(lines, "")), 0o666); err != nil {
		return err
	}
	return os.Rename(temp, db.list)
}

// merger copies entries from packs to one pack.
type merger struct {
	db    *DB
	from  []source
	at    map[object.Hash]int64 // where an object lies in the new pack
	depth map[object.Hash]int   // of its chain of deltas there
	sum   object.Hash
	trees []writtenTree // the large trees written last, newest last
	in    pack.Inflater
}

// source is one entry to be copied.
type source struct {
	p        *pack.Pack
	entry    pack.Entry
	next     int64                 // where the following entry begins
	byOffset map[int64]object.Hash // of its pack
}

type writtenTree struct {
	hash    object.Hash
	content []byte
}

func (m *merger) name(db *DB) string {
	return filepath.Join(db.dirs[0], "pack", "pack-"+m.sum.String()+".pack")
}

// plan lists the entries to be copied, each object once.
func (m *merger) plan(group []*pack.Pack) error {
	seen := map[object.Hash]bool{}
	for _, p := range group {
		entries, err := p.Entries()
		if err != nil {
			return err
		}
		size, err := p.Size()
		if err != nil {
			return err
		}
		byOffset := make(map[int64]object.Hash, len(entries))
		for i, e := range entries {
			byOffset[e.Offset] = e.Hash
			next := size - int64(len(object.Hash{}))
			if i+1 < len(entries) {
				next = entries[i+1].Offset
			}
			if !seen[e.Hash] {
				seen[e.Hash] = true
				m.from = append(m.from, source{p, e, next, byOffset})
			}
		}
	}
	return nil
}

func (m *merger) write(f *os.File) ([]byte, object.Hash, error) {
	buffered := bufio.NewWriterSize(f, 1<<16)
	w, err := pack.NewWriter(buffered, len(m.from), m.db.deflater)
	if err != nil {
		return nil, m.sum, err
	}
	for _, s := range m.from {
		at := w.Offset()
		if err := m.copy(w, s); err != nil {
			return nil, m.sum, err
		}
		m.at[s.entry.Hash] = at
	}
	if m.sum, err = w.Close(); err != nil {
		return nil, m.sum, err
	}
	return w.Index(), m.sum, buffered.Flush()
}

// copy writes one entry: deltas and small objects as they are stored, large
// trees as deltas against the version before.
func (m *merger) copy(w *pack.Writer, s source) error {
	h := s.entry.Hash
	raw, err := s.p.Header(s.entry.Offset)
	if err != nil {
		return err
	}
	base := raw.BaseRef
	switch raw.Type {
	case object.OfsDelta:
		base = s.byOffset[raw.BaseOfs]
	case object.RefDelta:
	case object.Tree:
		if raw.Size >= largeTree {
			return m.copyTree(w, s, raw)
		}
		fallthrough
	default:
		deflated, err := s.p.Deflated(s.entry, raw, s.next)
		if err != nil {
			return err
		}
		return w.AddCompressed(raw.Type, h, raw.Size, deflated)
	}
	at, ok := m.at[base]
	if !ok {
		// Its base comes later or lies elsewhere: store it whole.
		t, content, err := m.db.Read(h)
		if err != nil {
			return err
		}
		return w.Add(t, h, content)
	}
	deflated, err := s.p.Deflated(s.entry, raw, s.next)
	if err != nil {
		return err
	}
	m.depth[h] = m.depth[base] + 1
	return w.AddCompressedDelta(h, at, raw.Size, deflated)
}

const (
	largeTree = 2 << 10 // bytes
	treeRing  = 8       // how many large trees are tried as bases
	maxChain  = 50      // of deltas, as git has it
)

// copyTree stores a large tree as a delta against one written before, if one
// is near: a folder's next version differs by few entries.
func (m *merger) copyTree(w *pack.Writer, s source, raw pack.Raw) error {
	content, err := s.p.Inflate(raw, &m.in)
	if err != nil {
		return err
	}
	h := s.entry.Hash
	if got := object.Sum(object.Tree, content); got != h {
		return fmt.Errorf("%w: tree %s has hash %s", pack.ErrDamaged, h, got)
	}
	var best []byte
	var base object.Hash
	for _, t := range slices.Backward(m.trees) {
		if m.depth[t.hash] >= maxChain {
			continue
		}
		if d, ok := pack.Diff(t.content, content); ok && (best == nil || len(d) < len(best)) {
			best, base = d, t.hash
		}
		if best != nil && len(best) < 256 {
			break
		}
	}
	m.trees = append(m.trees, writtenTree{h, content})
	if len(m.trees) > treeRing {
		m.trees = m.trees[1:]
	}
	if best != nil {
		m.depth[h] = m.depth[base] + 1
		return w.AddOffsetDelta(h, m.at[base], best)
	}
	return w.Add(object.Tree, h, content)
}
