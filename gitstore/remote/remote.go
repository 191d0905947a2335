// Package remote speaks git's wire protocol with a server: list refs, fetch a
// pack, push a pack. Between two calls it keeps idle connections and what a
// server that takes pushes said of itself; credentials are read at each.
package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Auth says how to prove who we are. Files are read at every connection, so
// that a rotated credential is taken up.
type Auth struct {
	// SSHKeyFile is a private key in PEM or OpenSSH format. Without one the
	// agent at SSHAgentSocket is asked.
	SSHKeyFile, SSHKeyPassphraseFile string
	// SSHAgentSocket is the path of an ssh-agent's socket.
	SSHAgentSocket string
	// KnownHostsFile lists the host keys to trust; default ~/.ssh/known_hosts.
	KnownHostsFile string
	// Username goes with PasswordFile (http) or overrides the user of an ssh URL.
	Username, PasswordFile string
	// TokenFile holds a token sent as the password of basic authentication,
	// which is what the forges take; the user is Username, default "git".
	TokenFile string
	// BearerTokenFile holds a token sent as "Authorization: Bearer".
	BearerTokenFile string
	// CAFile holds PEM certificates trusted besides the system's.
	CAFile string
	// InsecureHTTP allows credentials over plain http to other machines.
	InsecureHTTP bool
}

// Remote is a repository at a URL.
type Remote struct {
	// SpoolDir is where a large push over http is kept while it is sent, as
	// tmp_push_*; empty takes the system's folder for temporary files.
	SpoolDir string

	url     *url.URL
	shown   string
	auth    Auth
	timeout time.Duration

	mu     sync.Mutex
	client *http.Client
	pem    []byte // the CA certificates that client trusts
	known  *receiver
}

// Close closes idle connections.
func (r *Remote) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.client != nil {
		r.client.CloseIdleConnections()
	}
}

// New returns the remote at a URL: ssh://, git@host:path, http(s)://, file://
// or a plain path. Timeout is how long the
// server may be silent; zero means two minutes.
func New(rawURL string, auth Auth, timeout time.Duration) (*Remote, error) {
	u, err := Parse(rawURL)
	if err != nil {
		return nil, err
	}
	if timeout == 0 {
		timeout = 2 * time.Minute
	}
	return &Remote{url: u, shown: Redact(rawURL), auth: auth, timeout: timeout}, nil
}

// Parse reads a git URL, scp's form and plain paths included.
func Parse(raw string) (*url.URL, error) {
	if !strings.Contains(raw, "://") {
		host, path, ok := strings.Cut(raw, ":")
		if !ok || strings.Contains(host, "/") {
			return &url.URL{Scheme: "file", Path: raw}, nil
		}
		u := &url.URL{Scheme: "ssh", Host: host, Path: path}
		if user, h, ok := strings.Cut(host, "@"); ok {
			u.User, u.Host = url.User(user), h
		}
		return u, nil
	}
	u, err := url.Parse(raw)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // the error itself repeats the URL, with a password perhaps
		}
		return nil, fmt.Errorf("read URL %s: %w", Redact(raw), err)
	}
	switch u.Scheme {
	case "ssh", "git+ssh", "ssh+git":
		u.Scheme = "ssh"
	case "http", "https", "file":
	default:
		return nil, fmt.Errorf("read URL %s: scheme %q is not one of ssh, https, http, file", Redact(raw), u.Scheme)
	}
	if u.Host == "" && u.Scheme != "file" {
		return nil, fmt.Errorf("read URL %s: it names no host", Redact(raw))
	}
	return u, nil
}

// Redact returns a URL fit for logs and errors: without password, query and,
// over http, without the user, which may be a token.
func Redact(raw string) string {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return raw
	}
	rest, _, _ = strings.Cut(rest, "?")
	host, path, more := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		user, _, _ := strings.Cut(host[:at], ":")
		host = host[at+1:]
		if strings.Contains(scheme, "ssh") {
			host = user + "@" + host
		}
	}
	if more {
		host += "/" + path
	}
	return scheme + "://" + host
}

// String is the redacted URL.
func (r *Remote) String() string { return r.shown }

const (
	uploadPack  = "git-upload-pack"
	receivePack = "git-receive-pack"
)

// link is a connection to one service of the server. Over http it is two
// requests, else one stream.
type link interface {
	// discover returns what the server says first: its refs.
	discover(ctx context.Context) (io.Reader, error)
	// exchange sends a request, written by body, and returns the answer.
	exchange(ctx context.Context, body func(io.Writer) error) (io.Reader, error)
	// abandon gives up an answer that is not wanted any more.
	abandon()
	// words is what the server printed for people.
	words() string
	close() error
}

func (r *Remote) dial(ctx context.Context, service string, watch *idle) (link, error) {
	switch r.url.Scheme {
	case "ssh":
		return r.dialSSH(ctx, service)
	case "file":
		return r.startLocal(ctx, service)
	}
	return r.openHTTP(service, watch)
}

// explain turns what went wrong into one of this package's errors and names
// the remote.
func (r *Remote) explain(ctx context.Context, l link, err error) error {
	if err == nil {
		return nil
	}
	words := ""
	if l != nil {
		words = l.words()
	}
	var local *localError
	if errors.As(err, &local) {
		return local.err
	}
	known := errors.Is(err, ErrAuth) || errors.Is(err, ErrHostKey) || errors.Is(err, ErrNotFound) ||
		errors.Is(err, ErrDiverged) || errors.Is(err, ErrRefused) || errors.Is(err, ErrUnreachable)
	switch {
	case known:
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), errTimeout):
		return fmt.Errorf("%s: %w: silent for %s", r.shown, ErrUnreachable, r.timeout)
	case ctx.Err() != nil:
		return ctx.Err()
	case notFoundWords(words):
		err = fmt.Errorf("%w: %s", ErrNotFound, words)
	case authWords(words):
		err = fmt.Errorf("%w: %s", ErrAuth, words)
	case isNetwork(err) || words == "":
		err = fmt.Errorf("%w: %w", ErrUnreachable, err)
	default:
		err = fmt.Errorf("%w: %w: %s", ErrUnreachable, err, words)
	}
	return fmt.Errorf("%s: %w", r.shown, err)
}

// localError is a failure of our own side while a request was made or an
// answer stored: a damaged object, a full disk.
type localError struct{ err error }

func (e *localError) Error() string { return e.err.Error() }
func (e *localError) Unwrap() error { return e.err }

var errTimeout = errors.New("timeout")

func isNetwork(err error) bool {
	var ne net.Error
	return errors.As(err, &ne)
}

// notFoundWords recognizes how servers say over ssh, and git itself locally,
// that there is no such repository; they have no code for it.
func notFoundWords(s string) bool {
	for _, w := range []string{
		"does not appear to be a git repository", "Repository not found", "repository does not exist",
		"no such repository", "could not be found", "not a git repository", "does not exist",
	} {
		if strings.Contains(s, w) {
			return true
		}
	}
	return false
}

// authWords recognizes how servers say over ssh that we may not.
func authWords(s string) bool {
	for _, w := range []string{"Permission denied", "permission denied", "access denied", "not authorized", "insufficient permission for this repository"} {
		if strings.Contains(s, w) {
			return true
		}
	}
	return false
}
