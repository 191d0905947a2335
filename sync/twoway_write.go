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
	until := time.Now().Add(createWithin)
	var g errgroup.Group
	g.SetLimit(parallelWrites)
	for i, j := range writes {
		g.Go(func() error {
			results[i], errs[i] = t.makeWrite(ctx, j, until)
			return nil
		})
	}
	_ = g.Wait() // each error has its place
	return results, errs
}

// errLate says that a creation may count as withdrawn by the time that it would be made.
var errLate = errors.New("it was announced too long ago; it is announced again")

// makeWrite makes one write. Of a deletion whose object stays for a finalizer the
// result has the object. Nothing is created after until.
func (t *twoWay) makeWrite(ctx context.Context, j *judgement, until time.Time) (apply.Result, error) {
	if t.lease != nil {
		if err := t.lease.Held(); err != nil {
			return apply.Result{}, err
		}
	}
	d := &j.decision
	switch d.Object {
	case threeway.CreateObject:
		if !time.Now().Before(until) {
			return apply.Result{}, errLate
		}
		ctx, cancel := context.WithDeadline(ctx, until)
		defer cancel()
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
