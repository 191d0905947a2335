package refs

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/crmirror/crmirror/gitstore/object"
)

// All returns what all refs point at, in no order; it may hold doubles, and what
// a ref in packed-refs pointed at before.
func (d *Dir) All() ([]object.Hash, error) {
	var list []object.Hash
	err := filepath.WalkDir(filepath.Join(d.Common, "refs"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || strings.HasSuffix(path, ".lock") {
			return err
		}
		b, err := os.ReadFile(path)
		if h, ok := parseHash(bytes.TrimSpace(b)); ok { // else it is symbolic, and names another one
			list = append(list, h)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	b, err := os.ReadFile(filepath.Join(d.Common, "packed-refs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range bytes.Lines(b) {
		text, _, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		if h, ok := parseHash(bytes.TrimPrefix(text, []byte("^"))); ok {
			list = append(list, h)
		}
	}
	return list, nil
}
