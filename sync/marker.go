package sync

import (
	"context"
	"fmt"
	"time"

	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
)

// OtherClusterError says that the path in git belongs to another cluster, or to
// nobody that can be told. Nothing is written there until a person adopts it:
// an agent started on the new, empty cluster after a disaster must not empty
// the backup.
type OtherClusterError struct {
	Path  string // of .crmirror.yaml, from the repository's root
	Files int    // files of ours below it
	Name  string // the cluster that it names; "" when there is no marker
	UID   string // that cluster's uid
	Ours  string // this cluster's uid
	Again string // Options.Again
}

func (e *OtherClusterError) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("%s is missing, yet %d files of custom resources lie beside it, whose cluster cannot be told; "+
			"nothing is written. To let this cluster (uid %s) take them over: crmirror adopt%s", e.Path, e.Files, e.Ours, e.Again)
	}
	return fmt.Sprintf("%s belongs to cluster %q with uid %s, but this cluster has uid %s; nothing is written. "+
		"To let this cluster take the path over: crmirror adopt%s", e.Path, e.Name, e.UID, e.Ours, e.Again)
}

// EmptiedError says that everything below the path is gone from git, though cluster and
// git had agreed on files there: nobody wants to delete a whole cluster by that.
type EmptiedError struct {
	Path  string // of .crmirror.yaml, from the repository's root
	Again string // Options.Again
}

func (e *EmptiedError) Error() string {
	return fmt.Sprintf("%s and all files beside it are gone from the branch; nothing is applied. To have them back: git revert; "+
		"to begin anew with what the cluster has: crmirror adopt%s", e.Path, e.Again)
}

// baseHolds tells whether base has files of objects.
func (m *Mirror) baseHolds() bool {
	files, err := m.repo.FilesIn(m.refs.Base)
	if err != nil {
		return true // not to be guessed
	}
	for path := range files {
		if _, _, err := KeyOf(path); err == nil {
			return true
		}
	}
	return false
}

// readMarker reads .crmirror.yaml at the present head.
func (m *Mirror) readMarker(ctx context.Context) error {
	m.marker = nil
	if _, ok := m.repo.Lookup(MarkerName); !ok {
		return nil
	}
	content, err := m.readFile(ctx, MarkerName)
	if err != nil {
		return err
	}
	tree, err := ParseTree(content)
	if err != nil {
		return fmt.Errorf("%s: %w", m.repo.FullPath(MarkerName), err)
	}
	m.marker = tree
	return nil
}

// checkMarker refuses a path that is not this cluster's.
//
// Invariant: no commit is derived before it has passed for the head that the
// commit stands on. TestOtherClusterIsRefused.
func (m *Mirror) checkMarker() error {
	refused := &OtherClusterError{Path: m.repo.FullPath(MarkerName), Files: m.index.known(), Ours: m.uid, Again: m.opts.Again}
	switch {
	case m.marker == nil && refused.Files == 0 && m.two != nil && !m.repo.Ref(m.refs.Base).IsZero() && m.baseHolds():
		if m.repo.Head().IsZero() {
			return m.checkLineage()
		}
		return &EmptiedError{Path: refused.Path, Again: m.opts.Again}
	case m.marker == nil && refused.Files == 0:
		return nil
	case m.marker == nil:
		return refused
	case m.marker.ClusterUID != m.uid:
		refused.Name, refused.UID = m.marker.Cluster, m.marker.ClusterUID
		return refused
	}
	return nil
}

// planMarker adds .crmirror.yaml to the plan when it has to say something else.
func (m *Mirror) planMarker(p *plan) error {
	want := m.opts.Tree
	want.ClusterUID = m.uid
	if m.marker != nil && m.marker.Adopted != nil && !m.adoptionSettled(p) {
		want.Adopted = m.marker.Adopted
	}
	p.marker = &want
	if m.marker != nil && m.marker.Equal(&want) {
		return nil // also when a person formatted it
	}
	content, err := want.Marshal()
	if err != nil {
		return fmt.Errorf("write %s: %w", MarkerName, err)
	}
	if blob, ok := m.repo.Lookup(MarkerName); ok && blob == gitstore.BlobHash(content) {
		return nil
	}
	p.edits = append(p.edits, gitstore.Edit{Path: MarkerName, Content: content})
	return nil
}

// adoptionSettled tells whether nothing is left of an adopted tree that this
// cluster lacks and nobody decided on, be it objects or whole kinds.
func (m *Mirror) adoptionSettled(p *plan) bool {
	return p.complete && !p.held.Has(ReasonAdopted) && !p.held.Has(ReasonKindGone) && len(p.postponed) == 0 && m.allListed()
}

// allListed tells whether every scope was listed completely and compared with git.
func (m *Mirror) allListed() bool {
	for _, s := range m.cluster.Status() {
		if !m.swept[s.Scope] && !m.settled[s.Scope] {
			return false
		}
	}
	return !m.look.due()
}

// reshape re-encodes the tree under the present shaping rules, in a commit of
// its own, when .crmirror.yaml says that it was written under others. What the
// rules keep in addition comes with the objects themselves. It tells whether it did.
func (m *Mirror) reshape(ctx context.Context, report *Report, now time.Time) (bool, error) {
	if m.marker == nil || m.marker.SameShaping(&m.opts.Tree) && !m.lateShape() {
		return false, nil
	}
	if m.two != nil {
		clear(m.two.unshaped)
	}
	p := &plan{index: m.index, held: m.held}
	var paths []string
	var blobs []gitstore.Hash
	m.repo.Walk("", func(path string, blob gitstore.Hash, _ filemode.FileMode) bool {
		paths, blobs = append(paths, path), append(blobs, blob)
		return true
	})
	if err := m.repo.Prefetch(ctx, blobs); err != nil {
		return false, err
	}
	var bytes int
	for _, path := range paths {
		n, err := m.reshapeFile(ctx, p, path)
		if err != nil {
			return false, err
		}
		if bytes += n; bytes >= defaultMaxBytes {
			if err := m.store(p.edits); err != nil {
				return false, err
			}
			bytes = 0
		}
	}
	if err := m.planMarker(p); err != nil {
		return false, err
	}
	if m.two != nil {
		edits, err := m.reshapeBase(ctx, p)
		if err != nil {
			return false, err
		}
		if m.two.base, err = m.withMarker(edits, p); err != nil {
			return false, err
		}
	}
	return true, m.commit(ctx, p, report, now)
}

// store moves the contents of edits out of memory.
func (m *Mirror) store(edits []gitstore.Edit) error {
	var contents [][]byte
	var at []int
	for i, e := range edits {
		if e.Content != nil {
			contents, at = append(contents, e.Content), append(at, i)
		}
	}
	hashes, err := m.repo.PutBlobs(contents)
	if err != nil {
		return err
	}
	for n, i := range at {
		edits[i].Content, edits[i].Blob = nil, hashes[n]
	}
	return nil
}

// reshapeFile plans one file's new form and returns its size; 0 when it stays.
func (m *Mirror) reshapeFile(ctx context.Context, p *plan, path string) (int, error) {
	if _, _, err := KeyOf(path); err != nil {
		return 0, nil // not ours
	}
	content, err := m.readFile(ctx, path)
	if err != nil {
		return 0, err
	}
	key, shaped, ok := m.reshaped(path, content)
	if !ok {
		return 0, nil
	}
	before, _ := m.repo.Lookup(path)
	p.edits = append(p.edits, gitstore.Edit{Path: path, Content: shaped})
	p.changes = append(p.changes, Change{Key: key, Op: Reshaped, path: path, blob: gitstore.BlobHash(shaped), before: before})
	return len(shaped), nil
}

// reshaped returns the content of a file of ours under the present rules, and the
// key of its object. It is false for what is not ours, for an orphan, which keeps the
// shape it has, for what has no encoding now, which is quarantined when it is read live,
// for a content that stays the same, and for what has to wait.
func (m *Mirror) reshaped(path string, content []byte) (kube.Key, []byte, bool) {
	key, obj, err := decodeAt(path, content)
	if err != nil || m.ours(key, content) != nil {
		return key, nil, false
	}
	rule, ok := m.ruleOf(obj, key.GroupResource())
	if !ok {
		return key, nil, false
	}
	shaped, err := kube.Encode(obj, &rule.Shape)
	if err != nil || kube.Equal(shaped, content) || m.keepsShape(key) {
		return key, nil, false
	}
	return key, shaped, true
}
