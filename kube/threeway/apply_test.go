package threeway

import (
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	smdvalue "sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/crmirror/crmirror/kube"
)

// applied returns what a cluster holds after a decision's Set and Remove, written as a
// JSON patch would: step by step, list items found by what their path says.
func applied(cluster map[string]any, d Decision) map[string]any {
	out := clone(cluster)
	for p := range d.Remove.All() {
		out = removed(out, p)
	}
	for p := range d.Set.All() {
		if v := at(d.Cluster, p); v.ok {
			out = with(out, p, v.v)
		}
	}
	m, _ := out.(map[string]any)
	return m
}

func clone(v any) any {
	switch t := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, item := range t {
			out[k] = clone(item)
		}
		return out
	case []any:
		out := make([]any, len(t))
		for i, item := range t {
			out[i] = clone(item)
		}
		return out
	}
	return v
}

// at returns the value at a path.
func at(v any, p fieldpath.Path) value {
	for _, pe := range p {
		if pe.FieldName != nil {
			m, _ := v.(map[string]any)
			f := field(m, *pe.FieldName)
			if !f.ok {
				return f
			}
			v = f.v
			continue
		}
		items, _ := v.([]any)
		i := find(items, pe)
		if i < 0 {
			return value{}
		}
		v = items[i]
	}
	return value{ok: true, v: v}
}

// find returns the index of the item that a path's step names, -1 for none.
func find(items []any, pe fieldpath.PathElement) int {
	return slices.IndexFunc(items, func(item any) bool {
		if pe.Value != nil {
			return kube.EqualValues((*pe.Value).Unstructured(), item)
		}
		m, ok := item.(map[string]any)
		if !ok || pe.Key == nil {
			return false
		}
		for _, f := range *pe.Key {
			v, ok := m[f.Name]
			if ok && !kube.EqualValues(v, f.Value.Unstructured()) || !ok && !isDefault(f) {
				return false
			}
		}
		return true
	})
}

// isDefault tells whether a key has its default; the item may lack it then.
func isDefault(f smdvalue.Field) bool { return f.Name == "protocol" && f.Value.Unstructured() == "TCP" }

func removed(v any, p fieldpath.Path) any {
	pe := p[0]
	if pe.FieldName != nil {
		m := v.(map[string]any)
		if len(p) == 1 {
			delete(m, *pe.FieldName)
		} else {
			m[*pe.FieldName] = removed(m[*pe.FieldName], p[1:])
		}
		return m
	}
	items := v.([]any)
	i := find(items, pe)
	if len(p) == 1 {
		return slices.Delete(items, i, i+1)
	}
	items[i] = removed(items[i], p[1:])
	return items
}

func with(v any, p fieldpath.Path, leaf any) any {
	if len(p) == 0 {
		return leaf
	}
	pe := p[0]
	if pe.FieldName != nil {
		m, ok := v.(map[string]any)
		if !ok {
			m = map[string]any{}
		}
		m[*pe.FieldName] = with(m[*pe.FieldName], p[1:], leaf)
		return m
	}
	items, _ := v.([]any)
	if i := find(items, pe); i >= 0 {
		items[i] = with(items[i], p[1:], leaf)
		return items
	}
	if pe.Value != nil {
		return append(items, (*pe.Value).Unstructured())
	}
	made := map[string]any{}
	if len(p) > 1 {
		for _, f := range *pe.Key {
			if !isDefault(f) {
				made[f.Name] = f.Value.Unstructured()
			}
		}
	}
	return append(items, with(made, p[1:], leaf))
}

// payload is what server-side apply would be sent, merged over the cluster's content by
// structured-merge-diff itself.
func payload(d Decision, in Input) (any, error) {
	w, err := in.Type.FromUnstructured(d.Cluster)
	if err != nil {
		return nil, err
	}
	c, err := in.Type.FromUnstructured(in.Cluster)
	if err != nil {
		return nil, err
	}
	merged, err := c.Merge(w.ExtractItems(d.Set))
	if err != nil {
		return nil, err
	}
	return merged.AsValue().Unstructured(), nil
}
