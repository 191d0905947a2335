package threeway

import (
	"fmt"
	"slices"
	"testing"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// The model of the two-way protocol decides about one object with two scalar fields by a
// function of its own. Here it is in Go, as an oracle: 0 is an absent field, nil no object.

const noValue = -1 // a field of the model's base without a value

type modelObject []int

type modelDecision struct {
	w, f, b   modelObject
	unknown   bool // base has no value for the object
	conflicts []int
	changed   []int // fields written to the cluster
}

// modelJudge is the model's judge, unknown its "?". One thing is finer here: where both sides
// have the object and base does not, or has no value for it, it is so for each field; the model, changed
// like this, finds the same histories safe.
func modelJudge(o, g, c modelObject, unknown bool) modelDecision {
	every := []int{0, 1}
	if g != nil && c != nil && (unknown || o == nil) {
		o, unknown = modelObject{noValue, noValue}, false
	}
	switch {
	case slices.Equal(g, c) && (g == nil) == (c == nil):
		return modelDecision{w: c, f: g, b: g}
	case unknown:
		return modelDecision{w: c, f: g, unknown: true, conflicts: every}
	case c == nil || g == nil || o == nil:
		if slices.Equal(c, o) && (c == nil) == (o == nil) {
			return modelDecision{w: g, f: g, b: g, changed: every}
		}
		if slices.Equal(g, o) && (g == nil) == (o == nil) {
			return modelDecision{w: c, f: c, b: c}
		}
		return modelDecision{w: c, f: g, b: o, conflicts: every}
	}
	d := modelDecision{w: slices.Clone(c), f: slices.Clone(g), b: slices.Clone(o)}
	for f := range every {
		switch {
		case c[f] == g[f]:
			d.b[f] = c[f]
		case c[f] == o[f]:
			d.w[f], d.b[f] = g[f], g[f]
			d.changed = append(d.changed, f)
		case g[f] == o[f]:
			d.f[f], d.b[f] = c[f], c[f]
		default:
			d.conflicts = append(d.conflicts, f)
		}
	}
	return d
}

// TestModel compares Decide with the model's judge on all objects of two fields with three values,
// absent among them, and on no object, on each side; with each field's base known or not.
func TestModel(t *testing.T) {
	values := []modelObject{nil}
	bases := []modelObject{nil}
	for a := noValue; a < 3; a++ {
		for b := noValue; b < 3; b++ {
			bases = append(bases, modelObject{a, b})
			if a != noValue && b != noValue {
				values = append(values, modelObject{a, b})
			}
		}
	}
	typ := handmadeType(t)
	cells := 0
	for _, unknown := range []bool{false, true} {
		for _, o := range bases {
			for _, g := range values {
				for _, c := range values {
					in := Input{Base: fromModel(o), Git: fromModel(g), Cluster: fromModel(c), Type: typ}
					in.Unknown = Unknown{Object: unknown, Fields: fieldpath.NewSet()}
					for f, v := range o {
						if v == noValue {
							in.Unknown.Fields.Insert(modelPath(f))
						}
					}
					compareWithModel(t, in, modelJudge(o, g, c, unknown), fmt.Sprintf("base %v (unknown %v), git %v, cluster %v", o, unknown, g, c))
					cells++
				}
			}
		}
	}
	t.Logf("%d cells", cells)
}

func compareWithModel(t *testing.T, in Input, want modelDecision, name string) {
	t.Helper()
	d, err := Decide(in)
	if err != nil {
		t.Fatal(err)
	}
	var conflicts []int
	for _, c := range d.Conflicts {
		switch {
		case len(c.Path) == 0:
			conflicts = append(conflicts, 0, 1)
		case c.Path.Equals(modelPath(0)):
			conflicts = append(conflicts, 0)
		default:
			conflicts = append(conflicts, 1)
		}
	}
	var changed []int
	for f := range 2 {
		if d.Object == CreateObject || d.Object == DeleteObject || d.Set.Has(modelPath(f)) || d.Remove.Has(modelPath(f)) {
			changed = append(changed, f)
		}
	}
	slices.Sort(conflicts)
	b := toModel(d.Base, d.Unknown.Fields)
	for _, r := range []struct {
		name      string
		got, want any
	}{
		{"cluster", toModel(d.Cluster, nil), want.w}, {"file", toModel(d.File, nil), want.f}, {"base", b, want.b},
		{"unknown", d.Unknown.Object, want.unknown}, {"conflicts", conflicts, want.conflicts}, {"changed", changed, want.changed},
	} {
		if got, want := fmt.Sprint(r.got), fmt.Sprint(r.want); got != want {
			t.Errorf("%s: %s is %s, want %s", name, r.name, got, want)
		}
	}
}

func modelPath(f int) fieldpath.Path {
	return fieldpath.MakePathOrDie("spec", []string{"legacy", "size"}[f])
}

func fromModel(m modelObject) map[string]any {
	if m == nil {
		return nil
	}
	spec := map[string]any{}
	for f, v := range m {
		if v > 0 {
			spec[*modelPath(f)[1].FieldName] = int64(v)
		}
	}
	if v, ok := spec["legacy"]; ok {
		spec["legacy"] = fmt.Sprint(v)
	}
	return map[string]any{"apiVersion": "example.dev/v1", "kind": "Thing", "metadata": map[string]any{"name": "x"}, "spec": spec}
}

func toModel(obj map[string]any, unknown *fieldpath.Set) modelObject {
	if obj == nil {
		return nil
	}
	out := modelObject{0, 0}
	for f := range out {
		v := at(obj, modelPath(f))
		switch {
		case unknown != nil && unknown.Has(modelPath(f)):
			out[f] = noValue
		case v.ok:
			_, _ = fmt.Sscan(fmt.Sprint(v.v), &out[f])
		}
	}
	return out
}
