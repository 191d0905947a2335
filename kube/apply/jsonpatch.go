package apply

import (
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/crmirror/crmirror/kube/internal/wire"
)

// difference returns the operations that make b of a. A list that differs is replaced as
// one: who owns what of it, the server finds by comparing the objects, not by the patch.
func difference(a, b map[string]any) []wire.Operation {
	return appendDifference(nil, "", a, b)
}

func appendDifference(ops []wire.Operation, at string, a, b map[string]any) []wire.Operation {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		path := at + "/" + pointer.Replace(key)
		x, inA := a[key]
		y, inB := b[key]
		from, fromMap := x.(map[string]any)
		to, toMap := y.(map[string]any)
		switch {
		case !inB:
			ops = append(ops, wire.Operation{Op: "remove", Path: path})
		case !inA:
			ops = append(ops, wire.Operation{Op: "add", Path: path, Value: y})
		case fromMap && toMap:
			ops = appendDifference(ops, path, from, to)
		case !same(x, y):
			ops = append(ops, wire.Operation{Op: "replace", Path: path, Value: y})
		}
	}
	return ops
}

// pointer escapes a key for a JSON pointer.
var pointer = strings.NewReplacer("~", "~0", "/", "~1")

// same compares values, numbers by value, lists by order.
func same(a, b any) bool {
	return value.Equals(value.NewValueInterface(a), value.NewValueInterface(b))
}
