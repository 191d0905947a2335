package worktree

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestIndexAsGitWritesIt reads indexes of all versions and writes them back;
// git sees the same.
func TestIndexAsGitWritesIt(t *testing.T) {
	run := func(dir string, args ...string) string {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	for _, version := range []string{"2", "3", "4"} {
		dir := t.TempDir()
		run(dir, "init", "-q")
		for _, name := range []string{"a", "a/b", strings.Repeat("long/", 50) + "x", "z"} {
			path := filepath.Join(dir, "files", name, "f")
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(name), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		run(dir, "add", ".")
		run(dir, "update-index", "--index-version", version)
		run(dir, "update-index", "--assume-unchanged", "files/a/f")
		if version != "2" {
			run(dir, "update-index", "--skip-worktree", "files/z/f")
		}
		before := run(dir, "ls-files", "-v", "--stage", "--debug")
		file := filepath.Join(dir, ".git", "index")
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		idx, err := parseIndex(b)
		if err != nil {
			t.Fatalf("version %s: %v", version, err)
		}
		if err := os.WriteFile(file, written(t, idx, nil), 0o644); err != nil {
			t.Fatal(err)
		}
		if after := run(dir, "ls-files", "-v", "--stage", "--debug"); after != before {
			t.Errorf("version %s: git sees\n%s\nwant\n%s", version, after, before)
		}
		for n := range b {
			if _, err := parseIndex(b[:n]); err == nil {
				t.Errorf("version %s: an index cut at %d of %d was taken", version, n, len(b))
			}
		}
	}
}

// written is the index file with slots put in and taken out.
func written(t *testing.T, x *index, slots []slot) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := x.write(&b, slots); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// indexOf is an index that has these paths.
func indexOf(t *testing.T, paths ...string) *index {
	t.Helper()
	empty := &index{}
	slots := empty.slots(paths)
	for i := range slots {
		slots[i].put = true
	}
	x, err := parseIndex(written(t, empty, slots))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestIndexWrite: entries are put in at either end and between, replaced and
// taken out; all stages of a path go with it, and the others keep what they are.
func TestIndexWrite(t *testing.T) {
	x := indexOf(t, "b", "d", "f", "h")
	staged := func(stage uint16, path string) []byte { return (&indexEntry{flags: stage << 12}).append(nil, path) }
	x.entries = append(x.entries, append(staged(1, "m"), staged(2, "m")...)...)
	x.count += 2
	slots := x.slots([]string{"m", "g", "e", "d", "a", "d", "b", "f"})
	for _, path := range []string{"a", "d", "e", "g", "m"} {
		s := findSlot(slots, path)
		s.put, s.entry.flags = true, 1<<15
	}
	if s := findSlot(slots, "m"); s.staged || s.count != 2 {
		t.Errorf("a path in a merge counts as staged: %+v", s)
	}
	if s := findSlot(slots, "e"); s.staged || s.count != 0 {
		t.Errorf("a path that is not there is: %+v", s)
	}
	findSlot(slots, "b").drop = true
	got, err := parseIndex(written(t, x, slots))
	if err != nil {
		t.Fatal(err)
	}
	var s string
	if err := got.each(func(path []byte, from, _ int) { s += fmt.Sprint(string(path), got.entry(from).flags>>15, " ") }); err != nil {
		t.Fatal(err)
	}
	if s != "a1 d1 e1 f0 g1 h0 m1 " {
		t.Errorf("written: %s", s)
	}
}

// TestIndexOrder: an index whose entries are not in order is not searched.
func TestIndexOrder(t *testing.T) {
	x := indexOf(t, "b")
	x.entries = (&indexEntry{}).append(x.entries, "a")
	x.count++
	if _, err := parseIndex(written(t, x, nil)); err == nil {
		t.Error("entries out of order were taken")
	}
}

// TestIndexAllocs: what one change allocates does not follow the number of entries.
func TestIndexAllocs(t *testing.T) {
	allocs := map[int]float64{}
	for _, n := range []int{100, 10000} {
		paths := make([]string, n)
		for i := range paths {
			paths[i] = fmt.Sprintf("folder/file-%06d.yaml", i)
		}
		file := written(t, indexOf(t, paths...), nil)
		allocs[n] = testing.AllocsPerRun(10, func() {
			x, err := parseIndex(file)
			if err != nil {
				t.Fatal(err)
			}
			slots := x.slots([]string{"folder/file-000050.yaml"})
			slots[0].put = true
			if err := x.write(io.Discard, slots); err != nil {
				t.Fatal(err)
			}
		})
	}
	if allocs[10000] > allocs[100] || allocs[100] > 30 {
		t.Errorf("allocations by number of entries: %v", allocs)
	}
}

// BenchmarkIndexOneOf is one file's entry replaced among many.
func BenchmarkIndexOneOf(b *testing.B) {
	for _, n := range []int{10000, 100000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			x := &index{version: 2, count: n}
			for i := range n {
				x.entries = (&indexEntry{}).append(x.entries, fmt.Sprintf("folder-%06d/file-%06d.yaml", i/100, i))
			}
			var file bytes.Buffer
			if err := x.write(&file, nil); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				x, err := parseIndex(file.Bytes())
				if err != nil {
					b.Fatal(err)
				}
				slots := x.slots([]string{fmt.Sprintf("folder-%06d/file-%06d.yaml", n/200, n/2)})
				slots[0].put = true
				if err := x.write(io.Discard, slots); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func FuzzParseIndex(f *testing.F) {
	seed := &index{version: 3, count: 2}
	seed.entries = (&indexEntry{ext: extSkip}).append((&indexEntry{}).append(nil, "a"), "b")
	var b bytes.Buffer
	if err := seed.write(&b, nil); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := parseIndex(b)
		if err != nil {
			return
		}
		once := written(t, x, nil)
		again, err := parseIndex(once)
		if err != nil || !bytes.Equal(written(t, again, nil), once) {
			t.Fatalf("an index that was read does not read back: %v", err)
		}
	})
}
