package sync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/informer"
)

// writer is who changed a file of ours in git.
type writer struct {
	commit string // abbreviated
	author string // "" when several commits came at once, and it may be any of them
}

// String names the writer for a commit message; "" when nobody else wrote.
func (w writer) String() string {
	switch {
	case w.commit == "":
		return ""
	case w.author == "":
		return "a commit up to " + w.commit
	}
	return w.commit + " by " + w.author
}

// refresh brings the local clone to what the remote has, and learns the tree
// anew where it changed.
//
// Invariant: nothing is derived on a head that was not loaded, whatever failed
// in between. TestHeadThatCouldNotBeLoaded.
func (m *Mirror) refresh(ctx context.Context) error {
	if err := m.identify(ctx); err != nil && m.uid == "" {
		return err
	}
	fetchErr := m.observe(OpFetch, func() error { return m.repo.Fetch(ctx) })
	if fetchErr != nil && m.repo.Head().IsZero() && !m.loaded {
		return fetchErr
	}
	if !m.loaded || m.repo.Head() != m.at {
		if err := m.load(ctx); err != nil {
			return err
		}
	}
	if fetchErr == nil {
		m.noticeRewrite()
		m.remoteAt = m.repo.Head()
	}
	if fetchErr != nil {
		return fetchErr // the clone's own state serves until the remote answers
	}
	m.stale = false
	if m.fence { // else changes that another agent pushed long ago would count as late
		m.forgetShared()
	}
	return nil
}

// noticeRewrite tells when the remote's branch lost commits that it had: somebody
// rewound, rewrote or deleted it. The present state is derived anew; what those
// commits told is gone with them. In mode two-way, where base stands on such a commit, the cycle
// is refused, and that says what to do.
func (m *Mirror) noticeRewrite() {
	head := m.repo.Head()
	if m.remoteAt.IsZero() || !m.repo.Pushes() || m.repo.Descends(head, m.remoteAt) {
		return
	}
	then := "the present state is written anew, the history between is lost there"
	if m.two != nil {
		if m.checkMarker() != nil || m.checkLineage() != nil {
			return
		}
		then = "what it says now is taken for git's side"
	}
	m.rewritten = Finding{Path: "branch " + m.repo.Branch(), Text: fmt.Sprintf(
		"the remote's branch was rewound, rewritten or deleted: it was at %.12s and is at %.12s; %s", m.remoteAt, head, then)}
}

// identify asks which cluster this is: behind the same address there may be
// another one by now.
func (m *Mirror) identify(ctx context.Context) error {
	uid, err := m.cluster.ClusterUID(ctx)
	if err != nil {
		return err
	}
	m.uid = uid
	return nil
}

// Prepare asks the cluster who it is and the remote what it has, and refuses a
// path that is another cluster's. It is a Cycle's first part, for a start that
// wants to fail early.
func (m *Mirror) Prepare(ctx context.Context) error {
	if err := m.refresh(ctx); err != nil {
		return err
	}
	return m.checkMarker()
}

// load reads the marker and counts the files of the present head. Files that
// differ from what the remote had before were changed by somebody else: their
// objects are read again, since the cluster is the truth in this mode. But for the
// first time, its cost follows what changed.
func (m *Mirror) load(ctx context.Context) error {
	if err := m.readMarker(ctx); err != nil {
		return err
	}
	if err := m.recallHeld(ctx); err != nil {
		return err
	}
	var changed []string
	if m.loaded {
		m.repo.Changes(m.shared, func(path string, _, _ gitstore.Hash) { changed = append(changed, path) })
	} else if info, err := m.repo.Info(m.repo.Ref(m.refs.Base)); err == nil {
		// No base, no earlier process: nothing is known then.
		m.agreed = info.When
		m.recallDeletions(info.Message)
		if err := m.recallWriters(info.Parents); err != nil {
			return err
		}
	}
	if err := m.recheck(ctx, changed); err != nil {
		return err
	}
	m.look.more(changed)
	m.look.more(slices.Collect(maps.Keys(m.strange))) // some are found only there
	clear(m.strange)
	for key := range m.orphans {
		if _, exists := m.repo.Lookup(PathOf(key)); !exists {
			delete(m.orphans, key)
		}
	}
	m.index, m.shared = m.index.follow(m.repo), m.repo.Files()
	m.loaded, m.at = true, m.repo.Head()
	return nil
}

// recallWriters learns which files somebody else wrote since an earlier process moved base, so that a
// commit that undoes it says whose change that was. Their objects are listed anyway.
func (m *Mirror) recallWriters(agreed []gitstore.Hash) error {
	if m.two != nil || len(agreed) == 0 {
		return nil
	}
	who := m.headWriter(agreed[0])
	changes, err := m.repo.Compare(m.refs.Base)
	if err != nil {
		return err
	}
	for _, c := range changes {
		m.foreign[c.Path] = who
	}
	return nil
}

// headWriter names the commit at the branch's head, and its author where no
// other commit came with it since one that is known.
func (m *Mirror) headWriter(since gitstore.Hash) writer {
	head := m.repo.Head()
	info, err := m.repo.Info(head)
	if err != nil {
		return writer{} // the branch is gone, say; then nobody is named
	}
	who := writer{commit: head.String()[:7]}
	if slices.Contains(info.Parents, since) {
		who.author = info.Author
	}
	return who
}

// recheck notes the objects behind paths that somebody else wrote: they are read
// live, and put right where their files differ.
func (m *Mirror) recheck(ctx context.Context, paths []string) error {
	if m.two != nil {
		return nil // it is judged by what base says
	}
	who := m.headWriter(m.remoteAt)
	for _, path := range paths {
		m.foreign[path] = who
		key, err := m.keyAt(ctx, path)
		switch {
		case err == nil:
			m.unread[key] = nil
		case errors.Is(err, gitstore.ErrMissing):
			return err
		}
	}
	return nil
}

// readAgain reads the noted objects live. One that cannot be read now stays noted
// and holds up nothing else.
func (m *Mirror) readAgain(ctx context.Context) error {
	for key, e := range m.pending {
		if e.Op == Present && e.Content == nil && !m.repo.Has(e.Digest) {
			// The clone was made anew, and the bytes went with the old one.
			m.unread[key] = nil
			delete(m.pending, key)
		}
	}
	for keys := range slices.Chunk(sortedKeys(m.unread), livePortion) {
		states, errs := m.readLive(ctx, keys)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for i, key := range keys {
			m.readOne(key, states[i], errs[i])
		}
		if len(keys) == livePortion {
			if err := m.spill(); err != nil {
				return err
			}
		}
	}
	return nil
}

// readOne takes in what a live read of a noted object said.
func (m *Mirror) readOne(key kube.Key, state informer.State, err error) {
	if _, newer := m.pending[key]; newer {
		delete(m.unread, key)
		return
	}
	switch {
	case err == nil:
		m.pending[key] = presentEntry(state)
	case errors.Is(err, informer.ErrNotFound):
		m.pending[key] = Entry{Key: key, Op: Absent, Reason: ReasonDeleted, Epoch: m.inbox.epoch(key.GroupResource())}
	case errors.Is(err, informer.ErrUnselected), errors.Is(err, informer.ErrUnknownKind):
		// An orphan, or a kind that is gone: not ours to put right.
	default:
		m.unread[key] = err
		return
	}
	delete(m.unread, key)
}

// readLive reads objects, some at a time. Both results are as long as keys.
func (m *Mirror) readLive(ctx context.Context, keys []kube.Key) ([]informer.State, []error) {
	states, errs := make([]informer.State, len(keys)), make([]error, len(keys))
	var g errgroup.Group
	g.SetLimit(liveReads)
	for i, key := range keys {
		g.Go(func() error {
			states[i], errs[i] = m.cluster.Get(ctx, key)
			return nil
		})
	}
	_ = g.Wait() // each error has its place
	return states, errs
}
