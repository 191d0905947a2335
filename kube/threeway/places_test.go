package threeway

import (
	"slices"
	"testing"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/crmirror/crmirror/kube"
)

func TestPlaces(t *testing.T) {
	obj := object(t, `meta: {ownerReferences: [{apiVersion: v1, kind: Pod, name: p}]},
		spec: {users: [{name: a}, {name: b, password: s}], zones: [z], args: [p, q], ports: [{port: 1}, {port: 1}], values: {a: [{b: 1}]}}`)
	places := [][]any{
		{"metadata", "ownerReferences", 0, "controller"}, {"spec", "users", 1, "password"}, {"spec", "zones", 0}, {"spec", "args", 1},
		{"spec", "ports", 1, "timeout"}, {"spec", "values", "a", 0, "b"}, {"spec", "users", 7, "password"}, {"spec", "none", "there"}, {},
	}
	for name, c := range map[string]struct {
		typ  typed.ParseableType
		want []string
	}{
		"typed": {handmadeType(t), []string{
			`.metadata.ownerReferences[apiVersion="v1",kind="Pod",name="p"].controller`, `.spec.args[1]`, `.spec.none.there`,
			`.spec.ports[1].timeout`, `.spec.users[name="b"].password`, `.spec.values.a[0].b`, `.spec.zones[="z"]`,
		}},
		"deduced": {typed.ParseableType{}, []string{
			`.metadata.ownerReferences[apiVersion="v1",kind="Pod",name="p"].controller`, `.spec.args[1]`, `.spec.none.there`,
			`.spec.ports[1].timeout`, `.spec.users[1].password`, `.spec.values.a[0].b`, `.spec.zones[0]`,
		}},
	} {
		got := pathsOf(Places(c.typ, obj, places))
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// TestPlacesOfRules goes from a rule to a decision: beside a redacted field, edits are applied.
func TestPlacesOfRules(t *testing.T) {
	path, err := kube.ParseFieldPath(".spec.users[*].password")
	if err != nil {
		t.Fatal(err)
	}
	shape := kube.Shape{Redact: []kube.FieldPath{path}}
	base := object(t, "spec: {users: [{name: a, role: p, password: d1}, {name: b, role: p}]}")
	in := Input{
		Base: base, Cluster: base, Type: handmadeType(t),
		Git: object(t, "spec: {users: [{name: b, role: q, password: s3cret}, {name: a, role: q, password: d1}]}"),
	}
	in.Shaped = &fieldpath.Set{}
	for _, content := range []map[string]any{in.Base, in.Git} {
		in.Shaped = in.Shaped.Union(Places(in.Type, content, shape.Places(content)))
	}
	d, err := Decide(in)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`.spec.users[name="a"].name`, `.spec.users[name="a"].role`, `.spec.users[name="b"].name`, `.spec.users[name="b"].role`,
	}
	if got := pathsOf(d.Set); !slices.Equal(got, want) || len(d.Conflicts) > 0 {
		t.Errorf("set %q, conflicts %v", got, d.Conflicts)
	}
	if len(d.Findings) != 1 || d.Findings[0].Path.String() != `.spec.users[name="b"].password` {
		t.Errorf("findings %v", d.Findings)
	}
}
