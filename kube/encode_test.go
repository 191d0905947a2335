package kube

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

var update = flag.Bool("update", false, "write the golden files")

func fromJSON(t *testing.T, in string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON([]byte(in)); err != nil {
		t.Fatal(err)
	}
	return obj
}

func mustPaths(t testing.TB, paths ...string) []FieldPath {
	t.Helper()
	var out []FieldPath
	for _, s := range paths {
		p, err := ParseFieldPath(s)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

// TestGolden encodes every testdata/encode/*.json, compares with the YAML beside it,
// and feeds that back in.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/encode/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("golden inputs: %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			in, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			obj := fromJSON(t, string(in))
			kept := obj.DeepCopy()
			got, err := Encode(obj, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(kept.Object, obj.Object) {
				t.Error("Encode modified its argument")
			}
			golden := strings.TrimSuffix(file, ".json") + ".yaml"
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			checkLossless(t, obj, want)
		})
	}
}

// checkLossless proves that an encoding holds the object but for what Encode always
// leaves out, and that it encodes to itself.
func checkLossless(t *testing.T, obj *unstructured.Unstructured, content []byte) {
	t.Helper()
	back, err := Decode(content)
	if err != nil {
		t.Fatalf("Decode: %v\n%s", err, content)
	}
	// Not cmp.Diff: on deep lists its time is exponential.
	if want := expected(obj); !reflect.DeepEqual(want, back.Object) {
		var d differ
		d.maps(want, back.Object, nil)
		t.Errorf("lost or changed: %q", d.strings())
	}
	again, err := Encode(back, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again, content) {
		t.Errorf("the second encoding differs:\n%s", cmp.Diff(string(content), string(again)))
	}
	if !Equal(content, again) {
		t.Error("Equal tells a file from itself")
	}
}

// expected says by other means than Encode's what of an object is to be stored.
func expected(obj *unstructured.Unstructured) map[string]any {
	want := obj.DeepCopy().Object
	delete(want, "status")
	meta := want["metadata"].(map[string]any)
	for k := range meta {
		switch k {
		case "name", "namespace", "labels", "annotations", "finalizers", "ownerReferences":
		default:
			delete(meta, k)
		}
	}
	const last = "kubectl.kubernetes.io/last-applied-configuration"
	if a, ok := meta["annotations"].(map[string]any); ok && a[last] != nil {
		delete(a, last)
		if len(a) == 0 {
			delete(meta, "annotations")
		}
	}
	if owners, ok := meta["ownerReferences"].([]any); ok {
		for _, o := range owners {
			delete(o.(map[string]any), "uid")
		}
	}
	return want
}

func TestShape(t *testing.T) {
	const in = `{"apiVersion":"x.io/v1","kind":"W","metadata":{"name":"a","annotations":{"x.io/seen":"1"},"labels":{"a":"b"},"finalizers":["f"]},
		"spec":{"replicas":1,"items":[{"name":"x","password":"p"},{"name":"y"},"z"],"only":{"key":1},"data":{"a":1,"b":{"c":2}}},"status":{"ok":true}}`
	tests := []struct {
		name  string
		shape Shape
		want  string
	}{
		{"status", Shape{Status: true}, "status:\n  ok: true\n"},
		{"drop everywhere", Shape{Drop: mustPaths(t, ".spec.items[*].password", ".spec.replicas", ".spec.data.*", ".spec.none.x", ".spec.only[*]", ".spec.items.*")},
			"spec:\n  data: {}\n  items:\n  - name: x\n  - name: \"y\"\n  - z\n  only:\n    key: 1\n"},
		{"drop leaves an empty parent", Shape{Drop: mustPaths(t, ".spec.only.key", ".spec.items[*]", ".spec.data", ".spec.replicas")}, "spec:\n  items: []\n  only: {}\n"},
		{"drop a top-level key", Shape{Drop: mustPaths(t, ".spec")}, ""},
		{"emptied metadata goes", Shape{Drop: mustPaths(t, `.metadata.annotations["x.io/seen"]`, ".metadata.labels.*", ".metadata.finalizers[*]", ".spec")}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			obj := fromJSON(t, in)
			kept := obj.DeepCopy()
			got, err := Encode(obj, &tt.shape)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(kept.Object, obj.Object); diff != "" {
				t.Errorf("Encode modified its argument:\n%s", diff)
			}
			if !strings.HasSuffix(string(got), tt.want) || tt.want == "" && strings.Contains(string(got), "spec") {
				t.Errorf("got\n%s\nwant at its end\n%s", got, tt.want)
			}
			if tt.name == "emptied metadata goes" && string(got) != "apiVersion: x.io/v1\nkind: W\nmetadata:\n  name: a\n" {
				t.Errorf("got\n%s", got)
			}
			back, err := Decode(got)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := Encode(back, &tt.shape); err != nil || !bytes.Equal(again, got) {
				t.Errorf("second encoding: %v\n%s", err, again)
			}
		})
	}
}

func TestRedact(t *testing.T) {
	const in = `{"apiVersion":"x.io/v1","kind":"W","metadata":{"name":"a","namespace":"n"},"spec":{"a":"secret-1","b":"secret-1","n":1,"s":"1","m":{"x":"secret-2"},"l":[{"p":"secret-1"},{"p":"secret-1"}]}}`
	shape := &Shape{RedactKey: []byte("key"), Redact: mustPaths(t, ".spec.a", ".spec.b", ".spec.n", ".spec.s", ".spec.m", ".spec.l[*].p")}
	encode := func(in string, shape *Shape) map[string]any {
		t.Helper()
		out, err := Encode(fromJSON(t, in), shape)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(out, []byte("secret-")) {
			t.Errorf("a redacted value in\n%s", out)
		}
		back, err := Decode(out)
		if err != nil {
			t.Fatal(err)
		}
		if !ContainsRedaction(back.Object) {
			t.Errorf("no marker in\n%s", out)
		}
		again, err := Encode(back, shape)
		if err != nil || !bytes.Equal(again, out) {
			t.Errorf("second encoding: %v\n%s", err, cmp.Diff(string(out), string(again)))
		}
		return back.Object["spec"].(map[string]any)
	}
	base := encode(in, shape)
	seen := map[any]string{}
	digests := map[string]any{"a": base["a"], "b": base["b"], "n": base["n"], "s": base["s"], "m": base["m"],
		"l0": base["l"].([]any)[0].(map[string]any)["p"], "l1": base["l"].([]any)[1].(map[string]any)["p"]}
	for place, d := range digests {
		if s, _ := d.(string); !strings.HasPrefix(s, "crmirror-redacted:v1:") || len(s) != len("crmirror-redacted:v1:")+64 {
			t.Errorf("%s = %v", place, d)
		}
		if other, ok := seen[d]; ok {
			t.Errorf("%s and %s have the same digest", place, other)
		}
		seen[d] = place
	}
	for name, changed := range map[string]map[string]any{
		"another value":     encode(strings.Replace(in, `"a":"secret-1"`, `"a":"secret-3"`, 1), shape),
		"another name":      encode(strings.Replace(in, `"name":"a"`, `"name":"b"`, 1), shape),
		"another namespace": encode(strings.Replace(in, `"namespace":"n"`, `"namespace":"m"`, 1), shape),
		"another key":       encode(in, &Shape{RedactKey: []byte("other"), Redact: shape.Redact}),
	} {
		if changed["a"] == base["a"] {
			t.Errorf("%s has the same digest", name)
		}
	}
	if v2 := encode(strings.Replace(in, "x.io/v1", "x.io/v2", 1), shape); v2["a"] != base["a"] {
		t.Error("another version has another digest")
	}
	if _, err := Encode(fromJSON(t, in), &Shape{Redact: shape.Redact}); err == nil {
		t.Error("redacted without a key")
	}
}

func TestContainsRedaction(t *testing.T) {
	tests := []struct {
		in   any
		want bool
	}{
		{nil, false}, {int64(1), false}, {"crmirror", false}, {"x crmirror-redacted:v9:", true},
		{map[string]any{"a": []any{map[string]any{"b": "crmirror-redacted:v1:00"}}}, true},
		{map[string]any{"crmirror-redacted:v1:00": nil}, true},
	}
	for _, tt := range tests {
		if got := ContainsRedaction(tt.in); got != tt.want {
			t.Errorf("ContainsRedaction(%v) = %v", tt.in, got)
		}
	}
}

func TestSecret(t *testing.T) {
	const secret = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","namespace":"n","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"aHVudGVyMg=="}},`
	key := []byte("k")
	tests := []struct {
		name, rest string
		shape      *Shape
		refused    bool
	}{
		{"in the clear", `"data":{"p":"aHVudGVyMg=="}}`, nil, true},
		{"one key redacted", `"data":{"p":"aHVudGVyMg==","q":"aHVudGVyMg=="}}`, &Shape{RedactKey: key, Redact: mustPaths(t, ".data.p")}, true},
		{"every key redacted", `"data":{"p":"aHVudGVyMg=="}}`, &Shape{RedactKey: key, Redact: mustPaths(t, ".data.*")}, false},
		{"data redacted", `"data":{"p":"aHVudGVyMg=="}}`, &Shape{RedactKey: key, Redact: mustPaths(t, ".data")}, false},
		{"data dropped", `"data":{"p":"aHVudGVyMg=="}}`, &Shape{Drop: mustPaths(t, ".data")}, false},
		{"every key named", `"data":{"p":"aHVudGVyMg=="}}`, &Shape{RedactKey: key, Redact: mustPaths(t, ".data.p")}, true},
		{"no map", `"data":"aHVudGVyMg=="}`, &Shape{RedactKey: key, Redact: mustPaths(t, ".data.*")}, true},
		{"stringData in the clear", `"stringData":{"p":"aHVudGVyMg=="}}`, &Shape{Drop: mustPaths(t, ".data")}, true},
		{"nothing in it", `"type":"Opaque"}`, nil, false},
		{"nulls", `"data":null}`, nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, err := Encode(fromJSON(t, secret+tt.rest), tt.shape)
			if got := errors.Is(err, ErrSecret); got != tt.refused {
				t.Fatalf("err = %v, want refused = %v", err, tt.refused)
			}
			if strings.Contains(string(out), "aHVudGVyMg") || err != nil && strings.Contains(err.Error(), "aHVudGVyMg") {
				t.Errorf("a secret in %s, %v", out, err)
			}
		})
	}
	other := fromJSON(t, `{"apiVersion":"x.io/v1","kind":"Secret","metadata":{"name":"a"},"data":{"p":"x"}}`)
	if _, err := Encode(other, nil); err != nil {
		t.Errorf("a custom resource called Secret: %v", err)
	}
}

// TestStoredSecret: what was shaped before is written again, and a value in the clear is not.
func TestStoredSecret(t *testing.T) {
	const redacted = `"crmirror-redacted:v1:0000000000000000000000000000000000000000000000000000000000000000"`
	const secret = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","namespace":"n"},`
	for rest, refused := range map[string]bool{
		`"data":` + redacted + `}`:                          false,
		`"data":{"p":` + redacted + `}}`:                    false,
		`"type":"Opaque"}`:                                  false,
		`"data":{"p":"aHVudGVyMg=="}}`:                      true,
		`"data":{"p":"aHVudGVyMg==","q":` + redacted + `}}`: true,
		`"stringData":{"p":"aHVudGVyMg=="}}`:                true,
	} {
		out, err := EncodeStored(fromJSON(t, secret+rest).Object)
		if got := errors.Is(err, ErrSecret); got != refused || !refused && err != nil {
			t.Errorf("%s: err = %v, want refused = %v", rest, err, refused)
		}
		if strings.Contains(string(out), "aHVudGVyMg") || err != nil && strings.Contains(err.Error(), "aHVudGVyMg") {
			t.Errorf("a secret in %s, %v", out, err)
		}
	}
	out, err := EncodeStored(fromJSON(t, `{"apiVersion":"x.io/v1","kind":"W","metadata":{"name":"a"},"status":{"ready":true}}`).Object)
	if err != nil || !strings.Contains(string(out), "ready: true") {
		t.Errorf("a stored status is not written: %s, %v", out, err)
	}
}

func TestEncodeRefuses(t *testing.T) {
	for in, want := range map[string]error{
		`{"apiVersion":"v1","kind":"List","metadata":{"name":"x"},"items":[]}`:      ErrIdentity,
		`{"apiVersion":"x.io/v1","kind":"W","metadata":{"generateName":"x"}}`:       ErrIdentity,
		`{"kind":"W","metadata":{"name":"x"}}`:                                      ErrIdentity,
		`{"apiVersion":"x.io/v1","kind":"W"}`:                                       ErrIdentity,
		`{"apiVersion":"x.io/v1","kind":"W","metadata":{"name":"x","namespace":1}}`: ErrIdentity,
	} {
		if _, err := Encode(fromJSON(t, in), nil); !errors.Is(err, want) {
			t.Errorf("Encode(%s) = %v, want %v", in, err, want)
		}
	}
	big := fromJSON(t, `{"apiVersion":"x.io/v1","kind":"W","metadata":{"name":"x"}}`)
	big.Object["spec"] = strings.Repeat("x", MaxJSON)
	if _, err := Encode(big, nil); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
}

// TestWide encodes what indentation would blow up: it is written in flow style and read back.
func TestWide(t *testing.T) {
	v := any(strings.Repeat("x\n", 300_000))
	for range 60 {
		v = map[string]any{"k": v}
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "x.io/v1", "kind": "W", "metadata": map[string]any{"name": "x"}, "spec": v}}
	out, err := Encode(obj, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(out) > 2<<20 {
		t.Errorf("%d bytes: not in flow style", len(out))
	}
	back, err := Decode(out)
	if err != nil {
		t.Fatalf("Decode of %d bytes: %v", len(out), err)
	}
	if !EqualValues(obj.Object, back.Object) {
		t.Error("reads another value")
	}
}
