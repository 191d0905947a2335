package sync

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/threeway"
)

// recoverWrites finds out what became of writes that were announced and of which this
// process does not know the outcome, and lets base say so, and what landed and was not
// pushed yet, before anything else is done (DESIGN 5, step 5).
//
// Invariant: what cannot be told is unknown, never guessed; and nothing that is known
// is forgotten before a push was acknowledged that holds it. Tests: TestCrash, TestTwoCrashes, TestLandedBeforeMore.
func (m *Mirror) recoverWrites(ctx context.Context, now time.Time) error {
	t := m.two
	entries, err := m.openWrites(ctx)
	if err != nil {
		return err
	}
	news := map[kube.Key]agreement{} // what base has to say
	var carried, open []announced
	t.unmade = map[kube.Key]announced{}
	for _, e := range mergeWrites(entries) {
		o, err := m.outcome(ctx, e)
		switch {
		case err != nil:
			return err
		case o.pending:
			open = append(open, e)
			if o.unmade {
				t.unmade[e.Key] = e
			}
			if _, own := t.doubt[e.Key]; !own {
				carried = append(carried, e)
			}
		case o.moved && !t.fresh: // else nothing is agreed, and base begins with the whole cycle
			news[e.Key] = o.agreement
		}
	}
	for key, l := range t.landed {
		blob, _, err := m.repo.LookupIn(m.refs.Base, PathOf(key))
		if err != nil {
			return err
		}
		if _, told := news[key]; !told && blob == l.from && !t.fresh {
			news[key] = l.agreement
		}
	}
	if len(news) > 0 {
		if err := m.promote(ctx, news, open, now); err != nil {
			return err
		}
	}
	t.carried = carried
	for key := range t.doubt {
		if !hasWrite(open, key) {
			delete(t.doubt, key)
		}
	}
	for key := range news {
		delete(t.landed, key)
		t.wrote[key] = true
	}
	if len(news) == 0 {
		return nil
	}
	return t.reached(StepRecovered)
}

// promote pushes a base that says what is known to be agreed, and the announcements
// that are open still.
func (m *Mirror) promote(ctx context.Context, news map[kube.Key]agreement, open []announced, now time.Time) error {
	t := m.two
	var edits []gitstore.Edit
	for _, key := range sortedKeys(news) {
		edits = append(edits, m.agreeOn(key, news[key])...)
	}
	var err error
	if t.base, err = m.withUnknown(edits); err != nil {
		return err
	}
	if err := m.setAnnouncement(ctx, open, now); err != nil {
		return err
	}
	if err := m.moveAgreed(ctx, now); err != nil {
		return err
	}
	if err := m.pushIf(ctx); err != nil {
		return fmt.Errorf("settle %s that was announced: %w", count(len(news), "change"), err)
	}
	m.announcementPushed()
	return nil
}

// unanswered are the announcements that have to stand on: another's that may land
// yet, and our own whose outcome is not known.
func (t *twoWay) unanswered() []announced {
	list := append([]announced(nil), t.carried...)
	for _, key := range sortedKeys(t.doubt) {
		list = append(list, t.doubt[key])
	}
	return list
}

// openWrites returns the announced writes whose outcome this process does not know.
func (m *Mirror) openWrites(ctx context.Context) ([]announced, error) {
	t := m.two
	at := m.repo.Ref(m.refs.Applying)
	if at.IsZero() {
		return nil, nil
	}
	if t.mine[at] {
		return t.unanswered(), nil
	}
	// Another's; our own that are open stand in it, or somebody else knew better.
	clear(t.doubt)
	return m.announcedNow(ctx)
}

// announcedNow reads the announcement.
func (m *Mirror) announcedNow(ctx context.Context) ([]announced, error) {
	if m.repo.Ref(m.refs.Applying).IsZero() {
		return nil, nil
	}
	blob, ok, err := m.repo.LookupRoot(m.refs.Applying, announcementFile)
	if err != nil {
		return nil, err
	}
	var a announcement
	if !ok {
		err = fmt.Errorf("it has no file %s", announcementFile)
	} else {
		content, readErr := m.repo.Read(ctx, blob)
		if readErr != nil {
			return nil, readErr
		}
		a, err = parseAnnouncement(content)
	}
	if err != nil {
		return nil, fmt.Errorf("%s cannot be understood: %w; if no newer crmirror works here, delete it: git push REMOTE :%s",
			m.refs.Applying, err, m.refs.Applying)
	}
	return a.Writes, nil
}

// outcome is what became of an announced write.
type outcome struct {
	pending bool // nothing landed, and it may yet
	unmade  bool // pending, and the object is in the state that it was announced for
	moved   bool // base has to say something else than it does
	agreement
}

// outcome tells what became of an announced write, by the object as it is now.
func (m *Mirror) outcome(ctx context.Context, e announced) (outcome, error) {
	path := PathOf(e.Key)
	blob, _, err := m.repo.LookupIn(m.refs.Base, path)
	if err != nil {
		return outcome{}, err
	}
	if hashText(blob) != e.Base {
		return outcome{}, nil // base moved since: whoever moved it knew
	}
	base, err := m.agreementOn(ctx, e.Key, blob)
	if err != nil {
		return outcome{}, err
	}
	whole := outcome{moved: true, agreement: agreement{content: base.content, gaps: gaps{unknown: threeway.Unknown{Object: true}}}}
	gv, err := schema.ParseGroupVersion(e.APIVersion)
	if err != nil {
		return whole, nil // nobody knows what that was
	}
	live, err := m.two.opts.Hands.Read(ctx, e.Key, gv.Version)
	if err != nil && !errors.Is(err, apply.ErrNotFound) {
		// Not known now; the object waits, and nothing else does.
		return outcome{pending: true}, ctx.Err()
	}
	switch {
	case e.Action == writeCreate && live == nil && m.withdrawn(e):
		return outcome{}, nil
	case e.Action == writeCreate && live == nil,
		live != nil && live.GetUID() == e.UID && live.GetResourceVersion() == e.ResourceVersion:
		return outcome{pending: true, unmade: true}, nil
	case live == nil:
		return whole, nil
	case e.Action == writeCreate:
		return m.outcomeOfCreate(e, live, whole), nil
	case live.GetUID() != e.UID:
		return whole, nil
	case e.Action == writeDelete && live.GetDeletionTimestamp() != nil:
		return outcome{pending: true}, nil // a finalizer keeps it
	case e.Action == writeDelete:
		return outcome{}, nil // it cannot land any more
	}
	return m.outcomeOfFields(e, base, live, whole), nil
}

// createWithin is how long after its announcement an object is created at most.
const createWithin = 2 * time.Minute

// lateAfter is how long an announced creation stays open that git took back. It leaves room for a long
// cycle before the announcement, and for clocks that differ.
const lateAfter = 10 * time.Minute

// withdrawn tells whether nobody is to make an announced creation any more, of an object that is absent
// and not agreed on: git has no file for it, and whoever announced it has given up by now. If one lands
// in spite of that, the object is new in the cluster and comes to git: no value is lost.
//
// Invariant: whoever announces a creation makes it within createWithin, or announces it again.
// Tests: TestUnmadeCreate, TestCreatesInTime.
func (m *Mirror) withdrawn(e announced) bool {
	if _, exists := m.repo.Lookup(PathOf(e.Key)); exists || e.Base != "" {
		return false
	}
	info, err := m.repo.Info(m.repo.Ref(m.refs.Applying))
	return err == nil && m.two.now.Sub(info.When) >= lateAfter
}

// outcomeOfCreate: an object that is what was announced, and is ours, was created.
func (m *Mirror) outcomeOfCreate(e announced, live *unstructured.Unstructured, whole outcome) outcome {
	j := &judgement{key: e.Key, live: live}
	m.normalize(j)
	owners, err := apply.ReadOwnership(live)
	if err != nil || j.cluster == nil || owners.Owned().Empty() {
		return whole
	}
	content, err := kube.Encode(&unstructured.Unstructured{Object: j.cluster}, j.shape)
	if err != nil || gitstore.BlobHash(content).String() != e.Content {
		return whole
	}
	return outcome{moved: true, agreement: agreement{content: j.cluster}}
}

// outcomeOfFields tells field by field. What is set and we own is as we wrote it, now or before: base
// takes its value. A JSON patch makes us the owner by Update, and that goes with the first
// change of the value like that by Apply (TestCrashBesideRemoval). What is removed and our Apply entry owns any of is not removed, for with a
// field its ownership goes: base keeps what it has of it, whatever others made of the rest. Of the other
// announced fields nothing is known; that a field to be removed is absent may be somebody else's doing.
//
// Invariant: base never takes for agreed what somebody put into a field that was to be removed.
// Test: TestRemovalDies.
func (m *Mirror) outcomeOfFields(e announced, base agreement, live *unstructured.Unstructured, whole outcome) outcome {
	if base.content == nil || base.content["apiVersion"] != live.Object["apiVersion"] {
		return whole
	}
	owners, err := apply.ReadOwnership(live)
	if err != nil {
		return whole
	}
	j := &judgement{key: e.Key, live: live}
	m.normalize(j)
	if j.cluster == nil {
		return whole
	}
	applied := owners.Applied().RecursiveDifference(j.shaped)
	set, remove := e.Set.leaves().RecursiveDifference(j.shaped), e.Remove.all().RecursiveDifference(j.shaped) // the rules may be others by now
	ours := set.Intersection(applied.Union(owners.Updated())).Difference(e.filledSince(j.cluster))
	content, err := apply.Advance(base.content, j.cluster, ours, nil)
	if err != nil {
		return whole
	}
	unknown := set.Difference(ours).Union(lacking(remove, applied))
	if base.unknown.Fields != nil {
		unknown = unknown.Union(base.unknown.Fields.Difference(ours))
	}
	open := gaps{unknown: threeway.Unknown{Object: base.unknown.Object, Fields: unknown}, taken: base.without(e.fields()).taken}
	return outcome{moved: true, agreement: agreement{content: content, gaps: open}}
}

// lacking returns those of fields that are not in a set, nor anything below them.
func lacking(fields, in *fieldpath.Set) *fieldpath.Set {
	out := fieldpath.NewSet()
	fields.Iterate(func(path fieldpath.Path) {
		below := in
		for _, step := range path {
			below = below.WithPrefix(step)
		}
		if !in.Has(path) && below.Empty() {
			out.Insert(path.Copy())
		}
	})
	return out
}
