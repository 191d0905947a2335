package informer

import (
	"errors"
	"io"
	"iter"

	"k8s.io/apimachinery/pkg/runtime"
)

// scan finds the end of a JSON object or list by its brackets, whatever pieces the
// bytes come in. It does not say whether what lies between is JSON: whoever decodes
// it does.
type scan struct {
	depth             int
	inString, escaped bool
}

// next takes more bytes and returns how many belong to the value, and whether it ends
// with them.
func (s *scan) next(data []byte) (n int, ended bool) {
	for n < len(data) {
		c := data[n]
		n++
		switch {
		case s.escaped:
			s.escaped = false
		case s.inString:
			s.escaped = c == '\\'
			s.inString = c != '"'
		case c == '"':
			s.inString = true
		case c == '{' || c == '[':
			s.depth++
		case c == '}' || c == ']':
			if s.depth--; s.depth <= 0 {
				return n, true
			}
		}
	}
	return n, false
}

// members are the names (as they are written, with quotes) and values of an object;
// of a list, the values alone. It ends early where data is not what JSON allows.
func members(data []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		data = blanks(data)
		if len(data) == 0 || data[0] != '{' && data[0] != '[' {
			return
		}
		named := data[0] == '{'
		for data = blanks(data[1:]); len(data) > 0; data = blanks(data[1:]) {
			var name []byte
			if named {
				if name = value(data); len(name) == 0 || name[0] != '"' {
					return
				}
				if data = blanks(data[len(name):]); len(data) == 0 || data[0] != ':' {
					return
				}
				data = blanks(data[1:])
			}
			v := value(data)
			if len(v) == 0 || !yield(name, v) {
				return
			}
			if data = blanks(data[len(v):]); len(data) == 0 || data[0] != ',' {
				return
			}
		}
	}
}

// value is the JSON value that data begins with, empty if there is none.
func value(data []byte) []byte {
	if len(data) == 0 {
		return nil
	}
	switch data[0] {
	case '{', '[':
		var s scan
		if n, ended := s.next(data); ended {
			return data[:n]
		}
		return nil
	case '"':
		for n := 1; n < len(data); n++ {
			switch data[n] {
			case '\\':
				n++
			case '"':
				return data[:n+1]
			}
		}
		return nil
	}
	for n, c := range data {
		if c == ',' || c == '}' || c == ']' || isBlank(c) {
			return data[:n]
		}
	}
	return data
}

func blanks(data []byte) []byte {
	for len(data) > 0 && isBlank(data[0]) {
		data = data[1:]
	}
	return data
}

func isBlank(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// framer cuts a stream of JSON objects.
type framer struct{ runtime.Framer }

// NewFrameReader reads one object at a time.
func (framer) NewFrameReader(r io.ReadCloser) io.ReadCloser { return &frames{from: r} }

// maxFrame is the largest object that is taken, client-go's limit.
const maxFrame = 16 << 20

var (
	errNoObject      = errors.New("read watch: not a JSON object")
	errFrameTooLarge = errors.New("read watch: an event is too large")
)

// frames is a reader of whole objects.
type frames struct {
	from io.ReadCloser
	read []byte // what was read; the frame at hand is its beginning
	rest []byte // what is left of a frame that did not fit
	used int    // how much of read was given out
}

// Close ends the stream.
func (f *frames) Close() error { return f.from.Close() }

// Read puts the next object into data. The error is io.ErrShortBuffer when it did
// not fit: then the rest is read next.
func (f *frames) Read(data []byte) (int, error) {
	if len(f.rest) == 0 {
		frame, err := f.next()
		if err != nil {
			return 0, err
		}
		f.rest = frame
	}
	n := copy(data, f.rest)
	if f.rest = f.rest[n:]; len(f.rest) > 0 {
		return n, io.ErrShortBuffer
	}
	return n, nil
}

// next returns the next object. It is valid until the following call.
func (f *frames) next() ([]byte, error) {
	left := copy(f.read, blanks(f.read[f.used:]))
	f.read, f.used = f.read[:left], 0
	var s scan
	seen := 0
	for {
		if len(f.read) > 0 && f.read[0] != '{' {
			return nil, errNoObject
		}
		n, ended := s.next(f.read[seen:])
		if seen += n; seen > maxFrame {
			return nil, errFrameTooLarge
		}
		if ended {
			f.used = seen
			return f.read[:seen], nil
		}
		if err := f.fill(); err != nil {
			if errors.Is(err, io.EOF) && len(f.read) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
}

// fill reads some more bytes. Blanks before an object are left out.
func (f *frames) fill() error {
	if cap(f.read) == len(f.read) {
		grown := make([]byte, len(f.read), max(2*cap(f.read), 2<<10))
		copy(grown, f.read)
		f.read = grown
	}
	n, err := f.from.Read(f.read[len(f.read):cap(f.read)])
	begin := len(f.read)
	f.read = f.read[:begin+n]
	if begin == 0 {
		f.read = f.read[:copy(f.read, blanks(f.read))]
	}
	if n > 0 {
		return nil
	}
	return err
}
