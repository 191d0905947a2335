// Package pack writes and reads git's pack files: many objects in one file,
// with an index beside it. It does not know where packs lie.
package pack

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/zlib"

	"github.com/crmirror/crmirror/gitstore/object"
)

const (
	headerLen   = 12
	trailerLen  = 20
	packVersion = 2
)

// Deflater compresses the entries of packs. The zero value is ready; it keeps
// its zlib writers, because making one costs ten times what a small object does.
type Deflater struct{ pool sync.Pool }

func (d *Deflater) deflate(dst *bytes.Buffer, content []byte) error {
	z, ok := d.pool.Get().(*zlib.Writer)
	if ok {
		z.Reset(dst)
	} else {
		var err error
		if z, err = zlib.NewWriterLevel(dst, zlib.BestSpeed); err != nil {
			return err
		}
	}
	defer d.pool.Put(z)
	if _, err := z.Write(content); err != nil {
		return err
	}
	return z.Close()
}

// Writer writes one pack to a stream. The number of objects must be known
// before the first, for it stands in the header.
type Writer struct {
	w        io.Writer
	sum      hash.Hash
	deflater *Deflater
	offset   int64
	want     int
	entries  []Entry
	buf      bytes.Buffer
	trailer  object.Hash
}

// Entry is where one object lies in a pack.
type Entry struct {
	Hash   object.Hash
	CRC    uint32
	Offset int64
}

// NewWriter starts a pack of exactly count objects on w.
func NewWriter(w io.Writer, count int, d *Deflater) (*Writer, error) {
	p := &Writer{w: w, sum: sha1.New(), deflater: d, want: count, entries: make([]Entry, 0, count)}
	header := make([]byte, 0, headerLen)
	header = append(header, "PACK"...)
	header = binary.BigEndian.AppendUint32(header, packVersion)
	header = binary.BigEndian.AppendUint32(header, uint32(count))
	return p, p.write(header)
}

func (p *Writer) write(b []byte) error {
	n, err := p.w.Write(b)
	p.offset += int64(n)
	p.sum.Write(b[:n])
	return err
}

// Add appends a whole object. The caller vouches that h is its hash.
func (p *Writer) Add(t object.Type, h object.Hash, content []byte) error {
	return p.add(Object{Type: t, Hash: h, Content: content})
}

// AddDelta appends an object as a delta against base, which need not be in
// the pack: on the wire such a pack is called thin.
func (p *Writer) AddDelta(h, base object.Hash, delta []byte) error {
	return p.add(Object{Hash: h, Base: base, Delta: delta})
}

func (p *Writer) add(o Object) error {
	p.buf.Reset()
	if err := o.appendEntry(&p.buf, p.deflater); err != nil {
		return err
	}
	return p.entry(o.Hash)
}

// AddOffsetDelta appends an object as a delta against one that lies at the
// offset base of this same pack, the only form a pack on disk may rely on.
func (p *Writer) AddOffsetDelta(h object.Hash, base int64, delta []byte) error {
	p.buf.Reset()
	p.buf.Write(appendHeader(p.buf.AvailableBuffer(), object.OfsDelta, int64(len(delta))))
	p.buf.Write(appendOffset(nil, p.offset-base))
	if err := p.deflater.deflate(&p.buf, delta); err != nil {
		return err
	}
	return p.entry(h)
}

// AddCompressed appends a whole object whose deflated content was read from
// another pack; size is the inflated length.
func (p *Writer) AddCompressed(t object.Type, h object.Hash, size int64, deflated []byte) error {
	p.buf.Reset()
	p.buf.Write(appendHeader(p.buf.AvailableBuffer(), t, size))
	p.buf.Write(deflated)
	return p.entry(h)
}

// AddCompressedDelta appends a delta that was read from another pack, against
// the object at the offset base of this one.
func (p *Writer) AddCompressedDelta(h object.Hash, base, size int64, deflated []byte) error {
	p.buf.Reset()
	p.buf.Write(appendHeader(p.buf.AvailableBuffer(), object.OfsDelta, size))
	p.buf.Write(appendOffset(nil, p.offset-base))
	p.buf.Write(deflated)
	return p.entry(h)
}

func (p *Writer) entry(h object.Hash) error {
	b := p.buf.Bytes()
	p.entries = append(p.entries, Entry{Hash: h, CRC: crc32.ChecksumIEEE(b), Offset: p.offset})
	return p.write(b)
}

// Offset is where the next entry will lie.
func (p *Writer) Offset() int64 { return p.offset }

// Close writes the trailer and returns it: the pack's checksum.
func (p *Writer) Close() (object.Hash, error) {
	if len(p.entries) != p.want {
		return object.Hash{}, fmt.Errorf("write pack: %d objects announced, %d written", p.want, len(p.entries))
	}
	p.sum.Sum(p.trailer[:0])
	_, err := p.w.Write(p.trailer[:])
	return p.trailer, err
}

// Index returns the content of the pack's index. It is complete after Close.
func (p *Writer) Index() []byte { return EncodeIndex(p.entries, p.trailer) }

// EncodeIndex returns an index, version 2, of a pack with that checksum. It
// sorts entries by hash.
func EncodeIndex(entries []Entry, checksum object.Hash) []byte {
	slices.SortFunc(entries, func(a, b Entry) int { return bytes.Compare(a.Hash[:], b.Hash[:]) })
	b := make([]byte, 0, indexHeaderLen+256*4+len(entries)*28+2*trailerLen)
	b = append(b, 0xff, 't', 'O', 'c', 0, 0, 0, 2)
	next := 0
	for first := range 256 {
		for next < len(entries) && int(entries[next].Hash[0]) == first {
			next++
		}
		b = binary.BigEndian.AppendUint32(b, uint32(next))
	}
	for i := range entries {
		b = append(b, entries[i].Hash[:]...)
	}
	for i := range entries {
		b = binary.BigEndian.AppendUint32(b, entries[i].CRC)
	}
	var large []int64
	for i := range entries {
		offset := entries[i].Offset
		if offset >= largeOffset {
			large = append(large, offset)
			offset = largeOffset | int64(len(large)-1)
		}
		b = binary.BigEndian.AppendUint32(b, uint32(offset))
	}
	for _, offset := range large {
		b = binary.BigEndian.AppendUint64(b, uint64(offset))
	}
	b = append(b, checksum[:]...)
	sum := sha1.Sum(b)
	return append(b, sum[:]...)
}

// appendHeader appends an entry's type and size, seven bits a byte after the
// first four.
func appendHeader(dst []byte, t object.Type, size int64) []byte {
	c := byte(t)<<4 | byte(size&15)
	size >>= 4
	for size > 0 {
		dst = append(dst, c|0x80)
		c = byte(size & 0x7f)
		size >>= 7
	}
	return append(dst, c)
}

// appendOffset appends the distance back to a delta's base.
func appendOffset(dst []byte, distance int64) []byte {
	var b [10]byte
	i := len(b) - 1
	b[i] = byte(distance & 0x7f)
	for distance >>= 7; distance > 0; distance >>= 7 {
		distance--
		i--
		b[i] = 0x80 | byte(distance&0x7f)
	}
	return append(dst, b[i:]...)
}
