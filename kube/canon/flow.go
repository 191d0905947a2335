package canon

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// flow writes a value on one line, its strings in double quotes.
func (w *writer) flow(v any, depth int) {
	if depth > MaxDepth {
		w.fail(fmt.Errorf("%w: beyond %d levels", ErrTooDeep, MaxDepth))
	}
	if w.err != nil {
		return
	}
	switch t := v.(type) {
	case nil:
		w.out = append(w.out, "null"...)
	case bool:
		w.out = strconv.AppendBool(w.out, t)
	case int64:
		w.out = strconv.AppendInt(w.out, t, 10)
	case int:
		w.out = strconv.AppendInt(w.out, int64(t), 10)
	case float64:
		w.float(t)
	case string:
		w.quoted(t)
	case []any:
		w.flowList(t, depth)
	case map[string]any:
		w.flowMap(t, depth)
	default:
		w.fail(fmt.Errorf("%w: %T", ErrType, v))
	}
}

func (w *writer) flowList(list []any, depth int) {
	if list == nil {
		w.flow(nil, depth)
		return
	}
	w.out = append(w.out, '[')
	for i, v := range list {
		if i > 0 {
			w.out = append(w.out, ',', ' ')
		}
		w.flow(v, depth+1)
	}
	w.out = append(w.out, ']')
}

func (w *writer) flowMap(m map[string]any, depth int) {
	if m == nil {
		w.flow(nil, depth)
		return
	}
	base := w.pushKeys(m)
	w.out = append(w.out, '{')
	for i := range len(m) {
		key := w.keys[base+i]
		if i > 0 {
			w.out = append(w.out, ',', ' ')
		}
		start := len(w.out)
		w.quoted(key)
		if len(w.out)-start > longKey {
			w.out = slices.Insert(w.out, start, '?', ' ')
			w.out = append(w.out, ' ')
		}
		w.out = append(w.out, ':', ' ')
		w.flow(m[key], depth+1)
	}
	w.keys = w.keys[:base]
	w.out = append(w.out, '}')
}

// float writes a number that every reader takes for a float: with a point, and
// with a sign in the exponent.
func (w *writer) float(f float64) {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		w.fail(fmt.Errorf("%w: %v", ErrNumber, f))
		return
	}
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	start := len(w.out)
	w.out = strconv.AppendFloat(w.out, f, format, -1, 64)
	digits := w.out[start:]
	if slices.Contains(digits, '.') {
		return
	}
	if e := slices.Index(digits, 'e'); e >= 0 {
		w.out = slices.Insert(w.out, start+e, '.', '0')
		return
	}
	w.out = append(w.out, '.', '0')
}
