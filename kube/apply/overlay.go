package apply

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// errNotHeld means that a change sets a field which its wanted content has not.
var errNotHeld = errors.New("is to be set, but the wanted content has no value for it")

// overlay returns live with the fields of set as want has them. A member of set without
// anything below it is set whole; others only have to be there. Maps and lists that
// change are copied.
//
// Invariant: set whole means that nothing else is left, also where what is wanted is
// empty: an emptied atomic list is no list to be kept (TestOverlay, TestEmptied).
//
// A list item that live lacks is put behind the one that precedes it in want.
func overlay(live, want any, set *fieldpath.Set, at fieldpath.Path) (any, error) {
	for step := range steps(set) {
		path := append(at[:len(at):len(at)], step)
		wanted, ok := child(want, step)
		if !ok {
			return nil, fmt.Errorf("%s %w", path, errNotHeld)
		}
		old, there := child(live, step)
		var item any
		if sub := set.WithPrefix(step); sub.Empty() {
			item = runtime.DeepCopyJSONValue(wanted)
		} else {
			var err error
			if item, err = overlay(container(old, wanted, there), wanted, sub, path); err != nil {
				return nil, err
			}
		}
		if step.Key != nil {
			item = withKey(item, wanted, *step.Key)
		}
		live = put(live, want, step, item)
	}
	return live, nil
}

// without returns live without the fields of remove. What stands in want stays,
// and so does a map in which something is left: a field that was dropped or
// redacted, or that somebody added meanwhile.
func without(live, want any, remove *fieldpath.Set) any {
	for step := range steps(remove) {
		old, ok := child(live, step)
		if !ok {
			continue
		}
		wanted, stays := child(want, step)
		left := without(old, wanted, remove.WithPrefix(step))
		rest, isMap := left.(map[string]any)
		inList := step.FieldName == nil
		switch {
		case stays || !remove.Members.Has(step):
			live = put(live, nil, step, left)
		case isMap && len(rest) > 0 && !inList && !remove.WithPrefix(step).Empty():
			live = put(live, nil, step, left)
		default:
			live = take(live, step)
		}
	}
	return live
}

// steps yields each first step of the paths of a set.
func steps(set *fieldpath.Set) func(yield func(fieldpath.PathElement) bool) {
	all := fieldpath.MakePathElementSet(0)
	for step := range set.Members.All() {
		all.Insert(step)
	}
	for step := range set.Children.All() {
		all.Insert(step)
	}
	return all.All()
}

// container returns what fields are set in: the old value, or an empty one of the wanted type.
func container(old, wanted any, there bool) any {
	switch wanted.(type) {
	case map[string]any:
		if m, ok := old.(map[string]any); ok && there {
			return m
		}
		return map[string]any{}
	default:
		if l, ok := old.([]any); ok && there {
			return l
		}
		return []any{}
	}
}

// withKey returns a list item with the fields by which it is found.
func withKey(item, wanted any, key value.FieldList) any {
	m, ok := item.(map[string]any)
	from, _ := wanted.(map[string]any)
	if !ok {
		return item
	}
	m = maps.Clone(m)
	for _, field := range key {
		if v, ok := from[field.Name]; ok {
			m[field.Name] = v
		}
	}
	return m
}

// lookup returns the value at a path.
func lookup(v any, path fieldpath.Path) (any, bool) {
	for _, step := range path {
		var ok bool
		if v, ok = child(v, step); !ok {
			return nil, false
		}
	}
	return v, true
}

// child returns the value one step below v.
func child(v any, step fieldpath.PathElement) (any, bool) {
	switch t := v.(type) {
	case map[string]any:
		if step.FieldName != nil {
			item, ok := t[*step.FieldName]
			return item, ok
		}
	case []any:
		if i := find(t, step); i >= 0 {
			return t[i], true
		}
	}
	return nil, false
}

// find returns the index of a list item, or -1. An item may lack a key field, since
// that may have a default: then it is the only one with all the others.
func find(list []any, step fieldpath.PathElement) int {
	switch {
	case step.Index != nil && *step.Index < len(list):
		return *step.Index
	case step.Value != nil:
		return slices.IndexFunc(list, func(item any) bool {
			return value.Equals(value.NewValueInterface(item), *step.Value)
		})
	case step.Key != nil:
		if i := slices.IndexFunc(list, func(item any) bool { return hasKey(item, *step.Key, false) }); i >= 0 {
			return i
		}
		i := slices.IndexFunc(list, func(item any) bool { return hasKey(item, *step.Key, true) })
		if i >= 0 && slices.IndexFunc(list[i+1:], func(item any) bool { return hasKey(item, *step.Key, true) }) < 0 {
			return i
		}
	}
	return -1
}

func hasKey(item any, key value.FieldList, lenient bool) bool {
	m, ok := item.(map[string]any)
	if !ok {
		return false
	}
	found := false
	for _, field := range key {
		v, ok := m[field.Name]
		switch {
		case ok && value.Equals(value.NewValueInterface(v), field.Value):
			found = true
		case ok || !lenient:
			return false
		}
	}
	return found
}

// put returns v with an item one step below it; want tells where in a list it belongs.
func put(v, want any, step fieldpath.PathElement, item any) any {
	if step.FieldName != nil {
		m, _ := v.(map[string]any)
		if m = maps.Clone(m); m == nil {
			m = map[string]any{}
		}
		m[*step.FieldName] = item
		return m
	}
	list, _ := v.([]any)
	list = slices.Clone(list)
	if i := find(list, step); i >= 0 {
		list[i] = item
		return list
	}
	wanted, _ := want.([]any)
	return slices.Insert(list, place(list, wanted, step), item)
}

// place returns the index at which a new list item goes.
func place(list, wanted []any, step fieldpath.PathElement) int {
	for i := find(wanted, step) - 1; i >= 0; i-- {
		for j, item := range list {
			if sameItem(item, wanted[i], step) {
				return j + 1
			}
		}
	}
	if find(wanted, step) < 0 {
		return len(list)
	}
	return 0
}

// sameItem tells whether two items of a list are the same one, of the kind that step leads to.
func sameItem(a, b any, step fieldpath.PathElement) bool {
	if step.Key == nil {
		return value.Equals(value.NewValueInterface(a), value.NewValueInterface(b))
	}
	x, okX := a.(map[string]any)
	y, okY := b.(map[string]any)
	if !okX || !okY {
		return false
	}
	for _, field := range *step.Key {
		v, inX := x[field.Name]
		w, inY := y[field.Name]
		if inX && inY && !value.Equals(value.NewValueInterface(v), value.NewValueInterface(w)) {
			return false
		}
	}
	return true
}

// take returns v without the item one step below it.
func take(v any, step fieldpath.PathElement) any {
	switch t := v.(type) {
	case map[string]any:
		t = maps.Clone(t)
		delete(t, *step.FieldName)
		return t
	case []any:
		if i := find(t, step); i >= 0 {
			return slices.Delete(slices.Clone(t), i, i+1)
		}
	}
	return v
}
