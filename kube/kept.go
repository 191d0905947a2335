package kube

import (
	"maps"
	"slices"
	"strings"
)

// Kept says what becomes of a field in git.
type Kept string

// What becomes of fields.
const (
	KeptStored    Kept = "stored"     // as it is, but for what is named below it
	KeptRedacted  Kept = "redacted"   // a digest takes its place
	KeptDropped   Kept = "dropped"    // a rule leaves it out
	KeptNoStatus  Kept = "status"     // left out, for the rule does not keep status
	KeptServerSet Kept = "server-set" // metadata that the server sets, and sets anew after a restore
	KeptRepeated  Kept = "repeated"   // kubectl's last-applied-configuration, which repeats the object, secrets included
	KeptOwnerUID  Kept = "owner-uid"  // the uid of owners, which means nothing in another cluster
)

// FieldFate is a field of an object and what becomes of it in git. It holds no value.
type FieldFate struct {
	Field string // ".spec.items[0].password"
	Kept  Kept
	Rule  int // position in Shape.Drop or Shape.Redact, from 0; -1 for what no rule says
}

// Fates tells what becomes of an object's fields under the shape, in the order of their names: its
// top-level fields and those of its metadata, and below them each that is not stored as it is.
//
// It tells what Encode does (TestFatesAreWhatEncodeDoes).
func (s *Shape) Fates(obj map[string]any) []FieldFate {
	var fates []FieldFate
	whole := map[string]bool{} // fields that are gone with all that is below
	add := func(field string, kept Kept, rule int) {
		if kept != KeptStored && kept != KeptRedacted {
			whole[field] = true
		}
		fates = append(fates, FieldFate{field, kept, rule})
	}
	for i, path := range s.Drop {
		for _, field := range path.fieldsIn(obj) {
			add(field, KeptDropped, i)
		}
	}
	for i, path := range s.Redact {
		for _, field := range path.fieldsIn(obj) {
			add(field, KeptRedacted, i)
		}
	}
	for key := range obj {
		switch field := textOfKey(key); {
		case key == "metadata":
		case key == "status" && !s.Status:
			add(field, KeptNoStatus, -1)
		default:
			add(field, KeptStored, -1)
		}
	}
	meta, _ := obj["metadata"].(map[string]any)
	for key := range meta {
		if slices.Contains(keptMetadata[:], key) {
			add(".metadata"+textOfKey(key), KeptStored, -1)
		} else {
			add(".metadata"+textOfKey(key), KeptServerSet, -1)
		}
	}
	for _, path := range []struct {
		steps []step
		kept  Kept
	}{
		{[]step{{key: "metadata"}, {key: "annotations"}, {key: lastApplied}}, KeptRepeated},
		{[]step{{key: "metadata"}, {key: "ownerReferences"}, {anyItem: true}, {key: "uid"}}, KeptOwnerUID},
	} {
		for _, field := range (FieldPath{path.steps}).fieldsIn(obj) {
			add(field, path.kept, -1)
		}
	}
	return settleFates(fates, whole)
}

// settleFates keeps of several fates of one field the one that Encode comes to, and none below a
// field that is gone.
func settleFates(fates []FieldFate, whole map[string]bool) []FieldFate {
	byField := map[string]FieldFate{}
	for _, f := range fates {
		was, twice := byField[f.Field]
		if !twice || rankOfFate(f.Kept) < rankOfFate(was.Kept) {
			byField[f.Field] = f
		}
	}
	maps.DeleteFunc(byField, func(field string, _ FieldFate) bool {
		for gone := range whole {
			below, isBelow := strings.CutPrefix(field, gone)
			if isBelow && below != "" && (below[0] == '.' || below[0] == '[') {
				return true
			}
		}
		return false
	})
	return slices.SortedFunc(maps.Values(byField), func(a, b FieldFate) int { return strings.Compare(a.Field, b.Field) })
}

// rankOfFate orders what Encode does: what is gone before a rule looks, then drop, then redact.
func rankOfFate(k Kept) int {
	switch k {
	case KeptNoStatus, KeptServerSet, KeptRepeated, KeptOwnerUID:
		return 0
	case KeptDropped:
		return 1
	case KeptRedacted:
		return 2
	}
	return 3
}

// fieldsIn returns the fields of an object that the path names, each written out.
func (p FieldPath) fieldsIn(obj map[string]any) []string {
	var fields []string
	p.edit(obj, func(place []string, value any) (any, bool) {
		var b strings.Builder
		for _, step := range place {
			if key, isKey := strings.CutPrefix(step, "."); isKey {
				writeKey(&b, key)
			} else {
				b.WriteString(step)
			}
		}
		fields = append(fields, b.String())
		return value, true
	})
	return fields
}

func textOfKey(key string) string {
	var b strings.Builder
	writeKey(&b, key)
	return b.String()
}
