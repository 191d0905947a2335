package canon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	goccy "github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	yaml2 "go.yaml.in/yaml/v2"
	yaml3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// readers are YAML 1.1 and 1.2 readers that must agree about everything we write.
var readers = []struct {
	name string
	read func([]byte) (any, error)
}{
	{"yaml.v2 (1.1)", func(b []byte) (v any, err error) { err = yaml2.UnmarshalStrict(b, &v); return v, err }},
	{"yaml.v3 (1.2)", func(b []byte) (v any, err error) { err = yaml3.Unmarshal(b, &v); return v, err }},
	{"goccy (1.2)", func(b []byte) (v any, err error) { err = goccy.UnmarshalWithOptions(b, &v); return v, err }},
}

// simplify turns what readers return into what JSON decoders return.
func simplify(v any) any {
	switch t := v.(type) {
	case int:
		return int64(t)
	case uint64:
		if t <= math.MaxInt64 {
			return int64(t)
		}
	case map[any]any:
		m := map[string]any{}
		for k, v := range t {
			s, ok := k.(string)
			if !ok {
				s = fmt.Sprintf("%T key %v", k, k)
			}
			m[s] = simplify(v)
		}
		return m
	case map[string]any:
		for k, v := range t {
			t[k] = simplify(v)
		}
	case []any:
		for i, v := range t {
			t[i] = simplify(v)
		}
	}
	return v
}

func checkReaders(t *testing.T, v any) []byte {
	t.Helper()
	out, err := Append(nil, v)
	if err != nil {
		t.Fatalf("Append(%#v): %v", v, err)
	}
	if bytes.IndexByte(out, '\r') >= 0 {
		t.Errorf("raw CR in\n%q", out)
	}
	for _, r := range readers {
		got, err := r.read(out)
		if err != nil {
			t.Errorf("%s: %v\n%s\n%q", r.name, err, out, out)
			continue
		}
		if got = simplify(got); !same(got, v) {
			t.Errorf("%s reads another value (-want +got):\n%s\n%s\n%q", r.name, cmp.Diff(v, got), out, out)
		}
	}
	return out
}

// same is equality with the sign of zero.
func same(a, b any) bool {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k := range x {
			if w, ok := y[k]; !ok || !same(x[k], w) {
				return false
			}
		}
		return true
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !same(x[i], y[i]) {
				return false
			}
		}
		return true
	case float64:
		y, ok := b.(float64)
		return ok && math.Float64bits(x) == math.Float64bits(y)
	}
	return a == b
}

// places puts a string into every context a string can have.
func places(s string) any {
	return map[string]any{
		"value": s,
		"list":  []any{s, "between", []any{s, s}, map[string]any{"a": s, "z": s}},
		"map":   map[string]any{s: map[string]any{s: s}, "after": s},
		"deep":  []any{[]any{[]any{s}, s}, s},
		"last":  s,
		s:       "key",
	}
}

var strs = []string{
	"", " ", "a", "-", "--", "---", "--flag", "--flag=x", "-c", "- a", "-1", "-.inf", "...", ".5", ".inf", "~", "null", "Null", "NULL",
	"y", "n", "Y", "N", "yes", "No", "on", "OFF", "true", "False", "<<", "=", "0777", "0o17", "0b11", "0x1F", "0123", "1e3", "12345e7",
	"1_000", "12:30", "12:30:45", "2001-01-01", "2001-12-14t21:59:43.10-05:00", "2001-12-14 21:59:43.10 -5", "72225e2", "0192117", "1.2.3",
	"1.5", "1.", "+1", "+.inf", "1e400", "9223372036854775808", "10m", "500Mi", "25%", "10.0.0.0/24", "v1.2.3", "a: b", "a:", "a :b", "a #b", "a#b", "#a", "http://x/y?z=1#f",
	"!x", "&a", "*a", "|", ">", "%a", "@a", "`a`", "{a}", "[a]", "a, b", "a]", "a}", "'a'", `"a"`, `a "b" c`, `a\b`, "? a", "?", ": a", "$(X)", "${X}",
	" lead", "trail ", "tab\tin", "\ttab", "tab\t", "a\nb", "a\nb\n", "a\nb\n\n\n", "\na", "\n", "\n\n", " a\nb", "\ta\nb", "a \nb \n", "a\n  \nb", "a\n  ", "a\n  \n", "a\n\n  b\n", "a\n\tb\n",
	"a\r\nb\r\n", "a\rb", "---\na\n---\nb\n", "a\n...\nb", "a\n# no comment\n", "#!/bin/sh\necho\n", "all:\n\tgo build ./...\n", "a\n\n\n", " \n a\n", "\n \n", "  \n",
	"é", "naïve café", "日本語", "\U0001F553 clock", "a\u00a0b", "a\u200bb", "a\u2028b", "a\u0085b", "\ufeffa", "a\ufeff", "\x7f", "\u0080", "\x00", "\x1b[0m", "\ufffe", "\uffff", "\U0001ffff", "\ufffd",
	"a\u2028\nb\n", "x\u0085\ny", "\u202eabc", "emoji \U0001F468\u200d\U0001F469", "a\x1b[31m\n  b\n\tc\n\n", "\r\n  x\r\n\r\n",
	"key with spaces", "a/b.c(d)", "(name)", "=(name)", "+(x)", "^(y)", strings.Repeat("k", 253), strings.Repeat("k", 1100), strings.Repeat("k ", 3000), strings.Repeat("日本", 400),
	"undefined", "NaN", "Infinity", "t", "f", "E5", "e5", "-e5", "e", "a\nb ", "a\nb\t", "a\n b \n", "- - a", "key: |\n  x\n", "{{ .Values.x }}", "%YAML 1.2\n---\n", "a\n: b\n", "a\n- b\n", "a\n? b\n", "!!str a", "\\", "\"", "'", "''", "a''b",
}

func TestStrings(t *testing.T) {
	for _, s := range strs {
		t.Run(fmt.Sprintf("%.20q", s), func(t *testing.T) { checkReaders(t, places(s)) })
	}
}

// tokens are what readers of YAML look for; random rows of them find what no list of
// cases does.
var tokens = []string{
	"a", "b", "e", "E", "x", "o", "n", "y", "N", "on", "g", "m", "T", "Z", "inf", "nan", "null", "1", "0", "9", "7", "-", "+", ".", ":", " ", "  ",
	"\n", "\n", "\n", "\n\n", "\t", "\r", "#", "'", "\"", "\\", "/", "_", "=", "<<", "*", "&", "!", "|", ">", "%", "@", "`", "{", "}", "[", "]", ",", "?", "~",
	"$", "(", ")", "^", "é", "\u00a0", "\u2028", "\u200b", "\U0001F600", "\x00", "\u0085", "---", "...",
}

func tokenRow(r *rand.Rand) string {
	var b strings.Builder
	for range 1 + r.IntN(7) {
		b.WriteString(tokens[r.IntN(len(tokens))])
	}
	return b.String()
}

func TestTokens(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		checkReaders(t, places(tokenRow(r)))
	}
}

func TestNumbers(t *testing.T) {
	for _, v := range []any{
		int64(0), int64(-1), int64(math.MaxInt64), int64(math.MinInt64), int64(1<<53 + 1),
		0.0, math.Copysign(0, -1), 100.0, 1.14819072e+12, 1e21, 1e22, 1.5e300, 5e-324, math.MaxFloat64, 0.1, 1e-6, 1e-7, -2.5,
		1.8446744073709552e19, true, false, nil,
	} {
		checkReaders(t, map[string]any{"a": v, "b": []any{v, v}})
	}
}

func TestStyle(t *testing.T) {
	tests := []struct {
		name string
		in   any
		want string
	}{
		{"scalars", map[string]any{"b": true, "f": 100.0, "i": int64(1), "k": nil, "s": "x"}, "b: true\nf: 100.0\ni: 1\nk: null\ns: x\n"},
		{"empty", map[string]any{"l": []any{}, "m": map[string]any{}, "s": ""}, "l: []\nm: {}\ns: \"\"\n"},
		{"list at the key's indent", map[string]any{"a": []any{"x", map[string]any{"b": "c", "d": []any{"e"}}}}, "a:\n- x\n- b: c\n  d:\n  - e\n"},
		{"list in list", map[string]any{"a": []any{[]any{"x", "z"}, []any{}}}, "a:\n- - x\n  - z\n- []\n"},
		{"block", map[string]any{"a": map[string]any{"b": "x \n\n  y\n"}}, "a:\n  b: |\n    x \n\n      y\n"},
		{"block without final newline", map[string]any{"a": []any{"x\ny"}}, "a:\n- |-\n  x\n  y\n"},
		{"block with more newlines", map[string]any{"a": "x\n\n", "b": "z"}, "a: |+\n  x\n\nb: z\n"},
		{"lines with CR", map[string]any{"a": "x\r\n  y\r\n"}, "a: \"x\\r\\n\\\n  \\  y\\r\\n\"\n"},
		{"a direction override is seen", map[string]any{"a": "x\u202ey\nz"}, "a: \"x\\u202Ey\\n\\\n  z\"\n"},
		{"flags stay plain", map[string]any{"a": []any{"-c", "--v=2", "http://x:80/y#z", "25%", "10m"}}, "a:\n- -c\n- --v=2\n- http://x:80/y#z\n- 25%\n- 10m\n"},
		{"words are quoted", map[string]any{"on": "off", "1": "1.2.3"}, "\"1\": \"1.2.3\"\n\"on\": \"off\"\n"},
		{"scalar document", "x", "\"x\"\n"},
		{"list document", []any{"x", int64(1)}, "- x\n- 1\n"},
		{"empty document", map[string]any{}, "{}\n"},
		{"nil map", map[string]any{"a": map[string]any(nil), "b": []any(nil)}, "a: null\nb: null\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Append(nil, tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	deep := any("x")
	for range MaxDepth + 2 {
		deep = []any{deep}
	}
	for _, tt := range []struct {
		in   any
		want error
	}{
		{math.NaN(), ErrNumber}, {math.Inf(1), ErrNumber}, {uint8(1), ErrType}, {"\xff", ErrUTF8}, {"a\n\xff", ErrUTF8}, {"a\xc3\n", ErrUTF8},
		{map[string]any{"\xff": "x"}, ErrUTF8}, {deep, ErrTooDeep}, {json.Number("1"), ErrType},
	} {
		dst := []byte("kept")
		got, err := Append(dst, map[string]any{"a": []any{tt.in}})
		if !errors.Is(err, tt.want) {
			t.Errorf("Append(%.20v) = %v, want %v", tt.in, err, tt.want)
		}
		if string(got) != "kept" {
			t.Errorf("Append(%.20v) returns %q with an error", tt.in, got)
		}
	}
}

func TestDeepAndWide(t *testing.T) {
	for _, depth := range []int{blockDepth - 1, blockDepth, blockDepth + 1, 1000, MaxDepth - 1} {
		v := any("x: y")
		for i := range depth {
			if i%2 == 0 {
				v = map[string]any{strings.Repeat("k", 2): v}
			} else {
				v = []any{v}
			}
		}
		out, err := Append(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readers[0].read(out)
		if err != nil {
			t.Fatalf("depth %d: %v", depth, err)
		}
		if !same(simplify(got), v) {
			t.Errorf("depth %d reads another value", depth)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	obj := benchObject(b)
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		out, err := Append(buf[:0], obj)
		if err != nil {
			b.Fatal(err)
		}
		buf = out
	}
}

func BenchmarkSigsMarshal(b *testing.B) {
	obj := benchObject(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := yaml.Marshal(obj); err != nil {
			b.Fatal(err)
		}
	}
}

func benchObject(b *testing.B) map[string]any {
	b.Helper()
	var containers []any
	for i := range 8 {
		containers = append(containers, map[string]any{
			"name": fmt.Sprintf("c%d", i), "image": "registry.example.com/team/app:v1.2.3", "args": []any{"--v=2", "-c", "echo hello"},
			"env":       []any{map[string]any{"name": "A", "value": "yes"}, map[string]any{"name": "B", "value": "12"}},
			"resources": map[string]any{"limits": map[string]any{"cpu": "100m", "memory": "128Mi"}},
			"ports":     []any{map[string]any{"containerPort": int64(8080), "protocol": "TCP"}},
		})
	}
	return map[string]any{
		"apiVersion": "example.com/v1", "kind": "App",
		"metadata": map[string]any{"name": "x", "namespace": "y", "labels": map[string]any{"app.kubernetes.io/name": "x"}},
		"spec":     map[string]any{"containers": containers, "script": strings.Repeat("echo line of a script\n", 20), "replicas": int64(3)},
	}
}
