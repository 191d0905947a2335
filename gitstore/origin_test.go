package gitstore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// ownClone makes a person's clone of a remote, both with one commit.
func ownClone(t *testing.T) (bare, dir string) {
	t.Helper()
	bare, dir = bareRepo(t), filepath.Join(t.TempDir(), "work")
	git(t, t.TempDir(), "clone", "-q", bare, dir)
	git(t, dir, "checkout", "-q", "-b", "main")
	writeFile(t, filepath.Join(dir, "README"), "mine\n")
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-q", "-m", "first")
	git(t, dir, "push", "-q", "-u", "origin", "main")
	return bare, dir
}

// TestOwnRefsOfOthers: refs that others set at the remote are read, never
// deleted unseen, and deleted when we did so knowingly.
func TestOwnRefsOfOthers(t *testing.T) {
	bare, dir := ownClone(t)
	const held, approved = "refs/crmirror/x/held", "refs/crmirror/x/approved"
	s := open(t, Options{Dir: dir, Path: "p", Refs: []string{held, approved}})
	refsThere := func() string { return git(t, bare, "for-each-ref", "--format=%(refname)", "refs/crmirror") }
	// Objects and all, from elsewhere.
	tree := git(t, bare, "rev-parse", "main^{tree}")
	theirs := git(t, bare, "-c", "user.name=x", "-c", "user.email=x@example.com", "commit-tree", "-p", "main", "-m", "approved", tree)
	git(t, bare, "update-ref", approved, theirs)
	commit(t, s, "one", put("a", "1\n"))
	if err := s.Push(t.Context()); !errors.Is(err, ErrDiverged) {
		t.Errorf("Push over a ref never read: %v, want ErrDiverged", err)
	}
	if got := refsThere(); got != approved {
		t.Fatalf("refs at the remote: %q", got)
	}
	fetch(t, s)
	if got := s.Ref(approved).String(); got != theirs {
		t.Errorf("approved is %s here, want %s", got, theirs)
	}
	h, err := s.CommitFile([]Hash{s.Head()}, File{"held.json", []byte("[]\n")}, "held", when)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetRef(t.Context(), held, h); err != nil {
		t.Fatal(err)
	}
	fetch(t, s) // what is only here is not lost by looking
	push(t, s)
	if got := refsThere(); got != approved+"\n"+held {
		t.Fatalf("refs at the remote: %q", got)
	}
	if err := s.DeleteRef(t.Context(), approved); err != nil {
		t.Fatal(err)
	}
	fetch(t, s)
	push(t, s)
	if got := refsThere(); got != held {
		t.Errorf("refs at the remote: %q", got)
	}
	git(t, bare, "update-ref", "-d", held)
	fetch(t, s)
	if !s.Ref(held).IsZero() {
		t.Errorf("held was deleted at the remote and is here")
	}
	git(t, bare, "fsck", "--strict")
	git(t, dir, "fsck", "--strict")
}

// TestOwnRemoteAway: a person's repository serves while its remote is away.
func TestOwnRemoteAway(t *testing.T) {
	bare, dir := ownClone(t)
	const held = "refs/crmirror/x/held"
	s := open(t, Options{Dir: dir, Path: "p", Refs: []string{held}})
	git(t, bare, "update-ref", held, "main")
	if err := os.Rename(bare, bare+".away"); err != nil {
		t.Fatal(err)
	}
	fetch(t, s)
	h := commit(t, s, "one", put("a", "1\n"))
	if err := s.SetRef(t.Context(), held, h); err != nil {
		t.Fatal(err)
	}
	if err := s.Push(t.Context()); err == nil {
		t.Error("Push to nowhere succeeded")
	}
	if err := os.Rename(bare+".away", bare); err != nil {
		t.Fatal(err)
	}
	if err := s.Push(t.Context()); !errors.Is(err, ErrDiverged) {
		t.Errorf("Push over a ref never read: %v, want ErrDiverged", err)
	}
}

// TestPushWalksWhatIsNew: a push does not read the history that the remote has,
// which here would fail.
func TestPushWalksWhatIsNew(t *testing.T) {
	bare, dir := ownClone(t)
	first := git(t, dir, "rev-parse", "main")
	for _, message := range []string{"second", "third"} {
		git(t, dir, "commit", "-q", "--allow-empty", "-m", message)
	}
	git(t, dir, "push", "-q")
	file := filepath.Join(dir, ".git/objects", first[:2], first[2:])
	remove(t, file)
	writeFile(t, file, "damaged")
	s := open(t, Options{Dir: dir, Path: "p"})
	h, err := s.Commit(t.Context(), Commit{Edits: []Edit{put("a", "1\n")}, Message: "ours", When: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	push(t, s)
	if got := git(t, bare, "rev-parse", "main"); got != h.String() {
		t.Errorf("the remote is at %s, want %s", got, h)
	}
}
