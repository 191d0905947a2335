package kube

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseFieldPath(t *testing.T) {
	tests := []struct {
		in   string
		want []step
		out  string // String, when it differs
	}{
		{".spec.replicas", []step{{key: "spec"}, {key: "replicas"}}, ""},
		{"spec.replicas", []step{{key: "spec"}, {key: "replicas"}}, ".spec.replicas"},
		{`.metadata.annotations["x.io/seen"]`, []step{{key: "metadata"}, {key: "annotations"}, {key: "x.io/seen"}}, ""},
		{".spec.items[*].password", []step{{key: "spec"}, {key: "items"}, {anyItem: true}, {key: "password"}}, ""},
		{".data.*", []step{{key: "data"}, {anyKey: true}}, ""},
		{".spec.*.x[*][*]", []step{{key: "spec"}, {anyKey: true}, {key: "x"}, {anyItem: true}, {anyItem: true}}, ""},
		{`["spec"]["a\"b\\c"]`, []step{{key: "spec"}, {key: `a"b\c`}}, `.spec["a\"b\\c"]`},
		{`.spec["a\nb"]`, []step{{key: "spec"}, {key: "a\nb"}}, ""},
		{`.spec["*"]`, []step{{key: "spec"}, {key: "*"}}, ""},
		{`.spec[""]`, []step{{key: "spec"}, {key: ""}}, ""},
		{".spec.$ref", []step{{key: "spec"}, {key: "$ref"}}, ""},
		{".metadata.labels.name", []step{{key: "metadata"}, {key: "labels"}, {key: "name"}}, ""},
	}
	for _, tt := range tests {
		got, err := ParseFieldPath(tt.in)
		if err != nil {
			t.Errorf("%s: %v", tt.in, err)
			continue
		}
		if diff := cmp.Diff(tt.want, got.steps, cmp.AllowUnexported(step{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.in, diff)
		}
		want := tt.out
		if want == "" {
			want = tt.in
		}
		if got.String() != want {
			t.Errorf("%s: String = %s, want %s", tt.in, got, want)
		}
	}
}

func TestParseFieldPathRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"":                          "is empty",
		".":                         "character 2: want a key",
		".spec.":                    "character 7: want a key",
		".spec..x":                  "character 7: want a key",
		".spec x":                   `character 6: want "." or "["`,
		".spec.items[0]":            `character 12: want [*] or ["key"]`,
		".spec.items[":              "character 12",
		`.spec["a`:                  "want a key in double quotes",
		`.spec["a"x`:                `want "]"`,
		`.spec["a\q"]`:              "want a key in double quotes",
		`.spec["a\`:                 "character 6: want a key in double quotes",
		".spec*":                    "character 6",
		"[*].x":                     "an object is no list",
		".*":                        "could not be told",
		".kind":                     "could not be told",
		".metadata":                 "could not be told",
		".metadata.name":            "could not be told",
		".metadata.*":               "could not be told",
		".*.namespace":              "could not be told",
		`["metadata"]["namespace"]`: "could not be told",
	} {
		if _, err := ParseFieldPath(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseFieldPath(%q) = %v, want %q in it", in, err, want)
		}
	}
}

// FuzzFieldPath: what parses is written so that it parses to the same path.
func FuzzFieldPath(f *testing.F) {
	for _, s := range []string{".a.b", `a["x"][*].*`, `["\\\""]`, ".spec[\"\xff\"]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParseFieldPath(s)
		if err != nil {
			return
		}
		again, err := ParseFieldPath(p.String())
		if err != nil || !cmp.Equal(p.steps, again.steps, cmp.AllowUnexported(step{})) {
			t.Fatalf("%q is written %q: %v", s, p, err)
		}
	})
}
