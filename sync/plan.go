package sync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/informer"
)

const (
	describedChanges = 50 // objects of a commit whose changed fields are worked out
	fieldsPerObject  = 8  // field paths named for one of them
	liveReads        = 8  // reads of single objects under way at once
)

// plan is what the next commit would hold, as data.
type plan struct {
	edits   []gitstore.Edit
	changes []Change
	index   *index     // the counts after the edits
	marker  *Tree      // .crmirror.yaml after the edits
	unasked []kube.Key // deleted without a person's approval
	held    HeldSet
	used    bool // an approval was used up
	// postponed are objects whose deletion could not be proven now, with the reason.
	postponed map[kube.Key]error
}

// candidate is a file whose object seems to be gone.
type candidate struct {
	key    kube.Key
	path   string
	blob   gitstore.Hash
	reason Reason
}

// plan judges every pending entry against the present head. It reads from git
// and, before it lets a deletion through, from the cluster; it writes nothing.
func (m *Mirror) plan(ctx context.Context, now time.Time) (*plan, error) {
	p := &plan{index: m.index.clone(), postponed: map[kube.Key]error{}}
	var candidates []candidate
	var namespaces []Entry
	for _, key := range sortedKeys(m.pending) {
		e := m.pending[key]
		switch {
		case m.follows(key):
			namespaces = append(namespaces, e)
		case e.Op == Present:
			if err := m.present(ctx, p, e); err != nil {
				return nil, err
			}
		default:
			c, ok, err := m.candidate(ctx, e)
			if err != nil {
				return nil, err
			}
			if ok {
				candidates = append(candidates, c)
			} else {
				delete(m.pending, key)
			}
		}
	}
	more, err := m.waitingCandidates(ctx)
	if err != nil {
		return nil, err
	}
	if err := m.deletions(ctx, p, append(candidates, more...), now); err != nil {
		return nil, err
	}
	if err := m.namespaces(ctx, p, namespaces); err != nil {
		return nil, err
	}
	if err := m.describe(ctx, p); err != nil {
		return nil, err
	}
	return p, m.planMarker(p)
}

func sortedKeys[V any](set map[kube.Key]V) []kube.Key {
	return slices.SortedFunc(maps.Keys(set), CompareKeys)
}

// follows tells whether key is a Namespace that is mirrored only because of the
// objects in it.
func (m *Mirror) follows(key kube.Key) bool {
	return m.opts.Namespaces && key.GroupResource() == namespaceResource && !m.named(namespaceResource)
}

// present plans the file of an object that exists.
func (m *Mirror) present(ctx context.Context, p *plan, e Entry) error {
	path := PathOf(e.Key)
	blob, exists := m.repo.Lookup(path)
	digest := digestOf(e)
	if exists && blob == digest {
		return nil
	}
	change := Change{Key: e.Key, Op: Created, Manager: e.Manager, path: path, blob: digest}
	if exists {
		same, err := m.sameContent(ctx, e, path, blob)
		if err != nil || same {
			return err
		}
		who := m.foreign[path]
		change.Op, change.Undoes, change.before = Changed, who.String(), blob
	}
	delete(m.orphans, e.Key)
	p.changes = append(p.changes, change)
	edit := gitstore.Edit{Path: path, Content: e.Content}
	if e.Content == nil {
		edit.Blob = digest
	}
	p.edits = append(p.edits, edit)
	if !exists {
		p.index.add(path)
	}
	return nil
}

// sameContent tells whether the file at path needs no writing, either since a
// person wrote the same content in another form, which is left as it is, or
// since it is not a file of ours.
func (m *Mirror) sameContent(ctx context.Context, e Entry, path string, blob gitstore.Hash) (bool, error) {
	_, touched := m.foreign[path]
	if m.isSettled(e.Key) && !touched {
		return false, nil // we wrote that file; its bytes differ, so its content does
	}
	old, err := m.repo.Read(ctx, blob)
	if err != nil {
		return false, err
	}
	if reason := m.ours(e.Key, old); reason != nil {
		was, err := m.wasOurs(ctx, path)
		if err != nil {
			return false, err
		}
		if !was {
			m.strange[path] = Finding{Path: path, Key: e.Key, Text: reason.Error()}
		}
		return !was, nil
	}
	content, err := m.content(ctx, e)
	if err != nil {
		return false, err
	}
	same := kube.Equal(old, content)
	if same && !touched { // its form is a person's; it has to be decoded next time too
		m.foreign[path] = writer{}
	}
	return same, nil
}

// wasOurs tells whether the path held a file of ours when git and the cluster
// last agreed. Then what a person made of it is undone, and the commit says so.
func (m *Mirror) wasOurs(ctx context.Context, path string) (bool, error) {
	base := m.repo.Ref(m.refs.Base)
	if base.IsZero() {
		return false, nil
	}
	_, ok, err := m.repo.ReadFile(ctx, base, m.repo.FullPath(path))
	return ok, err
}

// candidate judges whether an absent object's file may be deleted at all.
func (m *Mirror) candidate(ctx context.Context, e Entry) (candidate, bool, error) {
	c := candidate{key: e.Key, path: PathOf(e.Key), reason: e.Reason}
	blob, exists := m.repo.Lookup(c.path)
	if !exists || m.inbox.isRefused(e.Key) {
		return c, false, nil
	}
	c.blob = blob
	if c.reason == ReasonDeleted && m.inbox.replaced(e.Key.GroupResource(), e.Epoch) {
		c.reason = ReasonKindGone
	}
	content, err := m.repo.Read(ctx, blob)
	if err != nil {
		return c, false, err
	}
	if reason := m.ours(e.Key, content); reason != nil {
		m.strange[c.path] = Finding{Path: c.path, Key: e.Key, Text: reason.Error()}
		return c, false, nil
	}
	governed, err := m.governed(e.Key, content)
	if err != nil {
		return c, false, err
	}
	if !governed {
		m.orphans[e.Key] = struct{}{}
		return c, false, nil
	}
	return c, true, nil
}

// waitingCandidates are the held deletions that still have a file and are not
// pending in another state.
func (m *Mirror) waitingCandidates(ctx context.Context) ([]candidate, error) {
	var out []candidate
	for _, key := range sortedKeys(m.waiting) {
		if _, pending := m.pending[key]; pending {
			continue
		}
		w := m.waiting[key]
		blob, exists := m.repo.Lookup(PathOf(key))
		if !exists {
			delete(m.waiting, key)
			continue
		}
		if blob != w.blob { // somebody wrote it since it was judged
			c, ok, err := m.candidate(ctx, Entry{Key: key, Op: Absent, Reason: w.reason})
			if err != nil {
				return nil, err
			}
			if !ok {
				delete(m.waiting, key)
				continue
			}
			w = c
		}
		out = append(out, w)
	}
	return out, nil
}

// deletions lets those candidates through that are proven and within the guard;
// the others wait.
func (m *Mirror) deletions(ctx context.Context, p *plan, candidates []candidate, now time.Time) error {
	if len(candidates) == 0 {
		return nil
	}
	if err := m.proveKinds(ctx, p, candidates); err != nil {
		return err
	}
	approved, err := m.approved(ctx)
	if err != nil {
		return err
	}
	in := GuardInput{
		Files: m.index.resources, History: m.deleted, Held: m.held,
		Approved: approved, Limits: m.opts.Guard, Now: now,
	}
	byKey := map[kube.Key]candidate{}
	for _, c := range candidates {
		if p.postponed[c.key] == nil {
			byKey[c.key] = c
			in.Candidates = append(in.Candidates, Candidate{Key: c.key, Reason: c.reason})
		}
	}
	var allowed []kube.Key
	allowed, p.held = Guard(in)
	for _, h := range p.held {
		m.waiting[h.Key] = byKey[h.Key]
		delete(m.pending, h.Key)
	}
	sure := make([]candidate, 0, len(allowed))
	for _, key := range allowed {
		sure = append(sure, byKey[key])
	}
	return m.confirm(ctx, p, sure, approved)
}

// proveKinds asks once per resource whether its kind still stands as it was
// listed. Where it does not, absences are no proof; where that cannot be told
// now, nothing of the resource is deleted in this cycle.
func (m *Mirror) proveKinds(ctx context.Context, p *plan, candidates []candidate) error {
	proofs := map[schema.GroupResource]error{}
	for i, c := range candidates {
		gr := c.key.GroupResource()
		if gr == crdResource && m.index.resources[crdNames(c.key.Name)] > 0 {
			candidates[i].reason = ReasonKindGone
			continue
		}
		if c.reason == ReasonKindGone {
			continue
		}
		err, asked := proofs[gr]
		if !asked {
			err = m.cluster.Proven(ctx, gr)
			proofs[gr] = err
		}
		switch {
		case errors.Is(err, informer.ErrKindGone):
			candidates[i].reason = ReasonKindGone
		case err != nil:
			if ctx.Err() != nil {
				return ctx.Err()
			}
			p.postponed[c.key] = err
		}
	}
	return nil
}

// confirm reads every object that is about to lose its file once more, live.
//
// Invariant (promise 3): no file is deleted unless the server said, after the
// deletion was planned, that the object is not there, or that no rule selects
// it, or a person approved exactly that deletion. TestDeleteIsConfirmed.
func (m *Mirror) confirm(ctx context.Context, p *plan, sure []candidate, approved map[kube.Key]bool) error {
	states := make([]informer.State, len(sure))
	errs := make([]error, len(sure))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(liveReads)
	for i, c := range sure {
		g.Go(func() error {
			states[i], errs[i] = m.cluster.Get(gctx, c.key)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, c := range sure {
		err := errs[i]
		switch {
		case err == nil: // it is there again
			m.pending[c.key] = presentEntry(states[i])
			if err := m.present(ctx, p, m.pending[c.key]); err != nil {
				return err
			}
		case errors.Is(err, informer.ErrUnselected):
			p.delete(c, Unselected, approved[c.key])
		case errors.Is(err, informer.ErrNotFound), approved[c.key]:
			p.delete(c, Deleted, approved[c.key])
		default:
			if ctx.Err() != nil {
				return ctx.Err()
			}
			p.postponed[c.key] = err
		}
	}
	return nil
}

func (p *plan) delete(c candidate, op Op, approved bool) {
	p.edits = append(p.edits, gitstore.Edit{Path: c.path, Delete: true})
	p.changes = append(p.changes, Change{Key: c.key, Op: op, path: c.path, before: c.blob})
	if approved {
		p.used = true
	} else { // what a person approved does not count against the guard
		p.unasked = append(p.unasked, c.key)
	}
	p.index.remove(c.path)
}

// namespaces plans the files of the Namespaces that are mirrored for what they
// hold: one is there as long as a mirrored object is in it.
func (m *Mirror) namespaces(ctx context.Context, p *plan, entries []Entry) error {
	if !m.opts.Namespaces || m.named(namespaceResource) {
		return nil
	}
	told := map[string]Entry{}
	for _, e := range entries {
		told[e.Key.Name] = e
		if p.index.namespaces[e.Key.Name] == 0 {
			delete(m.pending, e.Key)
		}
	}
	names := map[string]bool{}
	for name := range told {
		names[name] = true
	}
	for name, n := range p.index.namespaces {
		if (n > 0) != (m.index.namespaces[name] > 0) || (n > 0 && !m.isSettled(kube.Key{Resource: namespaceResource.Resource, Name: name})) {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if err := m.namespace(ctx, p, name, told[name], p.index.namespaces[name] > 0); err != nil {
			return err
		}
	}
	return nil
}

func (m *Mirror) namespace(ctx context.Context, p *plan, name string, told Entry, needed bool) error {
	key := kube.Key{Resource: namespaceResource.Resource, Name: name}
	path := PathOf(key)
	blob, exists := m.repo.Lookup(path)
	switch {
	case !needed && exists:
		content, err := m.repo.Read(ctx, blob)
		if err != nil {
			return err
		}
		if m.ours(key, content) == nil {
			p.edits = append(p.edits, gitstore.Edit{Path: path, Delete: true})
			p.changes = append(p.changes, Change{Key: key, Op: Unselected, path: path, before: blob})
			p.index.remove(path)
		}
		return nil
	case needed && told.Op == Present:
		return m.present(ctx, p, told)
	case needed && !exists:
		state, err := m.cluster.Get(ctx, key)
		if errors.Is(err, informer.ErrNotFound) {
			return nil // its objects are on their way out too
		}
		if err != nil {
			p.postponed[key] = err
			return nil
		}
		m.pending[key] = presentEntry(state)
		return m.present(ctx, p, m.pending[key])
	}
	delete(m.pending, key)
	return nil
}

// describe sorts the changes and works out which fields changed, for as many
// objects as the commit message lists.
func (m *Mirror) describe(ctx context.Context, p *plan) error {
	slices.SortFunc(p.changes, func(a, b Change) int { return CompareKeys(a.Key, b.Key) })
	described := 0
	for i := range p.changes {
		c := &p.changes[i]
		if c.Op != Changed || described == describedChanges {
			continue
		}
		described++
		old, err := m.repo.Read(ctx, c.before)
		if err != nil {
			return err
		}
		now, err := m.content(ctx, m.pending[c.Key])
		if err != nil {
			return fmt.Errorf("read the new state of %s: %w", c.Key, err)
		}
		// A file that cannot be decoded was no file of ours any more; then
		// the message says only that it changed.
		c.Fields, _ = kube.DiffPaths(old, now, fieldsPerObject)
	}
	return nil
}
