// Package odb is an object database on disk: packs, and the loose objects and
// alternates that other tools leave. It writes packs only.
package odb

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/pack"
)

// ErrMissing says that an object is not in the database.
var ErrMissing = errors.New("object is missing")

// maxOpenFiles bounds how many packs stay open at once.
const maxOpenFiles = 64

// maxAlternates bounds how deep alternates may point at alternates, as in git.
const maxAlternates = 5

// cacheBytes bounds the delta bases kept in memory between reads.
const cacheBytes = 8 << 20

// DB reads and writes the objects below one or more folders. It is safe for
// several goroutines.
type DB struct {
	dirs     []string // objects folders: ours first, then alternates
	deflater *pack.Deflater

	mu    sync.Mutex
	packs []*pack.Pack // most recently useful first
	open  int
	in    pack.Inflater
	bases map[baseKey]base // delta bases read lately
	kept  int              // bytes in bases

	ownAll  bool
	wrote   map[string]bool // paths of packs that this process made
	retired []string        // paths of packs that were merged into another
}

type baseKey struct {
	pack   *pack.Pack
	offset int64
}

type base struct {
	t       object.Type
	content []byte
}

// Open opens the database in an objects folder. Nothing is read but the names
// of packs.
func Open(dir string) (*DB, error) {
	db := &DB{deflater: &pack.Deflater{}, bases: map[baseKey]base{}, wrote: map[string]bool{}}
	if err := db.addDir(dir, 0); err != nil {
		return nil, err
	}
	return db, db.Rescan()
}

func (db *DB) addDir(dir string, depth int) error {
	if depth > maxAlternates {
		return fmt.Errorf("read alternates of %s: more than %d deep", db.dirs[0], maxAlternates)
	}
	db.dirs = append(db.dirs, dir)
	b, err := os.ReadFile(filepath.Join(dir, "info", "alternates"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if !filepath.IsAbs(line) {
			line = filepath.Join(dir, line)
		}
		if _, err := os.Stat(line); err != nil {
			return fmt.Errorf("open alternate of %s: %w", dir, err)
		}
		if err := db.addDir(line, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// Rescan looks for packs that others added or removed since.
func (db *DB) Rescan() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.rescan()
}

func (db *DB) rescan() error {
	known := map[string]*pack.Pack{}
	for _, p := range db.packs {
		known[p.Path()] = p
	}
	var packs []*pack.Pack
	for _, dir := range db.dirs {
		entries, err := os.ReadDir(filepath.Join(dir, "pack"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			stem, ok := strings.CutSuffix(e.Name(), ".idx")
			if !ok || !strings.HasPrefix(stem, "pack-") {
				continue
			}
			path := filepath.Join(dir, "pack", stem+".pack")
			if slices.Contains(db.retired, path) {
				continue
			}
			p := known[path]
			if p == nil {
				p = pack.Open(path)
			}
			delete(known, path)
			packs = append(packs, p)
		}
	}
	var err error
	for _, gone := range known {
		err = errors.Join(err, gone.Close())
	}
	db.packs = packs
	return err
}

// Packs is how many packs the database has.
func (db *DB) Packs() int {
	db.mu.Lock()
	defer db.mu.Unlock()
	return len(db.packs)
}

// Has reports whether the object is there, as far as is known without
// looking for new packs.
func (db *DB) Has(h object.Hash) bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	if _, _, ok, err := db.find(h); ok && err == nil {
		return true
	}
	_, err := db.statLoose(h)
	return err == nil
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
		t, from, err = db.read(raw.BaseRef, depth+1)
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

// limitOpen closes the other packs when too many may be open.
func (db *DB) limitOpen(but *pack.Pack) {
	if db.open++; db.open <= maxOpenFiles || len(db.packs) <= maxOpenFiles {
		return
	}
	for _, p := range db.packs {
		if p != but {
			// A read-only file; its error says nothing about the data.
			_ = p.Close()
		}
	}
	db.open = 1
}

// Check looks at every pack's index and at the ends of every pack.
func (db *DB) Check() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, p := range db.packs {
		db.limitOpen(p)
		if err := p.Check(); err != nil {
			return err
		}
	}
	return nil
}

// DropCaches frees what earlier reads kept in memory.
func (db *DB) DropCaches() {
	db.mu.Lock()
	defer db.mu.Unlock()
	clear(db.bases)
	db.kept = 0
}

// Close closes all files.
func (db *DB) Close() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	var err error
	for _, p := range db.packs {
		err = errors.Join(err, p.Close())
	}
	return err
}
