package odb

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/pack"
	"github.com/crmirror/crmirror/gitstore/tree"
)

func randomBlob(n int, seed uint64) Object {
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), 7})
	b := make([]byte, n)
	_, _ = r.Read(b)
	return Object{Type: object.Blob, Hash: object.Sum(object.Blob, b), Content: b}
}

// TestMergeRotation: a folder goes A, B (in a large commit, which is not merged along), C
// and A again. No merge makes a circle of deltas.
func TestMergeRotation(t *testing.T) {
	for seed := range 8 {
		dir, db := newRepo(t)
		db.OwnAll()
		db.AllowThin()
		by := object.Signature{Name: "Ann", Email: "ann@example.com", When: time.Unix(1_700_000_000+int64(seed), 0)}
		var now tree.Tree
		var edits []tree.Edit
		for i := range 40 {
			edits = append(edits, tree.Edit{Path: fmt.Sprintf("file-%02d", i), Blob: blob(fmt.Sprint(i)).Hash})
		}
		var parent []object.Hash
		step := func(msg string, extra []Object, edits ...tree.Edit) (object.Hash, object.Hash) {
			next, news, err := now.Apply(edits)
			if err != nil {
				t.Fatal(err)
			}
			objects := extra
			for _, n := range news {
				objects = append(objects, Object{Type: object.Tree, Hash: n.Hash, Content: n.Content, Base: n.Base, Delta: n.Delta})
			}
			c := commitObject(object.EncodeCommit(next.Hash(), parent, by, msg))
			if err := db.Write(append(objects, c)); err != nil {
				t.Fatal(err)
			}
			now, parent = next, []object.Hash{c.Hash}
			return next.Hash(), c.Hash
		}
		state := func(s string) tree.Edit { return tree.Edit{Path: "file-00", Blob: blob("state " + s).Hash} }
		edits[0] = state("A")
		y, c1 := step("one", nil, edits...)
		z, _ := step("two", []Object{randomBlob(300_000, uint64(seed))}, state("B"))
		w, c3 := step("three", nil, state("C"))
		y2, c4 := step("four", nil, state("A"))
		if y != y2 {
			t.Fatal("not the same tree")
		}
		for i := range 11 {
			if err := db.Write([]Object{randomBlob(400, uint64(1000+seed*100+i))}); err != nil {
				t.Fatal(err)
			}
		}
		for _, h := range []object.Hash{y, z, w} {
			if _, _, err := db.Read(h); err != nil {
				t.Fatal("before: ", err)
			}
		}
		n := db.Packs()
		if err := db.Compact(false); err != nil {
			t.Errorf("compact: %v", err)
		}
		fresh, err := Open(filepath.Join(dir, "objects"))
		if err != nil {
			t.Fatal(err)
		}
		for i, h := range []object.Hash{y, z, w} {
			if _, _, err := fresh.Read(h); err != nil {
				t.Errorf("seed %d (%d packs to %d; c1 %s c3 %s c4 %s): tree %d: %v", seed, n, db.Packs(), c1.String()[:4], c3.String()[:4], c4.String()[:4], i, err)
			}
		}
		if err := fresh.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMergeDroppedBase: a fetched pack has a commit as a delta of the base commit that is
// let go of, by its place or, from a server that sends no such deltas, by its name.
func TestMergeDroppedBase(t *testing.T) {
	t.Run("by place", func(t *testing.T) { mergeDroppedBase(t, false) })
	t.Run("by name, in a clone of thin packs", func(t *testing.T) { mergeDroppedBase(t, true) })
}

func mergeDroppedBase(t *testing.T, byName bool) {
	t.Helper()
	_, db := newRepo(t)
	db.OwnAll()
	if byName {
		db.AllowThin()
	}
	by := object.Signature{Name: "A rather long name of a bot", Email: "a-rather-long-name-of-a-bot@example.com", When: time.Unix(1_700_000_000, 0)}
	h := newHistory(t, db)
	base := commitObject(object.EncodeCommit(h.now.Hash(), h.commits, by, "Agree on lab\n\ndeleted: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\ndeleted: bbbbbbbbbbbbbbbbbbbbbbbb\n"))
	head := commitObject(object.EncodeCommit(h.now.Hash(), h.commits, by, "short"))
	delta, ok := pack.Diff(base.Content, head.Content)
	if !ok {
		t.Fatal("no delta")
	}
	var buf bytes.Buffer
	w, err := pack.NewWriter(&buf, 2, db.Deflater())
	if err != nil {
		t.Fatal(err)
	}
	at := w.Offset()
	if err := w.Add(object.Commit, base.Hash, base.Content); err != nil {
		t.Fatal(err)
	}
	if byName {
		err = w.AddDelta(head.Hash, base.Hash, delta)
	} else {
		err = w.AddOffsetDelta(head.Hash, at, delta)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := db.Receive(&buf); err != nil {
		t.Fatal(err)
	}
	db.Drop(base.Hash)
	for i := range 14 {
		if err := db.Write([]Object{randomBlob(300, uint64(i))}); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Compact(false); err != nil {
		t.Errorf("Compact: %v", err)
	}
	if _, _, err := db.Read(head.Hash); err != nil {
		t.Errorf("head: %v", err)
	}
}

// TestRepackZeroPaddedMode: a tree entry that somebody's tool wrote as 040000.
func TestRepackZeroPaddedMode(t *testing.T) {
	_, db := newRepo(t)
	db.OwnAll()
	b := blob("content\n")
	sub := append([]byte("100644 a\x00"), b.Hash[:]...)
	subO := Object{Type: object.Tree, Hash: object.Sum(object.Tree, sub), Content: sub}
	root := append([]byte("040000 dir\x00"), subO.Hash[:]...)
	rootO := Object{Type: object.Tree, Hash: object.Sum(object.Tree, root), Content: root}
	by := object.Signature{Name: "Ann", Email: "ann@example.com", When: time.Unix(1_700_000_000, 0)}
	c := commitObject(object.EncodeCommit(rootO.Hash, nil, by, "x"))
	if err := db.Write([]Object{b, subO, rootO, c}); err != nil {
		t.Fatal(err)
	}
	if err := db.Write([]Object{blob("another pack\n")}); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Load(db.Read, rootO.Hash, tree.Tree{}); err != nil {
		t.Fatal("before: ", err)
	}
	if err := db.Repack(t.Context(), Live{Commits: []object.Hash{c.Hash}}); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Load(db.Read, rootO.Hash, tree.Tree{}); err != nil {
		t.Errorf("load after: %v", err)
	}
	if !db.Has(b.Hash) {
		t.Error("the file's content is gone")
	}
}
