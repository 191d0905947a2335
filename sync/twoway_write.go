package sync

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/threeway"
)

// parallelWrites is how many objects are written at once.
const parallelWrites = 8

// announce is what is told in git of a write before it is made.
func (j *judgement) announce() (announced, error) {
	d := &j.decision
	e := announced{Key: j.key, APIVersion: j.kind.GroupVersion().String(), Base: hashText(j.baseBlob)}
	if j.live != nil {
		e.UID, e.ResourceVersion = j.live.GetUID(), j.live.GetResourceVersion()
	}
	switch d.Object {
	case threeway.CreateObject:
		content, err := kube.Encode(&unstructured.Unstructured{Object: d.Cluster}, j.shape)
		if err != nil {
			return e, fmt.Errorf("announce %s: %w", j.key, err)
		}
		e.Action, e.Values, e.Content = writeCreate, d.Cluster, gitstore.BlobHash(content).String()
	case threeway.DeleteObject:
		e.Action = writeDelete
	default:
		e.Action, e.Set.Set, e.Remove.Set = writeFields, d.Set, d.Remove
		values, err := apply.Extract(d.Cluster, d.Set)
		if err != nil {
			return e, fmt.Errorf("announce %s: %w", j.key, err)
		}
		e.Values = values
	}
	return e, nil
}

// setAnnouncement lets the applying ref say, here, that these writes are under way. That
// none is, it says too: a ref that is there can be expected to be so by a push.
func (m *Mirror) setAnnouncement(ctx context.Context, writes []announced, now time.Time) error {
	if len(writes) == 0 && m.repo.Ref(m.refs.Applying).IsZero() {
		return nil
	}
	content, err := announcement{Writes: mergeWrites(writes)}.marshal()
	if err != nil {
		return err
	}
	if blob, ok, err := m.repo.LookupRoot(m.refs.Applying, announcementFile); err != nil {
		return err
	} else if ok && blob == gitstore.BlobHash(content) {
		return nil
	}
	return m.commitAnnouncement(ctx, content, len(writes), now)
}

// announceAnew is setAnnouncement for writes that are about to be made: the ref moves even if it
// says so already, since a push that moves nothing does not ask the remote what it has.
func (m *Mirror) announceAnew(ctx context.Context, writes []announced, now time.Time) error {
	content, err := announcement{Writes: mergeWrites(writes)}.marshal()
	if err != nil {
		return err
	}
	return m.commitAnnouncement(ctx, content, len(writes), now)
}

func (m *Mirror) commitAnnouncement(ctx context.Context, content []byte, writes int, now time.Time) error {
	// Two agents never make the same commit: each has to know its own.
	message := fmt.Sprintf("Apply %s to %s\n\nAnnouncement: %s\n", count(writes, "change"), m.opts.ClusterName, rand.Text())
	commit, err := m.repo.CommitFile([]gitstore.Hash{m.repo.Head()}, gitstore.File{Name: announcementFile, Content: content}, message, now)
	if err != nil {
		return err
	}
	return m.repo.SetRef(ctx, m.refs.Applying, commit)
}

// execute makes the writes and notes what came of each. One that fails stops no other.
func (m *Mirror) execute(ctx context.Context, writes []*judgement) {
	results, errs := m.two.makeWrites(ctx, writes)
	for i, j := range writes {
		if err := errs[i]; err != nil {
			m.refused(j, err)
			continue
		}
		m.landed(j, results[i])
	}
}

// makeWrites makes writes, some at a time. Both results are as long as writes.
func (t *twoWay) makeWrites(ctx context.Context, writes []*judgement) ([]apply.Result, []error) {
	results, errs := make([]apply.Result, len(writes)), make([]error, len(writes))
	var g errgroup.Group
	g.SetLimit(parallelWrites)
	for i, j := range writes {
		g.Go(func() error {
			results[i], errs[i] = t.makeWrite(ctx, j)
			return nil
		})
	}
	_ = g.Wait() // each error has its place
	return results, errs
}

// try tells, in a dry run, what the writes that were decided would do, and what the server says
// to them if it is asked.
func (m *Mirror) try(ctx context.Context, judged []*judgement) {
	t := m.two
	var writes []*judgement
	for _, j := range judged {
		if j.toWrite() {
			writes = append(writes, j)
		}
	}
	results, errs := make([]apply.Result, len(writes)), make([]error, len(writes))
	if t.opts.Trial {
		results, errs = t.makeWrites(ctx, writes)
	}
	for i, j := range writes {
		r := results[i]
		switch {
		case errors.As(errs[i], &j.refused):
		case errs[i] != nil:
			j.waits = errs[i].Error()
		default:
			j.done = append(j.done, applied{action: j.decision.Object, fields: j.decision.Set.Union(j.decision.Remove),
				displaced: r.Displaced, returned: r.Returned, altered: r.Altered})
		}
	}
}

// makeWrite makes one write. Of a deletion whose object stays for a finalizer the
// result has the object.
func (t *twoWay) makeWrite(ctx context.Context, j *judgement) (apply.Result, error) {
	d := &j.decision
	switch d.Object {
	case threeway.CreateObject:
		return t.opts.Hands.Create(ctx, j.key, j.resource, d.Cluster, j.shaped)
	case threeway.DeleteObject:
		gone, err := t.opts.Hands.Delete(ctx, j.key, j.resource, j.live)
		if err == nil && !gone {
			return apply.Result{Object: j.live}, nil
		}
		return apply.Result{}, err
	}
	return t.opts.Hands.Write(ctx, apply.Change{
		Key: j.key, Resource: j.resource, Live: j.live, Want: d.Cluster, Set: d.Set, Remove: d.Remove, Shaped: j.shaped,
	})
}

// refused notes a write that did not land, or of which that is not known.
func (m *Mirror) refused(j *judgement, err error) {
	t := m.two
	var rejected *apply.Rejected
	switch {
	case errors.As(err, &rejected):
		j.refused = rejected
	case errors.Is(err, apply.ErrUncertain):
		t.doubtful(j)
		j.waits = err.Error()
	default:
		j.waits, j.moved = err.Error(), errors.Is(err, apply.ErrMoved)
	}
}

// doubtful remembers a write of this process of which it is not known whether it landed.
func (t *twoWay) doubtful(j *judgement) {
	e, err := j.announce()
	if err != nil {
		return // then it was not announced, and not made
	}
	if before, ok := t.doubt[j.key]; ok {
		e = mergeWrites([]announced{before, e})[0]
	}
	t.doubt[j.key], t.wrote[j.key] = e, true
}

// landed notes a write that landed, and decides again over what became of it:
// the server's defaults and webhooks have a say.
func (m *Mirror) landed(j *judgement, result apply.Result) {
	t, d := m.two, j.decision
	now := agreement{}
	switch d.Object {
	case threeway.CreateObject:
		now.content = d.Cluster
	case threeway.DeleteObject:
		if result.Object != nil {
			t.doubtful(j) // it is to go, and may for a long time not
			j.waits = "deleted; a finalizer keeps it still"
			return
		}
	default:
		content, err := apply.Advance(j.base.content, d.Cluster, d.Set, d.Remove)
		if err != nil { // then nothing is known of it but what the announcement tells
			t.doubtful(j)
			j.waits = err.Error()
			return
		}
		now.content, now.gaps = content, j.base.without(d.Set.Union(d.Remove))
	}
	delete(t.undone, j.key)
	t.landed[j.key] = landing{from: j.baseBlob, agreement: now}
	t.wrote[j.key] = true
	// Writes that were made for the state before ours are refused from here on.
	delete(t.doubt, j.key)
	t.carried = slices.DeleteFunc(t.carried, func(e announced) bool { return e.Key == j.key })
	before, written := j.cluster, d.Set.Union(d.Remove)
	j.done = append(j.done, applied{action: d.Object, fields: written, displaced: result.Displaced, returned: result.Returned, altered: result.Altered})
	j.base, j.live, j.decision = now, result.Object, threeway.Decision{}
	if j.live != nil {
		var err error
		if j.owners, err = apply.ReadOwnership(j.live); err != nil {
			j.waits = err.Error()
			return
		}
	}
	m.decide(j)
	if j.finding == notSelected {
		j.finding = "applied, and by that no rule selects it any more; its file stays as it is"
	}
	if j.judged() {
		t.lose(j, written, result.Displaced, before)
	}
}

// hashText writes a hash; the zero hash is "".
func hashText(h gitstore.Hash) string {
	if h.IsZero() {
		return ""
	}
	return h.String()
}

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
	if err := m.repo.PushIf(ctx); err != nil {
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

// outcomeOfFields: what our Apply entry owns has landed, at its live value; of the
// other announced fields nothing is known.
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
	told := e.fields().Leaves().RecursiveDifference(j.shaped) // the rules may be others by now
	ours := told.Intersection(owners.Applied()).Difference(e.filledSince(j.cluster))
	ours = ours.Difference(shared(ours, owners, j.cluster))
	content, err := apply.Advance(base.content, j.cluster, ours, nil)
	if err != nil {
		return whole
	}
	unknown := told.Difference(ours)
	if base.unknown.Fields != nil {
		unknown = unknown.Union(base.unknown.Fields.Difference(ours))
	}
	open := gaps{unknown: threeway.Unknown{Object: base.unknown.Object, Fields: unknown}, taken: base.without(e.fields()).taken}
	return outcome{moved: true, agreement: agreement{content: content, gaps: open}}
}

// shared returns those fields that hold others of which somebody else owns some: as for an item
// that was to be removed and that a controller has changed since, our owning the item does not
// tell that all in it is what we wrote.
func shared(fields *fieldpath.Set, owners apply.Ownership, content map[string]any) *fieldpath.Set {
	out := fieldpath.NewSet()
	fields.Iterate(func(path fieldpath.Path) {
		value, _ := ValueAt(content, path)
		switch value.(type) {
		case map[string]any, []any:
		default:
			return
		}
		for _, owner := range owners.Owners(path) {
			if owner.Name != apply.Manager || owner.Operation != "Apply" {
				out.Insert(path.Copy())
				return
			}
		}
	})
	return out
}
