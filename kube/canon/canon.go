// Package canon writes JSON-like Go values as canonical YAML: one value has one
// form, byte for byte, on every machine, and every YAML reader (1.1 or 1.2) reads
// the same value back, types included.
//
// Keys are sorted by their bytes. Maps and lists are in block style, a list's dashes
// at its key's indent, as kubectl writes them. Text of several lines is a literal
// block. Nothing is folded, so a small change of a value is a small change of lines.
//
// Invariant: what is written reads back as the same value. It is kept by
// construction: plain, single-quoted and literal style are used only for strings of
// classes proven safe (plain.go, literal.go); everything else is in double quotes with
// escapes that both versions of YAML share. FuzzAppend guards it with three readers.
package canon

import (
	"errors"
	"slices"
	"unicode/utf8"
)

// Limits of what is written.
const (
	// MaxDepth is the deepest nesting of maps and lists. Readers stop at 10,000.
	MaxDepth = 9900
	// MaxBytes is the largest output in block style. A value that indentation
	// would blow up beyond it is written in flow style, which is at
	// most a few times its size as JSON.
	MaxBytes = 32 << 20
)

// blockDepth is how deep values are nested in block style. Deeper ones are in
// flow style on one line: with indentation, the size would grow with the
// square of the depth.
const blockDepth = 64

// longKey is the number of bytes beyond which a key is written as "? key": YAML 1.1
// readers give up looking for a colon after 1024 characters.
const longKey = 1000

// Errors for values that YAML has no form for, found with errors.Is.
var (
	ErrType    = errors.New("not a JSON value")
	ErrNumber  = errors.New("not a finite number")
	ErrUTF8    = errors.New("not valid UTF-8")
	ErrTooDeep = errors.New("nested too deep")
)

// Append appends v to dst as a YAML document with a final newline. v is made of
// map[string]any, []any, string, bool, int64, int, float64 and nil; anything else is
// an error, and dst is then returned as it came. A nil map or list is null, as in JSON.
// It does not modify v.
func Append(dst []byte, v any) ([]byte, error) {
	w := writer{out: dst, blockDepth: blockDepth, limit: len(dst) + MaxBytes}
	w.document(v)
	if w.full() && errors.Is(w.err, errFull) {
		w = writer{out: dst}
		w.document(v)
	}
	if w.err != nil {
		return dst, w.err
	}
	return w.out, nil
}

// errFull means that block style takes more than MaxBytes.
var errFull = errors.New("too large in block style")

// writer appends to out until the first error.
type writer struct {
	out        []byte
	keys       []string // of the maps being written, outermost first
	blockDepth int      // levels in block style; 0 writes all in flow style
	limit      int      // length of out at which block style gives up
	err        error
}

// full ends block style before it takes more memory than the result is worth.
func (w *writer) full() bool {
	if len(w.out) > w.limit {
		w.fail(errFull)
	}
	return w.err != nil
}

func (w *writer) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *writer) document(v any) {
	switch t := v.(type) {
	case map[string]any:
		if len(t) > 0 && w.blockDepth > 0 {
			w.blockMap(t, 0, 0, false)
			return
		}
	case []any:
		if len(t) > 0 && w.blockDepth > 0 {
			w.blockList(t, 0, 0, false)
			return
		}
	}
	w.flow(v, 0)
	w.out = append(w.out, '\n')
}

// blockMap writes the entries of a non-empty map at an indent. When inline, the
// first one continues a line that is already there ("- ").
func (w *writer) blockMap(m map[string]any, indent, depth int, inline bool) {
	base := w.pushKeys(m)
	for i := range len(m) {
		if w.full() {
			return
		}
		key := w.keys[base+i]
		if i > 0 || !inline {
			w.indent(indent)
		}
		if w.key(key) {
			w.out = append(w.out, '\n')
			w.indent(indent)
		}
		w.out = append(w.out, ':')
		w.mapValue(m[key], indent, depth)
	}
	w.keys = w.keys[:base]
}

// mapValue writes what follows "key:", up to and with the newline.
func (w *writer) mapValue(v any, indent, depth int) {
	if depth+1 < w.blockDepth {
		switch t := v.(type) {
		case map[string]any:
			if len(t) > 0 {
				w.out = append(w.out, '\n')
				w.blockMap(t, indent+2, depth+1, false)
				return
			}
		case []any:
			if len(t) > 0 {
				w.out = append(w.out, '\n')
				w.blockList(t, indent, depth+1, false)
				return
			}
		}
	}
	w.out = append(w.out, ' ')
	w.leaf(v, indent+2, depth+1)
}

// blockList writes the items of a non-empty list with their dashes at an indent.
func (w *writer) blockList(list []any, indent, depth int, inline bool) {
	for i, v := range list {
		if w.full() {
			return
		}
		if i > 0 || !inline {
			w.indent(indent)
		}
		w.out = append(w.out, '-', ' ')
		w.item(v, indent, depth)
	}
}

func (w *writer) item(v any, indent, depth int) {
	if depth+1 < w.blockDepth {
		switch t := v.(type) {
		case map[string]any:
			if len(t) > 0 {
				w.blockMap(t, indent+2, depth+1, true)
				return
			}
		case []any:
			if len(t) > 0 {
				w.blockList(t, indent+2, depth+1, true)
				return
			}
		}
	}
	w.leaf(v, indent+2, depth+1)
}

// leaf writes what stands on the line of its key or dash, and the newline. Further
// lines of a string are at the given indent.
func (w *writer) leaf(v any, indent, depth int) {
	if s, ok := v.(string); ok {
		w.string(s, indent)
	} else {
		w.flow(v, depth)
	}
	w.out = append(w.out, '\n')
}

// key writes a map key in block style and tells whether it was written as "? key",
// so that the colon belongs on the next line.
func (w *writer) key(s string) (explicit bool) {
	start := len(w.out)
	if plainKey(s) {
		w.out = append(w.out, s...)
	} else {
		w.quoted(s)
	}
	if len(w.out)-start <= longKey {
		return false
	}
	w.out = slices.Insert(w.out, start, '?', ' ')
	return true
}

// string writes a string in block context in the most readable style that is safe.
func (w *writer) string(s string, indent int) {
	switch {
	case plain(s):
		w.out = append(w.out, s...)
	case literal(s):
		w.literal(s, indent)
	case single(s):
		w.out = append(w.out, '\'')
		w.out = append(w.out, s...)
		w.out = append(w.out, '\'')
	default:
		w.quotedLines(s, indent)
	}
}

func (w *writer) indent(n int) {
	const spaces = "                                                                "
	for n > len(spaces) {
		w.out = append(w.out, spaces...)
		n -= len(spaces)
	}
	w.out = append(w.out, spaces[:n]...)
}

// pushKeys puts the sorted keys of a map on the stack of keys and returns where
// they begin. Whoever pushes cuts the stack back.
func (w *writer) pushKeys(m map[string]any) int {
	base := len(w.keys)
	for k := range m {
		w.keys = append(w.keys, k)
	}
	slices.Sort(w.keys[base:])
	return base
}

// valid reports text that is no UTF-8, which JSON cannot hold either.
func (w *writer) valid(s string) bool {
	if utf8.ValidString(s) {
		return true
	}
	w.fail(ErrUTF8)
	return false
}
