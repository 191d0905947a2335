package pack

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/crmirror/crmirror/gitstore/object"
)

// Entries lists all objects of the pack by offset.
func (p *Pack) Entries() ([]Entry, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.load(); err != nil {
		return nil, err
	}
	entries := make([]Entry, p.count)
	for i := range entries {
		var err error
		if entries[i], err = p.entry(i); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Offset, b.Offset) })
	return entries, nil
}

// Size is the length of the .pack file in bytes.
func (p *Pack) Size() (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.load(); err != nil {
		return 0, err
	}
	if err := p.openFile(); err != nil {
		return 0, err
	}
	return p.size, nil
}

// Next returns where the entry after the one at offset begins, or the trailer.
func (p *Pack) Next(offset int64) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.offsets == nil {
		if err := p.openFile(); err != nil {
			return 0, err
		}
		offsets := make([]int64, p.count, p.count+1)
		for i := range offsets {
			var err error
			if offsets[i], err = p.offset(i); err != nil {
				return 0, err
			}
		}
		slices.Sort(offsets)
		p.offsets = append(offsets, p.size-trailerLen)
	}
	i, _ := slices.BinarySearch(p.offsets, offset+1)
	if i == len(p.offsets) {
		return 0, fmt.Errorf("%w: nothing at %d of %s", ErrDamaged, offset, p.path)
	}
	return p.offsets[i], nil
}

// Deflated returns an entry's bytes as they are stored after its header, up to
// the offset next where the following entry or the trailer begins. The entry's
// checksum is verified, so that damage is not copied.
func (p *Pack) Deflated(e Entry, raw Raw, next int64) ([]byte, error) {
	if next <= raw.data || next-e.Offset > maxObject {
		return nil, fmt.Errorf("%w: entry at %d of %s", ErrDamaged, e.Offset, p.path)
	}
	b := make([]byte, next-e.Offset)
	if _, err := p.readAt(b, e.Offset); err != nil {
		return nil, err
	}
	if crc32.ChecksumIEEE(b) != e.CRC {
		return nil, fmt.Errorf("%w: checksum of the entry at %d of %s", ErrDamaged, e.Offset, p.path)
	}
	return b[raw.data-e.Offset:], nil
}

// AddCompressedThin appends a delta that was read from another pack, against an
// object that is not in this one.
func (p *Writer) AddCompressedThin(h, base object.Hash, size int64, deflated []byte) error {
	p.buf.Reset()
	p.buf.Write(appendHeader(p.buf.AvailableBuffer(), object.RefDelta, size))
	p.buf.Write(base[:])
	p.buf.Write(deflated)
	return p.entry(h)
}
