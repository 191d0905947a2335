package gitstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ownRepo makes a person's repository with files a, b and c below p that
// crmirror wrote, and a README of the person's.
func ownRepo(t *testing.T) (string, *Store) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "own")
	git(t, t.TempDir(), "init", "-q", "-b", "main", dir)
	writeFile(t, dir+"/README", "mine\n")
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-q", "-m", "mine")
	s := open(t, Options{Dir: dir, Path: "p"})
	commit(t, s, "ours", put("a", "1\n"), put("b", "1\n"), put("c", "1\n"))
	update(t, s)
	if got := git(t, dir, "status", "--porcelain"); got != "" {
		t.Fatalf("git status: %s", got)
	}
	return dir, s
}

func update(t *testing.T, s *Store) []Left {
	t.Helper()
	left, err := s.UpdateWorktree(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return left
}

// TestPersonsWorkSurvives: whatever a person has going on in the worktree or
// the index, our commits go on and their work stays as it was.
func TestPersonsWorkSurvives(t *testing.T) {
	tests := []struct {
		name   string
		person func(t *testing.T, dir string)
		left   []Left
		status string
		files  map[string]string // that differ from all being at 2
	}{
		{"nothing", func(*testing.T, string) {}, nil, "", nil},
		{"changes elsewhere", func(t *testing.T, dir string) {
			writeFile(t, dir+"/README", "changed\n")
			writeFile(t, dir+"/new", "new\n")
		}, nil, "M README\n?? new", map[string]string{"README": "changed\n", "new": "new\n"}},
		{"staged elsewhere", func(t *testing.T, dir string) {
			writeFile(t, dir+"/README", "changed\n")
			git(t, dir, "add", "README")
		}, nil, "M  README", map[string]string{"README": "changed\n"}},
		{"one of ours changed", func(t *testing.T, dir string) { writeFile(t, dir+"/p/a", "theirs\n") },
			[]Left{{Path: "p/a", Reason: "it has changes that are not committed"}}, "M p/a", map[string]string{"p/a": "theirs\n"}},
		{"one of ours staged", func(t *testing.T, dir string) {
			writeFile(t, dir+"/p/a", "theirs\n")
			git(t, dir, "add", "p/a")
		}, []Left{{Path: "p/a", Reason: "it has changes that are not committed"}, {Path: "p/a", Reason: "changes to it are staged"}}, "M  p/a", map[string]string{"p/a": "theirs\n"}},
		{"one of ours deleted", func(t *testing.T, dir string) { remove(t, dir+"/p/a") }, nil, "", nil},
		{"a folder in the way", func(t *testing.T, dir string) {
			remove(t, dir+"/p/a")
			writeFile(t, dir+"/p/a/x", "x\n")
		}, []Left{{Path: "p/a", Reason: "a folder or a symlink is in its place"}}, "D p/a", map[string]string{"p/a": "", "p/a/x": "x\n"}},
		{"our folder became a symlink", func(t *testing.T, dir string) {
			if err := os.Rename(dir+"/p", dir+"/q"); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("q", dir+"/p"); err != nil {
				t.Fatal(err)
			}
		}, []Left{
			{Path: "p/c", Reason: "a folder or a symlink is in its place"}, {Path: "p/a", Reason: "a folder or a symlink is in its place"}, {Path: "p/b", Reason: "a folder or a symlink is in its place"},
			{Path: "p/d", Reason: "a folder or a symlink is in its place"},
		}, "D p/a\n D p/b\n D p/d\n?? p\n?? q/", nil},
		{"an untracked file where ours comes", func(t *testing.T, dir string) { writeFile(t, dir+"/p/d", "theirs\n") },
			[]Left{{Path: "p/d", Reason: "it has changes that are not committed"}}, "M p/d", map[string]string{"p/d": "theirs\n"}},
		{"another branch", func(t *testing.T, dir string) { git(t, dir, "checkout", "-q", "-b", "feature") },
			[]Left{{Path: "", Reason: "feature is checked out; the commits are on main"}}, "", map[string]string{"p/a": "1\n", "p/b": "1\n", "p/c": "1\n", "p/d": ""}},
		{"a detached HEAD", func(t *testing.T, dir string) { git(t, dir, "checkout", "-q", "--detach") },
			[]Left{{Path: "", Reason: "HEAD is detached; the commits are on main"}}, "", map[string]string{"p/a": "1\n", "p/b": "1\n", "p/c": "1\n", "p/d": ""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir, s := ownRepo(t)
			tt.person(t, dir)
			commit(t, s, "again", put("a", "2\n"), put("b", "2\n"), Edit{Path: "c", Delete: true}, put("d", "2\n"))
			if diff := cmp.Diff(tt.left, update(t, s)); diff != "" {
				t.Errorf("left (-want +got):\n%s", diff)
			}
			if got := git(t, dir, "status", "--porcelain"); got != tt.status {
				t.Errorf("git status:\n%s\nwant:\n%s", got, tt.status)
			}
			if tt.name == "our folder became a symlink" {
				return
			}
			want := map[string]string{"README": "mine\n", "p/a": "2\n", "p/b": "2\n", "p/d": "2\n"}
			for path, content := range tt.files {
				want[path] = content
				if content == "" {
					delete(want, path)
				}
			}
			if diff := cmp.Diff(want, diskFiles(t, dir)); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			git(t, dir, "fsck", "--strict")
		})
	}
}

// TestBusy: nothing is committed to a branch that a person merges or rebases,
// their work comes to its end, and ours goes on after it.
func TestBusy(t *testing.T) {
	tests := []struct {
		name       string
		begin, end []string
		readme     string // in the end
	}{
		{"merge", []string{"merge", "side"}, []string{"commit", "-q", "--no-edit"}, "both"},
		{"merge aborted", []string{"merge", "side"}, []string{"merge", "--abort"}, "main"},
		{"rebase", []string{"rebase", "-q", "side"}, []string{"rebase", "--continue"}, "both"},
		{"cherry-pick", []string{"cherry-pick", "side"}, []string{"cherry-pick", "--abort"}, "main"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir, s := ownRepo(t)
			git(t, dir, "checkout", "-q", "-b", "side", "main~1")
			writeFile(t, dir+"/README", "side\n")
			git(t, dir, "commit", "-q", "-am", "side")
			git(t, dir, "checkout", "-q", "main")
			writeFile(t, dir+"/README", "main\n")
			git(t, dir, "commit", "-q", "-am", "main")
			fetch(t, s)
			if out, err := tryGit(t, dir, tt.begin...); err == nil {
				t.Fatalf("there is no conflict: %s", out)
			}
			before := git(t, dir, "status", "--porcelain")
			_, err := s.Commit(t.Context(), Commit{Edits: []Edit{put("a", "2\n")}, Message: "again", When: when})
			if !errors.Is(err, ErrBusy) || errors.Is(err, ErrDiverged) {
				t.Fatalf("Commit: %v, want ErrBusy", err)
			}
			update(t, s)
			if got := git(t, dir, "status", "--porcelain"); got != before {
				t.Errorf("git status:\n%s\nbefore:\n%s", got, before)
			}
			writeFile(t, dir+"/README", "both\n")
			git(t, dir, "add", "README")
			git(t, dir, tt.end...)
			fetch(t, s)
			commit(t, s, "again", put("a", "2\n"))
			if left := update(t, s); left != nil {
				t.Errorf("left: %v", left)
			}
			if got := git(t, dir, "show", "main:README"); got != tt.readme {
				t.Errorf("README is %q, want %q", got, tt.readme)
			}
			if got := git(t, dir, "status", "--porcelain"); got != "" {
				t.Errorf("git status: %s", got)
			}
			if got := readFile(t, dir+"/p/a"); got != "2\n" {
				t.Errorf("p/a is %q", got)
			}
		})
	}
}

// TestMergeBeforeFiles: a person begins to merge between our commit and its
// files; these follow once the merge is over.
func TestMergeBeforeFiles(t *testing.T) {
	dir, s := ownRepo(t)
	commit(t, s, "again", put("a", "2\n"))
	writeFile(t, dir+"/.git/MERGE_HEAD", s.Head().String()+"\n")
	left := update(t, s)
	if len(left) != 1 || !strings.Contains(left[0].Reason, "a merge is under way") {
		t.Errorf("left: %v", left)
	}
	remove(t, dir+"/.git/MERGE_HEAD")
	if left := update(t, s); left != nil {
		t.Errorf("left after the merge: %v", left)
	}
	if got := readFile(t, dir+"/p/a"); got != "2\n" {
		t.Errorf("p/a is %q", got)
	}
}

// TestCheckedOutElsewhere: the files of another worktree would fall behind.
func TestCheckedOutElsewhere(t *testing.T) {
	dir, s := ownRepo(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	linked := filepath.Join(t.TempDir(), "linked")
	git(t, dir, "worktree", "add", "-q", "-b", "linked", linked)
	for _, o := range []Options{{Dir: linked, Branch: "main"}, {Dir: dir, Branch: "linked"}} {
		s, err := Open(t.Context(), o)
		if err == nil {
			_, err = s.Commit(t.Context(), Commit{Edits: []Edit{put("a", "2\n")}, Message: "again", When: when})
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if !errors.Is(err, ErrBusy) {
			t.Errorf("%s in %s: %v, want ErrBusy", o.Branch, filepath.Base(o.Dir), err)
		}
	}
	if err := os.RemoveAll(linked); err != nil {
		t.Fatal(err)
	}
	commit(t, open(t, Options{Dir: dir, Branch: "linked"}), "again", put("a", "2\n"))
}

// TestBranchStays: a person checks out another branch while we run; our commits
// go on to the one that was checked out when we started.
func TestBranchStays(t *testing.T) {
	dir, s := ownRepo(t)
	git(t, dir, "checkout", "-q", "-b", "feature")
	fetch(t, s)
	commit(t, s, "again", put("a", "2\n"))
	if got := git(t, dir, "log", "--format=%s", "main"); got != "again\nours\nmine" {
		t.Errorf("main: %s", got)
	}
	if got := git(t, dir, "log", "--format=%s", "feature"); got != "ours\nmine" {
		t.Errorf("feature: %s", got)
	}
	git(t, dir, "checkout", "-q", "--detach")
	fetch(t, s)
}

// TestStaleNote: the branch moved under our commit, and the person then staged
// an older content: it is theirs, within Options.Path and beside it.
func TestStaleNote(t *testing.T) {
	for _, path := range []string{"p", ""} {
		t.Run("path="+path, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "own")
			git(t, t.TempDir(), "init", "-q", "-b", "main", dir)
			writeFile(t, dir+"/README", "first\n")
			git(t, dir, "add", ".")
			git(t, dir, "commit", "-q", "-m", "first")
			s := open(t, Options{Dir: dir, Path: path})
			writeFile(t, dir+"/README", "second\n")
			git(t, dir, "commit", "-q", "-am", "second")
			if _, err := s.Commit(t.Context(), Commit{Edits: []Edit{put("a", "1\n")}, Message: "ours", When: when}); !errors.Is(err, ErrDiverged) {
				t.Fatalf("Commit: %v, want ErrDiverged", err)
			}
			if _, err := os.Stat(filepath.Join(dir, ".git", behindFile)); err == nil {
				t.Error("a note that the files lag stays after a commit that was not made")
			}
			git(t, dir, "checkout", "HEAD~1", "--", "README")
			fetch(t, s)
			commit(t, s, "ours", put("a", "1\n"))
			if left := update(t, s); left != nil {
				t.Errorf("left: %v", left)
			}
			if got := git(t, dir, "status", "--porcelain"); got != "M  README" {
				t.Errorf("git status: %s", got)
			}
			if got := readFile(t, dir+"/README"); got != "first\n" {
				t.Errorf("README is %q", got)
			}
		})
	}
}

// TestLaggingNote: a person commits before the files followed a commit of ours,
// and then stages an older content. Seen moving, the branch's note goes; found so
// at a start, only what lies below Options.Path follows it.
func TestLaggingNote(t *testing.T) {
	for _, tt := range []struct {
		path    string
		restart bool
	}{{"", false}, {"p", false}, {"p", true}} {
		t.Run(fmt.Sprintf("path=%s,restart=%v", tt.path, tt.restart), func(t *testing.T) {
			dir, s := ownRepo(t)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, Options{Dir: dir, Path: tt.path})
			commit(t, s, "again", put("x", "2\n"))
			if tt.restart {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			writeFile(t, dir+"/README", "second\n")
			git(t, dir, "commit", "-q", "-m", "theirs", "README")
			git(t, dir, "checkout", "HEAD~1", "--", "README")
			if tt.restart {
				s = open(t, Options{Dir: dir, Path: tt.path})
			} else {
				fetch(t, s)
			}
			update(t, s)
			if got := readFile(t, dir+"/README"); got != "mine\n" {
				t.Errorf("README is %q", got)
			}
			if got := git(t, dir, "diff", "--cached", "--name-only", "--", "README"); got != "README" {
				t.Errorf("staged: %q", got)
			}
		})
	}
}

// TestSetRefCompares: a ref that somebody set since we read it is not ours to
// delete or replace.
func TestSetRefCompares(t *testing.T) {
	dir, s := ownRepo(t)
	const ref = "refs/crmirror/x/approved"
	if err := s.KeepRefs(ref); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "update-ref", ref, "main")
	if err := s.DeleteRef(t.Context(), ref); !errors.Is(err, ErrDiverged) {
		t.Errorf("DeleteRef of one never read: %v, want ErrDiverged", err)
	}
	fetch(t, s)
	git(t, dir, "update-ref", ref, "main~1")
	if err := s.DeleteRef(t.Context(), ref); !errors.Is(err, ErrDiverged) {
		t.Errorf("DeleteRef of one that moved: %v, want ErrDiverged", err)
	}
	if got, want := git(t, dir, "rev-parse", ref), git(t, dir, "rev-parse", "main~1"); got != want {
		t.Errorf("the ref is at %s, want %s", got, want)
	}
	fetch(t, s)
	if err := s.DeleteRef(t.Context(), ref); err != nil {
		t.Error(err)
	}
}

// TestSharedLeavesNoMarks: an agent that starts lets a command's live locks be.
func TestSharedLeavesNoMarks(t *testing.T) {
	dir, s := ownRepo(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	command := open(t, Options{Dir: dir, Shared: true})
	name := filepath.Join(dir, ".git/refs/crmirror/x/approved")
	lock, err := command.refs.Locks.Lock(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	open(t, Options{Dir: dir})
	if _, err := os.Stat(name + ".lock"); err != nil {
		t.Errorf("the command's lock: %v", err)
	}
	if err := lock.Abort(); err != nil {
		t.Error(err)
	}
}

// TestPacksOfManyRuns: a process that starts for each commit merges the packs of
// those before it, and none of a person's.
func TestPacksOfManyRuns(t *testing.T) {
	dir, s := ownRepo(t)
	ours := globAll(t, dir, ".git/objects/pack/*.pack")
	git(t, dir, "repack", "-dq") // the person's, README's
	theirs := slices.DeleteFunc(globAll(t, dir, ".git/objects/pack/*.pack"), func(path string) bool { return slices.Contains(ours, path) })
	if len(theirs) != 1 {
		t.Fatalf("a person's packs: %v", theirs)
	}
	for i := range 50 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, Options{Dir: dir, Path: "p"})
		commit(t, s, fmt.Sprint(i), put("a", fmt.Sprint(i)))
	}
	if got := len(globAll(t, dir, ".git/objects/pack/*.pack")); got > 40 {
		t.Errorf("%d packs after 50 runs", got)
	}
	if _, err := os.Stat(filepath.Join(dir, theirs[0])); err != nil {
		t.Errorf("a person's pack: %v", err)
	}
	git(t, dir, "fsck", "--strict")
}

// TestMultiPackIndex: packs that a person's git has in an index over several
// stay.
func TestMultiPackIndex(t *testing.T) {
	dir, s := ownRepo(t)
	for i := range 12 {
		commit(t, s, fmt.Sprint(i), put("a", fmt.Sprint(i)))
	}
	git(t, dir, "multi-pack-index", "write")
	for i := range 40 {
		commit(t, s, fmt.Sprint("x", i), put("a", fmt.Sprint("x", i)))
	}
	update(t, s)
	git(t, dir, "fsck", "--strict")
	git(t, dir, "log", "--stat")
	git(t, dir, "gc", "-q", "--prune=now")
	git(t, dir, "fsck", "--strict")
}

// TestRepackedByPerson: what a person's git gc took away is written again, and
// what it only moved is found.
func TestRepackedByPerson(t *testing.T) {
	for _, how := range [][]string{{"gc", "-q", "--prune=now"}, {"repack", "-adfq"}} {
		dir, s := ownRepo(t)
		h, err := s.PutBlobs([][]byte{[]byte("spilled\n")})
		if err != nil {
			t.Fatal(err)
		}
		if !s.Has(h[0]) {
			t.Fatal("the blob is not here")
		}
		git(t, dir, how...)
		if s.Has(h[0]) {
			t.Errorf("%v: the blob that is gone is here", how)
		}
		if !s.Has(s.Head()) {
			t.Errorf("%v: the head is not here", how)
		}
		_, err = s.Commit(t.Context(), Commit{Edits: []Edit{{Path: "z", Blob: h[0]}}, Message: "again", When: when})
		if !errors.Is(err, ErrMissing) {
			t.Errorf("%v: commit of a blob that is gone: %v, want ErrMissing", how, err)
		}
		commit(t, s, "again", put("z", "spilled\n"))
		update(t, s)
		git(t, dir, "fsck", "--strict")
	}
}

// TestKilledBeforeWorktree: killed between the commit and the files; the next
// start finishes.
func TestKilledBeforeWorktree(t *testing.T) {
	dir, s := ownRepo(t)
	commit(t, s, "again", put("a", "2\n"), put("d/e", "2\n"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir+"/p/d/e", "2\n") // one file was written already
	s = open(t, Options{Dir: dir, Path: "p"})
	if left := update(t, s); left != nil {
		t.Errorf("left: %v", left)
	}
	if got := git(t, dir, "status", "--porcelain"); got != "" {
		t.Errorf("git status: %s", got)
	}
}

// TestKilledWithLocks: killed while it held git's locks; the next start frees
// them, and a person's stay.
func TestKilledWithLocks(t *testing.T) {
	dir, s := ownRepo(t)
	for _, name := range []string{"index", "refs/heads/main", behindFile} {
		if _, err := s.refs.Locks.Lock(t.Context(), filepath.Join(dir, ".git", name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Options{Dir: dir, Path: "p"})
	commit(t, s, "again", put("a", "2\n"))
	if left := update(t, s); left != nil {
		t.Errorf("left: %v", left)
	}
	if got := git(t, dir, "status", "--porcelain"); got != "" {
		t.Errorf("git status: %s", got)
	}
}

// TestSharedBesideTheAgent: a command sets a ref in a repository that an agent
// works in, and the agent sees it at its next Fetch.
func TestSharedBesideTheAgent(t *testing.T) {
	dir, agent := ownRepo(t)
	const ref = "refs/crmirror/x/approved"
	if err := agent.KeepRefs(ref); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Options{Dir: dir}); !errors.Is(err, ErrInUse) {
		t.Fatalf("a second agent: %v, want ErrInUse", err)
	}
	command, err := Open(t.Context(), Options{Dir: dir, Refs: []string{ref}, Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := command.SetRef(t.Context(), ref, command.Head()); err != nil {
		t.Fatal(err)
	}
	if err := command.Close(); err != nil {
		t.Fatal(err)
	}
	fetch(t, agent)
	if got := agent.Ref(ref); got != agent.Head() {
		t.Errorf("the agent sees %s, want %s", got, agent.Head())
	}
	if _, err := Open(t.Context(), Options{Dir: t.TempDir() + "/none", Shared: true}); err == nil {
		t.Error("a shared store was created where nothing is")
	}
}

// TestPersonCommits: the branch of a person's repository moves under us.
func TestPersonCommits(t *testing.T) {
	dir, s := ownRepo(t)
	writeFile(t, dir+"/README", "changed\n")
	git(t, dir, "commit", "-q", "-am", "theirs")
	_, err := s.Commit(t.Context(), Commit{Edits: []Edit{put("a", "2\n")}, Message: "again", When: when})
	if !errors.Is(err, ErrDiverged) {
		t.Fatalf("Commit: %v, want ErrDiverged", err)
	}
	fetch(t, s)
	commit(t, s, "again", put("a", "2\n"))
	if left := update(t, s); left != nil {
		t.Errorf("left: %v", left)
	}
	if got := git(t, dir, "log", "--format=%s"); got != "again\ntheirs\nours\nmine" {
		t.Errorf("log: %s", got)
	}
	if got := git(t, dir, "status", "--porcelain"); got != "" {
		t.Errorf("git status: %s", got)
	}
}

// TestOwnKinds opens the kinds of repositories that people have, or says by
// name why not.
func TestOwnKinds(t *testing.T) {
	seed := func(t *testing.T) string {
		dir := filepath.Join(t.TempDir(), "own")
		git(t, t.TempDir(), "init", "-q", "-b", "main", dir)
		writeFile(t, dir+"/README", "mine\n")
		git(t, dir, "add", ".")
		git(t, dir, "commit", "-q", "-m", "mine")
		return dir
	}
	tests := []struct {
		name string
		make func(t *testing.T) (dir, path string)
		says string // of the error, "" for none
	}{
		{"a file", func(t *testing.T) (string, string) {
			file := filepath.Join(t.TempDir(), "f")
			writeFile(t, file, "x")
			return file, ""
		}, "it is a file"},
		{"a folder with other things", func(t *testing.T) (string, string) {
			dir := t.TempDir()
			writeFile(t, dir+"/x", "x")
			return dir, ""
		}, "git init"},
		{"a folder inside a repository", func(t *testing.T) (string, string) {
			dir := seed(t)
			writeFile(t, dir+"/sub/x", "x")
			return dir + "/sub", ""
		}, "lies inside the repository"},
		{"an empty folder", func(t *testing.T) (string, string) { return t.TempDir(), "" }, ""},
		{"bare", func(t *testing.T) (string, string) { return bareRepo(t), "" }, ""},
		{"a linked worktree", func(t *testing.T) (string, string) {
			linked := filepath.Join(t.TempDir(), "linked")
			git(t, seed(t), "worktree", "add", "-q", "-b", "linked", linked)
			return linked, "p"
		}, ""},
		{"alternates", func(t *testing.T) (string, string) {
			dir := filepath.Join(t.TempDir(), "clone")
			git(t, t.TempDir(), "clone", "-q", "--shared", seed(t), dir)
			git(t, dir, "remote", "remove", "origin")
			return dir, "p"
		}, ""},
		{"packed refs", func(t *testing.T) (string, string) {
			dir := seed(t)
			git(t, dir, "pack-refs", "--all")
			return dir, "p"
		}, ""},
		{"index version 4", func(t *testing.T) (string, string) {
			dir := seed(t)
			git(t, dir, "update-index", "--index-version", "4")
			return dir, "p"
		}, ""},
		{"SHA-256", func(t *testing.T) (string, string) {
			dir := t.TempDir()
			git(t, dir, "init", "-q", "--object-format=sha256", ".")
			return dir, ""
		}, "SHA-1"},
		{"a path through a symlink", func(t *testing.T) (string, string) {
			dir := seed(t)
			if err := os.Symlink("elsewhere", dir+"/link"); err != nil {
				t.Fatal(err)
			}
			git(t, dir, "add", ".")
			git(t, dir, "commit", "-q", "-m", "link")
			return dir, "link/p"
		}, "link is a symlink"},
		{"a path through a submodule", func(t *testing.T) (string, string) {
			dir := seed(t)
			git(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+git(t, dir, "rev-parse", "HEAD")+",module")
			git(t, dir, "commit", "-q", "-m", "module")
			return dir, "module/p"
		}, "module is a submodule"},
		{"a split index", func(t *testing.T) (string, string) {
			dir := seed(t)
			git(t, dir, "update-index", "--split-index")
			return dir, "p"
		}, "--no-split-index"},
		{"killed while it was made", func(t *testing.T) (string, string) {
			dir := t.TempDir()
			writeFile(t, dir+"/.git/HEAD", "")
			writeFile(t, dir+"/.git/config.lock", "[core]\n")
			for _, sub := range []string{"objects/pack", "refs/heads"} {
				if err := os.MkdirAll(dir+"/.git/"+sub, 0o777); err != nil {
					t.Fatal(err)
				}
			}
			return dir, "p"
		}, ""},
		{"only .git", func(t *testing.T) (string, string) {
			dir := t.TempDir()
			if err := os.Mkdir(dir+"/.git", 0o777); err != nil {
				t.Fatal(err)
			}
			return dir, "p"
		}, ""},
		{"HEAD lost", func(t *testing.T) (string, string) {
			dir := seed(t)
			remove(t, dir+"/README")
			remove(t, dir+"/.git/HEAD")
			return dir, "p"
		}, "HEAD"},
		{"LFS on our files", func(t *testing.T) (string, string) {
			dir := seed(t)
			writeFile(t, dir+"/.gitattributes", "*.md text\n*.yaml filter=lfs diff=lfs\n")
			git(t, dir, "add", ".")
			git(t, dir, "commit", "-q", "-m", "lfs")
			return dir, "p"
		}, "filter=lfs"},
		{"a damaged ref", func(t *testing.T) (string, string) {
			dir := seed(t)
			truncate(t, dir+"/.git/refs/heads/main", 0)
			return dir, ""
		}, "fsck"},
		{"a missing tree", func(t *testing.T) (string, string) {
			dir := seed(t)
			h := git(t, dir, "rev-parse", "HEAD^{tree}")
			remove(t, dir+"/.git/objects/"+h[:2]+"/"+h[2:])
			return dir, ""
		}, "fsck"},
		{"a locked ref", func(t *testing.T) (string, string) {
			dir := seed(t)
			writeFile(t, dir+"/.git/refs/heads/main.lock", "")
			return dir, ""
		}, "main.lock"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir, path := tt.make(t)
			s, err := Open(t.Context(), Options{Dir: dir, Path: path, LockWait: 1})
			if err == nil {
				defer func() {
					if err := s.Close(); err != nil {
						t.Error(err)
					}
				}()
				_, err = s.Commit(t.Context(), Commit{Edits: []Edit{put("x.yaml", "x\n")}, Message: "ours", When: when})
			}
			if tt.says != "" {
				if err == nil || !strings.Contains(err.Error(), tt.says) {
					t.Fatalf("error %v, want one that says %q", err, tt.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if left := update(t, s); left != nil {
				t.Errorf("left: %v", left)
			}
			if tt.name != "bare" {
				if got := git(t, dir, "status", "--porcelain"); got != "" {
					t.Errorf("git status: %s", got)
				}
			}
			if got := git(t, dir, "log", "-1", "--format=%s"); got != "ours" {
				t.Errorf("log: %s", got)
			}
			git(t, dir, "fsck", "--strict")
		})
	}
}
