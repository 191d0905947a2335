package gitstore

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/crmirror/crmirror/gitstore/gittest"
)

// overHTTP serves a bare repository and opens a store on it that has pushed once.
func overHTTP(t *testing.T, own bool) (bare string, server *gittest.HTTP, s *Store) {
	t.Helper()
	bare = bareRepo(t)
	server, err := gittest.NewHTTP(filepath.Dir(bare), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	o := Options{URL: server.URL("remote.git"), Dir: filepath.Join(t.TempDir(), "store")}
	if own {
		git(t, t.TempDir(), "clone", "-q", o.URL, o.Dir)
		o.URL = ""
	}
	s = open(t, o)
	fetch(t, s)
	commit(t, s, "first", put("a", "1\n"))
	push(t, s)
	// The branch exists now; only what creates a ref asks for the others.
	commit(t, s, "second", put("a", "2\n"))
	push(t, s)
	return bare, server, s
}

// inFront starts a server before another one; function sees every request, with
// what passes it on.
func inFront(t *testing.T, server *gittest.HTTP, function func(w http.ResponseWriter, r *http.Request, pass http.Handler)) string {
	t.Helper()
	target, err := url.Parse(server.URL(""))
	if err != nil {
		t.Fatal(err)
	}
	pass := httputil.NewSingleHostReverseProxy(target)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { function(w, r, pass) }))
	t.Cleanup(front.Close)
	return front.URL + "/remote.git"
}

// TestPushRequests: a push is one request, over the connection that is there.
func TestPushRequests(t *testing.T) {
	for _, own := range []bool{false, true} {
		_, server, s := overHTTP(t, own)
		requests, connections := server.Requests(), server.Connections()
		for _, content := range []string{"3\n", "4\n", "5\n"} {
			commit(t, s, content, put("a", content))
			push(t, s)
		}
		if got := server.Requests() - requests; got != 3 {
			t.Errorf("own=%v: %d requests for 3 pushes", own, got)
		}
		if got := server.Connections() - connections; got != 0 {
			t.Errorf("own=%v: %d connections were opened", own, got)
		}
		if own {
			continue
		}
		if got := server.Connections(); got != 1 {
			t.Errorf("%d connections from the first fetch on", got)
		}
	}
}

// TestPushMovedRemote: a push that does not ask for the refs first overwrites
// nothing of another writer's, and after a fetch goes on.
func TestPushMovedRemote(t *testing.T) {
	for _, own := range []bool{false, true} {
		bare, _, s := overHTTP(t, own)
		clone := filepath.Join(t.TempDir(), "clone")
		git(t, t.TempDir(), "clone", "-q", bare, clone)
		gittest.CommitFile(t, clone, "b", "theirs\n", "theirs")
		git(t, clone, "push", "-q")
		commit(t, s, "ours", put("a", "3\n"))
		want := ErrDiverged
		if own {
			want = ErrBehind
		}
		if err := s.Push(t.Context()); !errors.Is(err, want) {
			t.Fatalf("own=%v: Push to a branch that moved: %v, want %v", own, err, want)
		}
		if got := git(t, bare, "log", "-1", "--format=%s", "main"); got != "theirs" {
			t.Fatalf("own=%v: the remote is at %q", own, got)
		}
		if own {
			if _, err := s.UpdateWorktree(t.Context()); err != nil {
				t.Fatal(err)
			}
			git(t, s.opts.Dir, "pull", "-q", "--rebase")
		}
		fetch(t, s)
		commit(t, s, "ours again", put("a", "4\n"))
		push(t, s)
		if got := git(t, bare, "show", "main:a", "main:b"); got != "4\ntheirs" {
			t.Errorf("own=%v: the remote has %q", own, got)
		}
	}
}

// TestPushServerRestarted: connections that were kept and broke are no failure.
func TestPushServerRestarted(t *testing.T) {
	bare, server, s := overHTTP(t, false)
	server.Off()
	if err := server.On(); err != nil {
		t.Fatal(err)
	}
	commit(t, s, "third", put("a", "3\n"))
	push(t, s)
	if got := git(t, bare, "rev-list", "--count", "main"); got != "3" {
		t.Errorf("%s commits at the remote, want 3", got)
	}
}

// TestPushAnswerLost: a proxy gives up after the push arrived. The same push is
// not made twice, and is not taken for another writer's.
func TestPushAnswerLost(t *testing.T) {
	bare, server, _ := overHTTP(t, false)
	var lose atomic.Bool
	address := inFront(t, server, func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.Method != http.MethodPost || !lose.CompareAndSwap(true, false) {
			pass.ServeHTTP(w, r)
			return
		}
		pass.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler) // ends the connection
	})
	s := open(t, Options{URL: address, Dir: filepath.Join(t.TempDir(), "store")})
	fetch(t, s)
	commit(t, s, "third", put("a", "3\n"))
	lose.Store(true)
	if err := s.Push(t.Context()); !errors.Is(err, ErrUnreachable) {
		t.Errorf("Push whose answer got lost: %v, want ErrUnreachable", err)
	}
	push(t, s) // nothing is left to send
	commit(t, s, "fourth", put("a", "4\n"))
	push(t, s)
	pushes := server.Pushes()
	commit(t, s, "fifth", put("a", "5\n"))
	lose.Store(true)
	push(t, s)
	if got := server.Pushes() - pushes; got != 1 {
		t.Errorf("git took the push %d times", got)
	}
	if got := git(t, bare, "rev-list", "--count", "main"); got != "5" {
		t.Errorf("%s commits at the remote, want 5", got)
	}
}

// TestPushTokenRotated: the server takes another token from now on.
func TestPushTokenRotated(t *testing.T) {
	bare, server, _ := overHTTP(t, false)
	var token atomic.Value
	token.Store("one")
	address := inFront(t, server, func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		_, password, _ := r.BasicAuth()
		if password != token.Load() {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		r.Header.Del("Authorization")
		pass.ServeHTTP(w, r)
	})
	file := filepath.Join(t.TempDir(), "token")
	writeFile(t, file, "one")
	s := open(t, Options{URL: address, Dir: filepath.Join(t.TempDir(), "store"), Auth: Auth{TokenFile: file}})
	fetch(t, s)
	commit(t, s, "third", put("a", "3"))
	push(t, s)
	token.Store("two")
	commit(t, s, "fourth", put("a", "4"))
	if err := s.Push(t.Context()); !errors.Is(err, ErrAuth) {
		t.Errorf("Push with the old token: %v, want ErrAuth", err)
	}
	writeFile(t, file, "two")
	push(t, s)
	commit(t, s, "fifth", put("a", "5"))
	push(t, s)
	token.Store("three")
	writeFile(t, file, "three")
	commit(t, s, "sixth", put("a", "d"))
	push(t, s)
	if got := git(t, bare, "show", "main:a"); got != "d" {
		t.Errorf("the remote has %q", got)
	}
}

// TestPushRefusedAgain: a branch that is protected between two pushes is said to
// be so.
func TestPushRefusedAgain(t *testing.T) {
	bare, _, s := overHTTP(t, false)
	if err := gittest.ProtectBranch(bare, "main"); err != nil {
		t.Fatal(err)
	}
	commit(t, s, "third", put("a", "3\n"))
	err := s.Push(t.Context())
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "Protected branch") {
		t.Errorf("Push: %v, want ErrRefused with the server's words", err)
	}
	if err := gittest.Hook(bare, "pre-receive", ""); err != nil {
		t.Fatal(err)
	}
	push(t, s)
	if got := git(t, bare, "show", "main:a"); got != "3" {
		t.Errorf("the remote has %q", got)
	}
}
