package threeway

import (
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/kube"
)

// unit decides about what is taken as a whole: a leaf, or a struct or item that one side lacks.
func (d *decider) unit(at place, in sides) result {
	if at.known && empty(at.unknown) {
		switch {
		case d.types.same(at.typ, in.C, in.O):
			return d.gitMoves(at, in)
		case d.types.same(at.typ, in.G, in.O):
			return d.clusterMoves(at, in)
		}
	}
	return d.conflict(at, in, "")
}

// gitMoves carries git's value to the cluster, if it can be.
//
// Invariant: nothing dropped or redacted, or holding such, is set or removed (TestShaped,
// TestProperties); and a finalizer, on whose controller outside resources may wait, is not
// removed unless that is allowed (TestKeepFinalizers).
func (d *decider) gitMoves(at place, in sides) result {
	switch reason := d.objection(at, in, true); {
	case reason == ReasonShaped:
		return d.conflict(at, in, reason)
	case d.in.KeepFinalizers && at.dropsFinalizers(in):
		return d.find(at, in, DropsFinalizer)
	case in.G.ok && d.unkeyed(at, in):
		return d.find(at, in, Unkeyed)
	case in.G.ok && !d.types.fits(at.typ, in.G.v):
		return d.find(at, in, UnfitForSchema)
	case reason != "":
		return d.conflict(at, in, reason)
	}
	if !in.G.ok {
		d.remove = append(d.remove, at.path.Copy())
		return gitMoved(in)
	}
	d.types.leaves(at.typ, at.path, in.G.v, func(leaf fieldpath.Path) { d.set.Insert(leaf.Copy()) })
	for _, key := range at.keys {
		d.set.Insert(key)
	}
	return gitMoved(in)
}

// clusterMoves carries the cluster's value to git.
func (d *decider) clusterMoves(at place, in sides) result {
	if reason := d.objection(at, in, false); reason != "" {
		return d.conflict(at, in, reason)
	}
	return clusterMoved(in)
}

// shapedEdit decides about a place that is dropped or redacted, where git and the cluster
// differ. Only the cluster's change of it is carried over.
func (d *decider) shapedEdit(at place, in sides) result {
	switch {
	case !at.known || !empty(at.unknown):
		return d.conflict(at, in, "")
	case equal(in.G, in.O):
		return d.clusterMoves(at, in)
	}
	return d.find(at, in, EditsShaped)
}

// unkeyed tells whether the items of a list that should have keys cannot be told apart.
func (d *decider) unkeyed(at place, in sides) bool {
	l, ok := d.types.asList(at.typ)
	if !ok {
		return false
	}
	for _, v := range []value{in.G, in.C} {
		if items, isList := v.v.([]any); isList {
			if _, ok := d.types.index(l, items, at.isOwners()); !ok {
				return true
			}
		}
	}
	return false
}

// objection says why a move of a whole value is not carried over, "" if it is: it touches what
// is shaped, or Judge objects to it or to a leaf of it.
func (d *decider) objection(at place, in sides, toCluster bool) string {
	from, to := in.G, in.C
	if toCluster {
		from, to = in.C, in.G
		if !empty(at.shaped) || to.ok && kube.ContainsRedaction(to.v) {
			return ReasonShaped
		}
	}
	if d.in.Judge == nil {
		return ""
	}
	if reason := d.judge(Move{Path: at.path, ToCluster: toCluster, Removed: !to.ok}); reason != "" {
		return reason
	}
	goes, comes := &fieldpath.Set{}, &fieldpath.Set{}
	if from.ok {
		d.types.leaves(at.typ, at.path, from.v, func(p fieldpath.Path) { goes.Insert(p.Copy()) })
	}
	if to.ok {
		d.types.leaves(at.typ, at.path, to.v, func(p fieldpath.Path) { comes.Insert(p.Copy()) })
	}
	reason := ""
	goes.Union(comes).Iterate(func(p fieldpath.Path) {
		if reason == "" && len(p) > len(at.path) {
			reason = d.judge(Move{Path: p, ToCluster: toCluster, Removed: !comes.Has(p)})
		}
	})
	return reason
}

func (d *decider) judge(m Move) string {
	if d.in.Judge == nil {
		return ""
	}
	return d.in.Judge(m)
}

// conflict leaves a place as it is on both sides, and base with it.
func (d *decider) conflict(at place, in sides, reason string) result {
	d.report(at, in, reason)
	return stays(in)
}

// report notes a conflict and what base still has no value for.
//
// Invariant: a conflict shows no value of a dropped or redacted field, be it one
// that a person put into git (TestShaped).
func (d *decider) report(at place, in sides, reason string) {
	known := at.known && empty(at.unknown)
	switch {
	case reason != "":
	case !known:
		reason = ReasonUnknown
	case !in.G.ok:
		reason = ReasonDeletedInGit
	case !in.C.ok:
		reason = ReasonDeletedInCluster
	default:
		reason = ReasonChanged
	}
	show := func(v value, known bool) Value {
		if at.isShaped || !empty(at.shaped) {
			return Value{Known: known, Present: v.ok, Hidden: v.ok}
		}
		return Value{Known: known, Present: v.ok, V: v.v}
	}
	d.conflicts = append(d.conflicts, Conflict{
		Path: at.path.Copy(), Reason: reason, Base: show(in.O, known), Git: show(in.G, true), Cluster: show(in.C, true),
	})
	d.keepUnknown(at)
}

// find notes something in git that is not applied; it stays there.
func (d *decider) find(at place, in sides, kind FindingKind) result {
	d.findings = append(d.findings, Finding{Path: at.path.Copy(), Kind: kind})
	return stays(in)
}

func (d *decider) keepUnknown(at place) {
	switch {
	case !at.known && at.root:
		d.unknownRoot = true
	case !at.known:
		d.unknown.Insert(at.path.Copy())
	case !empty(at.unknown):
		at.unknown.Iterate(func(p fieldpath.Path) {
			d.unknown.Insert(append(at.path.Copy(), p.Copy()...))
		})
	}
}
