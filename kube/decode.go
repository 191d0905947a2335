package kube

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/crmirror/crmirror/kube/canon"
)

// SyntaxError says where a file cannot be read and why. It quotes keys, never values.
type SyntaxError struct {
	Line int // from 1; 0 when it is the file as a whole
	Msg  string
}

// Error writes "line 3: ...".
func (e *SyntaxError) Error() string {
	if e.Line == 0 {
		return e.Msg
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Msg)
}

// ErrLFSPointer means that a file's content lies in Git LFS and only its pointer is here.
var ErrLFSPointer = errors.New("a Git LFS pointer, not an object; take the file out of LFS (git lfs untrack)")

const lfsPrefix = "version https://git-lfs.github.com/spec/"

// Decode reads the object of a file, as kubectl would read it (YAML 1.1), but strictly: a
// duplicate key, a key that is no text, a second document, a missing apiVersion,
// kind or name and an object beyond MaxJSON are errors. Syntax errors are
// *SyntaxError; others are ErrIdentity, ErrTooLarge and ErrLFSPointer. Integers
// become int64, or float64 beyond its range; numbers with a point or an exponent
// are float64. It normalizes nothing.
//
// It stands on the parser below sigs.k8s.io/yaml, not on that: on its way
// through JSON, 100.0 would become an integer.
func Decode(content []byte) (*unstructured.Unstructured, error) {
	if len(content) > canon.MaxBytes {
		return nil, fmt.Errorf("%w: %d bytes, at most %d are read", ErrTooLarge, len(content), canon.MaxBytes)
	}
	if bytes.HasPrefix(content, []byte(lfsPrefix)) {
		return nil, ErrLFSPointer
	}
	root, err := decodeYAML(content)
	if err != nil {
		return nil, err
	}
	obj, ok := root.(map[string]any)
	if !ok {
		return nil, &SyntaxError{Line: 1, Msg: "holds no object (want a map with apiVersion, kind and metadata)"}
	}
	if _, err := Identify(obj); err != nil {
		return nil, err
	}
	// Even a small file is measured: aliases multiply.
	if size := JSONSize(obj); size > MaxJSON {
		return nil, fmt.Errorf("%w: %d bytes as JSON, at most %d are read", ErrTooLarge, size, MaxJSON)
	}
	return &unstructured.Unstructured{Object: obj}, nil
}

// decodeYAML reads the only document of a file.
func decodeYAML(content []byte) (any, error) {
	dec := yaml.NewDecoder(bytes.NewReader(content))
	dec.SetStrict(true)
	var raw any
	if err := dec.Decode(&raw); errors.Is(err, io.EOF) {
		return nil, &SyntaxError{Msg: "is empty"}
	} else if err != nil {
		return nil, syntaxError(content, err)
	}
	var second any
	if err := dec.Decode(&second); err != nil && !errors.Is(err, io.EOF) {
		return nil, syntaxError(content, err)
	} else if err == nil {
		return nil, &SyntaxError{Line: secondDocument(content), Msg: "a second document begins; want one object per file"}
	}
	c := converter{}
	v, msg := c.convert(raw)
	if msg != "" {
		return nil, &SyntaxError{Line: lineOf(content, c.path), Msg: msg}
	}
	return v, nil
}

// converter turns what the parser returns into what JSON decoders return. After a failure,
// path leads to the value that failed: string keys, int indexes, and badKey at its end
// for a key that is no text.
type converter struct {
	path []any
}

// badKey stands in a path for a key that is no text.
type badKey struct{}

func (c *converter) convert(v any) (out any, msg string) {
	switch t := v.(type) {
	case nil, bool, int64:
		return t, ""
	case int:
		return int64(t), ""
	case uint64:
		return float64(t), ""
	case float64:
		if math.IsInf(t, 0) || math.IsNaN(t) {
			return nil, "an infinite number or none at all; JSON has no such value"
		}
		return t, ""
	case string:
		if !utf8.ValidString(t) {
			return nil, "binary data; JSON has no such value"
		}
		return t, ""
	case []any:
		return c.convertList(t)
	case map[any]any:
		return c.convertMap(t)
	default:
		return nil, "a value of a type that JSON has not"
	}
}

func (c *converter) convertList(list []any) (any, string) {
	out := make([]any, len(list))
	for i, item := range list {
		c.path = append(c.path, i)
		v, msg := c.convert(item)
		if msg != "" {
			return nil, msg
		}
		out[i] = v
		c.path = c.path[:len(c.path)-1]
	}
	return out, ""
}

// convertMap reports, of several failures, always the same one.
func (c *converter) convertMap(m map[any]any) (any, string) {
	out := make(map[string]any, len(m))
	base := len(c.path)
	var failedKey, failure string
	var failedPath []any
	for k, item := range m {
		key, isText := k.(string)
		var v any
		var msg string
		if isText && utf8.ValidString(key) {
			c.path = append(c.path, key)
			v, msg = c.convert(item)
		} else {
			c.path = append(c.path, badKey{})
			key, msg = "", fmt.Sprintf("a key that is read as %s, not as text; put it in quotes", typeName(k))
		}
		if msg != "" && (failure == "" || key+msg < failedKey+failure) {
			failedKey, failure, failedPath = key, msg, slices.Clone(c.path)
		}
		c.path = c.path[:base]
		out[key] = v
	}
	if failure != "" {
		c.path = failedPath
		return nil, failure
	}
	return out, ""
}

// typeName names the type of a key as people know it.
func typeName(k any) string {
	switch k.(type) {
	case bool:
		return "a boolean (y, n, yes, no, on and off are booleans too)"
	case nil:
		return "null"
	case string:
		return "binary data"
	default:
		return "a number"
	}
}

var (
	yamlLine  = regexp.MustCompile(`^line (\d+): `)
	yamlValue = regexp.MustCompile("`[^`]*`")
	// yamlGrammar matches errors of the parser's grammar; those give the line before.
	yamlGrammar = regexp.MustCompile(`^did not find expected (<document start>|node content|key|'-'|',')`)
)

// syntaxError takes the parser's message apart. Values are cut out of it.
func syntaxError(content []byte, err error) error {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	var types *yaml.TypeError
	if errors.As(err, &types) && len(types.Errors) > 0 {
		msg = types.Errors[0]
	}
	e := &SyntaxError{}
	if m := yamlLine.FindStringSubmatch(msg); m != nil {
		if line, err := strconv.Atoi(m[1]); err == nil {
			e.Line, msg = line, msg[len(m[0]):]
			if yamlGrammar.MatchString(msg) {
				e.Line++
			}
		}
	}
	e.Msg = yamlValue.ReplaceAllString(msg, "a value")
	e.explain(content)
	return e
}

var (
	conflictMarker = regexp.MustCompile(`(?m)^(<<<<<<<|>>>>>>>) `)
	alias          = regexp.MustCompile(`(?m)(^|[\s\[{,])\*[0-9A-Za-z_-]`)
)

// explain names causes that the parser does not know, or does not say the line of.
func (e *SyntaxError) explain(content []byte) {
	at := func(offset int) int { return 1 + bytes.Count(content[:offset], []byte("\n")) }
	if m := conflictMarker.FindIndex(content); m != nil {
		e.Line, e.Msg = at(m[0]), "a conflict marker of git: a merge was committed that is not finished"
		return
	}
	if !utf8.Valid(content) {
		rest := content
		for r, n := utf8.DecodeRune(rest); r != utf8.RuneError || n > 1; r, n = utf8.DecodeRune(rest) {
			rest = rest[n:]
		}
		e.Line, e.Msg = at(len(content)-len(rest)), "bytes that are no UTF-8"
		return
	}
	if e.Line == 0 && strings.Contains(e.Msg, "excessive aliasing") {
		if m := alias.FindIndex(content); m != nil {
			e.Line = at(m[1])
		}
		e.Msg = "aliases (*name) multiply to too much; write out what they stand for"
	}
}
