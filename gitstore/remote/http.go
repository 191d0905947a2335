package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
)

// httpLink is smart HTTP: a GET for the refs, a POST for the rest. A large POST
// is spooled to a file, so a first push is not held in memory.
type httpLink struct {
	client  *http.Client
	base    *url.URL // of the repository; a redirect of the GET moves it
	service string
	auth    func(*http.Request)
	idle    *idle
	// spoolDir is where large requests are kept while they are sent
	spoolDir string
	bodies   []io.ReadCloser
	dropped  bool // the last answer is not wanted
}

func (r *Remote) openHTTP(service string, watch *idle) (*httpLink, error) {
	client, err := r.httpClient()
	if err != nil {
		return nil, err
	}
	auth, err := r.httpAuth()
	if err != nil {
		return nil, err
	}
	base := *r.url
	base.User = nil
	base.Path = strings.TrimSuffix(base.Path, "/")
	return &httpLink{client: client, base: &base, service: service, auth: auth, idle: watch, spoolDir: r.SpoolDir}, nil
}

// errRedirect stops a redirect that would carry credentials elsewhere.
var errRedirect = errors.New("redirected to another host; put the new address into the configuration")

// httpClient returns a client that trusts what CAFile says now. It is kept, and
// its connections with it, until the file changes.
func (r *Remote) httpClient() (*http.Client, error) {
	var pem []byte
	if r.auth.CAFile != "" {
		var err error
		if pem, err = os.ReadFile(r.auth.CAFile); err != nil {
			return nil, fmt.Errorf("read CA file: %w", err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.client != nil && bytes.Equal(pem, r.pem) {
		return r.client, nil
	}
	client, err := r.newClient(pem)
	if err == nil {
		r.client, r.pem = client, pem
	}
	return client, err
}

func (r *Remote) newClient(pem []byte) (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if pem != nil {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read CA file %s: no certificate in it", r.auth.CAFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	return &http.Client{Transport: transport, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		if len(via) >= 5 {
			return errors.New("too many redirects")
		}
		if next.Method != http.MethodGet || next.URL.Host != via[0].URL.Host || (via[0].URL.Scheme == "https" && next.URL.Scheme != "https") {
			return errRedirect
		}
		return nil
	}}, nil
}

// httpAuth reads the credentials. Over plain http to another machine they are
// sent only when that is allowed.
func (r *Remote) httpAuth() (func(*http.Request), error) {
	a := r.auth
	user, password := a.Username, ""
	if r.url.User != nil {
		if user == "" {
			user = r.url.User.Username()
		}
		password, _ = r.url.User.Password()
	}
	bearer, err := readSecret("bearer token", a.BearerTokenFile)
	if err != nil {
		return nil, err
	}
	for _, f := range []struct{ what, file string }{{"token", a.TokenFile}, {"password", a.PasswordFile}} {
		secret, err := readSecret(f.what, f.file)
		if err != nil {
			return nil, err
		}
		if secret != "" {
			password = secret
		}
	}
	if user == "" && password != "" {
		user = "git"
	}
	if bearer == "" && user == "" {
		return func(*http.Request) {}, nil
	}
	if r.url.Scheme == "http" && !a.InsecureHTTP && !loopback(r.url.Hostname()) {
		return nil, fmt.Errorf("%w: credentials would cross the network in the clear; use https, or allow it with insecureHTTP", ErrAuth)
	}
	return func(req *http.Request) {
		if bearer != "" {
			req.Header.Set("Authorization", "Bearer "+bearer)
			return
		}
		req.SetBasicAuth(user, password)
	}, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// readSecret returns a file's content without its final line feed. An empty
// file is an error: it is never what somebody meant.
func readSecret(what, file string) (string, error) {
	if file == "" {
		return "", nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", &CredentialError{What: what, Err: err}
	}
	secret := strings.TrimRight(string(b), "\r\n")
	if secret == "" {
		return "", &CredentialError{What: what, Err: fmt.Errorf("%s is empty", file)}
	}
	return secret, nil
}

func (l *httpLink) discover(ctx context.Context) (io.Reader, error) {
	u := *l.base
	u.Path += "/info/refs"
	u.RawQuery = "service=" + l.service
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	res, err := l.do(req)
	if err != nil {
		return nil, err
	}
	if want := "application/x-" + l.service + "-advertisement"; res.Header.Get("Content-Type") != want {
		return nil, fmt.Errorf("%w: the server answers %q, not %q; is this the address of a git repository?", ErrNotFound, res.Header.Get("Content-Type"), want)
	}
	if path, ok := strings.CutSuffix(res.Request.URL.Path, "/info/refs"); ok {
		l.base.Scheme, l.base.Path = res.Request.URL.Scheme, path
	}
	return res.Body, nil
}

func (l *httpLink) exchange(ctx context.Context, body func(io.Writer) error) (_ io.Reader, err error) {
	// The refs were read: their connection serves the request that follows.
	if err := l.close(); err != nil {
		return nil, err
	}
	request := &spool{dir: l.spoolDir}
	defer func() { err = errors.Join(err, request.close()) }()
	if err := body(request); err != nil {
		return nil, err
	}
	if err := request.flush(); err != nil {
		return nil, &localError{err}
	}
	u := *l.base
	u.Path += "/" + l.service
	reader := l.idle.reader(request.reader())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), io.NopCloser(reader))
	if err != nil {
		return nil, err
	}
	req.ContentLength = request.size
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(l.idle.reader(request.reader())), nil }
	req.Header.Set("Content-Type", "application/x-"+l.service+"-request")
	req.Header.Set("Accept", "application/x-"+l.service+"-result")
	res, err := l.do(req)
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

func (l *httpLink) do(req *http.Request) (*http.Response, error) {
	req.Header.Set("User-Agent", "git/crmirror")
	l.auth(req)
	res, err := l.client.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // the remote's name is added once, redacted
		}
		return nil, err
	}
	l.bodies = append(l.bodies, res.Body)
	return res, statusError(res)
}

// statusError turns a status into an error that says what to look at.
func statusError(res *http.Response) error {
	if res.StatusCode == http.StatusOK {
		return nil
	}
	// Only plain text is worth repeating, and only its beginning.
	said := ""
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain") {
		b, err := io.ReadAll(io.LimitReader(res.Body, 300))
		if err == nil && len(b) > 0 {
			said = ": " + strings.Join(strings.Fields(string(b)), " ")
		}
	}
	switch res.StatusCode {
	case http.StatusUnauthorized:
		return fmt.Errorf("%w: the server answers %s; check the token or password%s", ErrAuth, res.Status, said)
	case http.StatusForbidden:
		return fmt.Errorf("%w: the server answers %s; the account may not do this%s", ErrAuth, res.Status, said)
	case http.StatusNotFound, http.StatusGone:
		return fmt.Errorf("%w: the server answers %s (some servers say so to who may not see it, too)%s", ErrNotFound, res.Status, said)
	case http.StatusRequestEntityTooLarge:
		return fmt.Errorf("%w: the server answers %s; a proxy before it limits the size of a push%s", ErrRefused, res.Status, said)
	}
	return fmt.Errorf("%w: the server answers %s%s", ErrUnreachable, res.Status, said)
}

func (l *httpLink) abandon() { l.dropped = true }

func (l *httpLink) words() string { return "" }

func (l *httpLink) close() error {
	var err error
	for _, b := range l.bodies {
		// A connection whose answer was read to its end is used again; the
		// rest of a small one is worth reading for that.
		if !l.dropped {
			_, _ = io.CopyN(io.Discard, b, 4096)
		}
		err = errors.Join(err, b.Close())
	}
	l.bodies = nil
	return err
}
