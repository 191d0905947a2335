package kube

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// manyPaths is how many paths are coarsened one parent at a time; more are first cut
// to the same depth.
const manyPaths = 256

// DiffPaths returns the paths of the fields that differ between two files, sorted:
// `spec.containers[web].image`, `metadata.annotations["x.io/seen"]`. List items
// are told apart by their names when all have one and no two the same, else by
// their index; a list of plain values is one field. nil stands for no object. Where there are more than max paths (zero means
// no limit), parents take the place of their children.
func DiffPaths(old, new []byte, max int) ([]string, error) {
	a, err := decodeOrNil(old)
	if err != nil {
		return nil, fmt.Errorf("compare the old content: %w", err)
	}
	b, err := decodeOrNil(new)
	if err != nil {
		return nil, fmt.Errorf("compare the new content: %w", err)
	}
	var d differ
	d.maps(a, b, nil)
	if max > 0 {
		d.coarsen(max)
	}
	return d.strings(), nil
}

func decodeOrNil(content []byte) (map[string]any, error) {
	if content == nil {
		return nil, nil
	}
	obj, err := Decode(content)
	if err != nil {
		return nil, err
	}
	return obj.Object, nil
}

// differ collects paths; each step is written as it stands in the path.
type differ struct {
	paths [][]string
}

func (d *differ) values(a, b any, at []string) {
	switch x := a.(type) {
	case map[string]any:
		if y, ok := b.(map[string]any); ok && len(x) > 0 && len(y) > 0 {
			d.maps(x, y, at)
			return
		}
	case []any:
		if y, ok := b.([]any); ok && len(x) > 0 && len(y) > 0 {
			d.lists(x, y, at)
			return
		}
	}
	if !EqualValues(a, b) {
		d.paths = append(d.paths, slices.Clone(at))
	}
}

func (d *differ) maps(a, b map[string]any, at []string) {
	d.keyed(a, b, at, func(key string) string {
		var s strings.Builder
		writeKey(&s, key)
		return s.String()
	})
}

// keyed compares what stands under the same key.
func (d *differ) keyed(a, b map[string]any, at []string, step func(key string) string) {
	for _, key := range unionKeys(a, b) {
		x, inA := a[key]
		y, inB := b[key]
		path := append(at, step(key))
		switch {
		case inA && inB:
			d.values(x, y, path)
		case isTags(path):
			// The first label says more than that there are labels now.
			from, _ := x.(map[string]any)
			to, _ := y.(map[string]any)
			d.maps(from, to, path)
		default:
			d.paths = append(d.paths, slices.Clone(path))
		}
	}
}

// isTags tells whether a path is that of an object's labels or annotations.
func isTags(path []string) bool {
	return len(path) == 2 && path[0] == ".metadata" && (path[1] == ".labels" || path[1] == ".annotations")
}

func (d *differ) lists(a, b []any, at []string) {
	if plainValues(a) && plainValues(b) {
		if !EqualValues(a, b) {
			d.paths = append(d.paths, slices.Clone(at))
		}
		return
	}
	x, okA := byName(a)
	y, okB := byName(b)
	if okA && okB {
		before := len(d.paths)
		d.keyed(x, y, at, func(name string) string { return "[" + name + "]" })
		if len(d.paths) == before && !EqualValues(a, b) {
			d.paths = append(d.paths, slices.Clone(at)) // only the order differs
		}
		return
	}
	for i := range max(len(a), len(b)) {
		path := append(at, "["+strconv.Itoa(i)+"]")
		if i < len(a) && i < len(b) {
			d.values(a[i], b[i], path)
		} else {
			d.paths = append(d.paths, slices.Clone(path))
		}
	}
}

// plainValues tells whether no item of a list is a map or a list.
func plainValues(list []any) bool {
	return !slices.ContainsFunc(list, func(v any) bool {
		switch v.(type) {
		case map[string]any, []any:
			return true
		}
		return false
	})
}

// byName returns the items of a list by their names, and false when one has no name
// that can stand in a message, or two have the same.
func byName(list []any) (map[string]any, bool) {
	out := make(map[string]any, len(list))
	for _, item := range list {
		m, _ := item.(map[string]any)
		name := text(m, "name")
		if _, taken := out[name]; taken || !showable(name) {
			return nil, false
		}
		out[name] = item
	}
	return out, true
}

// showable tells whether a name is short and of ordinary characters.
func showable(name string) bool {
	odd := func(r rune) bool { return !bareRune(r) && r != '.' && r != ':' }
	return name != "" && len(name) <= 100 && strings.IndexFunc(name, odd) < 0 && !ContainsRedaction(name)
}

func unionKeys(a, b map[string]any) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	return slices.Compact(keys)
}

// coarsen puts parents in the place of children until there are at most max paths:
// each time the parent with most children, of those the deepest, of those the first.
// Top-level fields have no parent; those beyond max are cut off.
func (d *differ) coarsen(max int) {
	for depth := d.depth() - 1; len(d.paths) > manyPaths && len(d.paths) > max && depth > 0; depth-- {
		for i, p := range d.paths {
			d.paths[i] = p[:min(len(p), depth)]
		}
		d.compact()
	}
	for len(d.paths) > max {
		parent := d.parentOfMost()
		if parent == nil {
			slices.SortFunc(d.paths, slices.Compare)
			d.paths = d.paths[:max]
			return
		}
		for i, p := range d.paths {
			if len(p) > len(parent) && slices.Equal(p[:len(parent)], parent) {
				d.paths[i] = parent
			}
		}
		d.compact()
	}
}

func (d *differ) depth() int {
	depth := 0
	for _, p := range d.paths {
		depth = max(depth, len(p))
	}
	return depth
}

func (d *differ) compact() {
	slices.SortFunc(d.paths, slices.Compare)
	d.paths = slices.CompactFunc(d.paths, slices.Equal)
}

func (d *differ) parentOfMost() []string {
	type family struct {
		parent   []string
		children int
	}
	families := map[string]*family{}
	for _, p := range d.paths {
		if len(p) < 2 {
			continue
		}
		parent := p[:len(p)-1]
		id := strings.Join(parent, "\x00")
		if families[id] == nil {
			families[id] = &family{parent: parent}
		}
		families[id].children++
	}
	if len(families) == 0 {
		return nil
	}
	return slices.MaxFunc(slices.Collect(maps.Values(families)), func(a, b *family) int {
		return cmp.Or(cmp.Compare(a.children, b.children), cmp.Compare(len(a.parent), len(b.parent)),
			-slices.Compare(a.parent, b.parent))
	}).parent
}

func (d *differ) strings() []string {
	out := make([]string, len(d.paths))
	for i, p := range d.paths {
		out[i] = strings.TrimPrefix(strings.Join(p, ""), ".")
	}
	slices.Sort(out)
	return out
}
