package odb

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/tree"
)

func runGit(t *testing.T, dir string, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=Ann", "-c", "user.email=ann@example.com"}, args...)...)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// newRepo makes a repository with git and opens its objects.
func newRepo(t *testing.T) (string, *DB) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "r.git")
	runGit(t, t.TempDir(), "", "init", "-q", "--bare", dir)
	db, err := Open(filepath.Join(dir, "objects"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return dir, db
}

func blob(content string) Object {
	b := []byte(content)
	return Object{Type: object.Blob, Hash: object.Sum(object.Blob, b), Content: b}
}

// TestReadsGitsObjects: loose objects, packs with deltas and alternates that
// git wrote.
func TestReadsGitsObjects(t *testing.T) {
	dir, db := newRepo(t)
	var hashes []string
	want := map[string]string{}
	text := strings.Repeat("a line of text that makes deltas worth it\n", 200)
	for i := range 20 {
		content := text + fmt.Sprint(i) + "\n" + text
		h := runGit(t, dir, content, "hash-object", "-w", "--stdin")
		hashes = append(hashes, h)
		want[h] = content
	}
	check := func(db *DB, state string) {
		t.Helper()
		for _, h := range hashes {
			typ, content, err := db.Read(object.Hash(blob(want[h]).Hash))
			if err != nil || typ != object.Blob || string(content) != want[h] {
				t.Fatalf("%s: read %s: %v", state, h, err)
			}
		}
	}
	check(db, "loose")
	runGit(t, dir, strings.Join(hashes, "\n"), "pack-objects", "-q", "objects/pack/pack")
	runGit(t, dir, "", "prune-packed", "-q")
	check(db, "packed by another process meanwhile")
	if verify := runGit(t, dir, "", "verify-pack", "-v", db.packs[0].Path()); !strings.Contains(verify, "chain length") {
		t.Fatal("git made no deltas, so the test proves nothing")
	}
	other, otherDB := newRepo(t)
	runGit(t, other, "", "config", "x.y", "z")
	if err := exec.Command("sh", "-c", fmt.Sprintf("echo %s/objects > %s/objects/info/alternates", dir, other)).Run(); err != nil {
		t.Fatal(err)
	}
	if err := otherDB.Close(); err != nil {
		t.Fatal(err)
	}
	alt, err := Open(filepath.Join(other, "objects"))
	if err != nil {
		t.Fatal(err)
	}
	check(alt, "through alternates")
	if err := alt.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestReceive stores packs that git made, with offset and with ref deltas.
func TestReceive(t *testing.T) {
	for _, option := range []string{"--delta-base-offset", "-q"} {
		dir, _ := newRepo(t)
		var hashes []string
		var contents []string
		for i := range 30 {
			contents = append(contents, strings.Repeat("some text\n", 300)+fmt.Sprint(i))
			hashes = append(hashes, runGit(t, dir, contents[i], "hash-object", "-w", "--stdin"))
		}
		cmd := exec.Command("git", "pack-objects", "--stdout", "-q", option)
		cmd.Dir = dir
		cmd.Stdin = strings.NewReader(strings.Join(hashes, "\n"))
		packed, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		to, db := newRepo(t)
		if err := db.Receive(strings.NewReader(string(packed))); err != nil {
			t.Fatal(err)
		}
		for _, c := range contents {
			if _, got, err := db.Read(blob(c).Hash); err != nil || string(got) != c {
				t.Fatalf("%s: %v", option, err)
			}
		}
		runGit(t, to, "", "fsck", "--strict")
		// A truncated and a changed pack are refused, and leave nothing.
		changed := slices.Clone(packed)
		changed[len(changed)/2] ^= 1
		for _, bad := range [][]byte{packed[:len(packed)/2], changed, nil} {
			empty, db := newRepo(t)
			if err := db.Receive(strings.NewReader(string(bad))); err == nil {
				t.Error("a damaged pack was taken")
			}
			if left, err := filepath.Glob(empty + "/objects/pack/*"); err != nil || len(left) != 0 {
				t.Errorf("left over: %v %v", left, err)
			}
		}
	}
}

// TestCompactKeepsObjects writes many small packs, as an agent does, and finds
// few packs with every object, all of it good to git.
func TestCompactKeepsObjects(t *testing.T) {
	dir, db := newRepo(t)
	db.OwnAll()
	rnd := rand.New(rand.NewPCG(1, 2))
	var edits []tree.Edit
	var first []Object
	for i := range 300 {
		b := blob(fmt.Sprint("start ", i))
		first = append(first, b)
		edits = append(edits, tree.Edit{Path: fmt.Sprintf("flat/file-%04d", i), Blob: b.Hash})
	}
	if err := db.Write(first); err != nil {
		t.Fatal(err)
	}
	var now tree.Tree
	all := map[object.Hash]bool{}
	var parents []object.Hash
	const rounds = 150
	for i := range rounds {
		var objects []Object
		if i > 0 {
			b := blob(fmt.Sprint("round ", i))
			objects = append(objects, b)
			edits = []tree.Edit{{Path: fmt.Sprintf("flat/file-%04d", rnd.IntN(300)), Blob: b.Hash}}
		}
		next, news, err := now.Apply(edits)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range news {
			objects = append(objects, Object{Type: object.Tree, Hash: n.Hash, Content: n.Content})
		}
		c := object.EncodeCommit(next.Hash(), parents, object.Signature{Name: "Ann", Email: "ann@example.com", When: time.Unix(1_700_000_000, 0)}, fmt.Sprint("round ", i))
		parents = []object.Hash{object.Sum(object.Commit, c)}
		objects = append(objects, Object{Type: object.Commit, Hash: parents[0], Content: c})
		for _, o := range objects {
			all[o.Hash] = true
		}
		if err := db.Write(objects); err != nil {
			t.Fatal(err)
		}
		if err := db.Compact(false); err != nil {
			t.Fatal(err)
		}
		now = next
	}
	if n := db.Packs(); n > 2*fanIn {
		t.Errorf("%d packs after %d writes", n, rounds)
	}
	files, err := filepath.Glob(dir + "/objects/pack/*.pack")
	if err != nil || len(files) > 4*fanIn {
		t.Errorf("%d pack files, %v", len(files), err)
	}
	fresh, err := Open(filepath.Join(dir, "objects"))
	if err != nil {
		t.Fatal(err)
	}
	for h := range all {
		if _, _, err := fresh.Read(h); err != nil {
			t.Fatal(err)
		}
	}
	if err := fresh.Close(); err != nil {
		t.Fatal(err)
	}
	if err := db.Compact(true); err != nil {
		t.Fatal(err)
	}
	if n := db.Packs(); n != 1 {
		t.Errorf("%d packs after merging all", n)
	}
	size, err := db.packs[0].Size()
	if err != nil {
		t.Fatal(err)
	}
	// 150 whole trees of 300 entries would be over 1 MB.
	if size > 200<<10 {
		t.Errorf("merged pack has %d bytes: trees were not stored as deltas", size)
	}
	if _, _, err := now.Lookup("flat/file-0000"); !err {
		t.Error("tree lost a file")
	}
	runGit(t, dir, "", "update-ref", "refs/heads/t", runGit(t, dir, "", "commit-tree", "-m", "x", now.Hash().String()))
	runGit(t, dir, "", "fsck", "--strict", "--full")
}

// TestRetiredOnlyCopy: a pack that was merged, and whose merged pack somebody
// deleted, is the only copy of its objects and stays.
func TestRetiredOnlyCopy(t *testing.T) {
	dir := t.TempDir()
	list := filepath.Join(t.TempDir(), "list")
	write := func(db *DB, content string) object.Hash {
		t.Helper()
		h := object.Sum(object.Blob, []byte(content))
		if err := db.Write([]Object{{Type: object.Blob, Hash: h, Content: []byte(content)}}); err != nil {
			t.Fatal(err)
		}
		return h
	}
	openDB := func() *DB {
		t.Helper()
		db, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Remember(list); err != nil {
			t.Fatal(err)
		}
		return db
	}
	db := openDB()
	first, second := write(db, "first"), write(db, "second")
	if err := db.Compact(true); err != nil {
		t.Fatal(err)
	}
	if db.Packs() != 1 || len(db.retired) != 2 {
		t.Fatalf("%d packs, %d retired", db.Packs(), len(db.retired))
	}
	merged := strings.TrimSuffix(db.packs[0].Path(), ".pack")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{".idx", ".pack"} {
		if err := os.Remove(merged + suffix); err != nil {
			t.Fatal(err)
		}
	}
	db = openDB()
	write(db, "third")
	write(db, "fourth")
	if err := db.Compact(true); err != nil {
		t.Fatal(err)
	}
	if err := db.Rescan(); err != nil {
		t.Fatal(err)
	}
	if !db.Has(first) || !db.Has(second) {
		t.Error("the only copy of an object was deleted")
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
