package sync

import (
	"context"
	"errors"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/informer"
)

// candidate is a file whose object seems to be gone.
type candidate struct {
	key    kube.Key
	path   string
	blob   gitstore.Hash
	reason Reason
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
		if m.judges(key) {
			continue
		}
		if e, pending := m.pending[key]; pending {
			if e.Op == Present {
				delete(m.waiting, key)
			}
			continue
		}
		w := m.waiting[key]
		blob, exists := m.repo.Lookup(PathOf(key))
		if !exists || m.inbox.isRefused(key) {
			continue // deleted in a commit that waits to be pushed; or it is there again
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
	p.approved = approved
	in := GuardInput{Files: m.governedFiles(), Held: m.held, Approved: approved, Limits: m.opts.Guard, Now: now}
	byKey := map[kube.Key]candidate{}
	for _, c := range candidates {
		if p.postponed[c.key] == nil {
			byKey[c.key] = c
			in.Candidates = append(in.Candidates, Candidate{Key: c.key, Reason: c.reason})
		}
	}
	for key, when := range m.deleted {
		if _, again := byKey[key]; !again { // else its commit came to nothing, and it is judged anew
			in.History = append(in.History, Deletion{Resource: key.GroupResource(), When: when})
		}
	}
	var allowed []kube.Key
	allowed, p.held = Guard(in)
	for _, h := range m.held { // what cannot be judged now stays held
		if p.postponed[h.Key] != nil {
			p.held = append(p.held, h)
		}
	}
	p.held = p.held.sorted()
	for _, h := range p.held {
		if _, judged := byKey[h.Key]; !judged {
			continue
		}
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
	keys := make([]kube.Key, len(sure))
	for i, c := range sure {
		keys[i] = c.key
	}
	states, errs := m.readLive(ctx, keys)
	if ctx.Err() != nil {
		return ctx.Err()
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
		case errors.Is(err, informer.ErrNotFound), approved[c.key] && errors.Is(err, informer.ErrUnknownKind):
			p.delete(c, Deleted, approved[c.key])
		default:
			p.postponed[c.key] = err
		}
	}
	return nil
}

// governedFiles counts the files by resource that deletions are measured
// against: without orphans and without what is not ours.
func (m *Mirror) governedFiles() map[schema.GroupResource]int {
	files := maps.Clone(m.index.resources)
	for key := range m.orphans {
		files[key.GroupResource()]--
	}
	for _, f := range m.strange {
		if f.Key != (kube.Key{}) {
			files[f.Key.GroupResource()]--
		}
	}
	return files
}

func (p *plan) delete(c candidate, op Op, approved bool) {
	p.edits = append(p.edits, gitstore.Edit{Path: c.path, Delete: true})
	p.changes = append(p.changes, Change{Key: c.key, Op: op, path: c.path, before: c.blob})
	if !approved { // what a person approved does not count against the guard
		p.unasked = append(p.unasked, c.key)
	}
	p.index.remove(c.path)
}
