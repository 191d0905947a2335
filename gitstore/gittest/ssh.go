package gittest

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// SSH serves the repositories below a folder over ssh, for one client key, on a
// port that stays the same from Off to On.
type SSH struct {
	// KeyFile is the path of the client's private key, in OpenSSH format.
	KeyFile string
	// KnownHostsFile is the path of a known_hosts file with the server's key.
	KnownHostsFile string

	dir     string
	address string
	client  ssh.PublicKey

	mu          sync.Mutex
	host        ssh.Signer
	listener    net.Listener // nil while off
	connections map[net.Conn]struct{}
	running     sync.WaitGroup
}

// NewSSH starts a server for the repositories below dir. It writes the client's
// key and the known_hosts file into the existing folder keys.
func NewSSH(dir, keys string) (*SSH, error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("start ssh server: %w", err)
	}
	s := &SSH{
		KeyFile:        filepath.Join(keys, "id_ed25519"),
		KnownHostsFile: filepath.Join(keys, "known_hosts"),
		dir:            root,
		address:        "127.0.0.1:0",
		connections:    make(map[net.Conn]struct{}),
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create client key: %w", err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return nil, fmt.Errorf("create client key: %w", err)
	}
	s.client = signer.PublicKey()
	block, err := ssh.MarshalPrivateKey(private, "crmirror lab")
	if err != nil {
		return nil, fmt.Errorf("create client key: %w", err)
	}
	if err := os.WriteFile(s.KeyFile, pem.EncodeToMemory(block), 0o600); err != nil {
		return nil, fmt.Errorf("create client key: %w", err)
	}
	if err := s.ChangeHostKey(); err != nil {
		return nil, err
	}
	if err := s.On(); err != nil {
		return nil, err
	}
	line := knownhosts.Line([]string{s.address}, s.host.PublicKey())
	if err := os.WriteFile(s.KnownHostsFile, []byte(line+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("write known hosts: %w", errors.Join(err, s.Close()))
	}
	return s, nil
}

// ChangeHostKey gives the server a new host key, which the known_hosts file does
// not have: clients must refuse it.
func (s *SSH) ChangeHostKey() error {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return fmt.Errorf("create host key: %w", err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return fmt.Errorf("create host key: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.host = signer
	return nil
}

// URL returns the address of a repository, given by its path below the folder.
func (s *SSH) URL(repository string) string {
	return (&url.URL{Scheme: "ssh", User: url.User("git"), Host: s.address, Path: "/" + repository}).String()
}

// Command returns a value for GIT_SSH_COMMAND that uses the client's key and
// known hosts, and nothing of the user's own.
func (s *SSH) Command() string {
	return "ssh -F /dev/null -o IdentitiesOnly=yes -o IdentityAgent=none -o BatchMode=yes" +
		" -o StrictHostKeyChecking=yes -i '" + s.KeyFile + "' -o UserKnownHostsFile='" + s.KnownHostsFile + "'"
}

// On opens the port.
func (s *SSH) On() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		return nil
	}
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		return fmt.Errorf("start ssh server: %w", err)
	}
	s.address, s.listener = listener.Addr().String(), listener
	s.running.Go(func() { s.accept(listener) })
	return nil
}

// Off closes the port and all connections and waits for what ran in them.
func (s *SSH) Off() error {
	s.mu.Lock()
	var err error
	if s.listener != nil {
		err = s.listener.Close()
		s.listener = nil
	}
	for connection := range s.connections {
		_ = connection.Close() // it may be closed already
	}
	s.mu.Unlock()
	s.running.Wait()
	if err != nil {
		return fmt.Errorf("stop ssh server: %w", err)
	}
	return nil
}

// Close stops the server for good. The key files stay.
func (s *SSH) Close() error { return s.Off() }

func (s *SSH) accept(listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return // closed by Off
		}
		s.mu.Lock()
		if s.listener != listener {
			s.mu.Unlock()
			_ = connection.Close() // it came in while Off closed the others
			return
		}
		s.connections[connection] = struct{}{}
		s.running.Go(func() {
			defer s.forget(connection)
			s.serve(connection)
		})
		s.mu.Unlock()
	}
}

func (s *SSH) forget(connection net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.connections, connection)
	_ = connection.Close() // it may be closed already
}

// serve speaks ssh on one connection until the client or Off closes it.
func (s *SSH) serve(connection net.Conn) {
	config := &ssh.ServerConfig{
		PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if string(key.Marshal()) != string(s.client.Marshal()) {
				return nil, errors.New("unknown key")
			}
			return nil, nil
		},
	}
	s.mu.Lock()
	config.AddHostKey(s.host)
	s.mu.Unlock()
	_, channels, requests, err := ssh.NewServerConn(connection, config)
	if err != nil {
		return // the client was told; it reports it
	}
	go ssh.DiscardRequests(requests)
	var sessions sync.WaitGroup
	defer sessions.Wait()
	for incoming := range channels {
		if incoming.ChannelType() != "session" {
			_ = incoming.Reject(ssh.UnknownChannelType, "only sessions")
			continue
		}
		channel, requests, err := incoming.Accept()
		if err != nil {
			return
		}
		sessions.Go(func() { s.session(channel, requests) })
	}
}

// session runs the one command of an ssh session.
func (s *SSH) session(channel ssh.Channel, requests <-chan *ssh.Request) {
	defer channel.Close()
	env := environment()
	for request := range requests {
		switch request.Type {
		case "env":
			var variable struct{ Name, Value string }
			ok := ssh.Unmarshal(request.Payload, &variable) == nil && variable.Name == "GIT_PROTOCOL"
			if ok {
				env = append(env, variable.Name+"="+variable.Value)
			}
			_ = request.Reply(ok, nil)
		case "exec":
			var command struct{ Line string }
			if err := ssh.Unmarshal(request.Payload, &command); err != nil {
				_ = request.Reply(false, nil)
				return
			}
			_ = request.Reply(true, nil)
			status := struct{ Code uint32 }{s.run(command.Line, env, channel)}
			_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(status))
			return
		default:
			_ = request.Reply(false, nil)
		}
	}
}

// run executes "git-upload-pack '/repo'" or "git-receive-pack '/repo'" with the
// path taken below our folder, and returns the exit status.
func (s *SSH) run(line string, env []string, channel ssh.Channel) uint32 {
	service, path, _ := strings.Cut(line, " ")
	if service != "git-upload-pack" && service != "git-receive-pack" {
		fmt.Fprintf(channel.Stderr(), "not allowed: %s\n", service)
		return 128
	}
	repository := filepath.Join(s.dir, filepath.Clean("/"+strings.Trim(path, "'")))
	git := exec.Command("git", strings.TrimPrefix(service, "git-"), repository)
	git.Env, git.Stdout, git.Stderr = env, channel, channel.Stderr()
	input, err := git.StdinPipe()
	if err != nil {
		return 128
	}
	if err := git.Start(); err != nil {
		return 128
	}
	// Ends with the channel, which session closes after us: git may be done
	// before the client has closed its side.
	go func() {
		_, _ = io.Copy(input, channel)
		_ = input.Close()
	}()
	if err := git.Wait(); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() > 0 {
			return uint32(exit.ExitCode())
		}
		return 128
	}
	return 0
}
