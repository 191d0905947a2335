package remote

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// stream is a link that is one process at the other end of two pipes: git's
// own program, here or behind ssh.
type stream struct {
	in     io.WriteCloser
	out    io.Reader
	errs   tail
	finish func() error // waits for the process
	kill   func()       // ends what blocks
	stop   func() bool  // of the context's watcher
}

// watch ends the process when the context does: pipes know no contexts.
func (s *stream) watch(ctx context.Context) { s.stop = context.AfterFunc(ctx, s.kill) }

func (s *stream) discover(context.Context) (io.Reader, error) {
	s.out = bufio.NewReader(s.out)
	return s.out, nil
}

func (s *stream) exchange(_ context.Context, body func(io.Writer) error) (io.Reader, error) {
	w := bufio.NewWriterSize(s.in, 1<<16)
	err := body(w)
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = s.in.Close()
	}
	s.in = nil
	if err != nil {
		s.kill() // what was sent is half a request
		return nil, fmt.Errorf("send: %w", err)
	}
	return s.out, nil
}

func (s *stream) abandon() { s.kill() }

func (s *stream) words() string { return s.errs.String() }

// close says goodbye when nothing was exchanged, so that the server does not
// complain, and waits for its end.
func (s *stream) close() error {
	if s.in != nil {
		// The process may be gone already; its own end tells what happened.
		_, _ = io.WriteString(s.in, "0000")
		_ = s.in.Close()
		s.in = nil
	}
	err := s.finish()
	s.stop()
	return err
}

// tail keeps the beginning of what a process writes to its standard error.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const maxWords = 2000

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b[:min(len(b), maxWords-len(t.b))]...)
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(string(t.b), "?"))
}

// startLocal serves a repository on this machine through git's own program.
func (r *Remote) startLocal(ctx context.Context, service string) (link, error) {
	path, err := filepath.Abs(filepath.FromSlash(r.url.Path))
	if err != nil {
		return nil, err
	}
	program, err := exec.LookPath("git")
	if err != nil {
		return nil, fmt.Errorf("open %s: a file remote is served by the git program, which is not installed; install it, or use ssh or https", r.shown)
	}
	s := &stream{}
	cmd := exec.Command(program, strings.TrimPrefix(service, "git-"), path)
	cmd.Stderr = &s.errs
	if s.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.out = out
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	s.kill = func() { _ = cmd.Process.Kill() } // gone already is fine
	s.finish = func() error {
		// What was not read would block the process.
		_, copyErr := io.Copy(io.Discard, out)
		err := cmd.Wait()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			// The protocol has told of failures; a receive-pack that refused
			// a ref ends with 0, and one that was cut short said so before.
			return nil
		}
		return errors.Join(err, copyErr)
	}
	s.watch(ctx)
	return s, nil
}
