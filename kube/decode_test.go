package kube

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const head = "apiVersion: x.io/v1\nkind: W\nmetadata:\n  name: a\n"

func TestDecodeReads(t *testing.T) {
	tests := []struct {
		name, in string
		want     any // spec
	}{
		{"integers", "spec: [0, -1, 9007199254740993, 9223372036854775807, -9223372036854775808]", []any{int64(0), int64(-1), int64(1<<53 + 1), int64(math.MaxInt64), int64(math.MinInt64)}},
		{"beyond int64", "spec: 18446744073709551615", float64(math.MaxUint64)},
		{"floats", "spec: [100.0, 1.14819072e+12, 1e3, .5]", []any{100.0, 1.14819072e+12, 1000.0, .5}},
		{"YAML 1.1 as kubectl reads it", "spec: [on, off, yes, n, 0755, 0x1F, 1_000, 12:30, 0o17, 0b11, ~, 2001-01-01, =]",
			[]any{true, false, true, false, int64(0o755), int64(0x1F), int64(1000), "12:30", int64(0o17), int64(3), nil, "2001-01-01", "="}},
		{"text", `spec: ["0755", 'on', !!str 12, "a\tb"]`, []any{"0755", "on", "12", "a\tb"}},
		{"anchors and merge keys", "x: &x {a: 1, b: 2}\nspec:\n  <<: *x\n  c: *x", map[string]any{"a": int64(1), "b": int64(2), "c": map[string]any{"a": int64(1), "b": int64(2)}}},
		{"folded and flow", "spec: {a: [x, {b: c}], \"d\": >-\n  e\n  f\n}", nil},
		{"blocks", "spec:\n  - |2\n     a\n    b\n  - >-\n    c\n    d\n", []any{" a\nb\n", "c d"}},
		{"quoted special keys", "spec: {\"on\": 1, \"1\": 2, \"\": 3, \"<<\": 4}", map[string]any{"on": int64(1), "1": int64(2), "": int64(3), "<<": int64(4)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			obj, err := Decode([]byte(head + tt.in))
			if tt.want == nil {
				if err == nil {
					t.Fatalf("read as %v", obj.Object["spec"])
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := obj.Object["spec"]; !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %#v, want %#v", got, tt.want)
			}
		})
	}
	for _, in := range []string{
		`{"apiVersion":"x.io/v1","kind":"W","metadata":{"name":"a"}}`,
		"\ufeff---\n# comment\n" + strings.ReplaceAll(head, "\n", "\r\n"),
		head + "...\n",
	} {
		obj, err := Decode([]byte(in))
		if err != nil || obj.GetName() != "a" || obj.GetKind() != "W" {
			t.Errorf("Decode(%q) = %v, %v", in, obj, err)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	tests := []struct {
		name, in string
		line     int    // of a *SyntaxError
		msg      string // part of the message
		is       error
	}{
		{"nothing", "", 0, "empty", nil},
		{"only a comment", "# x\n", 0, "empty", nil},
		{"a list", "- a\n", 1, "no object", nil},
		{"a word", "hello", 1, "no object", nil},
		{"duplicate key", head + "spec:\n  a: 1\n  b: 2\n  a: 3\n", 8, `key "a" already set`, nil},
		{"duplicate top-level key", head + "kind: X\n", 5, `key "kind" already set`, nil},
		{"two documents", head + "---\n" + head, 5, "second document", nil},
		{"broken second document", head + "---\n\ta: [", 6, "", nil},
		{"bad indent", head + "spec:\n   a: 1\n  b: 2\n", 7, "", nil},
		{"tab", head + "spec:\n\ta: 1\n", 6, "", nil},
		{"boolean key", head + "spec:\n  a: 1\n  on: 2\n", 7, "boolean", nil},
		{"number key", head + "spec:\n- x\n- 8080: 2\n", 7, "number", nil},
		{"null key", head + "spec: {~: 1}\n", 5, "null", nil},
		{"list key", head + "spec:\n  ? [a]\n  : b\n", 0, "", nil},
		{"infinite", head + "spec:\n  a: .inf\n", 6, "infinite", nil},
		{"not a number", head + "spec:\n  - .nan\n", 6, "infinite", nil},
		{"binary", head + "spec:\n  a: !!binary gICA\n", 6, "binary", nil},
		{"unknown anchor", head + "spec: *x\n", 0, "anchor", nil},
		{"value in the message", head + "spec: !!int hunter2\n", 0, "cannot decode", nil},
		{"bad UTF-8", head + "spec: \xff\n", 5, "no UTF-8", nil},
		{"bad UTF-8 behind a replacement character", head + "spec:\n- \ufffd\n- \xff\n", 7, "no UTF-8", nil},
		{"no name", "apiVersion: v1\nkind: W\nmetadata:\n  namespace: x\n", 0, "metadata.name is missing", ErrIdentity},
		{"no metadata", "apiVersion: v1\nkind: W\n", 0, "metadata", ErrIdentity},
		{"no kind", "apiVersion: v1\nmetadata: {name: a}\n", 0, "kind is missing", ErrIdentity},
		{"number as name", "apiVersion: v1\nkind: W\nmetadata: {name: 12}\n", 0, "metadata.name is no text", ErrIdentity},
		{"LFS pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n", 0, "LFS", ErrLFSPointer},
		{"conflict markers", head + "<<<<<<< HEAD\nspec: 1\n=======\nspec: 2\n>>>>>>> x\n", 5, "a merge was committed that is not finished", nil},
		{"large", head + "spec: " + strings.Repeat("x", MaxJSON) + "\n", 0, "too large", ErrTooLarge},
		{"large by aliases", head + "a: &a " + strings.Repeat("x", 100_000) + "\nspec: [" + strings.Repeat("*a, ", 40) + "]\n", 0, "too large", ErrTooLarge},
		{"alias bomb", head + bomb(), 6, "multiply", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			obj, err := Decode([]byte(tt.in))
			if err == nil {
				t.Fatalf("read as %v", obj)
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("%v is not %v", err, tt.is)
			}
			var syntax *SyntaxError
			if tt.is == nil && !errors.As(err, &syntax) {
				t.Fatalf("%v is no *SyntaxError", err)
			}
			if tt.line > 0 && syntax.Line != tt.line {
				t.Errorf("line %d, want %d: %v", syntax.Line, tt.line, err)
			}
			if !strings.Contains(err.Error(), tt.msg) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("message %q, want %q in it", err, tt.msg)
			}
		})
	}
}

func bomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 10; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ","))
	}
	return b.String()
}

func TestEqual(t *testing.T) {
	tests := []struct {
		name, a, b string
		want       bool
	}{
		{"the same bytes", "x", "x", true},
		{"undecodable", "x", "y", false},
		{"formatting", head + "spec: {b: 1, a: [x]}\n# comment\n", head + "spec:\n  a:\n    - 'x'\n  b: 1\n", true},
		{"numbers by value", head + "spec: 1.0\n", head + "spec: 1\n", true},
		{"large numbers", head + "spec: 9007199254740993\n", head + "spec: 9007199254740992.0\n", false},
		{"text and number", head + "spec: '1'\n", head + "spec: 1\n", false},
		{"null and nothing", head + "spec: null\n", head, false},
		{"order of a list", head + "spec: [a, b]\n", head + "spec: [b, a]\n", false},
		{"longer list", head + "spec: [a]\n", head + "spec: [a, b]\n", false},
		{"other key", head + "spec: {a: 1}\n", head + "spec: {b: 1}\n", false},
		{"map and list", head + "spec: {}\n", head + "spec: []\n", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Equal([]byte(tt.a), []byte(tt.b)); got != tt.want {
				t.Errorf("Equal = %v", got)
			}
			if got := Equal([]byte(tt.b), []byte(tt.a)); got != tt.want {
				t.Errorf("Equal the other way round = %v", got)
			}
		})
	}
}

// FuzzEncode: whatever decodes encodes, and the encoding reads back as the same and encodes
// to itself.
func FuzzEncode(f *testing.F) {
	files, err := filepath.Glob("testdata/encode/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatalf("seeds: %v, %v", files, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Add([]byte(head + "spec: [on, 0755, .5, ~, &a {b: c}, *a]\n"))
	shape := &Shape{RedactKey: []byte("k"), Redact: mustPaths(f, ".spec.a", ".data.*", ".spec.list[*]"), Drop: mustPaths(f, ".spec.b", ".metadata.labels.*")}
	f.Fuzz(func(t *testing.T, content []byte) {
		obj, err := Decode(content)
		if err != nil {
			return
		}
		for _, s := range []*Shape{{Status: true}, nil, shape} {
			first, err := Encode(obj, s)
			if err != nil {
				if errors.Is(err, ErrSecret) || errors.Is(err, ErrIdentity) {
					continue
				}
				t.Fatalf("Encode: %v", err)
			}
			back, err := Decode(first)
			if err != nil {
				t.Fatalf("Decode(Encode): %v\n%s", err, first)
			}
			if s == nil && !EqualValues(expected(obj), back.Object) {
				t.Fatalf("lost or changed:\n%s", first)
			}
			second, err := Encode(back, s)
			if err != nil || string(second) != string(first) {
				t.Fatalf("second encoding: %v\n%s\nfirst:\n%s", err, second, first)
			}
			paths, err := DiffPaths(content, first, 3)
			if err != nil || len(paths) > 3 {
				t.Fatalf("DiffPaths = %q, %v", paths, err)
			}
		}
	})
}

func TestJSONSize(t *testing.T) {
	for _, spec := range []any{
		nil, true, false, int64(-12), 1.5, 1e21, 1e-7, "a\"\\\n\t\x01é\u2028\U0001F553", []any{}, []any{int64(1), "x"}, map[string]any{}, map[string]any{"a": []any{nil, map[string]any{"b": "c"}}, "d\n": false},
	} {
		obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "W", "spec": spec}}
		want, err := obj.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if got := JSONSize(obj.Object); got != len(want)-len("\n") {
			t.Errorf("JSONSize(%v) = %d, want %d", spec, got, len(want)-1)
		}
	}
}
