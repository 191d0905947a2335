package remote

import (
	"bytes"
	"errors"
	"io"
	"os"
)

// spool collects a request, small ones in memory and large ones in a file, so
// that it is sent with its length: chunked requests are refused by CGI servers
// and some proxies.
type spool struct {
	dir  string
	buf  bytes.Buffer
	file *os.File
	size int64
}

// spoolMemory is the size up to which a request stays in memory, bytes: what
// git itself buffers (http.postBuffer).
const spoolMemory = 1 << 20

func (s *spool) Write(b []byte) (int, error) {
	s.size += int64(len(b))
	if s.file == nil && s.buf.Len()+len(b) <= spoolMemory {
		return s.buf.Write(b)
	}
	if s.file == nil {
		f, err := os.CreateTemp(s.dir, "tmp_push_")
		if err != nil {
			return 0, err
		}
		s.file = f
	}
	if s.buf.Len()+len(b) > spoolMemory {
		if err := s.flush(); err != nil {
			return 0, err
		}
	}
	return s.buf.Write(b)
}

func (s *spool) flush() error {
	if s.file == nil {
		return nil
	}
	_, err := s.buf.WriteTo(s.file)
	return err
}

// reader returns the request from its beginning; flush comes first.
func (s *spool) reader() io.Reader {
	if s.file == nil {
		return bytes.NewReader(s.buf.Bytes())
	}
	return io.NewSectionReader(s.file, 0, s.size)
}

func (s *spool) close() error {
	if s.file == nil {
		return nil
	}
	return errors.Join(s.file.Close(), os.Remove(s.file.Name()))
}
