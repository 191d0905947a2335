package informer

import (
	"errors"
	"io"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/crmirror/crmirror/kube/internal/rawjson"
)

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
	left := copy(f.read, rawjson.TrimBlanks(f.read[f.used:]))
	f.read, f.used = f.read[:left], 0
	var s rawjson.Scan
	seen := 0
	for {
		if len(f.read) > 0 && f.read[0] != '{' {
			return nil, errNoObject
		}
		n, ended := s.Next(f.read[seen:])
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
		f.read = f.read[:copy(f.read, rawjson.TrimBlanks(f.read))]
	}
	if n > 0 {
		return nil
	}
	return err
}
