package odb

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/pack"
	"github.com/crmirror/crmirror/gitstore/tree"
)

// versions writes a folder of 500 files and so many later versions of it, each
// as a pack of its own, and returns all its trees, oldest first.
func versions(t *testing.T, db *DB, count int) []object.Hash {
	t.Helper()
	var now tree.Tree
	var hashes []object.Hash
	var edits []tree.Edit
	for i := range 500 {
		edits = append(edits, tree.Edit{Path: fmt.Sprintf("flat/file-%04d", i), Blob: blob(fmt.Sprint(i)).Hash})
	}
	for i := range count + 1 {
		next, news, err := now.Apply(edits)
		if err != nil {
			t.Fatal(err)
		}
		var objects []Object
		for _, n := range news {
			objects = append(objects, Object{Type: object.Tree, Hash: n.Hash, Content: n.Content, Base: n.Base, Delta: n.Delta})
		}
		hashes = append(hashes, next.Sub("flat").Hash())
		if err := db.Write(objects); err != nil {
			t.Fatal(err)
		}
		now, edits = next, []tree.Edit{{Path: fmt.Sprintf("flat/file-%04d", i%500), Blob: blob(fmt.Sprint("new ", i)).Hash}}
	}
	return hashes
}

// packOf returns the pack that has an object.
func packOf(t *testing.T, db *DB, h object.Hash) *pack.Pack {
	t.Helper()
	p, _, ok, err := db.find(h)
	if err != nil || !ok {
		t.Fatalf("find %s: %v %v", h, ok, err)
	}
	return p
}

// TestThinChain: versions of a large folder become deltas against each other
// over packs, all can be read, and no chain is endless. Where thin packs are not
// allowed every one is whole.
func TestThinChain(t *testing.T) {
	for _, thin := range []bool{true, false} {
		_, db := newRepo(t)
		db.OwnAll()
		if thin {
			db.AllowThin()
		}
		longest, small := 0, 0
		hashes := versions(t, db, 3*thinChain)
		for _, h := range hashes {
			if _, _, err := db.Read(h); err != nil {
				t.Fatal(err)
			}
			longest = max(longest, db.chain(h))
			size, err := packOf(t, db, h).Size()
			if err != nil {
				t.Fatal(err)
			}
			if size < 500 {
				small++
			}
		}
		if want := len(hashes) - 3; thin && (longest != thinChain || small != want) {
			t.Errorf("longest chain %d, want %d; %d of %d packs are small, want %d", longest, thinChain, small, len(hashes), want)
		}
		if !thin && (longest != 0 || small != 0) {
			t.Errorf("not allowed, yet chains of %d and %d small packs", longest, small)
		}
	}
}

// TestThinBaseLost: what is a delta against something that is lost is missing
// too, and nothing new is built on it.
func TestThinBaseLost(t *testing.T) {
	_, db := newRepo(t)
	db.OwnAll()
	db.AllowThin()
	hashes := versions(t, db, 3)
	path := packOf(t, db, hashes[1]).Path()
	for _, name := range []string{path, strings.TrimSuffix(path, ".pack") + ".idx"} {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Rescan(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := db.Read(hashes[0]); err != nil {
		t.Errorf("the first version: %v", err)
	}
	if _, _, err := db.Read(hashes[3]); err == nil {
		t.Error("read a version whose base is lost")
	}
	// Nothing new leans on what cannot be read.
	content := []byte(strings.Repeat("a tree it is not, but it is long enough\n", 100))
	h := object.Sum(object.Blob, content)
	delta, ok := pack.Diff(content, content)
	if !ok {
		t.Fatal("no delta")
	}
	if err := db.Write([]Object{{Type: object.Blob, Hash: h, Content: content, Base: hashes[3], Delta: delta}}); err != nil {
		t.Fatal(err)
	}
	if _, got, err := db.Read(h); err != nil || string(got) != string(content) {
		t.Errorf("what was to be a delta against it: %v", err)
	}
}

// TestSolidify: a database of thin packs becomes one that git reads.
func TestSolidify(t *testing.T) {
	dir, db := newRepo(t)
	db.OwnAll()
	db.AllowThin()
	hashes := versions(t, db, 120)
	if err := db.Compact(false); err != nil {
		t.Fatal(err)
	}
	if err := db.Solidify(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "objects", "pack", "*.pack"))
	if err != nil || len(files) != 1 {
		t.Fatalf("packs: %v %v", files, err)
	}
	runGit(t, dir, "", "index-pack", "-o", filepath.Join(t.TempDir(), "idx"), files[0])
	for _, h := range hashes {
		runGit(t, dir, "", "cat-file", "tree", h.String())
		if _, _, err := db.Read(h); err != nil {
			t.Error(err)
		}
	}
}
