package apply

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestOverlay(t *testing.T) {
	item := func(n float64, rest ...any) fieldpath.Path {
		return fieldpath.MakePathOrDie(append([]any{"l", fieldpath.KeyByFields("k", n)}, rest...)...)
	}
	in := func(v string) fieldpath.Path { return fieldpath.MakePathOrDie("s", value.NewValueInterface(v)) }
	top := func(steps ...any) fieldpath.Path { return fieldpath.MakePathOrDie(steps...) }
	for _, test := range []struct {
		name, live, want string
		set, remove      []fieldpath.Path
		result           string
	}{
		{"items go where they are wanted", `{"l":[{"k":1},{"k":2}]}`, `{"l":[{"k":5},{"k":1},{"k":4},{"k":3},{"k":2},{"k":6}]}`,
			[]fieldpath.Path{item(3), item(4), item(5), item(6)}, nil, `{"l":[{"k":5},{"k":1},{"k":4},{"k":3},{"k":2},{"k":6}]}`},
		{"a set into nothing", `{}`, `{"s":["c","b","a"]}`, []fieldpath.Path{in("a"), in("b"), in("c")}, nil, `{"s":["c","b","a"]}`},
		{"a new item by its leaves", `{}`, `{"l":[{"k":1,"x":2,"y":3}]}`, []fieldpath.Path{item(1, "x")}, nil, `{"l":[{"k":1,"x":2}]}`},
		{"a key that is defaulted", `{"l":[{"k":1,"p":"TCP","x":1}]}`, `{"l":[{"k":1,"x":2}]}`,
			[]fieldpath.Path{fieldpath.MakePathOrDie("l", fieldpath.KeyByFields("k", 1.0, "p", "TCP"), "x")}, nil, `{"l":[{"k":1,"p":"TCP","x":2}]}`},
		{"a scalar that becomes a map", `{"a":1}`, `{"a":{"b":1,"c":1}}`, []fieldpath.Path{top("a", "b")}, nil, `{"a":{"b":1}}`},
		{"an empty map over a full one", `{"a":{"b":1}}`, `{"a":{}}`, []fieldpath.Path{top("a")}, nil, `{"a":{}}`},
		{"an empty list over a full one", `{"a":["b"]}`, `{"a":[]}`, []fieldpath.Path{top("a")}, nil, `{"a":[]}`},
		{"null over a full map", `{"a":{"b":1}}`, `{"a":null}`, []fieldpath.Path{top("a")}, nil, `{"a":null}`},
		{"removals go first", `{"a":{"b":1}}`, `{"a":{"c":1}}`, []fieldpath.Path{top("a", "c")}, []fieldpath.Path{top("a", "b")}, `{"a":{"c":1}}`},
		{"a map goes with its last key", `{"a":{"b":1}}`, `{}`, nil, []fieldpath.Path{top("a"), top("a", "b")}, `{}`},
		{"a map goes whole", `{"a":{"b":1,"c":2}}`, `{}`, nil, []fieldpath.Path{top("a")}, `{}`},
		{"a map stays with what is not removed", `{"a":{"b":1,"c":2}}`, `{}`, nil, []fieldpath.Path{top("a"), top("a", "b")}, `{"a":{"c":2}}`},
		{"a map stays empty if wanted", `{"a":{"b":1}}`, `{"a":{}}`, nil, []fieldpath.Path{top("a"), top("a", "b")}, `{"a":{}}`},
		{"an item goes whole", `{"l":[{"k":1,"x":2},{"k":2}]}`, `{}`, nil, []fieldpath.Path{item(1), item(1, "k")}, `{"l":[{"k":2}]}`},
		{"what is not there", `{"l":[]}`, `{}`, nil, []fieldpath.Path{item(1), in("a"), top("x", "y")}, `{"l":[]}`},
	} {
		live, want := parse(t, test.live), parse(t, test.want)
		before := runtime.DeepCopyJSON(live)
		left := without(live, want, fieldpath.NewSet(test.remove...))
		got, err := overlay(left, want, fieldpath.NewSet(test.set...), nil)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if diff := cmp.Diff(any(parse(t, test.result)), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
		if diff := cmp.Diff(before, live); diff != "" {
			t.Errorf("%s modifies its input:\n%s", test.name, diff)
		}
	}
}

func TestDifference(t *testing.T) {
	a := parse(t, `{"a":1,"b":{"c/d~e":1,"f":[1,2],"g":null},"h":1,"same":[{"x":1}]}`)
	b := parse(t, `{"a":2,"b":{"c/d~e":2,"f":[2,1],"g":null,"n":null},"same":[{"x":1}]}`)
	content, err := json.Marshal(difference(a, b))
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"op":"replace","path":"/a","value":2},{"op":"replace","path":"/b/c~1d~0e","value":2},` +
		`{"op":"replace","path":"/b/f","value":[2,1]},{"op":"add","path":"/b/n","value":null},{"op":"remove","path":"/h"}]`
	if string(content) != want {
		t.Errorf("got %s", content)
	}
}
