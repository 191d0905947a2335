// Package gittest runs real git servers, smart HTTP with a token and ssh with a
// key, and the git command line, for tests and for the lab. It needs git in the
// PATH.
package gittest

import (
	"crypto/subtle"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// HTTP serves the repositories below a folder over smart HTTP through "git
// http-backend", on a port that stays the same from Off to On.
type HTTP struct {
	dir, token string
	tls        bool
	address    string // host:port, fixed by the first start

	mu        sync.Mutex
	server    *httptest.Server // nil while off
	intercept func(http.ResponseWriter, *http.Request) bool

	requests, pushes, received, connections, busy atomic.Int64
}

// NewHTTP starts a server for the repositories below dir. Every request needs
// basic authentication with the token as password, under any user name; an
// empty token lets everybody in.
func NewHTTP(dir, token string) (*HTTP, error) {
	s := &HTTP{dir: dir, token: token, address: "127.0.0.1:0"}
	return s, s.On()
}

// NewHTTPS is NewHTTP with TLS. Clients need the authority that CA returns.
func NewHTTPS(dir, token string) (*HTTP, error) {
	s := &HTTP{dir: dir, token: token, tls: true, address: "127.0.0.1:0"}
	return s, s.On()
}

// URL returns the address of a repository, given by its path below the folder.
func (s *HTTP) URL(repository string) string {
	scheme := "http"
	if s.tls {
		scheme = "https"
	}
	return (&url.URL{Scheme: scheme, Host: s.address, Path: "/" + repository}).String()
}

// URLWithToken returns URL with the token in it, as the git command line wants it.
func (s *HTTP) URLWithToken(repository string) string {
	scheme, rest, _ := strings.Cut(s.URL(repository), "://")
	return scheme + "://" + url.UserPassword("git", s.token).String() + "@" + rest
}

// CA returns the certificate authority of a TLS server, as PEM; nil without TLS.
func (s *HTTP) CA() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil || s.server.Certificate() == nil {
		return nil
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw})
}

// Off closes the port and all connections: clients are refused.
func (s *HTTP) Off() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		return
	}
	s.server.CloseClientConnections()
	s.server.Close()
	s.server = nil
}

// On opens the port again.
func (s *HTTP) On() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil {
		return nil
	}
	backend, err := newBackend(s.dir)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		return fmt.Errorf("start git server: %w", err)
	}
	s.address = listener.Addr().String()
	s.server = &httptest.Server{Listener: &countingListener{listener, &s.connections}, Config: &http.Server{Handler: s.check(backend)}}
	if s.tls {
		s.server.StartTLS()
	} else {
		s.server.Start()
	}
	return nil
}

// Close stops the server for good.
func (s *HTTP) Close() { s.Off() }

// Intercept lets a function look at every authenticated request before git sees
// it. It may wait, count, or answer by itself and return true. Nil ends that.
func (s *HTTP) Intercept(function func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intercept = function
}

// Requests returns how many requests came in, refused ones included.
func (s *HTTP) Requests() int64 { return s.requests.Load() }

// Pushes returns how many times git was asked to take objects (receive-pack).
func (s *HTTP) Pushes() int64 { return s.pushes.Load() }

// Received returns how many bytes of request bodies git read: what a push cost
// on the wire.
func (s *HTTP) Received() int64 { return s.received.Load() }

// Connections returns how many connections clients opened.
func (s *HTTP) Connections() int64 { return s.connections.Load() }

// Busy returns for how long git was at work on requests whose bodies had arrived:
// what is left of a client's time is its own, and the wire's. A client that reads
// an answer to its end finds that answer's time in it.
func (s *HTTP) Busy() time.Duration { return time.Duration(s.busy.Load()) }

// check counts and authenticates, asks the interceptor, and passes on to git.
func (s *HTTP) check(backend http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		_, password, _ := r.BasicAuth()
		if subtle.ConstantTimeCompare([]byte(password), []byte(s.token)) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "invalid credentials", http.StatusUnauthorized)
			return
		}
		s.mu.Lock()
		intercept := s.intercept
		s.mu.Unlock()
		if intercept != nil && intercept(w, r) {
			return
		}
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/git-receive-pack") {
			s.pushes.Add(1)
		}
		if err := s.spool(r); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer r.Body.Close()
		r.Body = &countingBody{ReadCloser: r.Body, count: &s.received}
		begin := time.Now()
		backend.ServeHTTP(w, r)
		s.busy.Add(int64(time.Since(begin)))
	})
}

// spool takes the whole body into a file before git sees any of it: CGI wants to
// know its length beforehand, and "git http-backend" never ends, busy, when a
// client that announced a length goes away in the middle.
func (s *HTTP) spool(r *http.Request) error {
	if r.ContentLength == 0 {
		return nil
	}
	file, err := os.CreateTemp("", "crmirror-gittest-")
	if err != nil {
		return fmt.Errorf("spool request: %w", err)
	}
	// Removed at once: the open file is all that is needed.
	if err := os.Remove(file.Name()); err != nil {
		return fmt.Errorf("spool request: %w", errors.Join(err, file.Close()))
	}
	size, err := io.Copy(file, r.Body)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return fmt.Errorf("spool request: %w", errors.Join(err, file.Close()))
	}
	r.Body, r.ContentLength, r.TransferEncoding = file, size, nil
	return nil
}

type countingListener struct {
	net.Listener
	count *atomic.Int64
}

func (l *countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.count.Add(1)
	}
	return c, err
}

type countingBody struct {
	io.ReadCloser
	count *atomic.Int64
}

func (b *countingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.count.Add(int64(n))
	return n, err
}

// newBackend is "git http-backend" for all repositories below dir.
func newBackend(dir string) (http.Handler, error) {
	git, err := exec.LookPath("git")
	if err != nil {
		return nil, fmt.Errorf("start git server: %w", err)
	}
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("start git server: %w", err)
	}
	return &cgi.Handler{
		Path:   git,
		Args:   []string{"http-backend"},
		Dir:    root,
		Env:    append(environment(), "GIT_PROJECT_ROOT="+root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=git"),
		Stderr: io.Discard, // what concerns the client, git tells the client
	}, nil
}
