package sync

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// spot is a field that is edited, of all objects of a kind.
type spot struct {
	path    fieldpath.Path
	kind    string
	always  bool
	first   map[string]any // of an item: what it begins with
	preset  string         // the server's default; "" for none
	parents []*spot        // the items that it lies in, outermost first
}

// whole tells whether the spot is an item, a struct or a set's value, which is there or not.
func (l *spot) whole() bool { return l.kind == "item" || l.kind == "member" }

func (in *installed) parse(t *testing.T, text string) *spot {
	t.Helper()
	words := strings.SplitN(text, " ", 3)
	l := &spot{path: parseModelPath(t, words[0])}
	l.kind, l.always = strings.CutSuffix(words[1], "!")
	switch {
	case l.kind == "item":
		l.first = in.yaml(t, words[2]).(map[string]any)
	case len(words) == 3:
		l.preset = compact(in.yaml(t, words[2]))
	}
	return l
}

// parseModelPath reads a.b[k=v,n=1].c, and [=x]: a set's value in a list of spec, else a map's key.
func parseModelPath(t *testing.T, text string) fieldpath.Path {
	t.Helper()
	var path fieldpath.Path
	for text != "" {
		if key, ok := strings.CutPrefix(text, "["); ok {
			inner, rest, ok := strings.Cut(key, "]")
			if !ok {
				t.Fatalf("path %q does not end", text)
			}
			path, text = append(path, modelElement(inner, *path[0].FieldName == "metadata")), strings.TrimPrefix(rest, ".")
			continue
		}
		end := strings.IndexAny(text, ".[")
		if end < 0 {
			end = len(text)
		}
		path, text = append(path, fieldpath.FieldNameElement(text[:end])), strings.TrimPrefix(text[end:], ".")
	}
	return path
}

func modelElement(inner string, key bool) fieldpath.PathElement {
	if name, ok := strings.CutPrefix(inner, "="); ok && key {
		return fieldpath.FieldNameElement(name)
	} else if ok {
		return fieldpath.ValueElement(value.NewValueInterface(name))
	}
	fields := map[string]any{}
	for pair := range strings.SplitSeq(inner, ",") {
		name, v, _ := strings.Cut(pair, "=")
		fields[name] = v
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			fields[name] = n
		}
	}
	return fieldpath.KeyElementByFields(slicesOf(fields)...)
}

func slicesOf(fields map[string]any) []any {
	var out []any
	for _, name := range sortedNames(fields) {
		out = append(out, name, fields[name])
	}
	return out
}

// next is a value that nobody used before.
func (l *spot) next(serial int64) any {
	text := fmt.Sprintf("v%d", serial)
	switch l.kind {
	case "number":
		return serial
	case "either":
		if serial%2 == 0 {
			return serial
		}
	case "seconds":
		return fmt.Sprintf("%ds", serial)
	case "host":
		return text + ".example.dev"
	case "list":
		return []any{text, "same"}
	case "map":
		return map[string]any{"a": text, "b": "same"}
	case "rules":
		return []any{map[string]any{"record": "r", "expr": serial, "labels": map[string]any{"l": text}}}
	case "images":
		return []any{map[string]any{"major": int64(16), "image": text, "extensions": []any{map[string]any{"name": "gis", "image": map[string]any{"reference": text}}}}}
	case "infos":
		return []any{map[string]any{"name": "same", "value": text}}
	}
	return text
}

// value is what content has of a field, as versions have it.
func (l *spot) value(content map[string]any) string {
	v, ok := lookUp(content, l.path)
	switch {
	case content == nil, len(l.parents) > 0 && !isThere(l.parents[len(l.parents)-1].value(content)):
		return noPlace
	case !ok:
		return notThere
	case l.whole():
		return "there"
	}
	return compact(v)
}

// What versions have where there is no value: nor the item or object that it would be in, or only not it.
const (
	noPlace  = ""
	notThere = "-"
)

func isThere(value string) bool { return value != noPlace && value != notThere }

func compact(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// lookUp returns the value at a path.
func lookUp(v any, path fieldpath.Path) (any, bool) {
	for _, e := range path {
		if e.FieldName != nil {
			m, _ := v.(map[string]any)
			next, ok := m[*e.FieldName]
			if !ok {
				return nil, false
			}
			v = next
			continue
		}
		items, _ := v.([]any)
		i := slices.IndexFunc(items, func(item any) bool { return picks(e, item) })
		if i < 0 {
			return nil, false
		}
		v = items[i]
	}
	return v, v != nil
}

// picks tells whether a path's step names an item.
func picks(e fieldpath.PathElement, item any) bool {
	if e.Value != nil {
		return (*e.Value).Unstructured() == item
	}
	m, _ := item.(map[string]any)
	for _, f := range *e.Key {
		if m[f.Name] != f.Value.Unstructured() {
			return false
		}
	}
	return true
}

// put returns content with a value at a path, or without what is there if v is nil.
func put(content any, path fieldpath.Path, v any) any {
	if len(path) == 0 {
		return v
	}
	e := path[0]
	if e.FieldName != nil {
		m, _ := content.(map[string]any)
		if m = maps.Clone(m); m == nil {
			m = map[string]any{}
		}
		if m[*e.FieldName] = put(m[*e.FieldName], path[1:], v); m[*e.FieldName] == nil {
			delete(m, *e.FieldName)
		}
		return m
	}
	items, _ := content.([]any)
	items = slices.Clone(items)
	i := slices.IndexFunc(items, func(item any) bool { return picks(e, item) })
	if i < 0 {
		i, items = len(items), append(items, nil)
	}
	if items[i] = put(items[i], path[1:], v); items[i] == nil {
		items = slices.Delete(items, i, i+1)
	}
	if items == nil {
		items = []any{}
	}
	return items
}

// item is a new item of a list, or a new struct.
func (l *spot) item() any {
	e := l.path[len(l.path)-1]
	if e.Value != nil {
		return (*e.Value).Unstructured()
	}
	made := maps.Clone(l.first)
	if e.Key != nil {
		for _, f := range *e.Key {
			made[f.Name] = f.Value.Unstructured()
		}
	}
	return made
}
