package kube

import (
	"math"
	"strconv"
	"strings"
)

// JSONSize returns the number of bytes of a decoded value as compact JSON, as
// encoding/json writes it without escaping HTML.
func JSONSize(v any) int {
	switch t := v.(type) {
	case bool:
		if t {
			return len("true")
		}
		return len("false")
	case string:
		return stringSize(t)
	case int64:
		return len(strconv.AppendInt(nil, t, 10))
	case float64:
		return floatSize(t)
	case []any:
		n := len("[]") + max(0, len(t)-1)
		for _, item := range t {
			n += JSONSize(item)
		}
		return n
	case map[string]any:
		n := len("{}") + max(0, len(t)-1)
		for k, item := range t {
			n += stringSize(k) + len(":") + JSONSize(item)
		}
		return n
	}
	return len("null")
}

func floatSize(f float64) int {
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	digits := strconv.FormatFloat(f, format, -1, 64)
	if strings.Contains(digits, "e-0") {
		return len(digits) - 1 // JSON writes e-7
	}
	return len(digits)
}

func stringSize(s string) int {
	n := len(`""`)
	if asIs(s) {
		return n + len(s)
	}
	for _, r := range s {
		switch {
		case r == '"' || r == '\\' || r == '\n' || r == '\r' || r == '\t' || r == '\b' || r == '\f':
			n += 2
		case r < 0x20 || r == 0x2028 || r == 0x2029:
			n += len(`\u0000`)
		default:
			n += len(string(r))
		}
	}
	return n
}

// asIs tells whether a string has nothing that JSON escapes, and only ASCII.
func asIs(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' || c >= 0x80 {
			return false
		}
	}
	return true
}
