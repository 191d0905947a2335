package canon

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzAppend guards the package's invariant: every reader reads the value that was
// written. The bytes are a string that is put into every place a string can have,
// and a program that builds a value.
func FuzzAppend(f *testing.F) {
	for _, s := range strs {
		f.Add(s, []byte{})
	}
	f.Add("a\nb", []byte{6, 3, 5, 2, 'h', 'i', 7, 2, 5, 1, 'x', 3, 0, 0, 0, 0, 0, 0, 0, 9})
	f.Fuzz(func(t *testing.T, s string, program []byte) {
		s = strings.ToValidUTF8(s, "?")
		checkReaders(t, places(s))
		b := builder{in: program}
		v := b.value(0)
		checkReaders(t, map[string]any{"v": v, s: []any{v, s}})
	})
}

// builder makes a value of the bytes of a program.
type builder struct{ in []byte }

func (b *builder) byte() byte {
	if len(b.in) == 0 {
		return 0
	}
	c := b.in[0]
	b.in = b.in[1:]
	return c
}

func (b *builder) word() uint64 {
	var w [8]byte
	b.in = b.in[copy(w[:], b.in):]
	return binary.BigEndian.Uint64(w[:])
}

func (b *builder) string() string {
	n := min(int(b.byte()), len(b.in))
	s := string(b.in[:n])
	b.in = b.in[n:]
	if !utf8.ValidString(s) {
		return strings.ToValidUTF8(s, "\u2028")
	}
	return s
}

func (b *builder) value(depth int) any {
	kind := b.byte() % 8
	if depth > 8 && kind > 5 {
		kind = 5
	}
	switch kind {
	case 0:
		return nil
	case 1:
		return true
	case 2:
		return false
	case 3:
		return int64(b.word())
	case 4:
		if f := math.Float64frombits(b.word()); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f
		}
		return 1.5
	case 5:
		return b.string()
	case 6:
		list := []any{}
		for range b.byte() % 5 {
			list = append(list, b.value(depth+1))
		}
		return list
	default:
		m := map[string]any{}
		for range b.byte() % 5 {
			m[b.string()] = b.value(depth + 1)
		}
		return m
	}
}
