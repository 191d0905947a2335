package threeway

import (
	"maps"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/crmirror/crmirror/kube"
)

// decider walks one object and collects the decision.
type decider struct {
	in       Input
	types    types
	metadata typeRef

	unknown     *fieldpath.Set
	set         *fieldpath.Set
	remove      []fieldpath.Path
	conflicts   []Conflict
	findings    []Finding
	unknownRoot bool
}

func newDecider(in Input) *decider {
	if in.Type.Schema == nil {
		in.Type = typed.DeducedParseableType
	} else if _, ok := (types{schema: in.Type.Schema}).asMap(in.Type.TypeRef); !ok {
		in.Type = typed.DeducedParseableType
	}
	return &decider{
		in:       in,
		types:    types{schema: in.Type.Schema},
		metadata: metadataType(),
		unknown:  &fieldpath.Set{},
		set:      &fieldpath.Set{},
	}
}

// object decides about the object itself, and about its fields if both sides have it.
func (d *decider) object() Decision {
	at := d.root()
	in := sides{O: objectValue(d.in.Base), G: objectValue(d.in.Git), C: objectValue(d.in.Cluster)}
	if !at.known {
		in.O = value{}
	}
	var r result
	action := None
	switch {
	case !in.G.ok && !in.C.ok:
		// Gone on both sides: agreed.
	case in.G.ok && in.C.ok:
		r = d.both(at, in)
	case in.G.ok:
		r, action = d.onlyGit(at, in)
	default:
		r, action = d.onlyCluster(at, in)
	}
	return d.decision(r, action)
}

// root is the place of the object itself.
func (d *decider) root() place {
	return place{
		typ:     d.in.Type.TypeRef,
		known:   !d.in.Unknown.Object,
		unknown: d.in.Unknown.Fields,
		shaped:  d.in.Shaped,
		root:    true,
	}
}

func (d *decider) decision(r result, action Action) Decision {
	out := Decision{
		Cluster:   content(r.W),
		File:      content(r.F),
		Base:      content(r.B),
		Kept:      content(r.K),
		Unknown:   Unknown{Object: d.unknownRoot, Fields: d.unknown},
		Set:       d.set,
		Remove:    fieldpath.NewSet(d.remove...),
		Object:    action,
		Conflicts: d.conflicts,
		Findings:  d.findings,
	}
	slices.SortStableFunc(out.Conflicts, func(a, b Conflict) int { return a.Path.Compare(b.Path) })
	slices.SortStableFunc(out.Findings, func(a, b Finding) int { return a.Path.Compare(b.Path) })
	return out
}

// both decides about an object that both sides have. A base of another version cannot be
// compared field by field. Where base lacks the object, none of its fields has a
// base: each that differs is a conflict, the others are agreed.
func (d *decider) both(at place, in sides) result {
	if in.O.ok && apiVersion(in.O) != apiVersion(in.C) {
		if d.sameObject(in.G, in.C) {
			return d.fields(place{typ: at.typ, shaped: at.shaped, root: true}, sides{G: in.G, C: in.C})
		}
		return d.conflict(at, in, ReasonVersion)
	}
	at.known = at.known && in.O.ok
	return d.fields(at, in)
}

// fields merges the maps of both sides at the root.
func (d *decider) fields(at place, in sides) result {
	if !at.known {
		in.O, at.unknown = value{}, nil
	}
	return d.merge(at, in)
}

// onlyGit decides about an object that the cluster lacks.
func (d *decider) onlyGit(at place, in sides) (result, Action) {
	switch {
	case at.known && !in.O.ok:
		return d.create(at, in)
	case at.known && empty(at.unknown) && d.sameObject(in.G, in.O):
		if reason := d.judge(Move{Removed: true}); reason != "" {
			return d.conflict(at, in, reason), None
		}
		return result{}, DeleteFile
	}
	return d.conflict(at, in, ""), None
}

// onlyCluster decides about an object that git lacks.
func (d *decider) onlyCluster(at place, in sides) (result, Action) {
	switch {
	case at.known && !in.O.ok:
		if reason := d.judge(Move{}); reason != "" {
			return d.conflict(at, in, reason), None
		}
		return clusterMoved(in), CreateFile
	case at.known && empty(at.unknown) && d.sameObject(in.C, in.O):
		if reason := d.judge(Move{ToCluster: true, Removed: true}); reason != "" {
			return d.conflict(at, in, reason), None
		}
		return result{K: in.O}, DeleteObject
	}
	return d.conflict(at, in, ""), None
}

// create decides about an object that only git has and that base lacks. One that holds a
// shaped field cannot be made whole from its file.
func (d *decider) create(at place, in sides) (result, Action) {
	obj := in.G.v.(map[string]any)
	if holdsAny(obj, at.shaped, d.types, at.typ) || kube.ContainsRedaction(obj) {
		return d.conflict(at, in, ReasonShaped), None
	}
	if reason := d.judge(Move{ToCluster: true}); reason != "" {
		return d.conflict(at, in, reason), None
	}
	made := value{ok: true, v: d.applicable(at, obj)}
	return result{W: made, F: in.G, B: made}, CreateObject
}

// applicable returns what of git's object can be created, and reports the rest.
func (d *decider) applicable(at place, obj map[string]any) map[string]any {
	out := maps.Clone(obj)
	if _, ok := out["status"]; ok {
		d.find(at.child(fieldpath.FieldNameElement("status"), at.typ), sides{}, EditsStatus)
		delete(out, "status")
	}
	meta := maps.Clone(obj["metadata"].(map[string]any))
	metaAt := at.child(fieldpath.FieldNameElement("metadata"), d.metadata)
	for _, key := range slices.Sorted(maps.Keys(meta)) {
		if !keptMetadata(key) {
			d.find(metaAt.child(fieldpath.FieldNameElement(key), metaAt.typ), sides{}, EditsServerSet)
			delete(meta, key)
		}
	}
	if annotations, ok := meta["annotations"].(map[string]any); ok {
		if _, ok := annotations[lastApplied]; ok {
			annotationsAt := metaAt.child(fieldpath.FieldNameElement("annotations"), metaAt.typ)
			d.find(annotationsAt.child(fieldpath.FieldNameElement(lastApplied), metaAt.typ), sides{}, EditsServerSet)
			annotations = maps.Clone(annotations)
			delete(annotations, lastApplied)
			meta["annotations"] = annotations
		}
	}
	out["metadata"] = meta
	return out
}

// sameObject compares two objects by their schema: without status, which nobody's edit makes,
// and without metadata's empty maps and lists.
func (d *decider) sameObject(a, b value) bool {
	x, y := a.v.(map[string]any), b.v.(map[string]any)
	for key := range union(x, y) {
		v, w := field(x, key), field(y, key)
		switch key {
		case "status":
		case "metadata":
			if !d.types.same(d.metadata, withoutEmpty(v), withoutEmpty(w)) {
				return false
			}
		default:
			if !d.types.same(d.types.field(d.in.Type.TypeRef, key), v, w) {
				return false
			}
		}
	}
	return true
}

func withoutEmpty(meta value) value {
	m, ok := meta.v.(map[string]any)
	if !ok {
		return meta
	}
	m = maps.Clone(m)
	maps.DeleteFunc(m, func(_ string, v any) bool { return isEmpty(v) })
	return value{ok: true, v: m}
}

func apiVersion(obj value) any { return obj.v.(map[string]any)["apiVersion"] }

func objectValue(obj map[string]any) value {
	if obj == nil {
		return value{}
	}
	return value{ok: true, v: obj}
}

func content(v value) map[string]any {
	m, _ := v.v.(map[string]any)
	return m
}
