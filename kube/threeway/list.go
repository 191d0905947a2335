package threeway

import (
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

// lists are an associative list's items on the three sides.
type lists struct {
	O, G, C list
}

// indexAll tells the items apart on all sides that have the list, and false when it cannot.
func (d *decider) indexAll(at place, in sides, l *schema.List) (lists, bool) {
	var out lists
	owners := at.isOwners()
	for _, side := range []struct {
		v  value
		to *list
	}{{in.O, &out.O}, {in.G, &out.G}, {in.C, &out.C}} {
		values, _ := side.v.v.([]any)
		indexed, ok := d.types.index(l, values, owners)
		if !ok || keysShaped(at, l, indexed) {
			return out, false
		}
		*side.to = indexed
	}
	return out, true
}

// keysShaped tells whether an item's key is dropped or redacted: what it is in the cluster cannot
// be said then.
func keysShaped(at place, l *schema.List, items list) bool {
	if empty(at.shaped) {
		return false
	}
	for _, item := range items.items {
		_, sub := below(at.shaped, item.pe)
		for _, key := range l.Keys {
			if member, _ := below(sub, fieldpath.FieldNameElement(key)); member {
				return true
			}
		}
	}
	return false
}

// mergeList decides item by item.
func (d *decider) mergeList(at place, in sides, l *schema.List, by lists) result {
	if allEmpty(in) && !at.emptyIsNot {
		return d.unit(at, in)
	}
	mark := len(d.remove)
	order := interleave(by.C.ids(), by.G.ids(), by.O.ids())
	results := fieldpath.MakePathElementMap(len(order))
	w, b, k := []any{}, []any{}, []any{}
	for _, id := range order {
		r := d.item(at, l, id, by)
		results.Insert(id, r)
		w, b, k = add(w, r.W), add(b, r.B), add(k, r.K)
	}
	fileOrder := order
	if gitReordered(at.known && in.O.ok, by) {
		fileOrder = interleave(by.G.ids(), by.C.ids(), by.O.ids())
	}
	f := []any{}
	for _, id := range fileOrder {
		r, _ := results.Get(id)
		f = add(f, r.(result).F)
	}
	return d.contain(at, in, result{W: some(w), F: some(f), B: some(b), K: some(k)}, mark)
}

func add(items []any, v value) []any {
	if v.ok {
		return append(items, v.v)
	}
	return items
}

// item decides about one item. An owner reference whose API version git moved is another
// field to the server: the old one is removed.
func (d *decider) item(at place, l *schema.List, id fieldpath.PathElement, by lists) result {
	in := sides{O: by.O.get(id), G: by.G.get(id), C: by.C.get(id)}
	if equal(in.G, in.C) {
		return agreed(in)
	}
	old, inCluster := by.C.element(id)
	pe, inGit := by.G.element(id)
	if !inGit {
		pe = old
	}
	child := at.child(pe, l.ElementType)
	child.item = true
	if member, _ := below(at.unknown, old); member {
		child.known = false
	}
	if in.G.ok && in.C.ok && !at.isOwners() {
		child.keys = append(child.keys[:len(child.keys):len(child.keys)], keyFields(l, child.path, in.G.v, in.C.v)...)
	}
	r := d.node(child, in)
	if inGit && inCluster && !old.Equals(pe) && d.set.Has(child.path) {
		d.remove = append(d.remove, append(at.path.Copy(), old))
	}
	return r
}

func (l *list) ids() []fieldpath.PathElement {
	out := make([]fieldpath.PathElement, len(l.items))
	for i, item := range l.items {
		out[i] = item.id
	}
	return out
}

// gitReordered tells whether git has common items in another order than base; without a base,
// than the cluster.
func gitReordered(known bool, by lists) bool {
	from := &by.C
	if known {
		from = &by.O
	}
	var common []fieldpath.PathElement
	for _, item := range from.items {
		if by.G.get(item.id).ok {
			common = append(common, item.id)
		}
	}
	for _, item := range by.G.items {
		if !from.get(item.id).ok {
			continue
		}
		if !item.id.Equals(common[0]) {
			return true
		}
		common = common[1:]
	}
	return false
}

// interleave returns all items in the order of the first sequence, each further one after the item that
// it follows in its own.
func interleave(sequences ...[]fieldpath.PathElement) []fieldpath.PathElement {
	const head = 0
	nodes := []fieldpath.PathElement{{}} // the first one is only the head
	next := []int{head}                  // of each node; the last one's is the head
	at := fieldpath.MakePathElementMap(0)
	for _, sequence := range sequences {
		before := head
		for _, id := range sequence {
			if i, ok := at.Get(id); ok {
				before = i.(int)
				continue
			}
			nodes, next = append(nodes, id), append(next, next[before])
			next[before] = len(nodes) - 1
			before = len(nodes) - 1
			at.Insert(id, before)
		}
	}
	out := make([]fieldpath.PathElement, 0, len(nodes)-1)
	for i := next[head]; i != head; i = next[i] {
		out = append(out, nodes[i])
	}
	return out
}
