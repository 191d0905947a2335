package unified

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func written(t *testing.T, old, new []byte, color bool) string {
	t.Helper()
	var out bytes.Buffer
	if err := Write(&out, "x.yaml", "x.yaml", old, new, color); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestWrite(t *testing.T) {
	ten := "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"
	tests := []struct {
		name     string
		old, new []byte
		want     string
	}{
		{"equal", []byte(ten), []byte(ten), ""},
		{"changed", []byte(ten), []byte(strings.Replace(ten, "5", "five", 1)), "--- a/x.yaml\n+++ b/x.yaml\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n"},
		{"created", nil, []byte("a\nb\n"), "--- /dev/null\n+++ b/x.yaml\n@@ -0,0 +1,2 @@\n+a\n+b\n"},
		{"deleted", []byte("a\n"), nil, "--- a/x.yaml\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"},
		{"two hunks", []byte(ten), []byte("one" + strings.TrimSuffix(ten[1:], "10\n") + "ten\n"),
			"--- a/x.yaml\n+++ b/x.yaml\n@@ -1,4 +1,4 @@\n-1\n+one\n 2\n 3\n 4\n@@ -7,4 +7,4 @@\n 7\n 8\n 9\n-10\n+ten\n"},
		{"no line feed at the end", []byte("a"), []byte("b"), "--- a/x.yaml\n+++ b/x.yaml\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n"},
		{"what a terminal would obey", []byte("a\x1b[2J\u202e\n"), []byte("a\t\xff\r\n"), "--- a/x.yaml\n+++ b/x.yaml\n@@ -1 +1 @@\n-a?[2J?\n+a\t??\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, written(t, tt.old, tt.new, false)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if got, want := written(t, []byte("a\n"), []byte("b\n"), true), "\x1b[31m-a\x1b[m\n\x1b[32m+b\x1b[m\n"; !strings.HasSuffix(got, want) {
		t.Errorf("in color: %q, want it to end in %q", got, want)
	}
}

// TestWriteIsGits: what is written applies, whatever the texts are, and is as short as git's.
func TestWriteIsGits(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1 || args[0] != "diff") {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	changed := func(diff string) int {
		n := 0
		for line := range strings.Lines(diff) {
			if strings.HasPrefix(line, "+") != strings.HasPrefix(line, "-") && !strings.HasPrefix(line, "+++") && !strings.HasPrefix(line, "---") {
				n++
			}
		}
		return n
	}
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 7))
		old := randomText(r)
		new := edited(r, old)
		if err := os.WriteFile(filepath.Join(dir, "x.yaml"), []byte(old), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "y"), []byte(new), 0o600); err != nil {
			t.Fatal(err)
		}
		diff := written(t, []byte(old), []byte(new), false)
		if err := os.WriteFile(filepath.Join(dir, "patch"), []byte(diff), 0o600); err != nil {
			t.Fatal(err)
		}
		if n, want := changed(diff), changed(git("diff", "--no-index", "--minimal", "--no-color", "x.yaml", "y")); n != want {
			t.Errorf("seed %d: %d lines, git needs %d:\n%s", seed, n, want, diff)
		}
		if old == new {
			continue
		}
		git("apply", "--unidiff-zero", "patch")
		got, err := os.ReadFile(filepath.Join(dir, "x.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != new {
			t.Errorf("seed %d: applied, it gives\n%s\nnot\n%s\n%s", seed, got, new, diff)
		}
	}
}

// randomText has few different lines, so that there are many ways to compare it.
func randomText(r *rand.Rand) string {
	var b strings.Builder
	for range 1 + r.IntN(60) {
		fmt.Fprintf(&b, "%c\n", 'a'+r.IntN(6))
	}
	return b.String()
}

func edited(r *rand.Rand, text string) string {
	lines := strings.SplitAfter(text, "\n")
	for range r.IntN(12) {
		i := r.IntN(len(lines))
		switch r.IntN(3) {
		case 0:
			lines[i] = ""
		case 1:
			lines[i] += "new\n"
		default:
			lines[i] = fmt.Sprintf("%c\n", 'a'+r.IntN(6))
		}
	}
	return strings.Join(append(lines, "end\n"), "")
}

// TestWriteLarge: texts with nothing in common are not compared for ever.
func TestWriteLarge(t *testing.T) {
	var old, new bytes.Buffer
	for i := range 50_000 {
		fmt.Fprintf(&old, "old %d\n", i)
		fmt.Fprintf(&new, "new %d\n", i)
	}
	if got := strings.Count(written(t, old.Bytes(), new.Bytes(), false), "\n"); got != 100_003 {
		t.Errorf("%d lines", got)
	}
}
