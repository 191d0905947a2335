package remote

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	tests := []struct{ raw, scheme, host, path, user string }{
		{"ssh://git@git.example.com/ops/clusters.git", "ssh", "git.example.com", "/ops/clusters.git", "git"},
		{"ssh://git@git.example.com:2222/x", "ssh", "git.example.com:2222", "/x", "git"},
		{"git@git.example.com:ops/clusters.git", "ssh", "git.example.com", "ops/clusters.git", "git"},
		{"git.example.com:x.git", "ssh", "git.example.com", "x.git", ""},
		{"https://git.example.com/x.git", "https", "git.example.com", "/x.git", ""},
		{"file:///srv/x.git", "file", "", "/srv/x.git", ""},
		{"/srv/x.git", "file", "", "/srv/x.git", ""},
		{"./a:b/x.git", "file", "", "./a:b/x.git", ""},
	}
	for _, tt := range tests {
		u, err := Parse(tt.raw)
		if err != nil {
			t.Errorf("Parse(%q): %v", tt.raw, err)
			continue
		}
		if u.Scheme != tt.scheme || u.Host != tt.host || u.Path != tt.path || u.User.Username() != tt.user {
			t.Errorf("Parse(%q) = %#v", tt.raw, u)
		}
	}
	for _, bad := range []string{"ftp://x/y", "https:///x", "http://a:pass word@[bad/x"} {
		if _, err := Parse(bad); err == nil || strings.Contains(err.Error(), "pass word") {
			t.Errorf("Parse(%q): %v", bad, err)
		}
	}
}

func TestRedact(t *testing.T) {
	for raw, want := range map[string]string{
		"https://ann:hunter2@example.com/x.git":      "https://example.com/x.git",
		"https://ghp_token@example.com/x.git?tok=en": "https://example.com/x.git",
		"https://a:b@c@example.com/x@y":              "https://example.com/x@y",
		"ssh://git:pw@example.com:22/x":              "ssh://git@example.com:22/x",
		"git@example.com:x":                          "git@example.com:x",
		"/srv/x":                                     "/srv/x",
	} {
		if got := Redact(raw); got != want {
			t.Errorf("Redact(%q) = %q, want %q", raw, got, want)
		}
	}
}

// TestSilentServer: a server that takes the connection and says nothing is
// given up, not waited for.
func TestSilentServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
	}()
	key := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(key, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, scheme := range []string{"http", "ssh"} {
		r, err := New(fmt.Sprintf("%s://%s/x.git", scheme, listener.Addr()), Auth{PasswordFile: key}, 50*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Open(t.Context()); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "silent for 50ms") {
			t.Errorf("%s: %v", scheme, err)
		}
		r.Close()
	}
}

// TestCAFile: a server with a certificate of one's own is trusted through
// CAFile only, and what is no git server is said to be none.
func TestCAFile(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, "<html>log in</html>")
	}))
	defer server.Close()
	server.Config.ErrorLog = nil
	file := filepath.Join(t.TempDir(), "ca.pem")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(file, cert, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		ca   string
		want error
		says string
	}{
		{"", ErrUnreachable, "certificate"},
		{file, ErrNotFound, "is this the address of a git repository?"},
		{"/nonexistent", nil, "CA file"},
	} {
		r, err := New(server.URL+"/x.git", Auth{CAFile: tt.ca}, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Open(t.Context())
		if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("CA file %q: %v, want %v that says %q", tt.ca, err, tt.want, tt.says)
		}
		r.Close()
	}
}

// TestRedirect: credentials never follow a redirect to another host.
func TestRedirect(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("followed to another host, with %q", r.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	server := httptest.NewServer(http.RedirectHandler(elsewhere.URL+"/x.git/info/refs", http.StatusFound))
	defer server.Close()
	r, err := New(strings.Replace(server.URL, "http://", "http://ann:pw@", 1)+"/x.git", Auth{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "redirected to another host") {
		t.Errorf("Open: %v", err)
	}
}
