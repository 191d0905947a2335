package odb

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/klauspost/compress/zlib"

	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/pack"
)

func (db *DB) statLoose(h object.Hash) (path string, err error) {
	name := h.String()
	for _, dir := range db.dirs {
		path = filepath.Join(dir, name[:2], name[2:])
		if _, err = os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", ErrMissing
}

// looseFolders tells by the first byte of a name where loose objects may be: for
// many objects that is asked once, not for each.
func (db *DB) looseFolders() (there [256]bool, err error) {
	for _, dir := range db.dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return there, err
		}
		for _, e := range entries {
			if first, err := strconv.ParseUint(e.Name(), 16, 8); err == nil && len(e.Name()) == 2 {
				there[first] = true
			}
		}
	}
	return there, nil
}

func (db *DB) readLoose(h object.Hash) (t object.Type, content []byte, err error) {
	path, err := db.statLoose(h)
	if err != nil {
		return 0, nil, err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil, ErrMissing
	}
	if err != nil {
		return 0, nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	t, content, err = decodeLoose(f)
	if err != nil {
		return 0, nil, fmt.Errorf("%w: %s: %w", pack.ErrDamaged, path, err)
	}
	return t, content, nil
}

func decodeLoose(r io.Reader) (object.Type, []byte, error) {
	z, err := zlib.NewReader(bufio.NewReader(r))
	if err != nil {
		return 0, nil, err
	}
	b, err := io.ReadAll(z)
	if err != nil {
		return 0, nil, err
	}
	header, content, ok := bytes.Cut(b, []byte{0})
	name, size, ok2 := bytes.Cut(header, []byte(" "))
	n, err := strconv.Atoi(string(size))
	if !ok || !ok2 || err != nil || n != len(content) {
		return 0, nil, errors.New("malformed loose object")
	}
	t, err := plumbing.ParseObjectType(string(name))
	return t, content, err
}
