package gitstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// wandering is a history of main with merges, of files that come, change, go, and turn into
// folders and back.
func wandering(seed uint64, commits int) string {
	r := rand.New(rand.NewPCG(seed, 1))
	paths := []string{"p/a", "p/a/b", "p/a.b", "p/a-b", "p/c/d/e", "p/c/d/f", "p/c/d", "q", "p", "p/zz"}
	var b strings.Builder
	mark := 0
	head, side := 0, 0 // marks of main and of a branch not merged yet
	for range commits {
		var changes []string
		for range r.IntN(3) {
			p := paths[r.IntN(len(paths))]
			switch r.IntN(5) {
			case 0, 1:
				changes = append(changes, "D "+p)
			case 2:
				changes = append(changes, "M 755 inline "+p+"|"+fmt.Sprint(r.IntN(3)))
			default:
				changes = append(changes, "M 644 inline "+p+"|"+fmt.Sprint(r.IntN(3)))
			}
		}
		mark++
		at := int64(1000 + 10*mark)
		switch {
		case head != 0 && side == 0 && r.IntN(6) == 0:
			side = mark
			b.WriteString(importCommit(mark, "side", at, fmt.Sprintf("from :%d\n", head), changes...))
		case side != 0 && r.IntN(2) == 0:
			b.WriteString(importCommit(mark, "main", at, fmt.Sprintf("merge :%d\n", side), changes...))
			head, side = mark, 0
		default:
			b.WriteString(importCommit(mark, "main", at, "", changes...))
			head = mark
		}
	}
	mark++
	b.WriteString(importCommit(mark, "main", int64(1000+10*mark), "", "M 644 inline p/last|1"))
	return b.String()
}

// TestVersionsAreGits compares with git log, over random histories.
func TestVersionsAreGits(t *testing.T) {
	told := 0
	for seed := range uint64(8) {
		bare := imported(t, wandering(seed, 60))
		s := open(t, Options{Dir: bare, Path: "p", Shared: true})
		for _, path := range []string{"a", "a/b", "a.b", "a-b", "c/d/e", "c/d/f", "c/d", "zz", "never"} {
			var got []string
			err := s.Versions(t.Context(), s.Head(), path, func(v Version) bool {
				if info, err := s.Info(v.Commit); err != nil || cmp.Diff(info, v.Info) != "" {
					t.Errorf("%s says of itself %+v, Versions %+v, %v", v.Commit, info, v.Info, err)
				}
				got = append(got, v.Commit.String()+" "+v.Blob.String())
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(gitVersions(t, bare, "p/"+path), got); diff != "" {
				t.Errorf("seed %d, %s (-git +got):\n%s", seed, path, diff)
			}
			told += len(got)
		}
	}
	if told < 300 {
		t.Errorf("only %d versions: the histories are too tame", told)
	}
}

// gitVersions is what git tells of a path's versions; a folder is no file.
func gitVersions(t *testing.T, bare, path string) []string {
	t.Helper()
	var list []string
	commit := ""
	for _, line := range strings.Split(git(t, bare, "log", "--first-parent", "-m", "--no-renames", "--raw", "--no-abbrev", "--format=%H", "main", "--", path), "\n") {
		switch what, of, _ := strings.Cut(line, "\t"); {
		case line == "":
		case !strings.HasPrefix(line, ":"):
			commit = line
		case of == path:
			list = append(list, commit+" "+strings.Fields(what)[3])
		}
	}
	return list
}

// TestDeletionsAreGits compares with git log, over random histories.
func TestDeletionsAreGits(t *testing.T) {
	told := 0
	for seed := range uint64(8) {
		bare := imported(t, wandering(seed, 60))
		s := open(t, Options{Dir: bare, Path: "p", Shared: true})
		var got []string
		err := s.Deletions(t.Context(), s.Head(), time.Time{}, func(d Deletion) bool {
			if want := git(t, bare, "rev-parse", d.Commit.String()+"^", d.Last.String()+":p/"+d.Path); want != d.Last.String()+"\n"+d.Blob.String() {
				t.Errorf("%+v: git has %s", d, want)
			}
			got = append(got, d.Commit.String()+" p/"+d.Path)
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		commit := ""
		for _, line := range strings.Fields(git(t, bare, "log", "--first-parent", "-m", "--no-renames", "--name-only", "--diff-filter=D", "--format=:%H", "main", "--", "p/")) {
			if hash, ok := strings.CutPrefix(line, ":"); ok {
				commit = hash
			} else {
				want = append(want, commit+" "+line)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("seed %d (-git +got):\n%s", seed, diff)
		}
		told += len(got)
	}
	if told < 100 {
		t.Errorf("only %d deletions: the histories are too tame", told)
	}
}

// TestWalksStop: a caller that has seen enough is asked no more.
func TestWalksStop(t *testing.T) {
	bare := imported(t, wandering(1, 60))
	s := open(t, Options{Dir: bare, Path: "p", Shared: true})
	calls := 0
	if err := s.Versions(t.Context(), s.Head(), "c/d/e", func(Version) bool { calls++; return false }); err != nil || calls != 1 {
		t.Errorf("Versions: %d calls, %v", calls, err)
	}
	var since []int64
	for _, after := range []int64{1300, 1310} {
		err := s.Deletions(t.Context(), s.Head(), time.Unix(after, 0), func(d Deletion) bool {
			if d.Info.When.Unix() < after {
				t.Errorf("told of a deletion at %d, before %d", d.Info.When.Unix(), after)
			}
			since = append(since, after)
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(since) < 2 {
		t.Error("no deletions since then")
	}
	calls = 0
	if err := s.Deletions(t.Context(), s.Head(), time.Time{}, func(Deletion) bool { calls++; return false }); err != nil || calls != 1 {
		t.Errorf("Deletions: %d calls, %v", calls, err)
	}
}

// TestVersionsShallow: what is known of a shallow clone is told, and that it is not all.
func TestVersionsShallow(t *testing.T) {
	bare := branched(t)
	own := filepath.Join(t.TempDir(), "own")
	git(t, t.TempDir(), "clone", "-q", "--depth=3", "file://"+bare, own)
	s := open(t, Options{Dir: own, Shared: true})
	var got []string
	err := s.Versions(t.Context(), s.Head(), "p/a", func(v Version) bool {
		got = append(got, v.Info.Message)
		return true
	})
	if diff := cmp.Diff([]string{"commit 6", "commit 5"}, got); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	if !errors.Is(err, ErrShallow) || !strings.Contains(err.Error(), "fetch --unshallow") {
		t.Errorf("error %v, want ErrShallow that says what to type", err)
	}
	if err := s.Deletions(t.Context(), s.Head(), time.Time{}, func(Deletion) bool { return true }); !errors.Is(err, ErrShallow) {
		t.Errorf("Deletions: %v, want ErrShallow", err)
	}
}

// TestVersionsReadLittle: a walk reads no blob, and no folder beside the file's.
func TestVersionsReadLittle(t *testing.T) {
	bare := imported(t, importCommit(1, "main", 100, "", "M 644 inline a/x|1", "M 644 inline b/y|1")+
		importCommit(2, "main", 200, "", "M 644 inline b/y|2")+importCommit(3, "main", 300, "", "M 644 inline a/x|2"))
	s := open(t, Options{Dir: bare, Path: "a", Shared: true})
	for _, rev := range []string{"main:a/x", "main~1:a/x", "main:b/y", "main~2:b/y", "main:b", "main~2:b"} {
		h := git(t, bare, "rev-parse", rev)
		remove(t, filepath.Join(bare, "objects", h[:2], h[2:]))
	}
	versions, deletions := 0, 0
	if err := s.Versions(t.Context(), s.Head(), "x", func(Version) bool { versions++; return true }); err != nil || versions != 2 {
		t.Errorf("Versions: %d, %v", versions, err)
	}
	if err := s.Deletions(t.Context(), s.Head(), time.Time{}, func(Deletion) bool { deletions++; return true }); err != nil || deletions != 0 {
		t.Errorf("Deletions: %d, %v", deletions, err)
	}
}
