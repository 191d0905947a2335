package sync

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
)

const (
	describedChanges = 50  // objects of a commit whose changed fields are worked out
	fieldsPerObject  = 8   // field paths named for one of them
	liveReads        = 8   // reads of single objects under way at once
	livePortion      = 256 // objects read before their contents leave memory
)

// plan is what the next commit would hold, as data.
type plan struct {
	edits   []gitstore.Edit
	changes []Change
	index   *index     // the counts after the edits
	marker  *Tree      // .crmirror.yaml after the edits
	unasked []kube.Key // deleted without a person's approval
	held    HeldSet
	// approved is what a person let through.
	approved map[kube.Key]bool
	// complete says that everything that waits was judged.
	complete bool
	// postponed are objects whose deletion could not be proven now, with the reason.
	postponed map[kube.Key]error
}

// plan judges every pending entry against the present head. It reads from git
// and, before it lets a deletion through, from the cluster; it writes nothing.
func (m *Mirror) plan(ctx context.Context, now time.Time) (*plan, error) {
	p := &plan{
		index: m.index.clone(), postponed: map[kube.Key]error{},
		// As many as there can be: in a first sync, growing them would take twice the room.
		edits: make([]gitstore.Edit, 0, len(m.pending)), changes: make([]Change, 0, len(m.pending)),
	}
	if err := m.prefetch(ctx); err != nil {
		return nil, err
	}
	var candidates []candidate
	var namespaces []Entry
	for _, key := range sortedKeys(m.pending) {
		e := m.pending[key]
		switch {
		case m.judges(key):
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
			// What needs nothing done here stays pending all the same, until the
			// push: the file may be missing only in a local commit, and the
			// remote still have it (TestRemoteDown).
			if ok {
				candidates = append(candidates, c)
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
	p.complete = true
	return p, m.planMarker(p)
}

// prefetch asks at once for the old contents that the plan reads, for a clone that
// does not have them.
func (m *Mirror) prefetch(ctx context.Context) error {
	var blobs []gitstore.Hash
	for key, e := range m.pending {
		if m.judges(key) {
			continue
		}
		if blob, exists := m.repo.Lookup(PathOf(key)); exists && (e.Op == Absent || blob != digestOf(e)) {
			blobs = append(blobs, blob)
		}
	}
	return m.repo.Prefetch(ctx, blobs)
}

func sortedKeys[V any](set map[kube.Key]V) []kube.Key {
	return slices.SortedFunc(maps.Keys(set), CompareKeys)
}

// present plans the file of an object that exists.
func (m *Mirror) present(ctx context.Context, p *plan, e Entry) error {
	path := PathOf(e.Key)
	blob, exists := m.repo.Lookup(path)
	digest := digestOf(e)
	if exists && blob == digest {
		return nil
	}
	if !exists && m.obstructed(path) {
		m.strange[path] = Finding{Path: path, Key: e.Key, Text: "a folder, or a file in the place of a folder, is in the way of " + e.Key.String()}
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
	if m.two == nil && m.isSettled(e.Key) && !touched {
		return false, nil // we wrote that file; its bytes differ, so its content does
	}
	old, err := m.repo.Read(ctx, blob)
	if err != nil {
		return false, err
	}
	if reason := m.ours(e.Key, old); reason != nil {
		was, err := m.wasOurs(ctx, e.Key, path)
		if err != nil {
			return false, err
		}
		if !was {
			line, text := lineOf(reason)
			m.strange[path] = Finding{Path: path, Line: line, Key: e.Key, Text: text}
			m.foreign[path] = writer{} // it has to be looked at next time too
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

// obstructed tells whether git cannot hold a file at path, since a folder has
// that name, or a file that of a folder on the way.
func (m *Mirror) obstructed(path string) bool {
	folder := false
	m.repo.Walk(path, func(string, gitstore.Hash, filemode.FileMode) bool {
		folder = true
		return false
	})
	for dir := path; !folder; {
		i := strings.LastIndexByte(dir, '/')
		if i < 0 {
			return false
		}
		dir = dir[:i]
		if _, file := m.repo.Lookup(dir); file {
			return true
		}
	}
	return true
}

// wasOurs tells whether the path held a file of ours when git and the cluster
// last agreed. Then what a person made of it is undone, and the commit says so.
func (m *Mirror) wasOurs(ctx context.Context, key kube.Key, path string) (bool, error) {
	base := m.repo.Ref(m.refs.Base)
	if base.IsZero() {
		return false, nil
	}
	content, ok, err := m.repo.ReadFile(ctx, base, m.repo.FullPath(path))
	return ok && m.ours(key, content) == nil, err
}

// describe sorts the changes and works out which fields changed, for as many
// objects as the commit message lists.
func (m *Mirror) describe(ctx context.Context, p *plan) error {
	slices.SortFunc(p.changes, func(a, b Change) int { return CompareKeys(a.Key, b.Key) })
	described := 0
	for i := range p.changes {
		c := &p.changes[i]
		if c.Op != Changed || c.Fields != nil || described == describedChanges {
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
