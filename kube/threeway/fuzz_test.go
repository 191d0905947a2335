package threeway

import (
	"encoding/json"
	"testing"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// FuzzDecide gives any three contents to Decide: whatever they hold, it does not panic, and the results
// settle.
func FuzzDecide(f *testing.F) {
	f.Add(`{"size":1}`, `{"size":2,"users":[{"name":"a"}]}`, `{"size":1,"users":[{"name":"a","keys":["x"]}]}`, byte(0))
	f.Add(`{"users":[{"name":"a"},{"name":"a"}]}`, `{"users":[null]}`, `{"users":{"name":[]}}`, byte(1))
	f.Add(`{"ports":[{"port":1}]}`, `{"ports":[{"port":1.0,"protocol":"TCP"}]}`, `{"ports":[{"protocol":{}}]}`, byte(2))
	f.Add(`{"zones":["a",1]}`, `{"zones":[[],{}]}`, `{"zones":[true,null]}`, byte(4))
	f.Add(`{"values":{"a":[1]}}`, `{"values":[{"a":1}]}`, `null`, byte(8))
	f.Add(`[{"apiVersion":"v1","kind":"P","name":"p"}]`, `[{"apiVersion":{},"kind":1,"name":[]}]`, `[{"apiVersion":"v2"}]`, byte(16))
	typ := handmadeType(f)
	f.Fuzz(func(t *testing.T, base, git, cluster string, how byte) {
		in := Input{
			Base: fuzzObject(base, how), Git: fuzzObject(git, how), Cluster: fuzzObject(cluster, how),
			Unknown: Unknown{Object: how&1 != 0, Fields: &fieldpath.Set{}}, Type: typ,
		}
		if how&2 != 0 {
			in.Type = typed.ParseableType{}
		}
		if how&4 != 0 {
			in.Shaped = fieldpath.NewSet(fieldpath.MakePathOrDie("spec", "users", fieldpath.KeyByFields("name", "a"), "role"), fieldpath.MakePathOrDie("spec", "args", 0))
			in.Unknown.Fields.Insert(fieldpath.MakePathOrDie("spec", "tls", "host"))
		}
		d, err := Decide(in)
		if err != nil {
			t.Fatal(err)
		}
		in.Base, in.Git, in.Cluster, in.Unknown = d.Base, d.File, d.Cluster, d.Unknown
		again, err := Decide(in)
		if err != nil {
			t.Fatal(err)
		}
		if !again.Set.Empty() || !again.Remove.Empty() || again.Object != None || len(again.Conflicts) != len(d.Conflicts) {
			t.Errorf("does not settle: set %v, remove %v, %s; conflicts %v, then %v", again.Set, again.Remove, again.Object, d.Conflicts, again.Conflicts)
		}
	})
}

// fuzzObject makes an object with fuzzed spec, status, labels and owners.
func fuzzObject(content string, how byte) map[string]any {
	var v any
	if err := json.Unmarshal([]byte(content), &v); err != nil || v == nil {
		return nil
	}
	meta := map[string]any{"name": "x"}
	obj := map[string]any{"apiVersion": "example.dev/v1", "kind": "Thing", "metadata": meta, "spec": v}
	if how&8 != 0 {
		obj["status"] = v
		meta["labels"], meta["uid"] = v, v
	}
	if how&16 != 0 {
		meta["ownerReferences"], meta["finalizers"] = v, v
	}
	return obj
}
