package gitstore

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// sshServer is an ssh server with two host keys that runs git for one client key.
type sshServer struct {
	addr    string
	ed, ec  ssh.Signer
	keyFile string
}

func startSSHServer(t *testing.T) *sshServer {
	t.Helper()
	s := &sshServer{ed: newSigner(t), ec: newECSigner(t), keyFile: filepath.Join(t.TempDir(), "id")}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "test")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, s.keyFile, string(pem.EncodeToMemory(block)))
	allowed, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if string(key.Marshal()) != string(allowed.Marshal()) {
			return nil, errors.New("unknown key")
		}
		return nil, nil
	}}
	config.AddHostKey(s.ec)
	config.AddHostKey(s.ed)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = listener.Addr().String()
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { serveSSH(conn, config) })
		}
	})
	t.Cleanup(func() {
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
	return s
}

func newSigner(t *testing.T) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

func newECSigner(t *testing.T) ssh.Signer {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// serveSSH serves one connection; a client that goes away ends it.
func serveSSH(conn net.Conn, config *ssh.ServerConfig) {
	server, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	go ssh.DiscardRequests(requests)
	for c := range channels {
		channel, requests, err := c.Accept()
		if err != nil {
			return
		}
		for r := range requests {
			if r.Type != "exec" {
				_ = r.Reply(false, nil)
				continue
			}
			_ = r.Reply(true, nil)
			cmd := exec.Command("sh", "-c", string(r.Payload[4:]))
			cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
			status := []byte{0, 0, 0, 0}
			// With channel as its Stdin, the command would not end before the client does.
			if in, err := cmd.StdinPipe(); err != nil || cmd.Start() != nil {
				status[3] = 1
			} else {
				go func() { _, _ = io.Copy(in, channel); _ = in.Close() }()
				if cmd.Wait() != nil {
					status[3] = 1
				}
			}
			_, _ = channel.SendRequest("exit-status", false, status)
			_ = channel.Close()
		}
	}
}

// knownHosts writes a known_hosts file with keys of a host, hashed or not.
func knownHosts(t *testing.T, addr string, hashed bool, keys ...ssh.Signer) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "known_hosts")
	var lines []string
	for _, k := range keys {
		host := knownhosts.Normalize(addr)
		if hashed {
			host = knownhosts.HashHostname(host)
		}
		lines = append(lines, knownhosts.Line([]string{host}, k.PublicKey()))
	}
	writeFile(t, file, strings.Join(lines, "\n")+"\n")
	return file
}

func TestSSH(t *testing.T) {
	server := startSSHServer(t)
	bare := bareRepo(t)
	url := "ssh://git@" + server.addr + bare
	stranger := newSigner(t)
	strangerKey := filepath.Join(t.TempDir(), "stranger")
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, strangerKey, string(pem.EncodeToMemory(block)))

	tests := []struct {
		name string
		url  string
		auth Auth
		want error
		says []string
	}{
		{"only the key type the server prefers less", url, Auth{SSHKeyFile: server.keyFile, KnownHostsFile: knownHosts(t, server.addr, false, server.ed)}, nil, nil},
		{"hashed", url, Auth{SSHKeyFile: server.keyFile, KnownHostsFile: knownHosts(t, server.addr, true, server.ec)}, nil, nil},
		{"unknown host", url, Auth{SSHKeyFile: server.keyFile, KnownHostsFile: knownHosts(t, "elsewhere:22", false, server.ed)}, ErrHostKey,
			[]string{"is not in", ssh.FingerprintSHA256(server.ec.PublicKey()), "add the line"}},
		{"no known_hosts file", url, Auth{SSHKeyFile: server.keyFile, KnownHostsFile: "/nonexistent"}, ErrHostKey, []string{"/nonexistent", "SHA256:"}},
		{"other key", url, Auth{SSHKeyFile: server.keyFile, KnownHostsFile: knownHosts(t, server.addr, false, stranger)}, ErrHostKey,
			[]string{"is not the one in", ssh.FingerprintSHA256(server.ed.PublicKey()), "intercepting"}},
		{"our key unknown", url, Auth{SSHKeyFile: strangerKey, KnownHostsFile: knownHosts(t, server.addr, false, server.ed)}, ErrAuth, []string{"none of our keys"}},
		{"no key file", url, Auth{SSHKeyFile: "/nonexistent", KnownHostsFile: knownHosts(t, server.addr, false, server.ed)}, ErrAuth, []string{"/nonexistent"}},
		{"no key", url, Auth{KnownHostsFile: knownHosts(t, server.addr, false, server.ed)}, ErrAuth, []string{"sshKeyFile"}},
		{"no such repository", url + "x", Auth{SSHKeyFile: server.keyFile, KnownHostsFile: knownHosts(t, server.addr, false, server.ed)}, ErrNotFound, []string{"does not"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := open(t, Options{URL: tt.url, Auth: tt.auth, Dir: filepath.Join(t.TempDir(), "cache")})
			err := s.Fetch(t.Context())
			if !errors.Is(err, tt.want) {
				t.Fatalf("Fetch: %v, want %v", err, tt.want)
			}
			for _, says := range tt.says {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("Fetch: %v, want it to say %q", err, says)
				}
			}
			if tt.want != nil {
				return
			}
			commit(t, s, tt.name, put("a", tt.name))
			push(t, s)
			if diff := cmp.Diff(map[string]string{"a": tt.name}, cloneFiles(t, bare)); diff != "" {
				t.Errorf("clone (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSSHStalls: a server that lets us in and then says nothing, at either of
// the two steps before git speaks, is given up like any that is silent.
func TestSSHStalls(t *testing.T) {
	for _, opens := range []bool{false, true} {
		t.Run(fmt.Sprintf("opens=%v", opens), func(t *testing.T) {
			key := newSigner(t)
			config := &ssh.ServerConfig{PasswordCallback: func(ssh.ConnMetadata, []byte) (*ssh.Permissions, error) { return nil, nil }}
			config.AddHostKey(key)
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					wg.Go(func() { stallSSH(conn, config, opens) })
				}
			})
			t.Cleanup(func() {
				if err := listener.Close(); err != nil {
					t.Error(err)
				}
				wg.Wait()
			})
			password := filepath.Join(t.TempDir(), "password")
			writeFile(t, password, "x")
			addr := listener.Addr().String()
			s := open(t, Options{
				URL: "ssh://git@" + addr + "/x.git", Dir: filepath.Join(t.TempDir(), "cache"), Timeout: 300 * time.Millisecond,
				Auth: Auth{PasswordFile: password, KnownHostsFile: knownHosts(t, addr, false, key)},
			})
			if err := s.Fetch(t.Context()); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "silent for") {
				t.Errorf("Fetch: %v, want ErrUnreachable that says for how long", err)
			}
		})
	}
}

// stallSSH logs a client in and answers nothing from then on, or nothing from
// when it has a channel.
func stallSSH(conn net.Conn, config *ssh.ServerConfig, opens bool) {
	server, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	go func() {
		for c := range channels {
			if opens {
				_, _, _ = c.Accept() // requests on it are never read
			}
		}
	}()
	_ = server.Wait()
}
