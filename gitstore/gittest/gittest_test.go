package gittest

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// remote creates a folder with an empty bare repository "repo.git".
func remote(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := InitBare(t.Context(), filepath.Join(dir, "repo.git"), "main"); err != nil {
		t.Fatal(err)
	}
	return dir
}

func newHTTP(t *testing.T, start func(dir, token string) (*HTTP, error), dir string) *HTTP {
	t.Helper()
	server, err := start(dir, "secret")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return server
}

func newSSH(t *testing.T, dir string) *SSH {
	t.Helper()
	server, err := NewSSH(dir, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// roundTrip pushes a file from one clone and reads it in a second one.
func roundTrip(t *testing.T, url string, options ...string) {
	t.Helper()
	first := Clone(t, url, options...)
	large := strings.Repeat("0123456789abcdef", 1<<17) // 2 MiB: git sends it chunked
	CommitFile(t, first, "a/b.txt", large, "Add b")
	Git(t, first, "-c", "core.compression=0", "push", "--quiet", "origin", "HEAD:main")

	second := Clone(t, url, options...)
	Fsck(t, second)
	if got := Log(t, second, "main"); len(got) != 1 || got[0] != "Add b" {
		t.Errorf("log of the second clone: got %q, want [Add b]", got)
	}
	if got := Files(t, second, "main"); len(got) != 1 || got[0] != "a/b.txt" {
		t.Errorf("files of the second clone: got %q, want [a/b.txt]", got)
	}
	if got := ShowFile(t, second, "main", "a/b.txt"); got != large {
		t.Errorf("file of the second clone: got %d bytes, want the %d that were pushed", len(got), len(large))
	}
}

func TestHTTP(t *testing.T) {
	server := newHTTP(t, NewHTTP, remote(t))
	roundTrip(t, server.URLWithToken("repo.git"))
	if got := server.Pushes(); got < 1 {
		t.Errorf("pushes: got %d, want at least 1", got)
	}
	if got := server.Received(); got < 2<<20 {
		t.Errorf("bytes received: got %d, want at least the 2 MiB pushed uncompressed", got)
	}
}

func TestHTTPS(t *testing.T) {
	server := newHTTP(t, NewHTTPS, remote(t))
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, server.CA(), 0o600); err != nil {
		t.Fatal(err)
	}
	roundTrip(t, server.URLWithToken("repo.git"), "--config", "http.sslCAInfo="+ca)
	if _, err := Run(t.Context(), "", "ls-remote", server.URLWithToken("repo.git")); err == nil {
		t.Error("ls-remote without the authority: got success, want a refused certificate")
	}
}

func TestHTTPNeedsTheToken(t *testing.T) {
	server := newHTTP(t, NewHTTP, remote(t))
	for name, url := range map[string]string{
		"none":  server.URL("repo.git"),
		"wrong": strings.Replace(server.URLWithToken("repo.git"), "secret", "guess", 1),
	} {
		if _, err := Run(t.Context(), "", "ls-remote", url); err == nil {
			t.Errorf("ls-remote with token %s: got success, want a refusal", name)
		}
	}
}

func TestHTTPOffAndOn(t *testing.T) {
	server := newHTTP(t, NewHTTP, remote(t))
	url := server.URLWithToken("repo.git")
	server.Off()
	if _, err := Run(t.Context(), "", "ls-remote", url); err == nil {
		t.Error("ls-remote while off: got success, want a refusal")
	}
	if err := server.On(); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), "", "ls-remote", url); err != nil {
		t.Errorf("ls-remote after On, at the same address: %v", err)
	}
}

func TestHTTPIntercept(t *testing.T) {
	server := newHTTP(t, NewHTTP, remote(t))
	url := server.URLWithToken("repo.git")
	server.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		http.Error(w, "maintenance", http.StatusServiceUnavailable)
		return true
	})
	if _, err := Run(t.Context(), "", "ls-remote", url); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("ls-remote through a refusing interceptor: got %v, want status 503", err)
	}
	server.Intercept(nil)
	if _, err := Run(t.Context(), "", "ls-remote", url); err != nil {
		t.Errorf("ls-remote without an interceptor: %v", err)
	}
}

// A client that goes away in the middle of a push leaves nothing running behind
// the server.
func TestHTTPClientGoesAway(t *testing.T) {
	server := newHTTP(t, NewHTTP, remote(t))
	client, err := net.Dial("tcp", server.address)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(client, "POST /repo.git/git-receive-pack HTTP/1.1\r\nHost: lab\r\nAuthorization: Basic Z2l0OnNlY3JldA==\r\n"+
		"Content-Type: application/x-git-receive-pack-request\r\nContent-Length: 1000000\r\n\r\n0000")
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.After(30 * time.Second)
	for server.Pushes() == 0 {
		select {
		case <-time.After(time.Millisecond):
		case <-deadline:
			t.Fatal("the request did not arrive")
		}
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() {
		server.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-deadline:
		t.Fatal("the server waits for git to end")
	}
}

func TestSSH(t *testing.T) {
	server := newSSH(t, remote(t))
	t.Setenv("GIT_SSH_COMMAND", server.Command())
	url := server.URL("repo.git")
	roundTrip(t, url)

	if err := server.Off(); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), "", "ls-remote", url); err == nil {
		t.Error("ls-remote while off: got success, want a refusal")
	}
	if err := server.On(); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), "", "ls-remote", url); err != nil {
		t.Errorf("ls-remote after On, at the same address: %v", err)
	}

	if err := server.ChangeHostKey(); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), "", "ls-remote", url); err == nil || !strings.Contains(err.Error(), "Host key verification failed") {
		t.Errorf("ls-remote after the host key changed: got %v, want a failed verification", err)
	}
}

func TestSSHRefusesOtherKeysAndCommands(t *testing.T) {
	dir := remote(t)
	server, other := newSSH(t, dir), newSSH(t, dir)
	env := []string{"GIT_SSH_COMMAND=" + strings.Replace(server.Command(), server.KeyFile, other.KeyFile, 1)}
	if _, err := RunEnv(t.Context(), "", env, "ls-remote", server.URL("repo.git")); err == nil {
		t.Error("ls-remote with another key: got success, want a refusal")
	}
	env = []string{"GIT_SSH_COMMAND=" + server.Command()}
	if _, err := RunEnv(t.Context(), "", env, "ls-remote", server.URL("../../etc")); err == nil {
		t.Error("ls-remote of a path outside: got success, want a refusal")
	}
	if _, err := RunEnv(t.Context(), "", env, "ls-remote", "--upload-pack=id;", server.URL("repo.git")); err == nil {
		t.Error("another command than git's two: got success, want a refusal")
	}
}

func TestProtectBranch(t *testing.T) {
	bare := filepath.Join(remote(t), "repo.git")
	if err := ProtectBranch(bare, "main"); err != nil {
		t.Fatal(err)
	}
	clone := Clone(t, bare)
	CommitFile(t, clone, "file", "content\n", "Add file")
	if _, err := Run(t.Context(), clone, "push", "origin", "HEAD:main"); err == nil || !strings.Contains(err.Error(), "Protected branch") {
		t.Errorf("push to the protected branch: got %v, want a refusal that says so", err)
	}
	Git(t, clone, "push", "--quiet", "origin", "HEAD:other")
	if err := Hook(bare, "pre-receive", ""); err != nil {
		t.Fatal(err)
	}
	Git(t, clone, "push", "--quiet", "origin", "HEAD:main")
}
