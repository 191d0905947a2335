package pack

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/pjbgf/sha1cd"

	"github.com/crmirror/crmirror/gitstore/object"
)

// Index reads a whole pack that somebody else made, resolves its deltas and
// returns its index (nil when the pack is empty) and its checksum. The pack must hold all its delta bases.
// Hashes are computed with collision detection, for the bytes are not ours.
func Index(f *os.File) (index []byte, checksum object.Hash, err error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, checksum, err
	}
	x := &indexer{
		src:      &scanner{r: f, buf: make([]byte, 1<<16), pack: sha1cd.New(), crc: crc32.NewIEEE()},
		sum:      sha1cd.New(),
		children: map[int32][]int32{},
	}
	if err := x.scan(); err != nil {
		return nil, checksum, fmt.Errorf("index pack: %w", err)
	}
	if err := x.resolve(f); err != nil {
		return nil, checksum, fmt.Errorf("index pack: %w", err)
	}
	if len(x.entries) == 0 {
		return nil, x.checksum, nil
	}
	return EncodeIndex(x.entries, x.checksum), x.checksum, nil
}

// scanner reads a pack through a buffer of its own, byte by byte where zlib
// asks for bytes, so that inflating takes not one more than the entry has. It
// sums what was taken, in runs.
type scanner struct {
	r        io.Reader
	buf      []byte
	pos, end int   // what is left in buf
	summed   int   // up to where buf went into the sums
	base     int64 // offset of buf[0] in the pack
	pack     hash.Hash
	crc      hash.Hash32
}

func (s *scanner) at() int64 { return s.base + int64(s.pos) }

// sum takes into the sums what was read since the last time.
func (s *scanner) sum() {
	s.pack.Write(s.buf[s.summed:s.pos])
	s.crc.Write(s.buf[s.summed:s.pos])
	s.summed = s.pos
}

// fill makes n bytes available, fewer at the end of the file.
func (s *scanner) fill(n int) error {
	if s.end-s.pos >= n {
		return nil
	}
	s.sum()
	s.base += int64(s.pos)
	s.end = copy(s.buf, s.buf[s.pos:s.end])
	s.pos, s.summed = 0, 0
	read, err := io.ReadAtLeast(s.r, s.buf[s.end:], n-s.end)
	s.end += read
	return err
}

func (s *scanner) ReadByte() (byte, error) {
	if s.pos == s.end {
		if err := s.fill(1); err != nil {
			return 0, err
		}
	}
	s.pos++
	return s.buf[s.pos-1], nil
}

func (s *scanner) Read(b []byte) (int, error) {
	if s.pos == s.end {
		if err := s.fill(1); err != nil {
			return 0, err
		}
	}
	n := copy(b, s.buf[s.pos:s.end])
	s.pos += n
	return n, nil
}

// next reads an entry's header.
func (s *scanner) next() (Raw, error) {
	s.sum()
	s.crc.Reset()
	if err := s.fill(maxHeader); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return Raw{}, err
	}
	raw, used, ok := parseHeader(s.buf[s.pos:s.end], s.at())
	if !ok {
		return Raw{}, fmt.Errorf("%w: entry at %d", ErrDamaged, s.at())
	}
	s.pos += used
	raw.data = s.at()
	return raw, nil
}

// maxHeader is more than an entry's header can have, bytes.
const maxHeader = 64

// maxKept is the largest buffer that is kept for the next entry, bytes.
const maxKept = 1 << 20

type indexer struct {
	src      *scanner
	sum      hash.Hash
	in       Inflater
	buf      []byte // the content inflated last, while scanning
	entries  []Entry
	raws     []Raw
	children map[int32][]int32 // of an entry: the deltas against it
	orphans  []int32           // RefDeltas whose base was not seen when they were
	checksum object.Hash
}

// scan goes through the pack once: whole objects get their hash, deltas their place.
func (x *indexer) scan() error {
	var header [headerLen]byte
	if _, err := io.ReadFull(x.src, header[:]); err != nil {
		return fmt.Errorf("%w: header: %w", ErrDamaged, err)
	}
	version := binary.BigEndian.Uint32(header[4:])
	if string(header[:4]) != "PACK" || (version != 2 && version != 3) {
		return fmt.Errorf("%w: header", ErrDamaged)
	}
	for i := range int32(binary.BigEndian.Uint32(header[8:])) {
		if err := x.scanEntry(i); err != nil {
			return err
		}
	}
	x.src.sum()
	x.src.pack.Sum(x.checksum[:0])
	var trailer object.Hash
	if _, err := io.ReadFull(x.src, trailer[:]); err != nil || trailer != x.checksum {
		return fmt.Errorf("%w: checksum", ErrDamaged)
	}
	return nil
}

func (x *indexer) scanEntry(i int32) error {
	offset := x.src.at()
	raw, err := x.src.next()
	if err != nil {
		return err
	}
	x.in.src = x.src
	content, err := x.in.inflateTo(x.buf, raw.Size)
	if err != nil {
		return fmt.Errorf("%w: entry at %d: %w", ErrDamaged, offset, err)
	}
	if x.buf = content; cap(x.buf) > maxKept {
		x.buf = nil
	}
	x.src.sum()
	e := Entry{Offset: offset, CRC: x.src.crc.Sum32()}
	switch raw.Type {
	case object.OfsDelta:
		base, ok := slices.BinarySearchFunc(x.entries, raw.BaseOfs, func(e Entry, at int64) int { return cmp.Compare(e.Offset, at) })
		if !ok {
			return fmt.Errorf("%w: entry at %d: no base at %d", ErrDamaged, offset, raw.BaseOfs)
		}
		x.children[int32(base)] = append(x.children[int32(base)], i)
	case object.RefDelta:
		x.orphans = append(x.orphans, i)
	default:
		e.Hash = x.hash(raw.Type, content)
	}
	x.entries = append(x.entries, e)
	x.raws = append(x.raws, raw)
	return nil
}

func (x *indexer) hash(t object.Type, content []byte) object.Hash {
	x.sum.Reset()
	x.sum.Write(t.Bytes())
	x.sum.Write(strconv.AppendInt([]byte{' '}, int64(len(content)), 10))
	x.sum.Write([]byte{0})
	x.sum.Write(content)
	var h object.Hash
	x.sum.Sum(h[:0])
	return h
}

// resolve gives every delta its hash, base by base, each inflated once.
func (x *indexer) resolve(f *os.File) error {
	refChildren := map[object.Hash][]int32{}
	for _, i := range x.orphans {
		refChildren[x.raws[i].BaseRef] = append(refChildren[x.raws[i].BaseRef], i)
	}
	p := &Pack{path: f.Name(), file: f, index: []byte{}}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	p.size = info.Size()
	x.in = Inflater{}
	for i, raw := range x.raws {
		if raw.Type == object.OfsDelta || raw.Type == object.RefDelta {
			continue
		}
		if len(x.children[int32(i)]) == 0 && len(refChildren[x.entries[i].Hash]) == 0 {
			continue
		}
		content, err := p.Inflate(raw, &x.in)
		if err != nil {
			return err
		}
		if err := x.descend(p, int32(i), raw.Type, content, refChildren); err != nil {
			return err
		}
	}
	for i := range x.entries {
		if x.entries[i].Hash.IsZero() {
			return fmt.Errorf("%w: entry at %d has no base in the pack", ErrDamaged, x.entries[i].Offset)
		}
	}
	return nil
}

func (x *indexer) descend(p *Pack, i int32, t object.Type, content []byte, refChildren map[object.Hash][]int32) error {
	for _, list := range [2][]int32{x.children[i], refChildren[x.entries[i].Hash]} {
		for _, child := range list {
			if !x.entries[child].Hash.IsZero() {
				continue
			}
			delta, err := p.Inflate(x.raws[child], &x.in)
			if err != nil {
				return err
			}
			patched, err := Patch(content, delta)
			if err != nil {
				return fmt.Errorf("%w: entry at %d: %w", ErrDamaged, x.entries[child].Offset, err)
			}
			x.entries[child].Hash = x.hash(t, patched)
			if err := x.descend(p, child, t, patched, refChildren); err != nil {
				return err
			}
		}
	}
	return nil
}
