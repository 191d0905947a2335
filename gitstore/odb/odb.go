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
	"time"

	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/pack"
)

// ErrMissing says that an object is not in the database.
var ErrMissing = errors.New("object is missing")

// maxOpenFiles bounds how many packs stay open at once.
const maxOpenFiles = 64

// maxAlternates bounds how deep alternates may point at alternates, as in git.
const maxAlternates = 5

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

	ownAll   bool
	thin     bool
	wrote    map[string]bool          // paths of packs that this process made
	retired  []string                 // paths of packs that were merged into another
	replaced time.Time                // when the last of them was
	dropped  map[object.Hash]struct{} // what merges leave out
	list     string                   // the file of Remember
	listed   string                   // what it says
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
	db := &DB{deflater: &pack.Deflater{}, bases: map[baseKey]base{}, wrote: map[string]bool{}, dropped: map[object.Hash]struct{}{}}
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
