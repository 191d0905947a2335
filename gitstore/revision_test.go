package gitstore

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/google/go-cmp/cmp"

	"github.com/crmirror/crmirror/gitstore/gittest"
)

// imported makes a bare repository that serves single objects, of what git fast-import reads.
func imported(t *testing.T, stream string) string {
	t.Helper()
	bare := filepath.Join(t.TempDir(), "imported.git")
	if err := gittest.InitBare(t.Context(), bare, "main"); err != nil {
		t.Fatal(err)
	}
	if _, err := gittest.RunInput(t.Context(), bare, strings.NewReader(stream), "fast-import", "--quiet"); err != nil {
		t.Fatal(err)
	}
	return bare
}

// importCommit is a commit for fast-import; each change is a line of it, inline contents follow a |.
func importCommit(mark int, branch string, seconds int64, from string, changes ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "commit refs/heads/%s\nmark :%d\nauthor Ann <ann@example.com> 1000 +0000\ncommitter Bob <bob@example.com> %d +0200\ndata %d\ncommit %d\n",
		branch, mark, seconds, len(fmt.Sprintf("commit %d", mark)), mark)
	b.WriteString(from)
	for _, c := range changes {
		line, content, inline := strings.Cut(c, "|")
		b.WriteString(line + "\n")
		if inline {
			fmt.Fprintf(&b, "data %d\n%s\n", len(content), content)
		}
	}
	b.WriteByte('\n')
	return b.String()
}

// branched is a history of main with a branch "side" merged into it, tags, and a branch "other".
func branched(t *testing.T) (bare string) {
	t.Helper()
	bare = imported(t, importCommit(1, "main", 100, "", "M 644 inline p/a|1", "M 644 inline q/x|1")+
		importCommit(2, "main", 200, "", "M 644 inline p/a|2", "M 755 inline p/run|r")+
		importCommit(3, "side", 250, "from :2\n", "M 644 inline p/side|s")+
		importCommit(4, "main", 300, "from :2\nmerge :3\n", "M 644 inline p/side|s")+
		importCommit(5, "main", 280, "", "M 644 inline p/a|5")+
		importCommit(6, "main", 400, "", "D p/a")+
		importCommit(7, "other", 500, "from :1\n", "M 644 inline p/other|o"))
	git(t, bare, "tag", "light", "main~2")
	git(t, bare, "tag", "-a", "-m", "first", "v1", "main~4")
	git(t, bare, "tag", "-a", "-m", "a tag of a tag", "vv1", "v1")
	git(t, bare, "tag", "-a", "-m", "only tagged", "lone", "other")
	git(t, bare, "tag", "tree", "main^{tree}")
	return bare
}

func TestResolve(t *testing.T) {
	bare := branched(t)
	main, first := git(t, bare, "rev-parse", "main"), git(t, bare, "rev-parse", "main~4")
	side, other := git(t, bare, "rev-parse", "side"), git(t, bare, "rev-parse", "other")
	tests := []struct {
		rev, want string
	}{
		{"HEAD", main}, {"main", main}, {"heads/main", main}, {"refs/heads/main", main}, {"side", side},
		{"light", git(t, bare, "rev-parse", "main~2")}, {"v1", first}, {"refs/tags/v1", first}, {"tags/v1", first}, {"vv1", first},
		{first, first}, {first[:7], first}, {strings.ToUpper(first[:12]), first}, {git(t, bare, "rev-parse", "v1"), first},
		{git(t, bare, "rev-parse", "v1")[:12], first}, {"lone", other}, {other, other},
		// None of these is a commit.
		{"tree", ""}, {git(t, bare, "rev-parse", "main^{tree}"), ""}, {git(t, bare, "rev-parse", "main^{tree}")[:10], ""},
		{git(t, bare, "rev-parse", "main:q/x"), ""}, {"nothing", ""}, {"ffffffffff", ""}, {strings.Repeat("f", 40), ""},
		{first[:3], ""}, {"2026-01-01 10:00", ""}, {"../../HEAD", ""}, {"heads", ""}, {"main ", ""}, {"-", ""}, {"\x00", ""},
	}
	httpURL, tokenFile := serveHTTP(t, bare)
	own := filepath.Join(t.TempDir(), "own")
	git(t, t.TempDir(), "clone", "-q", bare, own)
	git(t, own, "branch", "side", "origin/side")
	git(t, own, "pack-refs", "--all")
	loose := filepath.Join(t.TempDir(), "loose")
	git(t, t.TempDir(), "-c", "transfer.unpackLimit=10000", "clone", "-q", "--no-local", bare, loose)
	for name, o := range map[string]Options{
		"path":       {URL: bare, History: true},
		"http":       {URL: httpURL, Auth: Auth{TokenFile: tokenFile}, History: true},
		"bare":       {Dir: bare, Shared: true},
		"own, clone": {Dir: own, Path: "p"},
		"own, loose": {Dir: loose, Shared: true},
	} {
		t.Run(name, func(t *testing.T) {
			if o.Dir == "" {
				o.Dir = filepath.Join(t.TempDir(), "cache")
			}
			s := open(t, o)
			if o.URL != "" {
				fetch(t, s)
			}
			for _, tt := range tests {
				if tt.rev == "side" && name == "own, loose" {
					tt.rev = "origin/side"
				}
				got, err := s.Resolve(t.Context(), tt.rev)
				switch {
				case tt.want == "" && (!errors.Is(err, ErrNoRevision) || !strings.Contains(err.Error(), fmt.Sprintf("%q", tt.rev))):
					t.Errorf("Resolve(%q) = %s, %v, want ErrNoRevision that names it", tt.rev, got, err)
				case tt.want != "" && (err != nil || got.String() != tt.want):
					t.Errorf("Resolve(%q) = %s, %v, want %s", tt.rev, got, err, tt.want)
				}
			}
			files, err := s.FilesAt(t.Context(), plumbing.NewHash(other))
			if _, ok := files[strings.TrimPrefix("p/other", o.Path+"/")]; err != nil || !ok {
				t.Errorf("FilesAt of a commit that only a tag names: %v, %v", files, err)
			}
		})
	}
}

// TestResolveWithoutHistory: a clone of the newest commit alone gets what a tag or a hash names, and what
// it had stays as it was.
func TestResolveWithoutHistory(t *testing.T) {
	bare := branched(t)
	for _, rev := range []string{"v1", git(t, bare, "rev-parse", "main~4")} {
		dir := filepath.Join(t.TempDir(), "cache")
		s := open(t, Options{URL: "file://" + bare, Dir: dir, Path: "p"})
		fetch(t, s)
		h, err := s.Resolve(t.Context(), rev)
		if err != nil || h.String() != git(t, bare, "rev-parse", "main~4") {
			t.Fatalf("Resolve(%q) = %s, %v", rev, h, err)
		}
		files, err := s.FilesAt(t.Context(), h)
		if err != nil {
			t.Fatal(err)
		}
		if content, err := s.Read(t.Context(), files["a"].Blob); err != nil || string(content) != "1" {
			t.Errorf("a at %s: %q, %v", rev, content, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		again := open(t, Options{URL: "file://" + bare, Dir: dir, Path: "p"})
		if again.Head().IsZero() {
			t.Error("the clone was made anew")
		}
	}
}

func TestResolveAmbiguous(t *testing.T) {
	var stream strings.Builder
	for i := range 1000 { // of 65,536 beginnings, and two commits share one as people share birthdays
		stream.WriteString(importCommit(i+1, "main", int64(i), ""))
	}
	bare := imported(t, stream.String())
	s := open(t, Options{Dir: bare, Shared: true})
	seen := map[string]bool{}
	for _, h := range strings.Fields(git(t, bare, "log", "--format=%H", "main")) {
		h = h[:minAbbreviation]
		if seen[h] {
			_, err := s.Resolve(t.Context(), h)
			if !errors.Is(err, ErrAmbiguous) || errors.Is(err, ErrNoRevision) || strings.Count(err.Error(), h) < 3 {
				t.Errorf("Resolve(%q): %v, want ErrAmbiguous that names both", h, err)
			}
			return
		}
		seen[h] = true
	}
	t.Fatal("no two hashes begin alike")
}

// TestHistoryDeepens: a clone made without history gets it when it is opened for it.
func TestHistoryDeepens(t *testing.T) {
	bare := branched(t)
	httpURL, tokenFile := serveHTTP(t, bare)
	for _, url := range []string{"file://" + bare, httpURL} {
		o := Options{URL: url, Dir: filepath.Join(t.TempDir(), "cache"), Path: "p", Auth: Auth{TokenFile: tokenFile}}
		shallow := open(t, o)
		fetch(t, shallow)
		_, err := shallow.At(t.Context(), time.Unix(150, 0))
		if !errors.Is(err, ErrShallow) || errors.Is(err, ErrNoRevision) {
			t.Errorf("At in a clone of one commit: %v, want ErrShallow", err)
		}
		if err := shallow.Close(); err != nil {
			t.Fatal(err)
		}
		o.History = true
		s := open(t, o)
		fetch(t, s)
		h, err := s.At(t.Context(), time.Unix(150, 0))
		if want := git(t, bare, "rev-parse", "main~4"); err != nil || h.String() != want {
			t.Errorf("At = %s, %v, want %s", h, err, want)
		}
		if _, err := os.Stat(filepath.Join(o.Dir, "repo.git", "shallow")); err == nil {
			t.Error("the clone still says that it is shallow")
		}
		commit(t, s, "goes on", put("z", "z"))
		push(t, s)
		git(t, bare, "update-ref", "refs/heads/main", "main~1")
	}
}

func TestAt(t *testing.T) {
	bare := branched(t)
	s := open(t, Options{Dir: bare, Shared: true})
	for _, tt := range []struct {
		at   int64
		want string // "" for none
	}{
		{99, ""}, {100, "main~4"}, {199, "main~4"}, {200, "main~3"}, {260, "main~3"}, // not side's commit of 250
		{280, "main~1"}, {350, "main~1"}, // whose clock was behind that of main~2, 300
		{400, "main"}, {1e9, "main"},
	} {
		got, err := s.At(t.Context(), time.Unix(tt.at, 0))
		if tt.want == "" {
			if !errors.Is(err, ErrNoRevision) || !strings.Contains(err.Error(), time.Unix(100, 0).Format(time.RFC3339)) {
				t.Errorf("At(%d) = %s, %v, want ErrNoRevision that says when the branch begins", tt.at, got, err)
			}
			continue
		}
		if want := git(t, bare, "rev-parse", tt.want); err != nil || got.String() != want {
			t.Errorf("At(%d) = %s, %v, want %s", tt.at, got, err, tt.want)
		}
	}
	empty := open(t, Options{Dir: filepath.Join(t.TempDir(), "empty")})
	if _, err := empty.At(t.Context(), when); !errors.Is(err, ErrNoRevision) {
		t.Errorf("At in an empty repository: %v", err)
	}
	if _, err := empty.Resolve(t.Context(), "HEAD"); !errors.Is(err, ErrNoRevision) {
		t.Errorf("Resolve in an empty repository: %v", err)
	}
}

func TestFilesAt(t *testing.T) {
	bare := branched(t)
	for _, path := range []string{"", "p", "q", "p/a", "nowhere", "p/nowhere"} {
		s := open(t, Options{Dir: bare, Path: path, Shared: true})
		for _, rev := range []string{"main", "main~1", "main~3", "main~4", "other"} {
			got := []string{}
			files, err := s.FilesAt(t.Context(), plumbing.NewHash(git(t, bare, "rev-parse", rev)))
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range slices.Sorted(maps.Keys(files)) {
				got = append(got, fmt.Sprintf("%06o blob %s\t%s", uint32(files[name].Mode), files[name].Blob, name))
			}
			want := []string{}
			if out, err := tryGit(t, bare, "ls-tree", "-r", rev+":"+path); err == nil && out != "" && path != "p/a" {
				want = strings.Split(out, "\n")
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s:%s (-git +got):\n%s", rev, path, diff)
			}
		}
	}
}

// TestResolveNoCommits: an empty repository, and a branch that there is not, are told apart, and where there are
// commits is said.
func TestResolveNoCommits(t *testing.T) {
	bare := bareRepo(t)
	s := open(t, Options{URL: bare, Dir: filepath.Join(t.TempDir(), "empty")})
	fetch(t, s)
	if _, err := s.Resolve(t.Context(), ""); !errors.Is(err, ErrNoRevision) || !strings.Contains(err.Error(), "has no commits yet") {
		t.Errorf("an empty remote: got %v", err)
	}
	commit(t, s, "1", put("a", "1"))
	push(t, s)
	wrong := open(t, Options{URL: bare, Branch: "wrong", Dir: filepath.Join(t.TempDir(), "wrong")})
	fetch(t, wrong)
	own := open(t, Options{Branch: "wrong", Dir: bare})
	for want, s := range map[string]*Store{"none on branch wrong, but on main": wrong, "none on branch wrong; those that": own} {
		if _, err := s.Resolve(t.Context(), ""); !errors.Is(err, ErrNoRevision) || !strings.Contains(err.Error(), want) {
			t.Errorf("a wrong branch: got %v, want %q in it", err, want)
		}
	}
}
