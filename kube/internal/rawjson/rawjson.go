// Package rawjson takes JSON apart without decoding it: finding where a value
// ends costs a small part of reading what it says.
package rawjson

import (
	"errors"
	"iter"
)

// Scan finds the end of a JSON object or list by its brackets, whatever pieces the
// bytes come in. It does not say whether what lies between is JSON: whoever decodes
// it does.
type Scan struct {
	depth             int
	inString, escaped bool
}

// Next takes more bytes and returns how many belong to the value, and whether it ends
// with them.
func (s *Scan) Next(data []byte) (n int, ended bool) {
	for n < len(data) {
		c := data[n]
		n++
		switch {
		case s.escaped:
			s.escaped = false
		case s.inString:
			s.escaped = c == '\\'
			s.inString = c != '"'
		case c == '"':
			s.inString = true
		case c == '{' || c == '[':
			s.depth++
		case c == '}' || c == ']':
			if s.depth--; s.depth <= 0 {
				return n, true
			}
		}
	}
	return n, false
}

// Members are the names (as they are written, with quotes) and values of an object;
// of a list, the values alone. It ends early where data is not what JSON allows.
func Members(data []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		_ = Each(data, func(name, value []byte) error {
			if !yield(name, value) {
				return errEnough
			}
			return nil
		})
	}
}

// ErrBroken means that something is not a whole JSON object or list.
var ErrBroken = errors.New("not a whole JSON object or list")

var errEnough = errors.New("no more is asked for")

// Each calls do for each of the Members, until it returns an error. The error is ErrBroken
// if data is not one whole object or list with nothing behind; what the values hold is not looked at.
func Each(data []byte, do func(name, value []byte) error) error {
	data = TrimBlanks(data)
	if len(data) == 0 || data[0] != '{' && data[0] != '[' {
		return ErrBroken
	}
	named, end := data[0] == '{', data[0]+2 // in ASCII the closing one of both brackets
	if data = TrimBlanks(data[1:]); len(data) > 0 && data[0] == end {
		return ended(data)
	}
	for {
		var name []byte
		if named {
			if name = value(data); len(name) == 0 || name[0] != '"' {
				return ErrBroken
			}
			if data = TrimBlanks(data[len(name):]); len(data) == 0 || data[0] != ':' {
				return ErrBroken
			}
			data = TrimBlanks(data[1:])
		}
		v := value(data)
		if len(v) == 0 {
			return ErrBroken
		}
		if err := do(name, v); err != nil {
			return err
		}
		data = TrimBlanks(data[len(v):])
		switch {
		case len(data) > 0 && data[0] == end:
			return ended(data)
		case len(data) == 0 || data[0] != ',':
			return ErrBroken
		}
		data = TrimBlanks(data[1:])
	}
}

// ended checks that nothing stands behind the closing bracket.
func ended(data []byte) error {
	if len(TrimBlanks(data[1:])) > 0 {
		return ErrBroken
	}
	return nil
}

// value is the JSON value that data begins with, empty if there is none.
func value(data []byte) []byte {
	if len(data) == 0 {
		return nil
	}
	switch data[0] {
	case '{', '[':
		var s Scan
		if n, ended := s.Next(data); ended {
			return data[:n]
		}
		return nil
	case '"':
		for n := 1; n < len(data); n++ {
			switch data[n] {
			case '\\':
				n++
			case '"':
				return data[:n+1]
			}
		}
		return nil
	}
	for n, c := range data {
		if c == ',' || c == '}' || c == ']' || isBlank(c) {
			return data[:n]
		}
	}
	return data
}

// TrimBlanks leaves out what JSON allows before a value.
func TrimBlanks(data []byte) []byte {
	for len(data) > 0 && isBlank(data[0]) {
		data = data[1:]
	}
	return data
}

func isBlank(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }
