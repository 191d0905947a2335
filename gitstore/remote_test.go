package gitstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/google/go-cmp/cmp"
)

// pair opens two stores on one remote, both fetched.
func pair(t *testing.T, bare string, refs ...string) (a, b *Store) {
	t.Helper()
	var both [2]*Store
	for i := range both {
		both[i] = open(t, Options{URL: bare, Dir: filepath.Join(t.TempDir(), "cache"), Path: "p", Refs: refs})
		fetch(t, both[i])
	}
	return both[0], both[1]
}

// TestPushDiverged: a second writer gets ErrDiverged, derives again, and
// neither's files are lost.
func TestPushDiverged(t *testing.T) {
	bare := bareRepo(t)
	a, b := pair(t, bare)
	commit(t, a, "a", put("a", "a\n"))
	push(t, a)
	commit(t, b, "b", put("b", "b\n"))
	if err := b.Push(t.Context()); !errors.Is(err, ErrDiverged) {
		t.Fatalf("Push on an old head: %v, want ErrDiverged", err)
	}
	fetch(t, b)
	if _, ok := b.Lookup("b"); ok || b.Head() != a.Head() {
		t.Fatalf("after Fetch the unpushed commit is still there")
	}
	commit(t, b, "b", put("b", "b\n"))
	push(t, b)
	want := map[string]string{"p/a": "a\n", "p/b": "b\n"}
	if diff := cmp.Diff(want, cloneFiles(t, bare)); diff != "" {
		t.Errorf("clone (-want +got):\n%s", diff)
	}
}

// TestPushRace: the ref moves between the advertisement and the update; the
// server itself refuses the stale value.
func TestPushRace(t *testing.T) {
	bare := bareRepo(t)
	a, _ := pair(t, bare)
	commit(t, a, "first", put("a", "1\n"))
	push(t, a)
	writeFile(t, filepath.Join(bare, "hooks", "pre-receive"),
		"#!/bin/sh\nunset GIT_QUARANTINE_PATH\ngit update-ref refs/heads/main $(git commit-tree -p main -m race main^{tree})\n")
	if err := os.Chmod(filepath.Join(bare, "hooks", "pre-receive"), 0o755); err != nil {
		t.Fatal(err)
	}
	git(t, bare, "config", "user.name", "x")
	git(t, bare, "config", "user.email", "x@example.com")
	commit(t, a, "second", put("a", "2\n"))
	if err := a.Push(t.Context()); !errors.Is(err, ErrDiverged) {
		t.Errorf("Push: %v, want ErrDiverged", err)
	}
	if got := git(t, bare, "log", "-1", "--format=%s", "main"); got != "race" {
		t.Errorf("remote is at %q", got)
	}
}

// TestPushAcknowledgedLate: the push arrived, its answer got lost.
func TestPushAcknowledgedLate(t *testing.T) {
	bare := bareRepo(t)
	a, _ := pair(t, bare)
	commit(t, a, "first", put("a", "1\n"))
	known := map[string]Hash{}
	push(t, a)
	a.known = known
	if err := a.Push(t.Context()); err != nil {
		t.Errorf("Push of what is there: %v", err)
	}
}

func TestPushRefused(t *testing.T) {
	for _, kind := range []string{"path", "http"} {
		t.Run(kind, func(t *testing.T) {
			bare := bareRepo(t)
			o := Options{URL: bare, Dir: filepath.Join(t.TempDir(), "cache")}
			if kind == "http" {
				o.URL, o.Auth.TokenFile = serveHTTP(t, bare)
			}
			s := open(t, o)
			fetch(t, s)
			writeFile(t, filepath.Join(bare, "hooks", "pre-receive"), "#!/bin/sh\necho main is protected >&2\nexit 1\n")
			if err := os.Chmod(filepath.Join(bare, "hooks", "pre-receive"), 0o755); err != nil {
				t.Fatal(err)
			}
			commit(t, s, "first", put("a", "1\n"))
			err := s.Push(t.Context())
			var refused *RefusedError
			if !errors.Is(err, ErrRefused) || !errors.As(err, &refused) || !strings.Contains(err.Error(), "main is protected") {
				t.Fatalf("Push: %v, want ErrRefused with the hook's words", err)
			}
			if refused.Ref != "refs/heads/main" {
				t.Errorf("refused ref %q", refused.Ref)
			}
		})
	}
}

// TestPushNoRoom: a ref at the remote whose name is in the way of ours is said
// to be so, not taken for a ref that moved, listed or not.
func TestPushNoRoom(t *testing.T) {
	for _, tt := range []struct{ there, ours, hidden string }{
		{"mirror", "mirror/one", ""},
		{"mirror/one", "mirror", ""},
		{"mirror/one", "mirror", "refs/heads/mirror/one"},
	} {
		t.Run(fmt.Sprintf("%s,hidden=%s", tt.ours, tt.hidden), func(t *testing.T) {
			bare := bareRepo(t)
			a := open(t, Options{URL: bare, Dir: filepath.Join(t.TempDir(), "a"), Branch: tt.there})
			fetch(t, a)
			commit(t, a, "theirs", put("a", "a\n"))
			push(t, a)
			if tt.hidden != "" {
				git(t, bare, "config", "receive.hideRefs", tt.hidden)
			}
			b := open(t, Options{URL: bare, Dir: filepath.Join(t.TempDir(), "b"), Branch: tt.ours})
			fetch(t, b)
			commit(t, b, "ours", put("a", "a\n"))
			err := b.Push(t.Context())
			if !errors.Is(err, ErrRefused) || errors.Is(err, ErrDiverged) || !strings.Contains(err.Error(), "refs/heads/"+tt.there) {
				t.Errorf("Push: %v, want ErrRefused that names %s", err, tt.there)
			}
		})
	}
}

func TestRemoteErrors(t *testing.T) {
	bare := bareRepo(t)
	url, tokenFile := serveHTTP(t, bare)
	wrong := filepath.Join(t.TempDir(), "wrong")
	writeFile(t, wrong, "guess\n")
	empty := filepath.Join(t.TempDir(), "empty")
	writeFile(t, empty, "\n")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		url  string
		auth Auth
		want error
		says string
	}{
		{"wrong token", url, Auth{TokenFile: wrong}, ErrAuth, "check the token"},
		{"no token", url, Auth{}, ErrAuth, "401"},
		{"empty token file", url, Auth{TokenFile: empty}, ErrAuth, "is empty"},
		{"missing token file", url, Auth{TokenFile: "/nonexistent"}, ErrAuth, "/nonexistent"},
		{"no such repository", strings.Replace(url, "remote", "other", 1), Auth{TokenFile: tokenFile}, ErrNotFound, "404"},
		{"no such path", bare + "x", Auth{}, ErrNotFound, "does not"},
		{"nobody listens", "http://" + dead + "/x.git", Auth{}, ErrUnreachable, "refused"},
		{"password in the URL", "http://ann:hunter2@" + dead + "/x.git", Auth{}, ErrUnreachable, "http://" + dead},
		{"token in the clear", "http://example.invalid/x.git", Auth{TokenFile: tokenFile}, ErrAuth, "https"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := open(t, Options{URL: tt.url, Auth: tt.auth, Dir: filepath.Join(t.TempDir(), "cache")})
			err := s.Fetch(t.Context())
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("Fetch: %v, want %v with %q", err, tt.want, tt.says)
			}
			for _, secret := range []string{"hunter2", token, "guess"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("the error tells a secret: %v", err)
				}
			}
		})
	}
}

func TestDefaultBranch(t *testing.T) {
	bare := bareRepo(t)
	git(t, bare, "symbolic-ref", "HEAD", "refs/heads/trunk")
	seed := filepath.Join(t.TempDir(), "seed")
	git(t, t.TempDir(), "clone", "-q", bare, seed)
	writeFile(t, filepath.Join(seed, "README"), "hello\n")
	git(t, seed, "add", ".")
	git(t, seed, "commit", "-q", "-m", "seed")
	git(t, seed, "push", "-q", "origin", "HEAD:trunk")

	s := open(t, Options{URL: bare, Dir: filepath.Join(t.TempDir(), "cache"), Path: "p"})
	fetch(t, s)
	if s.Branch() != "trunk" || s.Head().IsZero() {
		t.Fatalf("branch %q, head %s", s.Branch(), s.Head())
	}
	commit(t, s, "ours", put("a", "a\n"))
	push(t, s)
	want := map[string]string{"README": "hello\n", "p/a": "a\n"}
	if diff := cmp.Diff(want, cloneFiles(t, bare)); diff != "" {
		t.Errorf("clone (-want +got):\n%s", diff)
	}

	// A branch that does not exist yet begins empty.
	other := open(t, Options{URL: bare, Branch: "mirror/one", Dir: filepath.Join(t.TempDir(), "cache")})
	fetch(t, other)
	if !other.Head().IsZero() {
		t.Fatalf("head of an absent branch: %s", other.Head())
	}
	commit(t, other, "ours", put("b", "b\n"))
	push(t, other)
	if got := git(t, bare, "ls-tree", "-r", "--name-only", "mirror/one"); got != "b" {
		t.Errorf("mirror/one holds %q", got)
	}
}

// TestRemoteRewritten: force-pushed to unrelated history, recreated empty, and
// recreated with other content.
func TestRemoteRewritten(t *testing.T) {
	bare := bareRepo(t)
	s := open(t, Options{URL: bare, Dir: filepath.Join(t.TempDir(), "cache")})
	fetch(t, s)
	commit(t, s, "one", put("a", "1\n"))
	commit(t, s, "two", put("a", "2\n"))
	push(t, s)

	other := filepath.Join(t.TempDir(), "other")
	git(t, t.TempDir(), "init", "-q", "-b", "main", other)
	for _, n := range []string{"1", "2", "3"} {
		writeFile(t, filepath.Join(other, "b"), n)
		git(t, other, "add", ".")
		git(t, other, "commit", "-q", "-m", n)
	}
	recreate := func() {
		if err := os.RemoveAll(bare); err != nil {
			t.Fatal(err)
		}
		git(t, filepath.Dir(bare), "init", "-q", "--bare", "-b", "main", bare)
	}
	git(t, other, "push", "-q", "-f", bare, "main")
	git(t, bare, "prune", "--expire=now") // else it still knows what we have
	fetch(t, s)
	if got := s.Head().String(); got != git(t, other, "rev-parse", "main") {
		t.Fatalf("after a force-push: head %s", got)
	}
	if got := git(t, filepath.Join(s.opts.Dir, "repo.git"), "rev-list", "--count", "main"); got != "1" {
		t.Errorf("fetched %s commits of an unrelated history, want 1", got)
	}
	recreate()
	fetch(t, s)
	if !s.Head().IsZero() {
		t.Fatalf("recreated empty: head %s", s.Head())
	}
	commit(t, s, "again", put("a", "3\n"))
	push(t, s)
	if diff := cmp.Diff(map[string]string{"a": "3\n"}, cloneFiles(t, bare)); diff != "" {
		t.Errorf("clone (-want +got):\n%s", diff)
	}
	// Rewound by one commit, and back.
	recreate()
	git(t, other, "push", "-q", bare, "main")
	fetch(t, s)
	git(t, other, "push", "-q", "-f", bare, "main~1:main")
	fetch(t, s)
	if got := s.Head().String(); got != git(t, other, "rev-parse", "main~1") {
		t.Errorf("after rewinding: head %s", got)
	}
	commit(t, s, "on top", put("c", "c\n"))
	push(t, s)
	cloneFiles(t, bare)
}

// TestRefs: base and held refs travel with the branch in one push.
func TestRefs(t *testing.T) {
	bare := bareRepo(t)
	const base, held = "refs/crmirror/x/base", "refs/crmirror/x/held"
	a, b := pair(t, bare, base, held)
	writeTo := func(s *Store, content string) {
		commit(t, s, content, put("n/f", content))
		if _, err := s.Base(t.Context(), base, "base", when); err != nil {
			t.Fatal(err)
		}
	}
	writeTo(a, "1\n")
	h, err := a.CommitFile([]Hash{a.Head()}, File{"held.json", []byte("[]\n")}, "held", when)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.SetRef(t.Context(), held, h); err != nil {
		t.Fatal(err)
	}
	push(t, a)
	if got := git(t, bare, "ls-tree", "-r", "--name-only", base); got != "p/n/f" {
		t.Errorf("base holds %q", got)
	}
	if got := git(t, bare, "rev-parse", base+"^"); got != a.Head().String() {
		t.Errorf("base's parent is %s, want %s", got, a.Head())
	}
	again, err := a.Base(t.Context(), base, "base", when.AddDate(1, 0, 0))
	if err != nil || again != a.Ref(base) {
		t.Errorf("Base with nothing new: %s, %v, want %s", again, err, a.Ref(base))
	}
	fetch(t, b)
	if b.Ref(base) != a.Ref(base) || b.Ref(held) != h {
		t.Fatalf("second clone: refs %s %s", b.Ref(base), b.Ref(held))
	}
	content, ok, err := b.ReadFile(t.Context(), h, "held.json")
	if err != nil || !ok || string(content) != "[]\n" {
		t.Errorf("ReadFile: %q %v %v", content, ok, err)
	}
	if _, err := b.DeriveBase(t.Context(), base, []Edit{put("n/g", "g\n")}, "derived", when); err != nil {
		t.Fatal(err)
	}
	if err := b.DeleteRef(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	push(t, b)
	if got := git(t, bare, "for-each-ref", "--format=%(refname)"); got != base+"\nrefs/heads/main" {
		t.Errorf("refs at the remote: %s", got)
	}
	if got := git(t, bare, "ls-tree", "-r", "--name-only", base); got != "p/n/f\np/n/g" {
		t.Errorf("derived base holds %q", got)
	}
	git(t, bare, "fsck", "--strict")

	// a's view of base is stale now: the whole push is refused, the branch too.
	before := git(t, bare, "rev-parse", "main")
	writeTo(a, "2\n")
	if err := a.Push(t.Context()); !errors.Is(err, ErrDiverged) {
		t.Errorf("Push with a stale base: %v", err)
	}
	if got := git(t, bare, "rev-parse", "main"); got != before {
		t.Errorf("the branch moved although base could not")
	}
}

// TestLargePushHTTP: a first push larger than what is buffered, and a clone
// that leaves contents at the server until they are read.
func TestLargePushHTTP(t *testing.T) {
	bare := bareRepo(t)
	git(t, bare, "config", "uploadpack.allowFilter", "true")
	git(t, bare, "config", "uploadpack.allowReachableSHA1InWant", "true")
	o := Options{Dir: filepath.Join(t.TempDir(), "cache")}
	o.URL, o.Auth.TokenFile = serveHTTP(t, bare)
	s := open(t, o)
	fetch(t, s)
	noise := make([]byte, 5<<20)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(noise) // never fails
	var edits []Edit
	for i := range 100 {
		edits = append(edits, put(fmt.Sprintf("d%d/f%d", i%10, i), string(noise[i<<15:(i+1)<<15])))
	}
	commit(t, s, "large", edits...)
	push(t, s)
	git(t, bare, "fsck", "--strict")
	if left := globAll(t, o.Dir, "tmp_*"); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}

	o.Dir = filepath.Join(t.TempDir(), "partial")
	partial := open(t, o)
	fetch(t, partial)
	h, ok := partial.Lookup("d3/f3")
	if !ok || partial.db.Has(h) {
		t.Fatalf("a clone without contents: found %v, content here %v", ok, partial.db.Has(h))
	}
	content, err := partial.Read(t.Context(), h)
	if err != nil || string(content) != string(noise[3<<15:4<<15]) {
		t.Fatalf("Read: %d bytes, %v", len(content), err)
	}
	var rest []Hash
	partial.Walk("d4", func(_ string, h Hash, _ filemode.FileMode) bool {
		rest = append(rest, h)
		return true
	})
	if err := partial.Prefetch(t.Context(), rest); err != nil || len(rest) != 10 || !partial.db.Has(rest[9]) {
		t.Errorf("Prefetch of %d: %v", len(rest), err)
	}
	if _, err := partial.Read(t.Context(), BlobHash([]byte("nowhere"))); !errors.Is(err, ErrMissing) {
		t.Errorf("Read of what is nowhere: %v", err)
	}
	commit(t, partial, "small", put("d3/f3", "changed\n"), Edit{Path: "d4/f4", Delete: true})
	push(t, partial)
	git(t, bare, "fsck", "--strict")
	if got := git(t, bare, "show", "main:d3/f3"); got != "changed" {
		t.Errorf("d3/f3 is %q", got)
	}
	// The first one catches up over what it has.
	fetch(t, s)
	if s.Head() != partial.Head() {
		t.Errorf("head %s, want %s", s.Head(), partial.Head())
	}
}
