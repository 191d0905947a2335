package gitstore

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/crmirror/crmirror/gitstore/pack"
)

// counter counts bytes.
type counter int

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

// flat opens a store with n files of 2 KB in one folder, pushed.
func flat(tb testing.TB, bare string, n int) *Store {
	tb.Helper()
	s, err := Open(tb.Context(), Options{URL: bare, Dir: filepath.Join(tb.TempDir(), "cache")})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	if err := s.Fetch(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	edits := make([]Edit, n)
	for i := range edits {
		edits[i] = put(fmt.Sprintf("folder/file-%06d.yaml", i), text(i))
	}
	if _, err := s.Commit(tb.Context(), Commit{Edits: edits, Message: "all", When: when}); err != nil {
		tb.Fatal(err)
	}
	if err := s.Push(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return s
}

// text is a file of about 2 KB that compresses as YAML does.
func text(i int) string {
	var b strings.Builder
	for line := range 60 {
		fmt.Fprintf(&b, "  field%02d: value-%d-of-%d\n", line, i*7919%100003, line)
	}
	return b.String()
}

// TestSizeFollowsChange: what a one-file commit writes and what its push sends do
// not depend on how many files lie beside it.
func TestSizeFollowsChange(t *testing.T) {
	type cost struct{ objects, written, sent int }
	costs := map[int]cost{}
	for _, n := range []int{100, 10000} {
		bare := bareRepo(t)
		s := flat(t, bare, n)
		packs := filepath.Join(s.layout.git, "objects", "pack")
		before := sizes(t, packs)
		commit(t, s, "one", put("folder/file-000050.yaml", strings.Replace(text(50), "field30", "field99", 1)))
		var c cost
		for name, size := range sizes(t, packs) {
			if _, there := before[name]; there {
				continue
			}
			c.written += size
			if strings.HasSuffix(name, ".pack") {
				p := pack.Open(filepath.Join(packs, name))
				c.objects += p.Count()
				if err := p.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
		var sent counter
		if err := s.unsent.write(io.Writer(&sent), s.db, true); err != nil {
			t.Fatal(err)
		}
		if got := len(s.unsent.list); got != 4 || c.objects != 4 {
			t.Errorf("%d files: %d objects sent, %d written, want blob, two trees and the commit", n, got, c.objects)
		}
		c.sent = int(sent)
		costs[n] = c
		push(t, s)
		git(t, bare, "fsck", "--strict")
		if got := git(t, bare, "show", "main:folder/file-000050.yaml"); !strings.Contains(got, "field99") {
			t.Errorf("the remote has not got the change")
		}
	}
	small, large := costs[100], costs[10000]
	if large.sent > small.sent*11/10 || large.sent > 1000 {
		t.Errorf("a push sends %d bytes from a folder of 100 files, %d from one of 10,000", small.sent, large.sent)
	}
	if large.written > small.written*11/10 || large.written > 3000 {
		t.Errorf("a commit writes %d bytes in a folder of 100 files, %d in one of 10,000", small.written, large.written)
	}
}

// sizes are the files of a folder with their sizes.
func sizes(t *testing.T, dir string) map[string]int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]int{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		m[e.Name()] = int(info.Size())
	}
	return m
}

// thinned is a cache without a worktree whose history consists of thin packs,
// closed, and what its folder has.
func thinned(t *testing.T, bare string) (dir string, want map[string]string) {
	t.Helper()
	s := flat(t, bare, 200)
	want = map[string]string{}
	for i := range 200 {
		want[fmt.Sprintf("folder/file-%06d.yaml", i)] = text(i)
	}
	for i := range 5 {
		path := fmt.Sprintf("folder/file-%06d.yaml", i)
		want[path] = text(-i)
		commit(t, s, "more", put(path, want[path]))
	}
	push(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return s.opts.Dir, want
}

// TestThinWorktreeTurnedOn: a worktree that is turned on over a clone that only we
// could read is one in which git works.
func TestThinWorktreeTurnedOn(t *testing.T) {
	bare := bareRepo(t)
	dir, want := thinned(t, bare)
	if _, err := tryGit(t, filepath.Join(dir, "repo.git"), "fsck", "--strict"); err == nil {
		t.Error("git reads the clone, so the test proves nothing")
	}
	s := open(t, Options{URL: bare, Dir: dir, Worktree: true})
	fetch(t, s)
	update(t, s)
	work := filepath.Join(dir, "worktree")
	for range 3 {
		git(t, work, "fsck", "--strict")
		if got := git(t, work, "status", "--porcelain"); got != "" {
			t.Errorf("git status: %s", got)
		}
		want["folder/new"] += text(len(want))
		commit(t, s, "with a worktree", put("folder/new", want["folder/new"]))
		push(t, s)
		update(t, s)
	}
	if diff := cmp.Diff(want, diskFiles(t, work)); diff != "" {
		t.Errorf("worktree (-want +got):\n%s", diff)
	}
}

// TestThinBaseLost: a pack that others lean on is lost; the clone is made anew.
func TestThinBaseLost(t *testing.T) {
	bare := bareRepo(t)
	dir, want := thinned(t, bare)
	packs := filepath.Join(dir, "repo.git", "objects", "pack")
	largest, most := "", 0
	for name, size := range sizes(t, packs) {
		if size > most && strings.HasSuffix(name, ".pack") {
			largest, most = name, size
		}
	}
	remove(t, filepath.Join(packs, largest))
	remove(t, filepath.Join(packs, strings.TrimSuffix(largest, ".pack")+".idx"))
	s := open(t, Options{URL: bare, Dir: dir})
	fetch(t, s)
	want["folder/new"] = text(1)
	commit(t, s, "after the loss", put("folder/new", want["folder/new"]))
	push(t, s)
	if diff := cmp.Diff(want, cloneFiles(t, bare)); diff != "" {
		t.Errorf("clone (-want +got):\n%s", diff)
	}
}

// TestUnsentPilesUp: many commits made while the remote was away go out in one
// push, through chains of deltas.
func TestUnsentPilesUp(t *testing.T) {
	bare := bareRepo(t)
	s := flat(t, bare, 200)
	for i := range 120 {
		commit(t, s, fmt.Sprint("commit ", i), put("folder/file-000007.yaml", fmt.Sprint(text(7), i, "\n")), put(fmt.Sprintf("more/%d", i%5), fmt.Sprint(i)))
	}
	push(t, s)
	git(t, bare, "fsck", "--strict")
	if got := git(t, bare, "rev-list", "--count", "main"); got != "121" {
		t.Errorf("%s commits at the remote", got)
	}
}

// TestUnsentComesBack: contents that were there before come back, once or
// often, before a push, from the clone of a URL and from a person's repository.
// A server that keeps packs as they come resolves every delta.
func TestUnsentComesBack(t *testing.T) {
	changed := strings.Replace(text(7), "field30", "field99", 1)
	for _, flips := range []int{2, 5} {
		for _, own := range []bool{false, true} {
			t.Run(fmt.Sprintf("flips=%d,own=%v", flips, own), func(t *testing.T) {
				bare := bareRepo(t)
				git(t, bare, "config", "receive.unpackLimit", "1")
				s := flat(t, bare, 20)
				commit(t, s, "start", put("folder/file-000008.yaml", changed))
				push(t, s)
				if own {
					dir := filepath.Join(t.TempDir(), "own")
					git(t, t.TempDir(), "clone", "-q", bare, dir)
					s = open(t, Options{Dir: dir})
				}
				for i := range flips {
					seven, eight := text(7), changed
					if i%2 == 0 {
						seven, eight = eight, seven
					}
					commit(t, s, fmt.Sprint("flip ", i), put("folder/file-000007.yaml", seven), put("folder/file-000008.yaml", eight))
				}
				push(t, s)
				git(t, bare, "fsck", "--strict")
				want, _ := s.Lookup("folder/file-000007.yaml")
				if got := git(t, bare, "rev-parse", "main:folder/file-000007.yaml"); got != want.String() {
					t.Errorf("the remote has %s, want %s", got, want)
				}
			})
		}
	}
}

// TestOwnMergePushed: a person's merge, whose sides were never pushed, goes out
// whole.
func TestOwnMergePushed(t *testing.T) {
	bare := bareRepo(t)
	git(t, bare, "config", "receive.unpackLimit", "1")
	flat(t, bare, 20)
	dir := filepath.Join(t.TempDir(), "own")
	git(t, t.TempDir(), "clone", "-q", bare, dir)
	change := func(branch, file, content string) {
		t.Helper()
		git(t, dir, "checkout", "-q", branch)
		writeFile(t, filepath.Join(dir, "folder", file), content)
		git(t, dir, "add", ".")
		git(t, dir, "commit", "-q", "-m", branch+" "+file)
	}
	change("main", "fork", text(1)+"fork\n")
	git(t, dir, "branch", "side")
	change("side", "a", text(1)+"a\n")
	change("side", "a", text(1))
	change("main", "b", text(2)+"b\n")
	git(t, dir, "merge", "-q", "--no-edit", "side")
	s := open(t, Options{Dir: dir})
	commit(t, s, "ours", put("folder/a", text(1)+"a\n"))
	push(t, s)
	git(t, bare, "fsck", "--strict")
	if got, want := git(t, bare, "rev-parse", "main"), s.Head().String(); got != want {
		t.Errorf("the remote is at %s, want %s", got, want)
	}
}

func BenchmarkCommitOneOf(b *testing.B) {
	for _, n := range []int{10000, 100000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, err := Open(b.Context(), Options{Dir: filepath.Join(b.TempDir(), "r")})
			if err != nil {
				b.Fatal(err)
			}
			defer func() {
				if err := s.Close(); err != nil {
					b.Error(err)
				}
			}()
			edits := make([]Edit, n)
			for i := range edits {
				edits[i] = put(fmt.Sprintf("folder-%04d/file-%06d.yaml", i%1000, i), text(i))
			}
			if _, err := s.Commit(b.Context(), Commit{Edits: edits, Message: "all", When: when}); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				c := Commit{Edits: []Edit{put("folder-0500/file-000500.yaml", text(-i-1))}, Message: "one", When: when}
				if _, err := s.Commit(b.Context(), c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkFirstCommit(b *testing.B) {
	const n = 20000
	edits := make([]Edit, n)
	for i := range edits {
		edits[i] = put(fmt.Sprintf("folder-%04d/file-%06d.yaml", i%1000, i), text(i))
	}
	b.ReportAllocs()
	for b.Loop() {
		s, err := Open(b.Context(), Options{Dir: filepath.Join(b.TempDir(), "r")})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Commit(b.Context(), Commit{Edits: edits, Message: "all", When: when}); err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
