package pack

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crmirror/crmirror/gitstore/object"
)

// TestWriterAndGit: git accepts our packs and their index byte for byte, and
// we read back what we wrote.
func TestWriterAndGit(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	var contents [][]byte
	for _, n := range []int{0, 1, 15, 16, 127, 128, 2047, 2048, 70000, 3 << 20} {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte('a' + rnd.IntN(4))
		}
		contents = append(contents, b)
	}
	big := contents[8]
	changed := append(append(bytes.Clone(big[:30000]), "a new line\n"...), big[30000:]...)

	dir := t.TempDir()
	path := filepath.Join(dir, "pack-x.pack")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWriter(f, len(contents)+1, &Deflater{})
	if err != nil {
		t.Fatal(err)
	}
	var at int64
	for _, c := range contents {
		if len(c) == len(big) {
			at = w.Offset()
		}
		if err := w.Add(object.Blob, object.Sum(object.Blob, c), c); err != nil {
			t.Fatal(err)
		}
	}
	delta, ok := Diff(big, changed)
	if !ok || len(delta) > 40 {
		t.Fatalf("delta of one line: %d bytes, %v", len(delta), ok)
	}
	if err := w.AddOffsetDelta(object.Sum(object.Blob, changed), at, delta); err != nil {
		t.Fatal(err)
	}
	sum, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	index := w.Index()

	cmd := exec.Command("git", "index-pack", "--strict", "-o", filepath.Join(dir, "git.idx"), path)
	if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != sum.String() {
		t.Fatalf("git index-pack: %v %s, want %s", err, out, sum)
	}
	want, err := os.ReadFile(filepath.Join(dir, "git.idx"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(index, want) {
		t.Error("our index differs from git's")
	}
	again, checksum, err := Index(f)
	if err != nil || checksum != sum || !bytes.Equal(again, want) {
		t.Errorf("Index: %v %s, or another index than git's", err, checksum)
	}
	if err := os.WriteFile(filepath.Join(dir, "pack-x.idx"), index, 0o644); err != nil {
		t.Fatal(err)
	}
	p := Open(path)
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	for _, c := range contents {
		e, ok, err := p.Find(object.Sum(object.Blob, c))
		if err != nil || !ok {
			t.Fatalf("Find: %v %v", ok, err)
		}
		raw, err := p.Header(e.Offset)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := p.Inflate(raw, &Inflater{}); err != nil || !bytes.Equal(got, c) {
			t.Fatalf("Inflate %d bytes: %v", len(c), err)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// FuzzDelta: what Diff makes, Patch undoes; and Patch takes no nonsense.
func FuzzDelta(f *testing.F) {
	f.Add([]byte("base text"), []byte("base next"), []byte{9, 9, 0x90, 9})
	f.Add([]byte{}, []byte("x"), []byte{})
	f.Fuzz(func(t *testing.T, base, target, noise []byte) {
		if delta, ok := Diff(base, target); ok {
			if got, err := Patch(base, delta); err != nil || !bytes.Equal(got, target) {
				t.Fatalf("Patch(Diff(%q, %q)) = %q, %v", base, target, got, err)
			}
		}
		if got, err := Patch(base, noise); err == nil && len(got) > maxObject {
			t.Fatal("an impossible size was accepted")
		}
	})
}

// TestLongCopies: runs longer than one instruction can name are split.
func TestLongCopies(t *testing.T) {
	base := bytes.Repeat([]byte("0123456789abcdef"), 9<<17) // 18 MB: longer than one copy can name
	target := append(bytes.Clone(base[:17<<20]), base[17<<20+1:]...)
	delta, ok := Diff(base, target)
	if !ok || len(delta) > 64 {
		t.Fatalf("delta: %d bytes, %v", len(delta), ok)
	}
	if got, err := Patch(base, delta); err != nil || !bytes.Equal(got, target) {
		t.Fatalf("Patch: %v", err)
	}
}
