package kube

import (
	"maps"
	"strconv"
)

// edit returns obj with f applied to every value that the path names. f is given the
// place (each step as ".key" or "[index]") and the value, and returns what takes
// its place, or false to leave it out. obj is not modified: what changes is copied.
func (p FieldPath) edit(obj map[string]any, f func(place []string, value any) (any, bool)) map[string]any {
	if len(p.steps) == 0 {
		return obj
	}
	e := editor{f: f}
	out, _ := e.walk(obj, p.steps, nil)
	return out.(map[string]any)
}

type editor struct {
	f func(place []string, value any) (any, bool)
}

// walk edits below v and tells whether the result is another value than v.
func (e editor) walk(v any, steps []step, place []string) (out any, changed bool) {
	switch t := v.(type) {
	case map[string]any:
		return e.walkMap(t, steps, place)
	case []any:
		return e.walkList(t, steps, place)
	}
	return v, false
}

func (e editor) walkMap(m map[string]any, steps []step, place []string) (any, bool) {
	s := steps[0]
	if s.anyItem {
		return m, false
	}
	out, anyChanged := m, false
	visit := func(key string) {
		value, keep, changed := e.child(m[key], steps, append(place, "."+key))
		if !changed {
			return
		}
		if !anyChanged {
			out, anyChanged = maps.Clone(m), true
		}
		if keep {
			out[key] = value
		} else {
			delete(out, key)
		}
	}
	if s.anyKey {
		for key := range m {
			visit(key)
		}
	} else if _, ok := m[s.key]; ok {
		visit(s.key)
	}
	return out, anyChanged
}

func (e editor) walkList(list []any, steps []step, place []string) (any, bool) {
	if !steps[0].anyItem {
		return list, false
	}
	out, anyChanged := make([]any, 0, len(list)), false
	for i, item := range list {
		value, keep, changed := e.child(item, steps, append(place, "["+strconv.Itoa(i)+"]"))
		if keep {
			out = append(out, value)
		}
		anyChanged = anyChanged || changed
	}
	if !anyChanged {
		return list, false
	}
	return out, true
}

// child edits the value one step further down.
func (e editor) child(v any, steps []step, place []string) (out any, keep, changed bool) {
	if len(steps) > 1 {
		out, changed = e.walk(v, steps[1:], place)
		return out, true, changed
	}
	out, keep = e.f(place, v)
	return out, keep, true
}
