package odb

import (
	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/pack"
)

const (
	// thinChain bounds how many deltas reading an object may go through; then it is
	// written whole. It is git's own bound.
	thinChain = 50
	// thinBytes is what an object must have to be written as a delta: a small one
	// costs less whole than the reading of its base.
	thinBytes = 1 << 10
)

// AllowThin lets Write store objects as deltas against objects in other packs.
// Git itself reads no such pack: it is for a folder that only we read.
func (db *DB) AllowThin() { db.thin = true }

// lean decides which objects are written as deltas.
//
// Invariant: a delta's base is there, and its chain ends in a whole object after
// at most thinChain deltas. Tests: TestThinChain, TestThinBaseLost.
func (db *DB) lean(objects []Object) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for i := range objects {
		o := &objects[i]
		if o.Delta == nil {
			continue
		}
		if !db.thin || len(o.Content) < thinBytes || db.chain(o.Base) >= thinChain {
			o.Base, o.Delta = object.Hash{}, nil
		}
	}
}

// chain is how many deltas reading an object goes through: thinChain if it is
// more, or if its end is not here.
func (db *DB) chain(h object.Hash) int {
	for n := 0; n < thinChain; n++ {
		p, e, ok, err := db.find(h)
		if err != nil || !ok {
			if _, err := db.statLoose(h); err == nil {
				return n
			}
			return thinChain
		}
		db.limitOpen(p)
		raw, err := p.Header(e.Offset)
		for ; err == nil && raw.Type == object.OfsDelta && n < thinChain; n++ {
			raw, err = p.Header(raw.BaseOfs)
		}
		if err != nil {
			return thinChain
		}
		if raw.Type != object.RefDelta {
			return n
		}
		h = raw.BaseRef
	}
	return thinChain
}

// base reads what a delta in p is against. The same pack comes first, as git has
// it: a copy elsewhere may be a delta against what is being read.
func (db *DB) base(p *pack.Pack, h object.Hash, depth int) (object.Type, []byte, error) {
	e, ok, err := p.Find(h)
	if err != nil {
		return 0, nil, err
	}
	if ok {
		return db.entry(p, e.Offset, depth)
	}
	return db.read(h, depth)
}

// Solidify merges all packs into one that leans on nothing outside it, and
// deletes the others at once: nobody else may be reading them. After that git
// can read the database, until Write makes a thin pack again.
func (db *DB) Solidify() error {
	if err := db.Compact(true); err != nil {
		return err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.deleteRetired()
}
