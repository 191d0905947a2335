package sync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/filemode"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/threeway"
)

// settle plans the files and the base of what was judged: what the cluster changed goes to
// git, and base takes what both sides have from now on.
func (m *Mirror) settle(ctx context.Context, p *plan, judged []*judgement) error {
	clear(m.two.settled) // an attempt before may have come to nothing
	for _, j := range judged {
		if j.waits != "" {
			p.postponed[j.key] = errors.New(j.waits) // its key stays dirty
		}
		open := m.two.isOpen(j.key)
		if len(j.done) > 0 && !j.judged() && !open {
			m.settleLanded(j)
			continue
		}
		if j.gone && !open {
			m.forget(j)
			continue
		}
		if j.finding != "" || open || !j.judged() {
			if m.two.fresh { // it is to be asked about, not taken for new
				m.two.setUnknown(j.key, gaps{unknown: threeway.Unknown{Object: true}})
			}
			continue
		}
		m.two.settled[j.key] = true
		m.settleOne(ctx, p, j)
		m.informerCaughtUp(j)
	}
	edits, err := m.withMarker(m.two.base, p)
	if err == nil {
		m.two.base, err = m.withUnknown(edits)
	}
	return err
}

// forget lets base drop an object that no rule selects and whose file is gone: a person removed
// an orphan. Nothing is written to the cluster for it.
func (m *Mirror) forget(j *judgement) {
	j.finding = ""
	m.two.settled[j.key] = true
	m.two.base = append(m.two.base, m.agreeOn(j.key, agreement{})...)
}

// withMarker lets base have .crmirror.yaml as the branch has it after a plan: people and
// other commands write it too, and nobody's edit is to be seen in it.
func (m *Mirror) withMarker(edits []gitstore.Edit, p *plan) ([]gitstore.Edit, error) {
	edit := gitstore.Edit{Path: MarkerName}
	now, exists := m.repo.Lookup(MarkerName)
	edit.Blob = now
	for _, e := range p.edits {
		if e.Path == MarkerName {
			edit, exists = e, true
			if e.Content != nil {
				now = gitstore.BlobHash(e.Content)
			}
		}
	}
	was, _, err := m.repo.LookupIn(m.refs.Base, MarkerName)
	if err != nil || !exists || was == now {
		return edits, err
	}
	edits = slices.DeleteFunc(edits, func(e gitstore.Edit) bool { return e.Path == MarkerName })
	return append(edits, edit), nil
}

// isOpen tells whether a write to an object is announced whose outcome is not known.
//
// Invariant: base does not move for such an object, since the announcement names the
// base that it was judged against. Test: TestAnswerLost.
func (t *twoWay) isOpen(key kube.Key) bool {
	_, doubted := t.doubt[key]
	return doubted || hasWrite(t.carried, key)
}

// settleOne plans one object's file and base.
func (m *Mirror) settleOne(ctx context.Context, p *plan, j *judgement) {
	d := &j.decision
	base := agreement{content: d.Base, gaps: gaps{unknown: d.Unknown, taken: takenBackIn(d.Conflicts)}}
	if j.writes() { // it did not land
		base.content = d.Kept
	}
	if d.Object == threeway.DeleteFile {
		return // the mirror's part, with its proofs
	}
	blob := j.gitBlob
	if d.File != nil && (j.git == nil || !sameObject(d.File, j.git)) {
		edit, err := m.fileEdit(j, d.File)
		if err != nil {
			if j.finding = j.explain(err); len(j.done) > 0 {
				m.settleLanded(j)
			}
			return
		}
		change := changeOf(j, edit, d.File)
		m.undo(ctx, j, change)
		if blob = change.blob; change.Op == Created {
			p.index.add(j.path)
		}
		p.edits, p.changes = append(p.edits, edit), append(p.changes, *change)
	}
	if base.content != nil && d.File != nil && sameObject(base.content, d.File) {
		m.two.setUnknown(j.key, base.gaps)
		m.two.base = append(m.two.base, gitstore.Edit{Path: j.path, Blob: blob}) // as it is written, comments and all
		return
	}
	m.two.base = append(m.two.base, m.agreeOn(j.key, base)...)
}

// undo says in a change of a file whose edit of the status it undoes. Where it does nothing
// else, nobody changed the object.
func (m *Mirror) undo(ctx context.Context, j *judgement, c *Change) {
	status := fieldpath.MakePathOrDie("status")
	if !j.editsStatus() || j.git == nil {
		return
	}
	c.Undoes = "an edit of status"
	if by := m.since(ctx, []asked{{file: j.path, field: status, has: valueOf(j.git, status)}})[0]; by.Commit != "" {
		c.Undoes = by.Commit[:7] + " by " + by.Author
	}
	rest, file := maps.Clone(j.git), maps.Clone(j.decision.File)
	delete(rest, "status")
	delete(file, "status")
	if sameObject(rest, file) {
		c.Manager = kube.Manager{}
	}
}

// editsStatus tells whether a person edited the status in the file.
func (j *judgement) editsStatus() bool {
	return slices.ContainsFunc(j.decision.Findings, func(f threeway.Finding) bool { return f.Kind == threeway.EditsStatus })
}

// settleLanded lets base say what a write left that landed, where what the cluster has since
// cannot be judged: the write took the object out of the selection, say.
//
// Invariant: an announcement is not taken back before base holds what landed of it.
// Test: TestUnselectedByGit.
func (m *Mirror) settleLanded(j *judgement) {
	m.two.settled[j.key] = true
	if j.git != nil && j.base.content != nil && sameObject(j.base.content, j.git) {
		m.two.setUnknown(j.key, j.base.gaps)
		m.two.base = append(m.two.base, gitstore.Edit{Path: j.path, Blob: j.gitBlob})
		return
	}
	m.two.base = append(m.two.base, m.agreeOn(j.key, j.base)...)
}

// sameObject compares decoded contents.
func sameObject(a, b map[string]any) bool { return kube.EqualValues(a, b) }

// withUnknown adds unknownFile to the edits of base, and leaves out those that change nothing.
func (m *Mirror) withUnknown(edits []gitstore.Edit) ([]gitstore.Edit, error) {
	content, err := marshalUnknown(m.two.unknown)
	if err != nil {
		return nil, err
	}
	var out []gitstore.Edit
	last := gitstore.Edit{Path: unknownFile, Content: content, Delete: content == nil}
	for _, e := range append(slices.Clone(edits), last) {
		was, exists, err := m.repo.LookupIn(m.refs.Base, e.Path)
		if err != nil {
			return nil, err
		}
		now := e.Blob
		if e.Content != nil {
			now = gitstore.BlobHash(e.Content)
		}
		if e.Delete && exists || !e.Delete && (!exists || now != was) {
			out = append(out, e)
		}
	}
	return out, nil
}

// informerCaughtUp notes that the informer has seen our own write.
func (m *Mirror) informerCaughtUp(j *judgement) {
	e, ok := m.pending[j.key]
	if ok && (j.live == nil && e.Op == Absent || j.live != nil && e.Op == Present && e.ResourceVersion == j.live.GetResourceVersion()) {
		delete(m.two.wrote, j.key)
	}
}

// agreeToDelete hands over to the mirror the files whose objects are gone from the
// cluster while git has what was agreed.
func (m *Mirror) agreeToDelete(judged []*judgement) {
	for _, j := range judged {
		if !j.decided() || j.decision.Object != threeway.DeleteFile {
			continue
		}
		delete(m.two.judging, j.key)
		if _, pending := m.pending[j.key]; !pending {
			m.pending[j.key] = Entry{Key: j.key, Op: Absent, Reason: ReasonDeleted, Epoch: m.inbox.epoch(j.key.GroupResource())}
		}
	}
}

// guardPrunes lets deletions in git through to the cluster, as far as the
// configuration and the guard allow; the others are held.
//
// Invariant (DESIGN 5): an object is deleted only with prune, only if base proves that
// git held it, only if it equals base, within the guard, and never while a file
// of ours cannot be read, or holds it elsewhere. Tests: TestPrune, TestUnreadableFileStopsPrunes,
// TestMovedFile.
func (m *Mirror) guardPrunes(ctx context.Context, judged []*judgement, now time.Time) (HeldSet, error) {
	t := m.two
	byKey := map[kube.Key]*judgement{}
	clear(t.undone)
	bad, err := m.badFiles(ctx, judged)
	if err != nil {
		return nil, err
	}
	in := GuardInput{Files: m.governedFiles(), Held: m.held, Limits: m.opts.Guard, Now: now}
	for _, j := range judged {
		if !j.decided() || j.decision.Object != threeway.DeleteObject {
			continue
		}
		switch {
		case !t.opts.Prune:
			j.waiting = "deleted in git; its object stays, since apply.prune is off"
		case len(bad) > 0:
			j.waiting, j.again = "deleted in git; nothing is deleted until "+theseFiles(bad), true
		case m.movedTo(j.key) != "":
			j.waiting, j.again = "its file was moved to "+m.movedTo(j.key)+", from where it is not applied; its object stays until the file is back, or gone", true
		default:
			byKey[j.key] = j
			in.Candidates = append(in.Candidates, Candidate{Key: j.key, Reason: ReasonPruned})
			in.Files[j.key.GroupResource()]++ // as many as there were before
		}
	}
	if len(byKey) == 0 {
		return nil, nil
	}
	if in.Approved, err = m.approved(ctx); err != nil {
		return nil, err
	}
	for key, when := range m.deleted {
		if byKey[key] == nil {
			in.History = append(in.History, Deletion{Resource: key.GroupResource(), When: when})
		}
	}
	allowed, held := Guard(in)
	for _, key := range allowed {
		byKey[key].prune = true
		if in.Approved[key] {
			t.undone[key] = true
		} else {
			m.deleted[key] = now
		}
	}
	return held, nil
}

// badFiles names, from the repository's root, the files of ours that may be any object's: they
// cannot be read, or hold what cannot be applied from there. All are looked at only where a
// deletion hangs on it, and each content once.
func (m *Mirror) badFiles(ctx context.Context, judged []*judgement) ([]string, error) {
	bad := m.badChanges(judged)
	if !m.two.opts.Prune ||
		!slices.ContainsFunc(judged, func(j *judgement) bool { return j.decided() && j.decision.Object == threeway.DeleteObject }) {
		return bad, nil
	}
	var paths []string
	var blobs []gitstore.Hash
	m.repo.Walk("", func(path string, blob gitstore.Hash, mode filemode.FileMode) bool {
		if _, _, err := KeyOf(path); err == nil && isFile(mode) && !m.two.readable[blob] {
			paths, blobs = append(paths, path), append(blobs, blob)
		}
		return true
	})
	if err := m.repo.Prefetch(ctx, blobs); err != nil {
		return nil, err
	}
	for i, path := range paths {
		content, err := m.repo.Read(ctx, blobs[i])
		if err != nil {
			return nil, err
		}
		if _, _, err := decodeAt(path, content); err != nil {
			bad = append(bad, m.repo.FullPath(path))
			continue
		}
		m.two.readable[blobs[i]] = true
	}
	slices.Sort(bad)
	return slices.Compact(bad), nil
}

// badChanges names those among what differs from base.
func (m *Mirror) badChanges(judged []*judgement) []string {
	var bad []string
	now := map[kube.Key]bool{}
	for _, j := range judged {
		now[j.key] = true
		if j.finding != "" && j.git == nil && !j.gitBlob.IsZero() {
			bad = append(bad, m.repo.FullPath(j.path))
		}
	}
	for _, key := range sortedKeys(m.two.left) {
		if m.two.left[key].unreadable && m.two.judging[key] && !now[key] {
			bad = append(bad, m.repo.FullPath(PathOf(key)))
		}
	}
	for path, f := range m.strange {
		if f.unreadable {
			bad = append(bad, m.repo.FullPath(path))
		}
	}
	return bad
}

// theseFiles says of files what has to become of them; of many it names the first ones.
func theseFiles(files []string) string {
	const named = 5
	switch n := len(files); {
	case n == 1:
		return "this file is mended or removed: " + files[0]
	case n <= named:
		return fmt.Sprintf("these %d files are mended or removed: %s", n, strings.Join(files, ", "))
	default:
		return fmt.Sprintf("these %d files are mended or removed: %s and %d more", n, strings.Join(files[:named], ", "), n-named)
	}
}

func isFile(mode filemode.FileMode) bool {
	return mode == filemode.Regular || mode == filemode.Executable || mode == filemode.Deprecated
}

// reshapeBase re-encodes base beside the tree, so that a change of the rules is
// nobody's edit.
func (m *Mirror) reshapeBase(ctx context.Context, p *plan) ([]gitstore.Edit, error) {
	reshaped := map[string]Change{}
	for _, c := range p.changes {
		reshaped[c.path] = c
	}
	files, err := m.repo.FilesIn(m.refs.Base)
	if err != nil {
		return nil, err
	}
	var edits []gitstore.Edit
	var blobs []gitstore.Hash
	for path, blob := range files {
		now, ok := m.repo.Lookup(path)
		if c, done := reshaped[path]; done && c.before == blob {
			edits = append(edits, gitstore.Edit{Path: path, Blob: c.blob})
			delete(files, path)
		} else if ok && now == blob {
			delete(files, path) // it needs no other form at the head, so it needs none here
		} else {
			blobs = append(blobs, blob)
		}
	}
	if err := m.repo.Prefetch(ctx, blobs); err != nil {
		return nil, err
	}
	for path, blob := range files {
		content, err := m.repo.Read(ctx, blob)
		if err != nil {
			return nil, err
		}
		if _, shaped, ok := m.reshaped(path, content); ok {
			edits = append(edits, gitstore.Edit{Path: path, Content: shaped})
		}
	}
	return edits, nil
}
