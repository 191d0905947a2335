package gitstore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const sideRef = "refs/crmirror/lab/applying"

// note moves sideRef to a new commit that holds text.
func note(t *testing.T, s *Store, text string) Hash {
	t.Helper()
	h, err := s.CommitFile([]Hash{s.Head()}, File{Name: "note", Content: []byte(text)}, text, when)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetRef(t.Context(), sideRef, h); err != nil {
		t.Fatal(err)
	}
	return h
}

// TestPushIf: a push that moves one ref is refused when another one moved
// meanwhile, be it before the server is asked or between its answer and the update.
func TestPushIf(t *testing.T) {
	t.Run("nothing moved", func(t *testing.T) {
		bare := bareRepo(t)
		a, _ := pair(t, bare, sideRef)
		commit(t, a, "first", put("a", "1\n"))
		push(t, a)
		h := note(t, a, "one")
		if err := a.PushIf(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := git(t, bare, "rev-parse", sideRef); got != h.String() {
			t.Errorf("the remote's ref is at %s, want %s", got, h)
		}
		if err := a.PushIf(t.Context()); err != nil {
			t.Errorf("a second time, with nothing to push: %v", err)
		}
	})
	t.Run("branch moved before", func(t *testing.T) {
		bare := bareRepo(t)
		a, b := pair(t, bare, sideRef)
		commit(t, a, "first", put("a", "1\n"))
		push(t, a)
		fetch(t, b)
		commit(t, b, "second", put("a", "2\n"))
		push(t, b)
		note(t, a, "one")
		if err := a.PushIf(t.Context()); !errors.Is(err, ErrDiverged) {
			t.Errorf("PushIf: %v, want ErrDiverged", err)
		}
		if got := git(t, bare, "for-each-ref", sideRef); got != "" {
			t.Errorf("the ref moved all the same: %s", got)
		}
	})
	t.Run("branch moved in between", func(t *testing.T) {
		bare := bareRepo(t)
		a, _ := pair(t, bare, sideRef)
		commit(t, a, "first", put("a", "1\n"))
		push(t, a)
		hook := filepath.Join(bare, "hooks", "pre-receive")
		writeFile(t, hook, "#!/bin/sh\nunset GIT_QUARANTINE_PATH\ngit update-ref refs/heads/main $(git -c user.name=x -c user.email=x@example.com commit-tree -p main -m race main^{tree})\n")
		if err := os.Chmod(hook, 0o755); err != nil {
			t.Fatal(err)
		}
		note(t, a, "one")
		if err := a.PushIf(t.Context()); !errors.Is(err, ErrDiverged) {
			t.Errorf("PushIf: %v, want ErrDiverged", err)
		}
		if got := git(t, bare, "for-each-ref", sideRef); got != "" {
			t.Errorf("the ref moved all the same: %s", got)
		}
	})
	t.Run("server without atomic pushes", func(t *testing.T) {
		bare := bareRepo(t)
		a, _ := pair(t, bare, sideRef)
		git(t, bare, "config", "receive.advertiseAtomic", "false")
		commit(t, a, "first", put("a", "1\n"))
		if err := a.PushIf(t.Context()); !errors.Is(err, ErrNotAtomic) {
			t.Errorf("PushIf: %v, want ErrNotAtomic", err)
		}
	})
}

// TestCompare: what differs between a ref's tree and the branch's, below the path.
func TestCompare(t *testing.T) {
	bare := bareRepo(t)
	a, _ := pair(t, bare, sideRef)
	commit(t, a, "first", put("same", "1\n"), put("changed", "1\n"), put("gone", "1\n"))
	if _, err := a.Base(t.Context(), sideRef, "base", when); err != nil {
		t.Fatal(err)
	}
	commit(t, a, "second", put("changed", "2\n"), put("new/file", "1\n"), Edit{Path: "gone", Delete: true})
	push(t, a)
	got, err := a.Compare(sideRef)
	if err != nil {
		t.Fatal(err)
	}
	hash := func(text string) Hash { return BlobHash([]byte(text)) }
	want := []FileChange{
		{Path: "changed", Ref: hash("1\n"), Head: hash("2\n"), Mode: 0o100644},
		{Path: "gone", Ref: hash("1\n")},
		{Path: "new/file", Head: hash("1\n"), Mode: 0o100644},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Compare (-want +got):\n%s", diff)
	}
	if h, ok, err := a.LookupIn(sideRef, "gone"); err != nil || !ok || h != hash("1\n") {
		t.Errorf("LookupIn: %v, %v, %v", h, ok, err)
	}
}
