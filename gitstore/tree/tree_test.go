package tree

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/google/go-cmp/cmp"

	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/odb"
	"github.com/crmirror/crmirror/gitstore/pack"
)

func blob(content string) object.Hash { return object.Sum(object.Blob, []byte(content)) }

// files lists a tree by walking it.
func files(t Tree) map[string]object.Hash {
	m := map[string]object.Hash{}
	t.Walk(func(path string, h object.Hash, _ filemode.FileMode) bool {
		m[path] = h
		return true
	})
	return m
}

// TestApplyRandomly edits at random and compares with a map, with the tree
// loaded back from its objects, and with what the deltas lead to.
func TestApplyRandomly(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	names := []string{"a", "a-b", "a.b", "a0", "b", "ab/c", "ab/c-d/e", "ab/c-d/f", "ab.c/x", "z/y/x/w"}
	for i := range 30 {
		names = append(names, fmt.Sprintf("flat/n%02d", i))
	}
	store := map[object.Hash][]byte{}
	read := func(h object.Hash) (object.Type, []byte, error) {
		if b, ok := store[h]; ok {
			return object.Tree, b, nil
		}
		return 0, nil, odb.ErrMissing
	}
	var now Tree
	want := map[string]object.Hash{}
	for round := range 300 {
		next := maps.Clone(want)
		edits := map[string]object.Hash{}
		for range 1 + rnd.IntN(4) {
			name := names[rnd.IntN(len(names))]
			edits[name] = object.Hash{}
			delete(next, name)
			if rnd.IntN(3) > 0 {
				edits[name] = blob(fmt.Sprint(rnd.IntN(3)))
				next[name] = edits[name]
			}
		}
		var list []Edit
		for path, h := range edits {
			list = append(list, Edit{path, h})
		}
		got, news, err := now.Apply(list)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(next, files(got)); diff != "" {
			t.Fatalf("round %d (-want +got):\n%s", round, diff)
		}
		for _, n := range news {
			if object.Sum(object.Tree, n.Content) != n.Hash {
				t.Fatalf("round %d: a new tree's hash is wrong", round)
			}
			if n.Delta != nil {
				if patched, err := pack.Patch(store[n.Base], n.Delta); err != nil || string(patched) != string(n.Content) {
					t.Fatalf("round %d: a tree's delta does not lead to it: %v", round, err)
				}
			}
			store[n.Hash] = n.Content
		}
		loaded, err := Load(read, got.Hash(), now)
		if err != nil || !maps.Equal(files(loaded), next) {
			t.Fatalf("round %d: loaded tree differs, %v", round, err)
		}
		checkDiff(t, want, next, Diff(now, got))
		now, want = got, next
	}
}

func checkDiff(t *testing.T, old, new map[string]object.Hash, changes []Change) {
	t.Helper()
	var want, got []string
	for _, path := range slices.Sorted(maps.Keys(old)) {
		if old[path] != new[path] {
			want = append(want, path)
		}
	}
	for path := range new {
		if _, ok := old[path]; !ok {
			want = append(want, path)
		}
	}
	for _, c := range changes {
		if c.Old != old[c.Path] || c.New != new[c.Path] {
			t.Fatalf("Diff says %+v", c)
		}
		got = append(got, c.Path)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("Diff names %v, want %v in that order", got, want)
	}
}

func TestApplyRefuses(t *testing.T) {
	base, _, err := Tree{}.Apply([]Edit{{"file", blob("1")}, {"dir/file", blob("1")}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		edits []Edit
		says  string
	}{
		{[]Edit{{"file/x", blob("2")}}, "file is a file"},
		{[]Edit{{"dir", blob("2")}}, "a folder is there"},
		{[]Edit{{"x", blob("1")}, {"x", blob("2")}}, "twice"},
		{[]Edit{{"dir//x", blob("2")}}, "not a path"},
	} {
		if _, _, err := base.Apply(tt.edits); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("Apply(%v): %v, want %q", tt.edits, err, tt.says)
		}
	}
}

func TestNest(t *testing.T) {
	sub, _, err := Tree{}.Apply([]Edit{{"n/f", blob("1")}})
	if err != nil {
		t.Fatal(err)
	}
	want, wantNews, err := Tree{}.Apply([]Edit{{"clusters/a/n/f", blob("1")}})
	if err != nil {
		t.Fatal(err)
	}
	got, news := Nest("clusters/a", sub)
	if got.Hash() != want.Hash() || len(news) != len(wantNews)-2 {
		t.Errorf("Nest: %s with %d trees, want %s", got.Hash(), len(news), want.Hash())
	}
}
