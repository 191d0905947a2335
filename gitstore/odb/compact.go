package odb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/pack"
)

// Packs are kept so that each is at least twice as large as all smaller ones
// together, as "git repack --geometric" does. Once fanIn of them would have to be
// merged for that, they are: so each byte is copied a few times only, and the
// number of packs grows with the logarithm of their size.
const (
	fanIn = 12
	// mergeBytes bounds what is merged at once: it takes some tenths of a second,
	// and nothing else is done meanwhile. Larger packs wait for a merge of all.
	mergeBytes = 32 << 20
	// retireTime is how long replaced packs stay: a reader may have them open. Git
	// itself leaves no time at all, for its own readers look for packs anew.
	retireTime = 10 * time.Second
)

// Compact merges packs that this process wrote (or, with OwnAll, any) where
// many small ones lie, a bounded number of bytes at once. With all, it merges
// every one of them, so that nothing leans on anything outside the pack that
// comes of it. Those replaced are deleted by a later call.
//
// Invariant: a pack is deleted only after the pack that holds all its objects
// is complete on disk. Tests: TestCompactKeepsObjects, TestKilledWhileMerging in gitstore.
func (db *DB) Compact(all bool) error { return db.compact(context.Background(), all) }

// MergeAll is Compact of all packs; when ctx ends it changes nothing.
func (db *DB) MergeAll(ctx context.Context) error { return db.compact(ctx, true) }

func (db *DB) compact(ctx context.Context, all bool) error {
	if db.multiIndexed() {
		return nil
	}
	if err := db.forgetReplaced(); err != nil {
		return err
	}
	group, err := db.group(all)
	if err != nil || len(group) < 2 {
		return err
	}
	if err := db.merge(ctx, group, all, nil); err != nil {
		return fmt.Errorf("merge %d packs: %w", len(group), err)
	}
	return nil
}

// Drop says that nothing needs these objects any more, neither here nor as the
// base of a delta: merges leave them out, unless somebody asks for them before.
// In a folder that is not ours alone it does nothing.
func (db *DB) Drop(hashes ...object.Hash) {
	if !db.ownAll {
		return
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, h := range hashes {
		db.dropped[h] = struct{}{}
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

// group finds packs to be merged: all that are ours, or small ones.
func (db *DB) group(all bool) ([]*pack.Pack, error) {
	ours, sizes, err := db.mergeable()
	if err != nil || all {
		return ours, err
	}
	slices.SortStableFunc(ours, func(a, b *pack.Pack) int { return cmp.Compare(sizes[a], sizes[b]) })
	before := make([]int64, len(ours)+1) // the sizes of those that are smaller
	for i, p := range ours {
		before[i+1] = before[i] + sizes[p]
	}
	n := len(ours)
	for n > 0 && (before[n] > mergeBytes || sizes[ours[n-1]] >= 2*before[n-1]) {
		n--
	}
	if n < fanIn {
		return nil, nil
	}
	return ours[:n], nil
}

// Mergeable is how many packs a merge of all would make one of.
func (db *DB) Mergeable() int {
	if db.Packs() < 2 || db.multiIndexed() {
		return 0
	}
	ours, _, err := db.mergeable()
	if err != nil {
		return 0
	}
	return len(ours)
}

// mergeable returns the packs that are ours to merge, with their sizes.
func (db *DB) mergeable() (ours []*pack.Pack, sizes map[*pack.Pack]int64, err error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	sizes = map[*pack.Pack]int64{}
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
			return nil, nil, err
		}
		ours = append(ours, p)
		sizes[p] = info.Size()
	}
	return ours, sizes, nil
}

// merge writes the objects of several packs as one and retires the packs. With
// live, it leaves out what is not. Nothing may be written meanwhile.
func (db *DB) merge(ctx context.Context, group []*pack.Pack, all bool, live *Live) error {
	m := &merger{db: db, ended: ctx.Err, packs: group, full: all, thin: db.thin && !all}
	if err := m.plan(); err != nil {
		return err
	}
	trace := m.pair
	if live != nil {
		trace = func() error { return m.mark(*live) }
	}
	if err := trace(); err != nil {
		return err
	}
	if err := db.place(m.write); err != nil {
		return err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	err := db.deleteRetired()
	for _, p := range group {
		if p.Path() == m.name() {
			continue // the merged pack is one of those that went in
		}
		err = errors.Join(err, p.Close())
		db.packs = slices.DeleteFunc(db.packs, func(q *pack.Pack) bool { return q == p })
		delete(db.wrote, p.Path())
		db.retired = append(db.retired, p.Path())
	}
	db.replaced = time.Now()
	for _, h := range m.left {
		delete(db.dropped, h)
	}
	clear(db.bases)
	db.kept = 0
	if db.thin {
		// Nobody else reads here.
		err = errors.Join(err, db.deleteRetired())
	}
	return errors.Join(err, db.noteWrote())
}

// forgetReplaced deletes replaced packs once their time is over.
func (db *DB) forgetReplaced() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if len(db.retired) == 0 || time.Since(db.replaced) < retireTime {
		return nil
	}
	return errors.Join(db.deleteRetired(), db.noteWrote())
}

// deleteRetired removes packs that were replaced before: index first, for readers
// find packs by it.
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

// Remember keeps, in a file, which packs are ours to merge and which were merged
// and wait to be deleted, so that a process that starts again and again merges
// what its forerunners wrote, and deletes what they merged. Where all packs are
// ours it keeps the latter only.
func (db *DB) Remember(file string) error {
	b, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.list, db.listed = file, string(b)
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
	if !db.ownAll {
		for path := range db.wrote {
			lines = append(lines, filepath.Base(path)+"\n")
		}
	}
	for _, path := range db.retired {
		lines = append(lines, retiredMark+filepath.Base(path)+"\n")
	}
	slices.Sort(lines)
	text := strings.Join(lines, "")
	if text == db.listed {
		return nil
	}
	temp := db.list + ".tmp"
	if err := os.WriteFile(temp, []byte(text), 0o666); err != nil {
		return err
	}
	if err := os.Rename(temp, db.list); err != nil {
		return err
	}
	db.listed = text
	return nil
}
