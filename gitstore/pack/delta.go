package pack

import (
	"encoding/binary"
	"errors"
)

// maxCopy is the longest run that one copy instruction can name.
const maxCopy = 0xffffff

// maxInsert is the longest run that one insert instruction can carry.
const maxInsert = 0x7f

// Delta builds a delta, instruction by instruction: runs copied from the base
// and bytes of its own.
type Delta struct {
	body []byte
	size int64
	// A pending copy, so that neighbouring runs become one instruction.
	from, run int64
}

// Copy adds n bytes of the base from offset on.
func (d *Delta) Copy(offset, n int64) {
	if n <= 0 {
		return
	}
	if d.run > 0 && d.from+d.run == offset {
		d.run += n
	} else {
		d.flush()
		d.from, d.run = offset, n
	}
	d.size += n
}

// Insert adds bytes that the base does not have.
func (d *Delta) Insert(b []byte) {
	d.flush()
	d.size += int64(len(b))
	for len(b) > 0 {
		n := min(len(b), maxInsert)
		d.body = append(d.body, byte(n))
		d.body = append(d.body, b[:n]...)
		b = b[n:]
	}
}

func (d *Delta) flush() {
	for d.run > 0 {
		n := min(d.run, maxCopy)
		d.body = appendCopy(d.body, d.from, n)
		d.from += n
		d.run -= n
	}
}

func appendCopy(dst []byte, offset, n int64) []byte {
	at := len(dst)
	dst = append(dst, 0x80)
	for i := range 4 {
		if b := byte(offset >> (8 * i)); b != 0 {
			dst = append(dst, b)
			dst[at] |= 1 << i
		}
	}
	for i := range 3 {
		if b := byte(n >> (8 * i)); b != 0 {
			dst = append(dst, b)
			dst[at] |= 0x10 << i
		}
	}
	return dst
}

// Bytes returns the finished delta against a base of baseSize bytes.
func (d *Delta) Bytes(baseSize int64) []byte {
	d.flush()
	b := binary.AppendUvarint(make([]byte, 0, len(d.body)+16), uint64(baseSize))
	b = binary.AppendUvarint(b, uint64(d.size))
	return append(b, d.body...)
}

// Diff returns a delta from base to target: what the two share at the start
// and at the end is copied, the middle inserted. That is all a text with one
// changed line needs; ok is false when it would save less than half.
func Diff(base, target []byte) (delta []byte, ok bool) {
	short := min(len(base), len(target))
	head := 0
	for head < short && base[head] == target[head] {
		head++
	}
	tail := 0
	for tail < short-head && base[len(base)-1-tail] == target[len(target)-1-tail] {
		tail++
	}
	if 2*(head+tail) < len(target) {
		return nil, false
	}
	var d Delta
	d.Copy(0, int64(head))
	d.Insert(target[head : len(target)-tail])
	d.Copy(int64(len(base)-tail), int64(tail))
	return d.Bytes(int64(len(base))), true
}

var errBadDelta = errors.New("malformed delta")

// PatchedSize is how long what a delta leads to is; ok is false for no delta.
func PatchedSize(delta []byte) (size int64, ok bool) {
	_, n := binary.Uvarint(delta)
	if n <= 0 {
		return 0, false
	}
	patched, n := binary.Uvarint(delta[n:])
	return int64(patched), n > 0 && patched < maxObject
}

// Patch applies a delta to its base.
func Patch(base, delta []byte) ([]byte, error) {
	baseSize, n := binary.Uvarint(delta)
	if n <= 0 || baseSize != uint64(len(base)) {
		return nil, errBadDelta
	}
	delta = delta[n:]
	size, n := binary.Uvarint(delta)
	if n <= 0 || size > maxObject {
		return nil, errBadDelta
	}
	delta = delta[n:]
	out := make([]byte, 0, min(size, 64<<20)) // a lying size must not take all memory
	for len(delta) > 0 {
		op := delta[0]
		delta = delta[1:]
		switch {
		case op&0x80 != 0:
			var offset, run int
			var ok bool
			if offset, run, delta, ok = readCopy(op, delta); !ok || offset+run > len(base) {
				return nil, errBadDelta
			}
			out = append(out, base[offset:offset+run]...)
		case op == 0 || int(op) > len(delta):
			return nil, errBadDelta
		default:
			out = append(out, delta[:op]...)
			delta = delta[op:]
		}
		if uint64(len(out)) > size {
			return nil, errBadDelta
		}
	}
	if uint64(len(out)) != size {
		return nil, errBadDelta
	}
	return out, nil
}

func readCopy(op byte, b []byte) (offset, run int, rest []byte, ok bool) {
	for i := range 7 {
		if op&(1<<i) == 0 {
			continue
		}
		if len(b) == 0 {
			return 0, 0, nil, false
		}
		if i < 4 {
			offset |= int(b[0]) << (8 * i)
		} else {
			run |= int(b[0]) << (8 * (i - 4))
		}
		b = b[1:]
	}
	if run == 0 {
		run = 0x10000
	}
	return offset, run, b, true
}
