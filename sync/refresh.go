package sync

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube/informer"
)

// writer is who changed a file of ours in git.
type writer struct {
	commit string // abbreviated
	author string
}

// String names the writer for a commit message; "" when nobody else wrote.
func (w writer) String() string {
	if w.commit == "" {
		return ""
	}
	return fmt.Sprintf("%s by %s", w.commit, w.author)
}

// refresh brings the local clone to what the remote has, and learns the tree
// anew where it changed.
func (m *Mirror) refresh(ctx context.Context) error {
	if m.uid == "" {
		uid, err := m.cluster.ClusterUID(ctx)
		if err != nil {
			return err
		}
		m.uid = uid
	}
	before := m.repo.Head()
	var old map[string]gitstore.Hash
	if m.loaded {
		old = m.snapshot()
	}
	fetchErr := m.repo.Fetch(ctx)
	if fetchErr != nil && (m.loaded || m.repo.Head().IsZero()) {
		return fetchErr
	}
	if !m.loaded || m.repo.Head() != before {
		if err := m.load(ctx, old); err != nil {
			return err
		}
	}
	if fetchErr != nil {
		return fetchErr // the cache's own state serves until the remote answers
	}
	m.stale = false
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

// snapshot copies path → hash of what the remote had last: the present head but
// for local commits.
func (m *Mirror) snapshot() map[string]gitstore.Hash {
	files := make(map[string]gitstore.Hash, m.index.files)
	m.repo.Walk("", func(path string, h gitstore.Hash, _ filemode.FileMode) bool {
		files[path] = h
		return true
	})
	for path, h := range m.unpushed {
		if h.IsZero() {
			delete(files, path)
		} else {
			files[path] = h
		}
	}
	return files
}

// load reads the marker and counts the files of the present head. Files that
// differ from old (when given) were changed by somebody else: their objects
// become dirty, since the cluster is the truth in this mode.
func (m *Mirror) load(ctx context.Context, old map[string]gitstore.Hash) error {
	if err := m.readMarker(ctx); err != nil {
		return err
	}
	idx := newIndex()
	who := m.headWriter()
	var recheck []string
	m.repo.Walk("", func(path string, h gitstore.Hash, _ filemode.FileMode) bool {
		idx.add(path)
		if before, known := old[path]; old != nil && (!known || before != h) {
			m.foreign[path] = who
			recheck = append(recheck, path)
		}
		delete(old, path)
		return true
	})
	for path := range old { // whatever is left was removed by somebody else
		recheck = append(recheck, path)
		m.foreign[path] = who
	}
	if !m.loaded {
		m.recallHeld(ctx)
	}
	m.index, m.loaded, m.checked = idx, true, false
	clear(m.strange)
	clear(m.unpushed)
	for key := range m.orphans {
		if _, exists := m.repo.Lookup(PathOf(key)); !exists {
			delete(m.orphans, key)
		}
	}
	return m.recheck(ctx, recheck)
}

// headWriter names the commit at the branch's head and its author.
func (m *Mirror) headWriter() writer {
	head := m.repo.Head()
	author, err := m.repo.Author(head)
	if err != nil {
		return writer{} // the branch is gone, say; then nobody is named
	}
	return writer{commit: head.String()[:7], author: author}
}

// recheck notes the objects behind paths that somebody else wrote: they are read
// live, and put right where their files differ.
func (m *Mirror) recheck(ctx context.Context, paths []string) error {
	for _, path := range paths {
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
	for _, key := range sortedKeys(m.unread) {
		if _, waits := m.pending[key]; waits {
			delete(m.unread, key)
			continue
		}
		state, err := m.cluster.Get(ctx, key)
		switch {
		case err == nil:
			m.pending[key] = presentEntry(state)
		case errors.Is(err, informer.ErrNotFound):
			m.pending[key] = Entry{Key: key, Op: Absent, Reason: ReasonDeleted, Epoch: m.inbox.epoch(key.GroupResource())}
		case errors.Is(err, informer.ErrUnselected), errors.Is(err, informer.ErrUnknownKind):
			// An orphan, or a kind that is gone: not ours to put right.
		case ctx.Err() != nil:
			return ctx.Err()
		default:
			m.unread[key] = err
			continue
		}
		delete(m.unread, key)
	}
	return nil
}
