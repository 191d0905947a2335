package tree

import (
	"fmt"
	"testing"
)

// many are n edits over so many folders, in their so-manieth revision.
func many(n, folders, revision int) []Edit {
	edits := make([]Edit, n)
	for i := range edits {
		edits[i] = Edit{fmt.Sprintf("folder-%04d/file-%06d.yaml", i%folders, i), blob(fmt.Sprint(i, revision))}
	}
	return edits
}

// BenchmarkApply edits one file of a tree, among few and many, and makes a tree.
func BenchmarkApply(b *testing.B) {
	for _, size := range []struct{ files, folders int }{{100, 1}, {10000, 1}, {100000, 1000}} {
		t, _, err := Tree{}.Apply(many(size.files, size.folders, 0))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("one-of-%d-in-%d", size.files, size.folders), func(b *testing.B) {
			one := many(1, 1, 1)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := t.Apply(one); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("new-20000", func(b *testing.B) {
		edits := many(20000, 200, 0)
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := (Tree{}).Apply(edits); err != nil {
				b.Fatal(err)
			}
		}
	})
}
