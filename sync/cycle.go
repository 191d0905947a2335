package sync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
)

// rederivations is how often in a row a cycle derives its commit anew because
// another writer was faster, before it leaves the rest to the loop's backoff.
const rederivations = 10

// rederivePause is what the wait before the nth try has n times at most. It is random, so that
// writers that met once do not meet again.
const rederivePause = 50 * time.Millisecond

// Cycle carries what the inbox has, and whatever earlier cycles could not finish,
// into one commit and pushes it. now is the commit's time. While the remote cannot
// be reached, commits pile up in the local clone.
//
// Everything is remembered until a push is acknowledged, so an error loses
// nothing: call Cycle again. The Report tells what was done even then.
func (m *Mirror) Cycle(ctx context.Context, now time.Time) (*Report, error) {
	in := m.inbox.take()
	m.remember(in.entries)
	if n := len(in.entries) + m.spilled; n > 0 {
		m.observer.Taken(n)
	}
	m.spilled = 0
	m.tellWaiting(nil)
	maps.Copy(m.sweeps, in.sweeps)
	m.look.all = m.look.all || in.gone
	m.forgetOld(now)
	report := newReport()
	err := m.cycle(ctx, report, now)
	if err != nil {
		// Waiting bytes are kept in the object store, not in memory.
		err = errors.Join(err, m.spill())
	}
	m.account(report)
	m.tellWaiting(report.Postponed)
	return report, err
}

// tellWaiting tells the Observer what waits. Deletions that are postponed do not wait for
// the remote: they count, and their age does not.
func (m *Mirror) tellWaiting(postponed map[kube.Key]error) {
	var oldest time.Time
	for key, e := range m.pending {
		if postponed[key] == nil && !e.Since.IsZero() && (oldest.IsZero() || e.Since.Before(oldest)) {
			oldest = e.Since
		}
	}
	m.observer.Waiting(m.Waiting(), oldest)
}

func (m *Mirror) cycle(ctx context.Context, report *Report, now time.Time) error {
	for attempt := 1; ; attempt++ {
		unreachable, err := m.catchUp(ctx)
		if err != nil {
			return err
		}
		if unreachable != nil && m.two != nil {
			return unreachable // git's side has to be known, and nothing can be announced
		}
		report.reset()
		err = m.derive(ctx, report, now)
		if err == nil && unreachable != nil {
			return errors.Join(unreachable, m.checkout(ctx, report))
		}
		if err == nil {
			err = m.fenceOff(ctx)
		}
		if err == nil {
			err = m.push(ctx)
		}
		switch {
		case err == nil:
			m.acknowledge(report)
			report.Lost = attempt - 1
			return m.checkout(ctx, report)
		case m.withoutRefs(ctx, err):
			continue
		}
		m.stale = true // whether it arrived, or what is there now, is not known
		if !errors.Is(err, gitstore.ErrDiverged) {
			// The commit stands; the files follow it, whatever became of the push. In
			// a person's repository git would show its reversal as staged otherwise.
			if m.loaded && m.repo.Head() == m.at {
				return errors.Join(err, m.checkout(ctx, report))
			}
			return err
		}
		if attempt == rederivations {
			return fmt.Errorf("another writer was faster %d times: %w", attempt, err)
		}
		m.log.WithField("attempt", attempt).Debug("the branch moved meanwhile; deriving again on top")
		if err := pause(ctx, rand.N(time.Duration(attempt)*rederivePause)); err != nil {
			return err
		}
	}
}

// catchUp refreshes when that is due. A remote that is only away is no error as
// long as the clone's own state serves for a local commit; then it is returned
// as unreachable.
func (m *Mirror) catchUp(ctx context.Context) (unreachable, err error) {
	if !m.stale {
		return nil, nil
	}
	err = m.refresh(ctx)
	if err != nil && m.loaded && m.repo.Head() == m.at && errors.Is(err, gitstore.ErrUnreachable) {
		return err, nil
	}
	return nil, err
}

// derive makes at most one commit (and before it one that only re-encodes, when
// the shaping rules changed), and moves the base with it.
func (m *Mirror) derive(ctx context.Context, report *Report, now time.Time) error {
	if m.deletes() {
		if err := m.identify(ctx); err != nil {
			return err
		}
	}
	if err := m.checkMarker(); err != nil {
		return err
	}
	if err := m.sweep(ctx); err != nil {
		return err
	}
	if err := m.readAgain(ctx); err != nil {
		return err
	}
	if m.two != nil {
		if err := m.recover(ctx, now); err != nil {
			return err
		}
	}
	var reshaped bool
	if m.mayReshape() {
		var err error
		if reshaped, err = m.reshape(ctx, report, now); err != nil {
			return err
		}
	}
	if m.two != nil {
		return m.deriveTwoWay(ctx, report, reshaped, now)
	}
	p, err := m.plan(ctx, now)
	if err != nil {
		return err
	}
	if reshaped { // the rules changed these objects' files, nobody else did
		for i := range p.changes {
			p.changes[i].Manager = kube.Manager{}
		}
	}
	if err := m.commit(ctx, p, report, now); err != nil {
		return err
	}
	return m.announceHeld(ctx, p, now)
}

// deletes tells whether this cycle may find that something was deleted.
func (m *Mirror) deletes() bool {
	if len(m.sweeps) > 0 || len(m.waiting) > 0 {
		return true
	}
	for _, e := range m.pending {
		if e.Op == Absent {
			return true
		}
	}
	return false
}

// push sends branch and refs. In mode two-way that is one step, for what they say
// of each other (case F of the protocol).
func (m *Mirror) push(ctx context.Context) error {
	if m.two != nil {
		return m.pushIf(ctx)
	}
	return m.observePush(func() error { return m.repo.Push(ctx) })
}

// pushIf sends branch and refs if they are at the remote what was judged.
func (m *Mirror) pushIf(ctx context.Context) error {
	return m.observePush(func() error { return m.repo.PushIf(ctx) })
}

// observePush pushes, and lets it be measured if there is something to push.
func (m *Mirror) observePush(push func() error) error {
	if err := m.mayWrite(); err != nil {
		return err
	}
	if m.repo.Unpushed() {
		return m.observe(OpPush, push)
	}
	return push()
}

// checkout lets the files on disk follow the branch. Nothing is ever read back
// from them.
func (m *Mirror) checkout(ctx context.Context, report *Report) error {
	end := m.observer.Begin(OpCheckout)
	left, err := m.repo.UpdateWorktree(ctx)
	end(err)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	report.Left = left
	if err != nil {
		// The commit is where it belongs all the same.
		report.Left = append(report.Left, gitstore.Left{Reason: "it cannot be brought up to date: " + err.Error()})
		report.Again = true
	}
	return nil
}

// commit writes the plan's edits as one commit and moves the base ref along.
func (m *Mirror) commit(ctx context.Context, p *plan, report *Report, now time.Time) error {
	report.Postponed, report.Held = p.postponed, p.held
	m.held = p.held
	if len(p.edits) == 0 {
		return m.moveBase(ctx, now)
	}
	first := m.repo.Head().IsZero() || m.marker == nil
	message := Message(MessageInput{Cluster: m.opts.ClusterName, Initial: first, Changes: p.changes})
	deleted := maps.Clone(m.deleted)
	for _, key := range p.unasked {
		deleted[key] = now
	}
	c := gitstore.Commit{Edits: p.edits, Message: message, When: now}
	if !m.refless && m.two == nil {
		c.BaseMessage = m.baseMessage(deleted)
	}
	end := m.observer.Begin(OpCommit)
	head, err := m.repo.Commit(ctx, c)
	end(err)
	if err != nil {
		return err
	}
	// The blobs are in the object store now.
	for _, c := range p.changes {
		if e, ok := m.pending[c.Key]; ok && e.Op == Present && digestOf(e) == c.blob {
			e.Content, e.Digest = nil, c.blob
			m.pending[c.Key] = e
		}
		delete(m.foreign, c.path)
	}
	m.index, m.marker, m.at = p.index, p.marker, head
	m.index.files = m.repo.Files()
	m.deleted = deleted
	report.add(head.String(), p.changes)
	return m.moveBase(ctx, now)
}

// moveBase lets the base ref say that cluster and git agree on what the branch
// holds now. In this mode the cluster is the truth, so they always do.
func (m *Mirror) moveBase(ctx context.Context, now time.Time) error {
	if m.two != nil {
		return m.moveAgreed(ctx, now)
	}
	if m.repo.Head().IsZero() || m.refless {
		return nil
	}
	_, err := m.repo.Base(ctx, m.refs.Base, m.baseMessage(m.deleted), now)
	return err
}

// withoutRefs gives up our own refs when it is them that the remote refuses: the
// branch is what a backup needs. It tells whether the push is worth another try.
func (m *Mirror) withoutRefs(ctx context.Context, err error) bool {
	var refused *gitstore.RefusedError
	if m.two != nil || m.refless || !errors.As(err, &refused) || !slices.Contains(m.refs.All(), refused.Ref) {
		return false
	}
	m.refless = true
	m.log.WithError(err).Warn("the remote takes no refs below refs/crmirror/; the mirror goes on without them, and held deletions cannot be approved")
	for _, ref := range m.refs.All() {
		if err := m.repo.DeleteRef(ctx, ref); err != nil {
			m.log.WithError(err).WithField("ref", ref).Warn("ref cannot be taken back")
			return false
		}
	}
	return true
}

// acknowledge forgets what the remote has taken.
func (m *Mirror) acknowledge(report *Report) {
	report.Pushed = report.Commit != "" && m.repo.Pushes()
	m.stale, m.fence = false, false
	for key, e := range m.pending {
		if report.Postponed[key] == nil {
			if !e.Listed && !e.Since.IsZero() {
				m.observer.Acknowledged(e.Since)
			}
			delete(m.pending, key)
		}
	}
	for scope := range m.swept {
		m.settled[scope] = true
	}
	for key := range m.waiting {
		if _, exists := m.repo.Lookup(PathOf(key)); !exists {
			delete(m.waiting, key)
		}
	}
	m.shrink()
	clear(m.swept)
	m.remoteAt, m.shared = m.repo.Head(), m.repo.Files()
	if m.two != nil {
		m.acknowledged()
	}
}

// shrink lets go of the room that many objects took, as in the first sync: an empty
// map keeps it, and walking over it costs as much as if it were full.
func (m *Mirror) shrink() {
	if len(m.pending) == 0 {
		m.pending = map[kube.Key]Entry{}
	}
	if len(m.foreign) == 0 {
		m.foreign = map[string]writer{}
	}
	if len(m.unread) == 0 {
		m.unread = map[kube.Key]error{}
	}
}

// account fills in what the report tells of the whole, beyond this cycle.
func (m *Mirror) account(report *Report) {
	report.Failing = m.inbox.Failures()
	report.Refused = m.inbox.Quarantined()
	for _, f := range m.strange {
		report.Findings = append(report.Findings, f)
	}
	for i := range report.Findings {
		f := &report.Findings[i]
		f.File = m.repo.FullPath(f.Path)
	}
	report.Orphans = sortedKeys(m.orphans)
	report.Waiting = m.Waiting()
	report.Again = report.Again || report.Waiting > 0 || m.loaded && m.look.due()
	if m.rewritten != (Finding{}) {
		report.Findings = append(report.Findings, m.rewritten)
		m.rewritten = Finding{}
	}
	for key, err := range m.unread {
		if report.Postponed == nil {
			report.Postponed = map[kube.Key]error{}
		}
		if err != nil {
			report.Postponed[key] = err
		}
	}
	for _, s := range m.cluster.Status() {
		n := report.objects[s.Scope.Resource]
		n.selected += s.Objects
		n.skipped += m.inbox.skippedIn(s.Scope)
		if s.Scope.Resource == namespaceResource && m.index != nil && !m.named(namespaceResource) {
			// Those that hold no mirrored object are left out.
			n.selected = m.index.resources[namespaceResource]
			n.skipped = max(0, s.Objects-n.selected)
		}
		report.objects[s.Scope.Resource] = n
	}
}
