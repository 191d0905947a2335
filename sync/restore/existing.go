package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/sync"
)

// compareKind compares the targets of one resource with what the cluster has. One listing, at the
// version that most files have, finds what is equal by the digest of its encoding; what differs is
// compared at the version of its own file, which can need another listing.
func (m *maker) compareKind(ctx context.Context, gr schema.GroupResource, targets []*target) error {
	if len(targets) == 0 {
		return nil
	}
	at, served := m.readAt(gr)
	if !served {
		if reason := m.undiscoveredGroup(gr); reason != "" {
			m.unknown(gr.String(), reason, targets)
		}
		return nil // to be created, or blocked: decode tells
	}
	byVersion := map[schema.GroupVersionResource][]*target{at: targets}
	for len(byVersion) > 0 {
		next := map[schema.GroupVersionResource][]*target{}
		for at, targets := range byVersion {
			if err := m.compareAt(ctx, at, targets, next); err != nil {
				return err
			}
		}
		byVersion = next
	}
	return nil
}

// compareAt compares targets at one version. Those whose file has another one are put into next.
func (m *maker) compareAt(ctx context.Context, at schema.GroupVersionResource, targets []*target, next map[schema.GroupVersionResource][]*target) error {
	wanted := make(map[kube.Key]*target, len(targets))
	for _, t := range targets {
		if !t.decided() {
			t.at, wanted[t.action.Key] = at, t
		}
	}
	namespace := ""
	for _, t := range targets { // one namespace is listed alone
		if t.action.Key.Namespace != targets[0].action.Key.Namespace {
			namespace = ""
			break
		}
		namespace = t.action.Key.Namespace
	}
	_, err := m.cluster.List(ctx, at, namespace, "", func(live *unstructured.Unstructured) error {
		key := keyOf(at.Resource, live)
		key.Group = at.Group
		m.live.met(key, live)
		t := wanted[key]
		if t == nil {
			if m.extra != nil {
				m.extra(key, live)
			}
			return nil
		}
		delete(wanted, key)
		other, err := m.existing(ctx, t, live)
		if err == nil && !other.Empty() {
			next[other] = append(next[other], t)
		}
		return err
	})
	var refused *apply.Rejected
	if errors.As(err, &refused) {
		gr := at.GroupResource().String()
		m.unknown(gr, fmt.Sprintf("%s cannot be listed: %s", gr, sync.Printable(refused.Error(), messageRunes)), targets)
		return nil
	}
	return err
}

// unknown blocks targets of which it is not known whether the cluster has them. What others stand on is taken
// to be there where nothing speaks against it: the server tells when they are written.
//
// Invariant: an object is created only if a complete listing lacked it (TestPlanUnlisted, TestPlanRefused).
func (m *maker) unknown(what, text string, targets []*target) {
	f := Finding{What: what, Text: text, Fatal: true}
	for _, t := range targets {
		t.action.Changes = nil
		if m.mayStandOn(t) {
			t.found, t.assumed = true, true
			t.decide(Unchanged, "")
			continue
		}
		t.decide(Blocked, text)
		f.Objects = append(f.Objects, t.action.Key)
	}
	if len(f.Objects) == 0 {
		return
	}
	slices.SortFunc(f.Objects, sync.CompareKeys)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.plan.Findings = append(m.plan.Findings, f)
}

// mayStandOn tells whether a target that others stand on can be taken to be there, unseen: a Namespace, or the CRD of
// a kind that is served.
func (m *maker) mayStandOn(t *target) bool {
	if !t.support {
		return false
	}
	_, served := m.served.Resource(schema.ParseGroupResource(t.item.Key.Name))
	return served || t.action.Phase == Namespaces
}

// existing decides about an object that the cluster has. If its file has it at another version
// that is served, nothing is decided, and that is where to read it.
func (m *maker) existing(ctx context.Context, t *target, live *unstructured.Unstructured) (other schema.GroupVersionResource, err error) {
	a := t.action
	t.found = true
	a.UID, a.ResourceVersion, a.Resource = string(live.GetUID()), live.GetResourceVersion(), t.at
	if t.terminates = live.GetDeletionTimestamp() != nil; t.terminates {
		t.decide(Blocked, "the cluster is deleting it; run again when it is gone")
		return other, nil
	}
	if t.support && !m.verifies { // others stand on it as it is
		m.unchanged(t, live)
		return other, nil
	}
	t.refs = ownerRefs(live.Object)
	if m.s.Equal(t.item, live, m.opts) {
		m.unchanged(t, live)
		return other, nil
	}
	d, err := m.wanted(ctx, t)
	if err != nil || d == nil {
		return other, err
	}
	if a.Resource.Version != t.at.Version {
		if m.serves(a.Resource) {
			return a.Resource, nil
		}
		return other, m.foreseen(t, d, live)
	}
	typ, _, err := m.cluster.Type(ctx, live.GroupVersionKind())
	var refused *apply.Rejected
	if errors.As(err, &refused) {
		t.decide(Blocked, "the schema of its kind cannot be read: "+sync.Printable(refused.Error(), messageRunes))
		return other, nil
	}
	if err != nil {
		return other, err
	}
	m.weigh(t, d, live, typ)
	return other, nil
}

// weigh compares an object with the live one, read at the version at which it is to be written, and decides.
func (m *maker) weigh(t *target, d *Desired, live *unstructured.Unstructured, typ typed.ParseableType) {
	c, err := m.s.Compare(d, live, typ, m.opts)
	if err != nil {
		t.decide(Blocked, sync.Printable(err.Error(), messageRunes))
		return
	}
	t.action.Notes = append(t.action.Notes, d.Notes...)
	if t.notCompared = c.NotCompared; len(c.NotCompared) > 0 {
		t.action.Notes = append(t.action.Notes, "not compared, for git has only digests: "+someOf(c.NotCompared))
	}
	m.settle(t, d, live, &c)
}

// unchanged decides about an object that is as git has it.
func (m *maker) unchanged(t *target, live *unstructured.Unstructured) {
	t.decide(Unchanged, "")
	t.action.Held = holdsFields(live)
}

// settle decides about an object that was compared.
func (m *maker) settle(t *target, d *Desired, live *unstructured.Unstructured, c *Comparison) {
	a := t.action
	if len(c.Changes) == 0 {
		m.unchanged(t, live)
		return
	}
	a.Changes = c.Changes
	gr := t.item.Key.GroupResource()
	if problem := m.crdProblem(gr, t.item); problem != "" {
		t.decide(Skip, problem)
		return
	}
	switch {
	case m.runs[gr]:
		t.decide(Skip, fmt.Sprintf("differs, and would run again; to restore it, name %s in --resources", gr))
		return
	case m.hasOwnStatus(t) && statusIsLeft(live, c):
		t.decide(Update, "only the status that git has of it is left to be written")
		return
	case m.opts.Existing != ExistingUpdate:
		t.decide(Skip, "differs; --existing update makes it as git has it")
		return
	case len(c.Lacking) > 0:
		t.decide(Blocked, redactedReason(c.Lacking))
		return
	case len(c.Whole) > 0:
		t.decide(Conflict, someOf(c.Whole)+" cannot be set alone: it is, or holds, a field that the rules leave out, or does not fit the schema; "+
			"edit the object by hand")
		return
	case len(c.Kept) == len(c.Changes):
		t.decide(Conflict, "git has only digests of "+someOf(c.Kept)+", and the cluster other values: set them in the cluster by hand")
		return
	}
	if owner, field := m.respected(c.Changes); owner != "" && !m.opts.Force {
		t.decide(Conflict, fmt.Sprintf("%s is owned by %s, which would set it back: restore it through that tool, or use --force", field, owner))
		return
	}
	body, err := apply.Advance(live.Object, d.Object, c.Set, c.Remove)
	if err != nil || kube.ContainsRedaction(body) {
		t.decide(Blocked, redactedReason(d.Redacted))
		return
	}
	t.decide(Update, "")
	if len(c.Kept) > 0 {
		a.Notes = append(a.Notes, "keeps its values, which are others than git's, of "+someOf(c.Kept)+": git has only digests")
	}
	m.readOwners(t, d)
	t.size = kube.JSONSize(body)
	t.status = slices.ContainsFunc(c.Changes, isOfStatus)
	m.checkOffline(t, body)
}

// hasOwnStatus tells whether the status of an object is written apart from it.
func (m *maker) hasOwnStatus(t *target) bool {
	return t.action.Phase == Objects && m.hasStatus(t.action.Resource)
}

// statusIsLeft tells whether an object is one of a restore that was interrupted before it wrote the
// object's status, and nobody else has written one since: then nothing is lost by writing it. That can
// only be told where the status is written apart from the object.
//
// Invariant: without ExistingUpdate no status is overwritten that somebody wrote (TestStatusIsLeft,
// TestStatusWithoutSubresource).
func statusIsLeft(live *unstructured.Unstructured, c *Comparison) bool {
	return isOurs(live) && !hasWrittenStatus(live) && !slices.ContainsFunc(c.Changes, func(c Change) bool { return !isOfStatus(c) })
}

// respected returns an owner of a field that differs which would set it back, and the field.
func (m *maker) respected(changes []Change) (owner, field string) {
	for _, c := range changes {
		if strings.HasPrefix(c.Field, "status") {
			continue
		}
		for _, name := range c.Owners {
			if slices.Contains(m.opts.Respect, name) {
				return sync.Printable(name, messageRunes), c.Field
			}
		}
	}
	return "", ""
}
