package threeway

import "testing"

// TestKeepFinalizers: git's removal of a finalizer is a finding, in whatever form; adding one is a
// change like any, and so is what the cluster does.
func TestKeepFinalizers(t *testing.T) {
	const at = ".metadata.finalizers"
	keep := func(_ *testing.T, in *Input) { in.KeepFinalizers = true }
	runCells(t, handmadeType(t), []cell{
		{name: "one of two", in: keep, o: "meta: {finalizers: [a, b]}", g: "meta: {finalizers: [b]}", c: "meta: {finalizers: [a, b]}",
			b: "meta: {finalizers: [a, b]}", findings: []string{at + `[="a"]: ` + string(DropsFinalizer)}},
		{name: "the last, with the list", in: keep, o: "meta: {finalizers: [a]}", g: "spec: {size: 1}", c: "meta: {finalizers: [a]}, spec: {size: 1}",
			b: "meta: {finalizers: [a]}, spec: {size: 1}", findings: []string{at + `[="a"]: ` + string(DropsFinalizer)}},
		{name: "null in their place", in: keep, o: "meta: {finalizers: [a]}", g: "meta: {finalizers: null}", c: "meta: {finalizers: [a]}",
			b: "meta: {finalizers: [a]}", findings: []string{at + ": " + string(DropsFinalizer)}},
		{name: "another one in its place", in: keep, o: "meta: {finalizers: [a]}", g: "meta: {finalizers: [b]}", c: "meta: {finalizers: [a]}",
			w: "meta: {finalizers: [b, a]}", b: "meta: {finalizers: [b, a]}", k: "meta: {finalizers: [a]}",
			set: []string{at + `[="b"]`}, findings: []string{at + `[="a"]: ` + string(DropsFinalizer)}},
		{name: "removed in the cluster", in: keep, o: "meta: {finalizers: [a]}", g: "meta: {finalizers: [a]}", c: "spec: {size: 1}", f: "spec: {size: 1}"},
		{name: "allowed", o: "meta: {finalizers: [a]}", g: "spec: {size: 1}", c: "meta: {finalizers: [a]}, spec: {size: 1}",
			w: "spec: {size: 1}", k: "meta: {finalizers: [a]}, spec: {size: 1}", remove: []string{at + `[="a"]`}},
	})
}
