package pack

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/zlib"

	"github.com/crmirror/crmirror/gitstore/object"
)

// Raw is one entry of a pack as it is stored.
type Raw struct {
	Type    object.Type
	Size    int64       // inflated
	BaseOfs int64       // of an OfsDelta, in the same pack
	BaseRef object.Hash // of a RefDelta
	data    int64       // where the deflated bytes begin
}

// Header reads what stands before an entry's deflated bytes.
func (p *Pack) Header(offset int64) (Raw, error) {
	var b [64]byte
	n, err := p.readAt(b[:], offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return Raw{}, err
	}
	raw, used, ok := parseHeader(b[:n], offset)
	if !ok {
		return Raw{}, fmt.Errorf("%w: entry at %d of %s", ErrDamaged, offset, p.path)
	}
	raw.data = offset + int64(used)
	return raw, nil
}

// windowLen is how much of a pack is read at once: what history needs lies close together.
const windowLen = 16 << 10

// readAt reads as io.ReaderAt does.
func (p *Pack) readAt(b []byte, offset int64) (n int, err error) {
	for n < len(b) && err == nil {
		var more int
		more, err = p.readSome(b[n:], offset+int64(n))
		n += more
	}
	return n, err
}

// readSome reads at least one byte, up to the end of a window, or all of b where that is longer than one.
func (p *Pack) readSome(b []byte, offset int64) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.load(); err != nil {
		return 0, err
	}
	if err := p.openFile(); err != nil {
		return 0, err
	}
	if len(b) > windowLen {
		return p.file.ReadAt(b, offset)
	}
	at := offset - offset%windowLen
	if at != p.windowAt || len(p.window) == 0 {
		if err := p.fillWindow(at); err != nil {
			return 0, err
		}
	}
	if offset >= at+int64(len(p.window)) {
		return 0, io.EOF
	}
	return copy(b, p.window[offset-at:]), nil
}

func (p *Pack) fillWindow(at int64) error {
	p.window, p.windowAt = slices.Grow(p.window[:0], windowLen)[:windowLen], at
	n, err := p.file.ReadAt(p.window, at)
	p.window = p.window[:n]
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func parseHeader(b []byte, offset int64) (raw Raw, used int, ok bool) {
	if len(b) == 0 {
		return raw, 0, false
	}
	c := b[0]
	raw.Type = object.Type(c >> 4 & 7)
	raw.Size = int64(c & 15)
	used = 1
	for shift := 4; c&0x80 != 0; shift += 7 {
		if used == len(b) || shift > 56 {
			return raw, 0, false
		}
		c = b[used]
		raw.Size |= int64(c&0x7f) << shift
		used++
	}
	switch raw.Type {
	case object.RefDelta:
		if len(b) < used+20 {
			return raw, 0, false
		}
		copy(raw.BaseRef[:], b[used:])
		used += 20
	case object.OfsDelta:
		distance, n, ok := parseOffset(b[used:])
		if !ok || distance <= 0 || distance >= offset {
			return raw, 0, false
		}
		raw.BaseOfs = offset - distance
		used += n
	case object.Commit, object.Tree, object.Blob, object.Tag:
	default:
		return raw, 0, false
	}
	return raw, used, raw.Size < maxObject
}

func parseOffset(b []byte) (distance int64, n int, ok bool) {
	for n < len(b) && n < 9 {
		c := b[n]
		n++
		distance |= int64(c & 0x7f)
		if c&0x80 == 0 {
			return distance, n, true
		}
		distance = (distance + 1) << 7
	}
	return 0, 0, false
}

// section reads the pack through readAt, so that a closed file opens again.
type section struct {
	p  *Pack
	at int64
}

func (s *section) Read(b []byte) (int, error) {
	n, err := s.p.readSome(b, s.at)
	s.at += int64(n)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// Inflater keeps what reading an entry needs. The zero value is ready; it
// serves one goroutine at a time.
type Inflater struct {
	buf *bufio.Reader
	src io.Reader // what inflate reads; with ReadByte, not a byte too many is taken
	z   io.ReadCloser
}

// Inflate returns an entry's content, or for a delta its instructions.
func (p *Pack) Inflate(raw Raw, in *Inflater) ([]byte, error) {
	src := &section{p: p, at: raw.data}
	if in.buf == nil {
		in.buf = bufio.NewReaderSize(src, 4096)
	} else {
		in.buf.Reset(src)
	}
	in.src = in.buf
	out, err := in.inflate(raw.Size)
	if err != nil {
		return nil, fmt.Errorf("%w: entry at %d of %s: %w", ErrDamaged, raw.data, p.path, err)
	}
	return out, nil
}

func (in *Inflater) inflate(size int64) ([]byte, error) {
	return in.inflateTo(nil, size)
}

// inflateTo inflates into buf if that is large enough, else into new memory.
func (in *Inflater) inflateTo(buf []byte, size int64) ([]byte, error) {
	var err error
	if in.z == nil {
		in.z, err = zlib.NewReader(in.src)
	} else {
		err = in.z.(zlib.Resetter).Reset(in.src, nil)
	}
	if err != nil {
		in.z = nil
		return nil, err
	}
	out := slices.Grow(buf[:0], int(size))[:size]
	if _, err := io.ReadFull(in.z, out); err != nil {
		return nil, err
	}
	// The checksum at the end is read only by asking for more.
	var one [1]byte
	if n, err := in.z.Read(one[:]); n != 0 || err != io.EOF {
		return nil, errors.New("entry is longer than it says")
	}
	return out, nil
}
