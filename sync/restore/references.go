package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	gosync "sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/sync"
)

// sharedUIDs are the uids of live objects, as listings found them, but not of those that are being
// deleted: a reference to one of these lets garbage collection delete what it stands in.
type sharedUIDs struct {
	mu    gosync.Mutex
	uids  map[kube.Key]string
	going map[kube.Key]bool // that are being deleted
}

// met takes note of a live object.
func (u *sharedUIDs) met(key kube.Key, live *unstructured.Unstructured) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if live.GetDeletionTimestamp() != nil {
		u.going[key] = true
		return
	}
	u.uids[key] = string(live.GetUID())
}

// goes tells whether an object is known to be being deleted.
func (u *sharedUIDs) goes(key kube.Key) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.going[key]
}

func (u *sharedUIDs) set(key kube.Key, uid string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.uids[key] = uid
}

func (u *sharedUIDs) get(key kube.Key) (string, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	uid, ok := u.uids[key]
	return uid, ok
}

// ownerRef is an owner as an object names it.
type ownerRef struct {
	kind schema.GroupVersionKind
	name string
	uid  string // of a live object's reference
}

func (r ownerRef) String() string { return sync.Printable(r.kind.Kind+" "+r.name, messageRunes) }

// readOwners notes the owners of an object that is to be written.
func (m *maker) readOwners(t *target, d *Desired) { t.owners = ownerRefs(d.Object) }

func ownerRefs(obj map[string]any) []ownerRef {
	meta, _ := obj["metadata"].(map[string]any)
	list, _ := meta["ownerReferences"].([]any)
	var refs []ownerRef
	for _, item := range list {
		fields, _ := item.(map[string]any)
		text := func(key string) string { s, _ := fields[key].(string); return s }
		refs = append(refs, ownerRef{
			kind: schema.FromAPIVersionAndKind(text("apiVersion"), text("kind")), name: text("name"), uid: text("uid"),
		})
	}
	return refs
}

// resource returns the resource of a kind, of whatever version, and whether its objects lie in namespaces.
func (m *maker) resource(kind schema.GroupVersionKind) (gr schema.GroupResource, namespaced, ok bool) {
	if gvr, namespaced, ok := m.served.ByKind(kind); ok {
		return gvr.GroupResource(), namespaced, true
	}
	for _, crds := range []map[schema.GroupResource]*definition{m.definitions, m.defined} {
		for gr, crd := range crds {
			if gr.Group == kind.Group && crd.Spec.Names.Kind == kind.Kind {
				return gr, crd.Spec.Scope == apiextensionsv1.NamespaceScoped, true
			}
		}
	}
	return gr, false, false
}

// resolveOwners says of each owner of what is to be written where it is. What one object's owner
// cannot do keeps that object from being written, and so on, owners first.
func (m *maker) resolveOwners(ctx context.Context) error {
	for _, t := range m.targets {
		if !t.writes() {
			continue
		}
		for _, ref := range t.owners {
			owner, err := m.owner(ctx, t, ref)
			if err != nil {
				return err
			}
			t.action.Owners = append(t.action.Owners, owner)
		}
	}
	if err := m.checkLinks(ctx); err != nil {
		return err
	}
	for _, t := range m.targets {
		t.checkDropped()
	}
	m.checkCircles()
	for again := true; again; {
		again = false
		for _, t := range m.targets {
			again = m.followOwners(t) || again
		}
	}
	return nil
}

// owner looks for an owner: in the plan, in the cluster, in git.
func (m *maker) owner(ctx context.Context, t *target, ref ownerRef) (Owner, error) {
	gr, namespaced, known := m.resource(ref.kind)
	if !known {
		return m.drop(t, Owner{}, ref, nowhere), nil
	}
	owner := Owner{Key: kube.Key{Group: gr.Group, Resource: gr.Resource, Name: ref.name}}
	inGit := owner.Key
	if namespaced {
		owner.Key.Namespace, inGit.Namespace = t.action.Key.Namespace, t.item.Key.Namespace
	}
	if namespaced && owner.Key.Namespace == "" || owner.Key == t.action.Key {
		return m.drop(t, owner, ref, "cannot be an owner of it"), nil // it lies nowhere, or is the object itself
	}
	if of := m.byKey[owner.Key]; of != nil {
		owner.UID = of.action.UID
		return owner, nil
	}
	uid, err := m.liveUID(ctx, owner.Key)
	var refused *apply.Rejected
	if errors.As(err, &refused) {
		t.block(fmt.Sprintf("its owner %s cannot be read: %s", owner.Key, sync.Printable(refused.Error(), messageRunes)))
		return owner, nil
	}
	if err != nil {
		return owner, err
	}
	if owner.UID = uid; uid != "" {
		return owner, nil
	}
	if m.live.goes(owner.Key) {
		t.block(ownerGoes(owner.Key))
		return owner, nil
	}
	if _, ok := m.s.Item(inGit); ok {
		t.block(fmt.Sprintf("its owner %s is in git and not in the cluster: restore it too", owner.Key))
		return owner, nil
	}
	return m.drop(t, owner, ref, nowhere), nil
}

const nowhere = "is neither in git nor in the cluster"

func ownerGoes(owner kube.Key) string {
	return fmt.Sprintf("its owner %s is being deleted; run again when it is gone", owner)
}

func (m *maker) drop(t *target, owner Owner, ref ownerRef, why string) Owner {
	owner.Dropped = true
	if owner.Key.Namespace != "" {
		why += ", in namespace " + sync.Printable(owner.Key.Namespace, messageRunes)
	}
	note := fmt.Sprintf("its owner %s %s: it is written without that reference", ref, why)
	t.action.Notes = append(t.action.Notes, note)
	return owner
}

// liveUID returns the uid of a live object, "" if there is none.
func (m *maker) liveUID(ctx context.Context, key kube.Key) (string, error) {
	if uid, ok := m.live.get(key); ok || m.live.goes(key) {
		return uid, nil
	}
	kind, ok := m.served.Resource(key.GroupResource())
	if !ok {
		return "", nil
	}
	live, err := m.cluster.Get(ctx, kind.Preferred(), key.Namespace, key.Name)
	switch {
	case errors.Is(err, apply.ErrNotFound):
		m.live.set(key, "")
	case err != nil:
		return "", err
	default:
		m.live.met(key, live)
	}
	uid, _ := m.live.get(key)
	return uid, nil
}

// checkDropped skips what differs only in references that cannot be written: an update would change nothing.
func (t *target) checkDropped() {
	a := t.action
	if a.Verb != Update || slices.ContainsFunc(a.Changes, func(c Change) bool { return c.Kind != onlyInGit || !isOfOwners(c) }) {
		return
	}
	var dropped []string
	for i, ref := range t.owners {
		is := func(live ownerRef) bool {
			return live.kind.Group == ref.kind.Group && live.kind.Kind == ref.kind.Kind && live.name == ref.name
		}
		switch {
		case i < len(a.Owners) && a.Owners[i].Dropped:
			dropped = append(dropped, ref.String())
		case !slices.ContainsFunc(t.refs, is):
			return
		}
	}
	if len(dropped) > 0 {
		t.decide(Skip, fmt.Sprintf("differs only in references to owners that it cannot have here, %s: take them out of git, or restore the owners", someOf(dropped)))
		a.Notes = nil
	}
}

func isOfOwners(c Change) bool {
	return len(c.path) > 1 && c.path[:2].Equals(fieldpath.MakePathOrDie("metadata", "ownerReferences"))
}

// checkCircles blocks what is to be created and whose owners lead back to itself: none of them can come first.
func (m *maker) checkCircles() {
	position, targets := map[kube.Key]int{}, []*target{}
	for _, t := range m.targets {
		if t.action.Verb == Create && m.byKey[t.action.Key] == t {
			position[t.action.Key] = len(targets)
			targets = append(targets, t)
		}
	}
	waits := make([][]int, len(targets))
	for n, t := range targets {
		for _, o := range t.action.Owners {
			if at, ok := position[o.Key]; ok && !o.Dropped && !slices.Contains(waits[n], at) {
				waits[n] = append(waits[n], at)
			}
		}
	}
	for _, n := range newOrder(waits).circles() {
		targets[n].block(inCircle)
	}
}

// inCircle is why an object cannot be created whose owners lead back to itself.
const inCircle = "its owners lead back to itself: take one of the ownerReferences out of git"

// followOwners blocks what cannot be written since an owner is not. It tells whether it did.
//
// Invariant: no owner is taken that is being deleted (TestPlanOwnerGoes).
func (m *maker) followOwners(t *target) bool {
	if v := t.action.Verb; v != Create && v != Update {
		return false
	}
	for _, o := range t.action.awaits() {
		of := m.byKey[o.Key]
		if of == nil || o.Dropped {
			continue
		}
		if of.terminates {
			t.block(ownerGoes(o.Key))
			return true
		}
		if of.found {
			continue
		}
		switch of.action.Verb {
		case Blocked:
			t.block(fmt.Sprintf("its owner %s is blocked; see there", o.Key))
			return true
		case Skip:
			t.decide(Skip, fmt.Sprintf("its owner %s is skipped; see there", o.Key))
			t.action.Behind = true
			return true
		}
	}
	return false
}
