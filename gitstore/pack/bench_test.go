package pack

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/crmirror/crmirror/gitstore/object"
)

// yaml is a file of about 2 KB in its so-manieth revision.
func yaml(i, revision int) []byte {
	var b strings.Builder
	for line := range 60 {
		fmt.Fprintf(&b, "  field%02d: value-%d-of-%d\n", line, i*7919%100003, line)
	}
	return fmt.Appendf(nil, "revision: %d\n%s", revision, b.String())
}

// BenchmarkWrite writes packs of files of 2 KB: one, and a thousand.
func BenchmarkWrite(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			objects := make([]Object, n)
			bytes := 0
			for i := range objects {
				content := yaml(i, 0)
				objects[i] = Object{Type: object.Blob, Hash: object.Sum(object.Blob, content), Content: content}
				bytes += len(content)
			}
			d := &Deflater{}
			b.SetBytes(int64(bytes))
			b.ReportAllocs()
			for b.Loop() {
				w, err := NewWriter(io.Discard, n, d)
				if err != nil {
					b.Fatal(err)
				}
				if err := w.AddAll(objects); err != nil {
					b.Fatal(err)
				}
				if _, err := w.Close(); err != nil {
					b.Fatal(err)
				}
				w.Index()
			}
		})
	}
}

// BenchmarkDelta makes and applies a delta of one changed line in files of 2 KB
// and 400 KB, as large as a tree of 10,000 files.
func BenchmarkDelta(b *testing.B) {
	for _, times := range []int{1, 200} {
		old, next := bytes.Repeat(yaml(1, 1), times), bytes.Repeat(yaml(1, 1), times)
		copy(next[len(next)/2:], "changed")
		delta, ok := Diff(old, next)
		if !ok {
			b.Fatal("no delta")
		}
		b.Run(fmt.Sprintf("diff-%d", len(old)), func(b *testing.B) {
			b.SetBytes(int64(len(old)))
			b.ReportAllocs()
			for b.Loop() {
				Diff(old, next)
			}
		})
		b.Run(fmt.Sprintf("patch-%d", len(old)), func(b *testing.B) {
			b.SetBytes(int64(len(old)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Patch(old, delta); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
