package odb

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/crmirror/crmirror/gitstore/object"
)

// Abbreviated returns the objects whose hashes begin with these lower-case hexadecimal
// digits, two at least, sorted and without doubles.
func (db *DB) Abbreviated(digits string) ([]object.Hash, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	var found []object.Hash
	for _, p := range db.packs {
		list, err := p.Abbreviated(digits)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		found = append(found, list...)
	}
	for _, dir := range db.dirs {
		entries, err := os.ReadDir(filepath.Join(dir, digits[:2]))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if name := digits[:2] + e.Name(); strings.HasPrefix(name, digits) && plumbing.IsHash(name) {
				found = append(found, plumbing.NewHash(name))
			}
		}
	}
	slices.SortFunc(found, func(a, b object.Hash) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(found), nil
}
