package odb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/tree"
)

// history writes commits of one-line changes as an agent does: one pack each,
// with a base commit besides, in a large folder and a small one.
type history struct {
	t       *testing.T
	db      *DB
	now     tree.Tree
	commits []object.Hash
	bases   []object.Hash
	all     map[object.Hash][]byte // what is live
}

const historyFiles = 600

func newHistory(t *testing.T, db *DB) *history {
	t.Helper()
	h := &history{t: t, db: db, all: map[object.Hash][]byte{}}
	var objects []Object
	var edits []tree.Edit
	for i := range historyFiles {
		b := blob(fileText(i, 0))
		objects = append(objects, b)
		edits = append(edits, tree.Edit{Path: filePath(i), Blob: b.Hash})
	}
	h.write(objects, edits)
	return h
}

func filePath(i int) string {
	if i < 30 && i%3 == 0 {
		return fmt.Sprintf("small/file-%03d", i)
	}
	return fmt.Sprintf("large/a-file-with-a-name-%03d", i)
}

// fileText has two lines that revisions change in turn.
func fileText(i, revision int) string {
	var b strings.Builder
	for line := range 20 {
		fmt.Fprintf(&b, "line %d of file %d\n", line, i)
		if line == 5 {
			fmt.Fprintf(&b, "first %d\n", revision/2)
		}
	}
	fmt.Fprintf(&b, "second %d\n", (revision+1)/2)
	return b.String()
}

func (h *history) write(objects []Object, edits []tree.Edit) {
	h.t.Helper()
	next, news, err := h.now.Apply(edits)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, n := range news {
		objects = append(objects, Object{Type: object.Tree, Hash: n.Hash, Content: n.Content, Base: n.Base, Delta: n.Delta})
	}
	by := object.Signature{Name: "Ann", Email: "ann@example.com", When: time.Unix(1_700_000_000, 0)}
	var parents []object.Hash
	if len(h.commits) > 0 {
		parents = h.commits[len(h.commits)-1:]
	}
	c := commitObject(object.EncodeCommit(next.Hash(), parents, by, fmt.Sprint("commit ", len(h.commits))))
	objects = append(objects, c)
	for _, o := range objects {
		h.all[o.Hash] = o.Content
	}
	base := commitObject(object.EncodeCommit(next.Hash(), []object.Hash{c.Hash}, by, "base"))
	if err := h.db.Write(append(objects, base)); err != nil {
		h.t.Fatal(err)
	}
	h.now = next
	h.commits, h.bases = append(h.commits, c.Hash), append(h.bases, base.Hash)
}

func commitObject(content []byte) Object {
	return Object{Type: object.Commit, Hash: object.Sum(object.Commit, content), Content: content}
}

// grow makes so many commits, each of the next version of one of few files.
func (h *history) grow(count int) {
	h.t.Helper()
	for range count {
		n := len(h.commits)
		file := n % 7
		b := blob(fileText(file, n))
		h.write([]Object{b}, []tree.Edit{{Path: filePath(file), Blob: b.Hash}})
		if err := h.db.Compact(false); err != nil {
			h.t.Fatal(err)
		}
	}
}

// check reads everything that is live, through a database opened anew.
func (h *history) check(dir string) {
	h.t.Helper()
	fresh, err := Open(filepath.Join(dir, "objects"))
	if err != nil {
		h.t.Fatal(err)
	}
	for hash, want := range h.all {
		if _, got, err := fresh.Read(hash); err != nil || string(got) != string(want) {
			h.t.Fatalf("read %s: %v", hash, err)
		}
	}
	if err := fresh.Close(); err != nil {
		h.t.Fatal(err)
	}
}

func (h *history) live() Live { return Live{Commits: h.commits} }

func packs(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(dir + "/objects/pack/*.pack")
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// longestChain asks git how deep the deltas of a pack go.
func longestChain(t *testing.T, dir, file string) int {
	t.Helper()
	longest := 0
	for _, m := range regexp.MustCompile(`chain length = (\d+)`).FindAllStringSubmatch(runGit(t, dir, "", "verify-pack", "-v", file), -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		longest = max(longest, n)
	}
	return longest
}

// TestMergeThin: packs of which each leans on the one before are merged in part
// and in whole. Everything can be read all the time, chains stay bounded, few
// packs are there, and in the end one that git reads.
func TestMergeThin(t *testing.T) {
	dir, db := newRepo(t)
	db.OwnAll()
	db.AllowThin()
	h := newHistory(t, db)
	for range 4 {
		h.grow(60)
		h.check(dir)
		if n := len(packs(t, dir)); n > 2*fanIn {
			t.Errorf("%d packs after %d commits", n, len(h.commits))
		}
	}
	whole := 0
	for hash, content := range h.all {
		n := db.chain(hash)
		if n > thinChain {
			t.Fatalf("%s has a chain of %d deltas", hash, n)
		}
		if n == 0 && len(content) > 10<<10 {
			whole++
		}
	}
	// Written one by one there is one in 50: of 171 versions of the large folder, four.
	if whole > 2 {
		t.Errorf("%d versions of the large folder are stored whole", whole)
	}
	if err := db.MergeAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.check(dir)
	files := packs(t, dir)
	if len(files) != 1 {
		t.Fatalf("%d packs after merging all, want one", len(files))
	}
	if n := longestChain(t, dir, files[0]); n > maxChain || n < fanOut {
		t.Errorf("longest chain has %d deltas, want some, and %d at most", n, maxChain)
	}
	runGit(t, dir, "", "update-ref", "refs/heads/t", h.commits[len(h.commits)-1].String())
	runGit(t, dir, "", "fsck", "--strict", "--full")
}

// TestMergeSize: contents and trees become deltas of the version before, also
// where every pack had them whole. What is left of 300 commits is small beside git's.
func TestMergeSize(t *testing.T) {
	dir, db := newRepo(t)
	db.OwnAll()
	h := newHistory(t, db)
	h.grow(300)
	h.check(dir)
	if err := db.Repack(t.Context(), h.live()); err != nil {
		t.Fatal(err)
	}
	if err := db.deleteRetired(); err != nil {
		t.Fatal(err)
	}
	h.check(dir)
	runGit(t, dir, "", "update-ref", "refs/heads/t", h.commits[len(h.commits)-1].String())
	runGit(t, dir, "", "fsck", "--strict", "--full")
	ours := sizeOf(t, dir)
	runGit(t, dir, "", "repack", "-adfq")
	if git := sizeOf(t, dir); ours > git*3/2 {
		t.Errorf("the pack has %d bytes, git makes %d of it", ours, git)
	}
}

func sizeOf(t *testing.T, dir string) int64 {
	t.Helper()
	db, err := Open(filepath.Join(dir, "objects"))
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, p := range db.packs {
		size, err := p.Size()
		if err != nil {
			t.Fatal(err)
		}
		sum += size
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return sum
}

// TestMergeComesBack: two contents that take turns are each the version before
// the other, and stored as deltas of each other in thin packs.
func TestMergeComesBack(t *testing.T) {
	dir, db := newRepo(t)
	db.OwnAll()
	db.AllowThin()
	h := newHistory(t, db)
	for i := range 60 {
		b := blob(fileText(1, i%2))
		h.write([]Object{b}, []tree.Edit{{Path: filePath(1), Blob: b.Hash}})
		if err := db.Compact(false); err != nil {
			t.Fatal(err)
		}
	}
	h.check(dir)
	if err := db.MergeAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.check(dir)
	runGit(t, dir, "", "update-ref", "refs/heads/t", h.commits[len(h.commits)-1].String())
	runGit(t, dir, "", "fsck", "--strict", "--full")
}

// TestDropped: base commits that were let go of vanish with the merges, unless
// somebody asks for one before.
func TestDropped(t *testing.T) {
	dir, db := newRepo(t)
	db.OwnAll()
	h := newHistory(t, db)
	h.grow(fanIn - 2)
	wanted := h.bases[3]
	db.Drop(h.bases[:fanIn-2]...)
	if !db.Has(wanted) {
		t.Fatal("a commit is gone before any merge")
	}
	h.grow(fanIn)
	for i, base := range h.bases {
		if got, want := db.Has(base), i >= fanIn-2 || base == wanted; got != want {
			t.Errorf("base commit %d is there: %v, want %v", i, got, want)
		}
	}
	h.check(dir)
}

// TestRepackDropsDead: what can be reached from nothing goes, what is live stays,
// even where it was a delta of what went.
func TestRepackDropsDead(t *testing.T) {
	dir, db := newRepo(t)
	db.OwnAll()
	db.AllowThin()
	h := newHistory(t, db)
	h.grow(20)
	// Commits that lost a race. The tree of the one after is a delta of theirs.
	kept, live := len(h.commits), maps.Clone(h.all)
	h.grow(3)
	h.commits, h.all = h.commits[:kept], live
	waiting := blob("what a pending entry names\n")
	if err := db.Write([]Object{waiting}); err != nil {
		t.Fatal(err)
	}
	var edits []tree.Edit
	var objects []Object
	for file := range 7 { // none has the content of a lost commit any more
		b := blob(fileText(file, 1000))
		objects, edits = append(objects, b), append(edits, tree.Edit{Path: filePath(file), Blob: b.Hash})
	}
	h.write(objects, edits)
	if err := db.Repack(t.Context(), Live{Commits: h.commits, Objects: []object.Hash{waiting.Hash}}); err != nil {
		t.Fatal(err)
	}
	h.check(dir)
	if !db.Has(waiting.Hash) {
		t.Error("a content that somebody waits with is gone")
	}
	for _, base := range h.bases {
		if db.Has(base) {
			t.Error("a base commit that nothing names is there")
		}
	}
	last := h.commits[len(h.commits)-1]
	runGit(t, dir, "", "update-ref", "refs/heads/t", last.String())
	runGit(t, dir, "", "fsck", "--strict", "--full")
	want := strings.Fields(runGit(t, dir, "", "rev-list", "--objects", "--no-object-names", "t"))
	if n := db.packs[0].Count(); n != len(want)+1 {
		t.Errorf("%d objects are kept, want the %d that the branch reaches and the one that waits", n, len(want))
	}
}

// TestMergeCancelled: a merge that is cut short changes nothing.
func TestMergeCancelled(t *testing.T) {
	dir, db := newRepo(t)
	db.OwnAll()
	h := newHistory(t, db)
	h.grow(5)
	before := packs(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := db.MergeAll(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("MergeAll: %v", err)
	}
	if err := db.Repack(ctx, h.live()); !errors.Is(err, context.Canceled) {
		t.Errorf("Repack: %v", err)
	}
	if after := packs(t, dir); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("packs %v, want %v", after, before)
	}
	if left, err := filepath.Glob(dir + "/objects/pack/tmp_*"); err != nil || len(left) > 0 {
		t.Errorf("left over: %v %v", left, err)
	}
	h.check(dir)
}
