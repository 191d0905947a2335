package restore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	gosync "sync"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/bulk"
	"github.com/crmirror/crmirror/sync"
)

// Make plans a restore: what is to become of each object of the snapshot that the options select, and of
// the CRDs and Namespaces that those stand on. It writes nothing, and reads each kind with one
// listing per version. What keeps an object from being written is in the Plan; the error is about
// the cluster or the repository, or about options that make no sense.
func Make(ctx context.Context, s *Snapshot, cluster Cluster, opts *Options) (*Plan, error) {
	m := &maker{s: s, cluster: &steady{Cluster: cluster, jitter: rand.Float64}, opts: opts, runs: opts.running(), plan: &Plan{Commit: Commit(s.Commit), Time: s.Time}}
	for _, step := range []func(context.Context) error{
		m.look, m.choose, m.compare, m.decode, m.preflight,
	} {
		if err := step(ctx); err != nil {
			return nil, fmt.Errorf("plan the restore of %s: %w", s.Commit, err)
		}
	}
	m.finish()
	return m.plan, nil
}

// maker makes one plan.
type maker struct {
	s       *Snapshot
	cluster Cluster
	opts    *Options
	runs    map[schema.GroupResource]bool // what is left out because it would run again
	plan    *Plan

	served       *bulk.Served
	undiscovered string // why it is not known what is served; "" if it is
	// definitions are the CRDs that the cluster has; defined are those of the commit.
	definitions, defined map[schema.GroupResource]*apiextensionsv1.CustomResourceDefinition
	spaces               map[string]*unstructured.Unstructured // the Namespaces of the cluster

	targets []*target            // in the order of the snapshot
	byKey   map[kube.Key]*target // in the cluster
	live    sharedUIDs
	// extra, unless nil, is told of live objects that are no target, from several goroutines.
	extra    func(kube.Key, *unstructured.Unstructured)
	verifies bool    // nothing is to be written
	schemas  schemas // of what the cluster does not serve yet

	mu gosync.Mutex // guards the plan's findings while kinds are compared
}

// target is an object that is to be planned.
type target struct {
	item    Item
	support bool // others stand on it; it is not selected itself
	action  *Action
	at      schema.GroupVersionResource // where it was looked for in the cluster
	found   bool                        // the cluster has it
	owners  []ownerRef                  // what git's references name, if it may be written
	refs    []ownerRef                  // what the live references name
	size    int                         // bytes as JSON, if it was read
	status  bool                        // git has a status of it, if it was read

	terminates  bool     // the cluster is deleting it
	assumed     bool     // it is taken to be there, for nothing else can be told
	converted   bool     // it is written at another version than that of its file
	notCompared []string // fields of which git has only digests
}

// decided tells whether the verb stands.
func (t *target) decided() bool { return t.action.Verb != "" }

func (t *target) decide(verb Verb, reason string) {
	t.action.Verb, t.action.Reason = verb, reason
}

// block takes back what was decided about an object that would be written.
func (t *target) block(reason string) {
	if v := t.action.Verb; v == "" || v == Create || v == Update {
		t.decide(Blocked, reason)
	}
}

// look reads what the cluster serves and has by way of definitions and namespaces.
func (m *maker) look(ctx context.Context) (err error) {
	if m.plan.ClusterUID, err = m.cluster.ClusterUID(ctx); err != nil {
		return err
	}
	if m.served, err = m.cluster.Discover(ctx); err != nil {
		if m.undiscovered, err = refusedFor(err); err != nil {
			return err
		}
		m.served = &bulk.Served{}
	}
	if m.definitions, err = m.cluster.CRDs(ctx); err != nil {
		reason, err := refusedFor(err)
		if err != nil {
			return err
		}
		m.find(crdResource.String(), "cannot be listed: at which version a kind is stored, and whether its CRD is being deleted, is not known: "+reason)
	}
	return errors.Join(m.lookAtNamespaces(ctx), m.readDefinitions(ctx))
}

func (m *maker) lookAtNamespaces(ctx context.Context) error {
	m.spaces = map[string]*unstructured.Unstructured{}
	_, err := m.cluster.List(ctx, namespaceResource.WithVersion("v1"), "", "", func(live *unstructured.Unstructured) error {
		m.spaces[live.GetName()] = live
		return nil
	})
	if err == nil {
		return nil
	}
	reason, err := refusedFor(err)
	if err != nil {
		return err
	}
	m.spaces = nil
	m.find(namespaceResource.String(), "cannot be listed: whether those that objects lie in are there is not known: "+reason)
	return nil
}

// choose makes the targets.
func (m *maker) choose(ctx context.Context) error {
	if err := m.opts.Check(); err != nil {
		return err
	}
	sel, err := m.s.choose(ctx, m.opts)
	if err != nil {
		return err
	}
	if err := m.s.Prefetch(ctx, slices.Concat(sel.items, sel.support)); err != nil {
		return err
	}
	m.byKey = map[kube.Key]*target{}
	m.live = sharedUIDs{uids: map[kube.Key]string{}, going: map[kube.Key]bool{}}
	for _, item := range sel.items {
		m.add(item, false)
	}
	for _, item := range sel.support {
		m.add(item, true)
	}
	slices.SortFunc(m.targets, func(a, b *target) int { return sync.CompareKeys(a.item.Key, b.item.Key) })
	findings, err := m.s.findingsOf(m.opts)
	if err != nil {
		return err
	}
	m.plan.Findings = append(m.plan.Findings, findings...)
	return m.checkSelection(len(sel.items))
}

// spaceOf returns the namespace that an object lies in, or is.
func spaceOf(key kube.Key) string {
	if key.GroupResource() == namespaceResource {
		return key.Name
	}
	return key.Namespace
}

func (m *maker) add(item Item, support bool) {
	t := &target{item: item, support: support, action: &Action{
		Phase: phaseOf(item.Key.GroupResource()), Key: m.opts.mapKey(item.Key), From: item.Key, Path: item.Path, Blob: item.Blob,
	}}
	m.targets = append(m.targets, t)
	if other := m.byKey[t.action.Key]; other != nil {
		m.collide(other, t)
		return
	}
	m.byKey[t.action.Key] = t
}

// collide decides between two targets of one key in the cluster: what has that key in git too wins, and of two
// that are mapped to it neither does. A Namespace is the same for both, and the other is only noted.
func (m *maker) collide(winner, loser *target) {
	if loser.action.Key == loser.item.Key {
		winner, loser = loser, winner
	}
	m.byKey[winner.action.Key] = winner
	if winner.action.Phase == Namespaces {
		winner.action.Notes = append(winner.action.Notes, fmt.Sprintf(
			"namespace %s is mapped to it too: its own labels and annotations are not restored", loser.item.Key.Name))
		m.targets = slices.DeleteFunc(m.targets, func(t *target) bool { return t == loser })
		return
	}
	const reason = "%s has the same name and namespace in the cluster, after --map-namespace; restore one of them"
	loser.decide(Blocked, fmt.Sprintf(reason, winner.item.Key))
	if winner.action.Key != winner.item.Key {
		winner.decide(Blocked, fmt.Sprintf(reason, loser.item.Key))
	}
}

func phaseOf(gr schema.GroupResource) Phase {
	switch gr {
	case crdResource:
		return CRDs
	case namespaceResource:
		return Namespaces
	}
	return Objects
}

// readers is how many kinds are listed, and files read, at the same time.
const readers = 4

// compare finds what the cluster has of the targets: first of CRDs, for what the plan does about them says at which
// versions their objects can be written.
func (m *maker) compare(ctx context.Context) error {
	if m.undiscovered != "" {
		m.unknown("discovery", "what the cluster serves cannot be told: "+m.undiscovered, m.targets)
		return nil
	}
	groups := map[schema.GroupResource][]*target{}
	var order []schema.GroupResource
	for _, t := range m.targets {
		gr := t.item.Key.GroupResource()
		if groups[gr] == nil {
			order = append(order, gr)
		}
		groups[gr] = append(groups[gr], t)
	}
	if err := m.compareKind(ctx, crdResource, groups[crdResource]); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	for _, gr := range order {
		if gr == crdResource {
			continue
		}
		g.Go(func() error { return m.compareKind(ctx, gr, groups[gr]) })
	}
	return g.Wait()
}

// decode reads what the cluster lacks, and decides about it.
func (m *maker) decode(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	for _, t := range m.targets {
		if !t.decided() {
			g.Go(func() error { return m.missing(ctx, t) })
		}
	}
	return g.Wait()
}

// missing decides about an object that the cluster lacks.
func (m *maker) missing(ctx context.Context, t *target) error {
	gr := t.item.Key.GroupResource()
	if m.runs[gr] {
		t.decide(Skip, fmt.Sprintf("would run again; to restore it, name %s in --resources", gr))
		return nil
	}
	d, err := m.wanted(ctx, t)
	if err != nil || d == nil {
		return err
	}
	t.action.Notes = append(t.action.Notes, d.Notes...)
	if len(d.Redacted) > 0 {
		t.decide(Blocked, "git has only digests of "+someOf(d.Redacted)+": create the object with the values by hand, or put them into git")
		return nil
	}
	t.decide(Create, "")
	m.readOwners(t, d)
	t.size = kube.JSONSize(d.Object)
	t.status = d.Object["status"] != nil
	m.checkOffline(t, d.Object)
	return nil
}

// wanted reads what an object shall be, at a version that the server will have. It is nil when
// the object cannot be written, which is decided then.
func (m *maker) wanted(ctx context.Context, t *target) (*Desired, error) {
	d, err := m.s.Wanted(ctx, t.item, "", m.opts)
	var unreadable *FileError
	if errors.As(err, &unreadable) {
		t.decide(Blocked, "its file "+t.item.Path+" cannot be read: "+sync.Printable(unreadable.Err.Error(), messageRunes))
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	place, note, problem := m.place(t.item.Key.GroupResource(), versionOf(d.Object))
	if problem != "" {
		t.decide(Blocked, problem)
		return nil, nil
	}
	if note != "" {
		t.action.Notes, t.converted = append(t.action.Notes, note), true
		d.Object["apiVersion"] = place.GroupVersion().String()
	}
	t.action.Resource = place
	return d, nil
}

// messageRunes bounds a text that somebody else wrote.
const messageRunes = 300

// finish puts the actions in order.
func (m *maker) finish() {
	for _, t := range m.targets {
		if t.support && t.found && !t.terminates {
			continue // others stand on it, and it is there
		}
		m.plan.Actions = append(m.plan.Actions, *t.action)
	}
	slices.SortStableFunc(m.plan.Actions, func(a, b Action) int {
		if a.Phase != b.Phase {
			return int(a.Phase - b.Phase)
		}
		return sync.CompareKeys(a.Key, b.Key)
	})
}
