package main_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/crmirror/crmirror/gitstore/gittest"
)

// own makes a repository of the user's own, with one commit, and returns its folder.
func (u *user) own(name string, options ...string) string {
	u.t.Helper()
	dir := u.path(name)
	gittest.Git(u.t, "", append(append([]string{"init", "--quiet", "--initial-branch=main"}, options...), dir)...)
	gittest.CommitFile(u.t, dir, "README.md", "ours\n", "Add a README")
	return dir
}

// What crmirror cannot work in, it refuses by name, and leaves as it is.
func TestRepositoriesThatAreRefused(t *testing.T) {
	const path = "clusters/eu1"
	for _, test := range []struct {
		name string
		make func(t *testing.T, u *user, dir string)
		want []string
	}{
		{"a file", func(_ *testing.T, u *user, _ string) { u.file("repo", "content") }, []string{"it is a file", "give the path of a repository"}},
		{"a folder with something else in it", func(_ *testing.T, u *user, _ string) { u.file("repo/notes.txt", "content") },
			[]string{"not empty and no git repository", "git init"}},
		{"SHA-256", func(_ *testing.T, u *user, _ string) { u.own("repo", "--object-format=sha256") }, []string{"sha256", "SHA-1"}},
		{"refs in a reftable", func(_ *testing.T, u *user, _ string) {
			u.own("repo")
			u.file("repo/.git/config", "[core]\n\trepositoryformatversion = 1\n[extensions]\n\trefStorage = reftable\n")
		}, []string{"reftable", "git refs migrate"}},
		{"a path through a submodule", func(t *testing.T, u *user, dir string) {
			head := gittest.Git(t, u.own("repo"), "rev-parse", "HEAD")
			gittest.Git(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+head+",clusters")
			gittest.Git(t, dir, "commit", "--quiet", "-m", "Add a submodule")
		}, []string{"clusters is a submodule in branch main", "plain folders"}},
		{"a path through a symlink", func(t *testing.T, u *user, _ string) {
			dir := u.own("repo")
			if err := os.Symlink("elsewhere", filepath.Join(dir, "clusters")); err != nil {
				t.Fatal(err)
			}
			gittest.CommitFile(t, dir, "elsewhere/file", "content\n", "Add a symlink")
		}, []string{"clusters is a symlink in branch main", "plain folders"}},
		{"a path through a file", func(t *testing.T, u *user, _ string) {
			gittest.CommitFile(t, u.own("repo"), "clusters", "content\n", "Add a file")
		}, []string{"clusters is a file in branch main", "plain folders"}},
		{"files that are kept in LFS", func(t *testing.T, u *user, _ string) {
			gittest.CommitFile(t, u.own("repo"), ".gitattributes", "*.yaml filter=lfs diff=lfs merge=lfs -text\n", "Keep files in LFS")
		}, []string{".gitattributes sets filter=lfs for clusters/eu1/", "clusters/** -filter"}},
		{"a damaged ref", func(_ *testing.T, u *user, dir string) {
			u.own("repo")
			u.file("repo/.git/refs/heads/main", "")
		}, []string{"damaged", "it is yours", "fsck"}},
		{"a detached HEAD", func(t *testing.T, u *user, dir string) {
			gittest.Git(t, u.own("repo"), "checkout", "--quiet", "--detach")
		}, []string{"HEAD is detached", "no branch to commit to"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			dir := u.path("repo")
			test.make(t, u, dir)
			before := snapshot(t, dir)
			u.run("backup", "--repo", "repo", "--path", path).wantFailure(t, 1, test.want...)
			if d := cmp.Diff(before, snapshot(t, dir)); d != "" {
				t.Errorf("the refused repository changed (-before +after):\n%s", d)
			}
		})
	}
}

// The same of a remote: what cannot be told from the outside is told by name.
func TestRemotesThatAreRefused(t *testing.T) {
	for _, test := range []struct {
		name string
		make func(t *testing.T, u *user, remote string)
		want []string
	}{
		{"SHA-256", func(t *testing.T, _ *user, remote string) {
			if err := os.RemoveAll(remote); err != nil {
				t.Fatal(err)
			}
			gittest.Git(t, "", "init", "--quiet", "--bare", "--object-format=sha256", remote)
			gittest.Git(t, remote, "config", "http.receivepack", "true")
		}, []string{"sha256"}},
		{"a path through a submodule", func(t *testing.T, u *user, remote string) {
			dir := u.own("own")
			gittest.Git(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+gittest.Git(t, dir, "rev-parse", "HEAD")+",clusters")
			gittest.Git(t, dir, "commit", "--quiet", "-m", "Add a submodule")
			gittest.Git(t, dir, "push", "--quiet", remote, "main")
		}, []string{"clusters is a submodule in branch main"}},
		{"files that are kept in LFS", func(t *testing.T, u *user, remote string) {
			dir := u.own("own")
			gittest.CommitFile(t, dir, "clusters/.gitattributes", "*.yaml filter=lfs\n", "Keep files in LFS")
			gittest.Git(t, dir, "push", "--quiet", remote, "main")
		}, []string{".gitattributes sets filter=lfs for clusters/eu1/"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			name, remote := newRemote(t, "main")
			test.make(t, u, remote)
			u.run("backup", "--repo", world.lab.HTTP.URL(name), "--token-file", tokenFile(), "--path", "clusters/eu1").
				wantFailure(t, 1, test.want...)
		})
	}
}

// snapshot returns everything at a path, byte for byte: path → content.
func snapshot(t *testing.T, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if entry.Name() == "crmirror.lock" || strings.Contains(path, ".git/objects/pack/") {
			return nil // ours: an empty lock, and objects that nothing refers to
		}
		if entry.Type()&fs.ModeSymlink != 0 {
			found[path], err = os.Readlink(path)
			return err
		}
		content, err := os.ReadFile(path)
		found[path] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A person's work in a plain-path repository survives byte for byte; what could
// not follow is reported, and follows once the person is done.
func TestPersonsWorkSurvives(t *testing.T) {
	for _, test := range []struct {
		name string
		// work leaves something half done in the repository, where file is what
		// crmirror keeps of an object; done ends it.
		work, done func(t *testing.T, dir, file string)
		want       []string // in the report; none when every file of crmirror's can follow
		index      bool     // the whole index is the person's
	}{
		{
			name: "a change that is not committed",
			work: edit,
			done: func(t *testing.T, dir, file string) { gittest.Git(t, dir, "checkout", "HEAD", "--", file) },
			want: []string{"a.yaml: left as it is: it has changes that are not committed"},
		},
		{
			name: "a change that is staged",
			work: func(t *testing.T, dir, file string) {
				edit(t, dir, file)
				gittest.Git(t, dir, "add", file)
			},
			done: func(t *testing.T, dir, file string) { gittest.Git(t, dir, "checkout", "HEAD", "--", file) },
			want: []string{"a.yaml: left as it is: changes to it are staged"},
		},
		{
			name: "work on other files",
			work: func(t *testing.T, dir, _ string) {
				gittest.WriteFile(t, dir, "README.md", "half a sent")
				gittest.WriteFile(t, dir, "staged.txt", "staged")
				gittest.Git(t, dir, "add", "staged.txt")
				gittest.WriteFile(t, dir, "untracked.txt", "untracked")
			},
			done: func(t *testing.T, dir, _ string) {
				if got, want := gittest.Git(t, dir, "status", "--porcelain"), " M README.md\nA  staged.txt\n?? untracked.txt"; got != want {
					t.Errorf("git status: got %q, want the person's work, %q", got, want)
				}
				gittest.Git(t, dir, "add", "--all")
				gittest.Git(t, dir, "commit", "--quiet", "-m", "Finish")
			},
		},
		{
			name: "another branch",
			work: func(t *testing.T, dir, file string) {
				gittest.Git(t, dir, "checkout", "--quiet", "-b", "feature")
				edit(t, dir, file)
			},
			done: func(t *testing.T, dir, file string) {
				gittest.Git(t, dir, "checkout", "HEAD", "--", file)
				gittest.Git(t, dir, "checkout", "--quiet", "main")
			},
			want:  []string{"worktree: left as it is: feature is checked out; the commits are on main"},
			index: true,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWidgets(t, strings.ReplaceAll(test.name, " ", "-")+".persons.example.dev").install()
			w.create("a", 1)
			u := newUser(t)
			dir := u.own("ops")
			backup := []string{"backup", "--repo", dir, "--branch", "main", "--resources", "*." + w.group}
			u.succeed(backup...)
			checkClean(t, dir)

			test.work(t, dir, w.file("a"))
			files, index := snapshot(t, dir), gittest.Git(t, dir, "ls-files", "--stage")
			w.patch("a", `{"spec": {"size": 2}}`)
			w.create("b", 1)
			checkLeft(t, u.run(backup...), test.want)
			checkWork(t, dir, files, len(test.want) == 0, w.file("a"))
			if got := gittest.Git(t, dir, "ls-files", "--stage"); test.index && got != index {
				t.Errorf("index (-before +after):\n%s", cmp.Diff(index, got))
			}
			for _, name := range []string{"a", "b"} {
				if content := gittest.ShowFile(t, dir, "main", w.file(name)); !strings.Contains(content, "name: "+name) {
					t.Errorf("%s on the branch: got\n%s\nwant the object", name, content)
				}
			}

			test.done(t, dir, w.file("a"))
			u.succeed(backup...)
			checkClean(t, dir)
			if content := gittest.ShowFile(t, dir, "main", w.file("a")); !strings.Contains(content, "size: 2") {
				t.Errorf("file after the person was done: got\n%s\nwant size: 2", content)
			}
		})
	}
}

// A rebase of the branch is waited for: a commit in the middle of it would be in
// its way, or be lost by it.
func TestRebaseIsWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWidgets(t, "rebase.persons.example.dev").install()
	w.create("a", 1)
	u := newUser(t)
	dir := u.own("ops")
	backup := []string{"backup", "--repo", dir, "--branch", "main", "--resources", "*." + w.group}
	u.succeed(backup...)
	stopInRebase(t, dir)
	files, index, main := snapshot(t, dir), gittest.Git(t, dir, "ls-files", "--stage"), gittest.Git(t, dir, "rev-parse", "main")
	w.patch("a", `{"spec": {"size": 2}}`)
	u.run(backup...).wantFailure(t, 1, "a rebase is under way", "finish or abort it")
	checkWork(t, dir, files, false, w.file("a"))
	if got := gittest.Git(t, dir, "ls-files", "--stage"); got != index {
		t.Errorf("index (-before +after):\n%s", cmp.Diff(index, got))
	}
	if got := gittest.Git(t, dir, "rev-parse", "main"); got != main {
		t.Errorf("main moved from %s to %s in the middle of its rebase", main, got)
	}
	gittest.Git(t, dir, "rebase", "--abort")
	u.succeed(backup...)
	checkClean(t, dir)
	if content := gittest.ShowFile(t, dir, "main", w.file("a")); !strings.Contains(content, "size: 2") {
		t.Errorf("file after the rebase: got\n%s\nwant size: 2", content)
	}
}

// checkWork compares the files on disk with those that a person left there. Only
// if ours may follow, the file of an object may have.
func checkWork(t *testing.T, dir string, before map[string]string, follows bool, ours string) {
	t.Helper()
	after := snapshot(t, dir)
	for path, content := range before {
		if strings.HasPrefix(path, filepath.Join(dir, ".git")+"/") || follows && path == filepath.Join(dir, ours) {
			continue
		}
		if after[path] != content {
			t.Errorf("%s: got %q, want it as the person left it, %q", path, after[path], content)
		}
	}
}

// edit adds a line to a file as a person would.
func edit(t *testing.T, dir, file string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	gittest.WriteFile(t, dir, file, string(content)+"# half a thought")
}

// stopInRebase leaves a rebase of main that waits for a person.
func stopInRebase(t *testing.T, dir string) {
	t.Helper()
	gittest.Git(t, dir, "branch", "onto", "main~1")
	gittest.CommitFile(t, dir, "README.md", "one\n", "Say one")
	gittest.Git(t, dir, "checkout", "--quiet", "onto")
	gittest.CommitFile(t, dir, "README.md", "two\n", "Say two")
	gittest.Git(t, dir, "checkout", "--quiet", "main")
	if out, err := gittest.Run(t.Context(), dir, "rebase", "onto"); err == nil {
		t.Fatalf("rebase: got no conflict, want one\n%s", out)
	}
}

// checkLeft checks the exit code and that the report names what was left.
func checkLeft(t *testing.T, r result, want []string) {
	t.Helper()
	code := 0
	if len(want) > 0 {
		code = 3
	}
	if r.code != code {
		t.Errorf("got %v\nwant exit code %d", r, code)
	}
	for _, text := range want {
		if !strings.Contains(r.stdout, text) {
			t.Errorf("got %v\nwant %q on stdout", r, text)
		}
	}
}

// A lock that another git holds is waited for, then reported, and never broken.
func TestLockedRepositoryIsReported(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	dir := u.own("ops")
	lock := u.file("ops/.git/index.lock", "somebody's")
	backup := []string{"backup", "--repo", dir, "--resources", "*.backup.example.dev"}
	checkLeft(t, u.run(backup...), []string{"worktree: left as it is", "index.lock"})
	if content, err := os.ReadFile(lock); err != nil || string(content) != "somebody's" {
		t.Errorf("lock: got %q, %v, want it untouched", content, err)
	}
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	u.succeed(backup...)
	checkClean(t, dir)
}

// A stray file of a person at the very path of a new object is neither
// overwritten nor lost.
func TestFileInTheWayOfAnObjectSurvives(t *testing.T) {
	t.Parallel()
	w := newWidgets(t, "way.example.dev").install()
	w.create("a", 1)
	u := newUser(t)
	dir := u.own("ops")
	gittest.WriteFile(t, dir, w.file("a"), "mine, not committed\n")
	backup := []string{"backup", "--repo", dir, "--resources", "*." + w.group}
	checkLeft(t, u.run(backup...), []string{"a.yaml: left as it is: it has changes that are not committed"})
	content, err := os.ReadFile(filepath.Join(dir, w.file("a")))
	if err != nil || !bytes.Equal(content, []byte("mine, not committed\n")) {
		t.Errorf("file: got %q, %v, want it as the person left it", content, err)
	}
	if _, err := w.in().Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	gittest.Git(t, dir, "checkout", "--", w.file("a"))
	u.succeed(backup...)
	checkClean(t, dir)
}
