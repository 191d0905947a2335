package odb

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/pack"
)

// Object is an object to be written.
type Object = pack.Object

// Deflater is what this database compresses with, for whoever writes a pack
// to somewhere else.
func (db *DB) Deflater() *pack.Deflater { return db.deflater }

// Write stores objects as one pack, on disk when it returns. Those that are
// there already, and doubles, are left out. The list is not the caller's any more.
func (db *DB) Write(objects []Object) error {
	if !db.ownAll {
		if err := db.Rescan(); err != nil {
			return err
		}
	}
	news, err := db.lacking(objects)
	if err != nil || len(news) == 0 {
		return err
	}
	db.lean(news)
	return db.place(func(f *os.File) ([]byte, object.Hash, error) {
		buffered := bufio.NewWriterSize(f, 1<<16)
		w, err := pack.NewWriter(buffered, len(news), db.deflater)
		if err != nil {
			return nil, object.Hash{}, err
		}
		if err := w.AddAll(news); err != nil {
			return nil, object.Hash{}, err
		}
		sum, err := w.Close()
		if err != nil {
			return nil, sum, err
		}
		return w.Index(), sum, buffered.Flush()
	})
}

// lacking leaves of a list, in place, what is not there yet, each once.
func (db *DB) lacking(objects []Object) ([]Object, error) {
	loose, err := db.looseFolders()
	if err != nil {
		return nil, err
	}
	seen := make(map[object.Hash]struct{}, len(objects))
	db.mu.Lock()
	defer db.mu.Unlock()
	news := objects[:0]
	for _, o := range objects {
		if _, ok := seen[o.Hash]; ok || db.packed(o.Hash) {
			continue
		}
		if loose[o.Hash[0]] {
			if _, err := db.statLoose(o.Hash); err == nil {
				continue
			}
		}
		seen[o.Hash] = struct{}{}
		news = append(news, o)
	}
	return news, nil
}

// Receive stores a pack that arrives as a stream. An empty pack is dropped.
func (db *DB) Receive(r io.Reader) error {
	return db.place(func(f *os.File) ([]byte, object.Hash, error) {
		if _, err := io.Copy(f, r); err != nil {
			return nil, object.Hash{}, err
		}
		return pack.Index(f)
	})
}

// place writes a pack and its index and moves them to their names.
//
// Invariant: an index is never seen without its complete pack, and no object
// is reported as stored before both are on disk. The order is: pack temp and
// index temp written and synced, pack renamed, index renamed (readers find
// packs by their index), folder synced. Killed anywhere, only a left-over is
// there, which the next start removes or passes over. Tests: TestSettleSyncs here;
// TestOrderOfNames and TestKilledWhileWriting in gitstore.
func (db *DB) place(fill func(*os.File) (index []byte, sum object.Hash, err error)) (err error) {
	dir := filepath.Join(db.dirs[0], "pack")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	packTemp, err := os.CreateTemp(dir, "tmp_pack_")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, discard(packTemp)) }()
	index, sum, err := fill(packTemp)
	if err != nil || index == nil {
		return err
	}
	indexTemp, err := os.CreateTemp(dir, "tmp_idx_")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, discard(indexTemp)) }()
	if _, err := indexTemp.Write(index); err != nil {
		return err
	}
	name := filepath.Join(dir, "pack-"+sum.String())
	if err := settle(packTemp, name+".pack"); err != nil {
		return err
	}
	if err := settle(indexTemp, name+".idx"); err != nil {
		return err
	}
	if err := SyncDir(dir); err != nil {
		return err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	// The same pack may have been there, damaged: what is open of it is stale.
	db.packs = slices.DeleteFunc(db.packs, func(p *pack.Pack) bool {
		same := p.Path() == name+".pack"
		if same {
			err = p.Close()
		}
		return same
	})
	db.packs = slices.Insert(db.packs, 0, pack.Open(name+".pack"))
	db.retired = slices.DeleteFunc(db.retired, func(path string) bool { return path == name+".pack" }) // it is back
	db.wrote[name+".pack"] = true
	return errors.Join(err, db.noteWrote())
}

// settle syncs a temporary file, makes it read-only as git does, and renames it.
func settle(f *os.File, name string) error {
	if err := f.Sync(); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := f.Chmod(0o444); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return os.Rename(f.Name(), name)
}

// discard removes a temporary file that was not settled.
func discard(f *os.File) error {
	err := f.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	if rm := os.Remove(f.Name()); rm != nil && !errors.Is(rm, fs.ErrNotExist) {
		err = errors.Join(err, rm)
	}
	return err
}

// SyncDir makes the names in a folder durable. Systems that cannot sync a
// folder order their renames themselves.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := d.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrInvalid) {
		return errors.Join(fmt.Errorf("sync %s: %w", dir, err), d.Close())
	}
	return d.Close()
}
