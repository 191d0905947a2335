package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// dialSSH opens a connection and starts the service on it.
func (r *Remote) dialSSH(ctx context.Context, service string) (link, error) {
	addr := r.url.Host
	if r.url.Port() == "" {
		addr = net.JoinHostPort(r.url.Hostname(), "22")
	}
	config, closeAgent, err := r.sshConfig(addr)
	if err != nil {
		return nil, err
	}
	defer closeAgent()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	// Neither the handshake nor the requests after it know a context: a closed
	// connection ends them, until the stream's own watcher is there.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	c, channels, requests, err := ssh.NewClientConn(conn, addr, config)
	if err != nil {
		return nil, errors.Join(sshError(err), ignoreNetClosed(conn.Close()))
	}
	client := ssh.NewClient(c, channels, requests)
	s, err := startSSH(client, service, r.sshPath())
	if err != nil {
		return nil, errors.Join(err, ignoreNetClosed(client.Close()))
	}
	s.watch(ctx)
	return s, nil
}

func ignoreNetClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// sshPath is the repository's path for the remote shell: ssh://host/~/x and
// git@host:x are relative to the home folder.
func (r *Remote) sshPath() string {
	if rest, ok := strings.CutPrefix(r.url.Path, "/~/"); ok {
		return rest
	}
	return r.url.Path
}

func startSSH(client *ssh.Client, service, path string) (*stream, error) {
	session, err := client.NewSession()
	if err != nil {
		return nil, err
	}
	s := &stream{}
	session.Stderr = &s.errs
	if s.in, err = session.StdinPipe(); err != nil {
		return nil, err
	}
	if s.out, err = session.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := session.Start(service + " '" + quote(path) + "'"); err != nil {
		return nil, fmt.Errorf("start %s: %w", service, err)
	}
	out := s.out
	s.kill = func() { _ = client.Close() } // ends all reads and writes
	s.finish = func() error {
		_, copyErr := io.Copy(io.Discard, out)
		err := session.Wait()
		var exit *ssh.ExitError
		var missing *ssh.ExitMissingError
		if errors.As(err, &exit) || errors.As(err, &missing) {
			err = nil // the protocol has told of failures
		}
		return errors.Join(err, copyErr, ignoreNetClosed(client.Close()))
	}
	return s, nil
}

// quote makes a path safe inside single quotes of a shell.
func quote(path string) string {
	return strings.NewReplacer(`'`, `'\''`, `!`, `'\!'`).Replace(path)
}

func (r *Remote) sshConfig(addr string) (*ssh.ClientConfig, func(), error) {
	user := r.auth.Username
	if user == "" && r.url.User != nil {
		user = r.url.User.Username()
	}
	if user == "" {
		user = "git"
	}
	auth, done, err := r.sshAuth()
	if err != nil {
		return nil, nil, err
	}
	config := &ssh.ClientConfig{User: user, Auth: auth, Timeout: r.timeout}
	if err := r.trust(addr, config); err != nil {
		done()
		return nil, nil, err
	}
	return config, done, nil
}

// sshAuth returns the ways to log in and what to call once logged in.
func (r *Remote) sshAuth() ([]ssh.AuthMethod, func(), error) {
	a := r.auth
	nothing := func() {}
	if a.SSHKeyFile == "" {
		if a.SSHAgentSocket != "" {
			conn, err := net.Dial("unix", a.SSHAgentSocket)
			if err != nil {
				return nil, nil, fmt.Errorf("%w: open ssh-agent: %w", ErrAuth, err)
			}
			return []ssh.AuthMethod{ssh.PublicKeysCallback(agent.NewClient(conn).Signers)}, func() { _ = conn.Close() }, nil
		}
		if a.PasswordFile == "" {
			return nil, nil, fmt.Errorf("%w: no ssh key; set sshKeyFile", ErrAuth)
		}
		password, err := readSecret("password", a.PasswordFile)
		return []ssh.AuthMethod{ssh.Password(password)}, nothing, err
	}
	pem, err := os.ReadFile(a.SSHKeyFile)
	if err != nil {
		return nil, nil, &CredentialError{What: "ssh key", Err: err}
	}
	signer, err := ssh.ParsePrivateKey(pem)
	var locked *ssh.PassphraseMissingError
	if errors.As(err, &locked) {
		if a.SSHKeyPassphraseFile == "" {
			return nil, nil, fmt.Errorf("%w: the ssh key %s has a passphrase; set sshKeyPassphraseFile", ErrAuth, a.SSHKeyFile)
		}
		phrase, readErr := readSecret("passphrase", a.SSHKeyPassphraseFile)
		if readErr != nil {
			return nil, nil, readErr
		}
		signer, err = ssh.ParsePrivateKeyWithPassphrase(pem, []byte(phrase))
	}
	if err != nil {
		return nil, nil, &CredentialError{What: "ssh key", Err: fmt.Errorf("%s: %w", a.SSHKeyFile, err)}
	}
	return []ssh.AuthMethod{ssh.PublicKeys(signer)}, nothing, nil
}

// errNoKnownHosts stands for every host when there is no known_hosts file.
var errNoKnownHosts = errors.New("no known_hosts file")

// trust checks the host's key against the known_hosts file. Only key types
// that the file has for the host are asked for: a server prefers others, and
// a right key of another type looks like a wrong one.
func (r *Remote) trust(addr string, config *ssh.ClientConfig) error {
	file := r.auth.KnownHostsFile
	if file == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return fmt.Errorf("%w: find known_hosts: %w", ErrHostKey, err)
		}
		file = filepath.Join(home, ".ssh", "known_hosts")
	}
	known := func(string, net.Addr, ssh.PublicKey) error { return errNoKnownHosts }
	db, err := knownhosts.NewDB(file)
	switch {
	case err == nil:
		known = db.HostKeyCallback()
		config.HostKeyAlgorithms = db.HostKeyAlgorithms(addr)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: read %s: %w", ErrHostKey, file, err)
	}
	config.HostKeyCallback = func(host string, at net.Addr, key ssh.PublicKey) error {
		err := known(host, at, key)
		if err == nil {
			return nil
		}
		if !knownhosts.IsHostKeyChanged(err) && !knownhosts.IsHostUnknown(err) && !errors.Is(err, errNoKnownHosts) {
			return fmt.Errorf("%w: %w", ErrHostKey, err)
		}
		var line bytes.Buffer
		if err := knownhosts.WriteKnownHost(&line, host, at, key); err != nil {
			return err
		}
		e := &HostKeyError{
			Host: knownhosts.Normalize(host), KeyType: key.Type(), Fingerprint: ssh.FingerprintSHA256(key),
			File: file, Line: strings.TrimSpace(line.String()),
		}
		if knownhosts.IsHostKeyChanged(err) {
			e.Known = len(config.HostKeyAlgorithms)
		}
		return e
	}
	return nil
}

// sshError tells a login that was refused from a connection that broke.
func sshError(err error) error {
	var hostKey *HostKeyError
	switch {
	case errors.As(err, &hostKey):
		return hostKey
	case errors.Is(err, ErrHostKey):
		return err
	case strings.Contains(err.Error(), "unable to authenticate"):
		return fmt.Errorf("%w: the ssh server accepts none of our keys: %w", ErrAuth, err)
	case strings.Contains(err.Error(), "no common algorithm for host key"):
		return fmt.Errorf("%w: the server has no key of a type that known_hosts has for it: %w", ErrHostKey, err)
	}
	return err
}
