package odb

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/pack"
)

// cacheBytes bounds the delta bases kept in memory between reads.
const cacheBytes = 8 << 20

// Has reports whether the object is there, as far as is known without
// looking for new packs.
//
// Invariant: where others may pack and prune, an index read before proves
// nothing; the pack itself must be there still. Test: TestRepackedByPerson.
func (db *DB) Has(h object.Hash) bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.packed(h) {
		return true
	}
	_, err := db.statLoose(h)
	return err == nil
}

// packed looks for an object in the packs, and anew when one of them is gone.
func (db *DB) packed(h object.Hash) bool {
	for range 2 {
		p, _, ok, err := db.find(h)
		if !ok && err == nil {
			return false
		}
		if ok && !db.ownAll {
			_, err = os.Stat(p.Path())
		}
		if ok && err == nil {
			delete(db.dropped, h) // somebody may rely on it now
			return true
		}
		if db.ownAll || db.rescan() != nil {
			return false
		}
	}
	return false
}

// Read returns an object, its hash verified. ErrMissing when it is not there;
// pack.ErrDamaged when it is there and cannot be read.
func (db *DB) Read(h object.Hash) (object.Type, []byte, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	t, content, err := db.read(h, 0)
	if errors.Is(err, ErrMissing) || errors.Is(err, fs.ErrNotExist) {
		// Another process may have packed or repacked in the meantime.
		if err := db.rescan(); err != nil {
			return 0, nil, err
		}
		t, content, err = db.read(h, 0)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("read object %s: %w", h, err)
	}
	if got := object.Sum(t, content); got != h {
		return 0, nil, fmt.Errorf("read object %s: %w: its content has hash %s", h, pack.ErrDamaged, got)
	}
	return t, content, nil
}

// find looks through the packs and moves the one that has the object to the
// front: neighbours in history lie in the same pack.
func (db *DB) find(h object.Hash) (*pack.Pack, pack.Entry, bool, error) {
	var damage error
	for i, p := range db.packs {
		e, ok, err := p.Find(h)
		if err != nil {
			damage = err
			continue
		}
		if ok {
			copy(db.packs[1:i+1], db.packs[:i])
			db.packs[0] = p
			return p, e, true, nil
		}
	}
	return nil, pack.Entry{}, false, damage
}

func (db *DB) read(h object.Hash, depth int) (object.Type, []byte, error) {
	p, e, ok, err := db.find(h)
	if ok {
		return db.entry(p, e.Offset, depth)
	}
	t, content, looseErr := db.readLoose(h)
	if errors.Is(looseErr, ErrMissing) && err != nil {
		return 0, nil, err
	}
	return t, content, looseErr
}

// maxDepth bounds chains of deltas; git makes them 50 long, 4,095 at most.
const maxDepth = 4096

// entry reads what lies at an offset of a pack, through its chain of deltas.
func (db *DB) entry(p *pack.Pack, offset int64, depth int) (object.Type, []byte, error) {
	if b, ok := db.bases[baseKey{p, offset}]; ok {
		return b.t, b.content, nil
	}
	if depth > maxDepth {
		return 0, nil, fmt.Errorf("%w: %s: endless chain of deltas", pack.ErrDamaged, p.Path())
	}
	db.limitOpen(p)
	raw, err := p.Header(offset)
	if err != nil {
		return 0, nil, err
	}
	content, err := p.Inflate(raw, &db.in)
	if err != nil {
		return 0, nil, err
	}
	var t object.Type
	var from []byte
	switch raw.Type {
	case object.OfsDelta:
		t, from, err = db.entry(p, raw.BaseOfs, depth+1)
	case object.RefDelta:
		t, from, err = db.base(p, raw.BaseRef, depth+1)
	default:
		if depth > 0 {
			db.keep(baseKey{p, offset}, base{raw.Type, content})
		}
		return raw.Type, content, nil
	}
	if err != nil {
		return 0, nil, err
	}
	patched, err := pack.Patch(from, content)
	if err != nil {
		return 0, nil, fmt.Errorf("%w: entry at %d of %s: %w", pack.ErrDamaged, offset, p.Path(), err)
	}
	if depth > 0 {
		db.keep(baseKey{p, offset}, base{t, patched})
	}
	return t, patched, nil
}

// Compressed returns an object as it is stored, deflated; ok is false when it
// is not stored whole in a pack, or not soundly.
func (db *DB) Compressed(h object.Hash) (t object.Type, size int64, deflated []byte, ok bool) {
	db.mu.Lock()
	defer db.mu.Unlock()
	p, e, ok, err := db.find(h)
	if !ok || err != nil {
		return 0, 0, nil, false
	}
	db.limitOpen(p)
	raw, err := p.Header(e.Offset)
	if err != nil || raw.Type == object.OfsDelta || raw.Type == object.RefDelta {
		return 0, 0, nil, false
	}
	next, err := p.Next(e.Offset)
	if err != nil {
		return 0, 0, nil, false
	}
	deflated, err = p.Deflated(e, raw, next)
	return raw.Type, raw.Size, deflated, err == nil
}

func (db *DB) keep(k baseKey, b base) {
	if db.kept+len(b.content) > cacheBytes {
		clear(db.bases)
		db.kept = 0
	}
	db.bases[k] = b
	db.kept += len(b.content)
}
