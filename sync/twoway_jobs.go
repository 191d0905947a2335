package sync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
)

// leftOpen is what is open about an object, and the state that it was judged in:
// unless that moves, it is not judged again.
type leftOpen struct {
	gitBlob, baseBlob gitstore.Hash
	retry             bool
	refusal           refusal   // of its write; zero when none was refused
	known             bool      // at the remote, as far as there is something to be known
	judged            time.Time // when
	unreadable        bool      // the file
	conflicts         []Conflict
	findings          []Finding
	refusals          []Refusal
}

// toJudge returns the keys about which git and base say different things, or of
// which more has to be known than the informers tell.
func (m *Mirror) toJudge(ctx context.Context) ([]kube.Key, error) {
	t := m.two
	t.judging, t.agreed = map[kube.Key]bool{}, nil
	set, err := m.changedInGit(ctx)
	if err != nil {
		return nil, err
	}
	for _, keys := range []map[kube.Key]struct{}{keySet(t.unknown), keySet(t.landed)} {
		maps.Copy(set, keys)
	}
	for _, e := range t.unanswered() {
		set[e.Key] = struct{}{} // the mirror would let base move
	}
	for key := range m.pending {
		if t.wrote[key] || len(t.taken[key]) > 0 || t.fresh && !m.goesAlong(key) {
			set[key] = struct{}{}
		}
	}
	if err := m.prefetchJudged(ctx, set); err != nil {
		return nil, err
	}
	if err := m.readTold(ctx, set); err != nil {
		return nil, err
	}
	var keys []kube.Key
	for _, key := range sortedKeys(set) {
		t.judging[key] = true
		agreed, err := m.agreeAtOnce(ctx, key)
		if err != nil {
			return nil, err
		}
		if !agreed && !m.stillOpen(key) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// prefetchJudged asks at once for what git and base have of objects, for a clone that does not
// have it. What git has as the cluster has it is not read.
func (m *Mirror) prefetchJudged(ctx context.Context, keys map[kube.Key]struct{}) error {
	var blobs []gitstore.Hash
	for key := range keys {
		path := PathOf(key)
		head, mode, exists := m.repo.LookupFile(path)
		base, _, err := m.repo.LookupIn(m.refs.Base, path)
		if err != nil {
			return err
		}
		if e, told := m.pending[key]; told && e.Op == Present && head == digestOf(e) && !m.two.wrote[key] {
			continue
		}
		if exists && isFile(mode) {
			blobs = append(blobs, head)
		}
		if !base.IsZero() {
			blobs = append(blobs, base)
		}
	}
	return m.repo.Prefetch(ctx, blobs)
}

// judges tells whether an object is judged in this cycle, three-way, rather than
// mirrored.
func (m *Mirror) judges(key kube.Key) bool { return m.two != nil && m.two.judging[key] }

func keySet[V any](of map[kube.Key]V) map[kube.Key]struct{} {
	set := make(map[kube.Key]struct{}, len(of))
	for key := range of {
		set[key] = struct{}{}
	}
	return set
}

// changedInGit returns the objects whose files at the branch's head are not those of base:
// their content decides, not whether they may be executed.
func (m *Mirror) changedInGit(ctx context.Context) (map[kube.Key]struct{}, error) {
	changes, err := m.repo.Compare(m.refs.Base)
	if err != nil {
		return nil, err
	}
	set := map[kube.Key]struct{}{}
	folders := foldersGone(changes)
	for _, c := range changes {
		if !c.Head.IsZero() && folders[c.Path] {
			m.strange[c.Path] = Finding{Path: c.Path, blob: c.Head, unreadable: true,
				Text: "stands where the folder of objects' files was; what it leads to is not read"}
			continue
		}
		if c.Ref == c.Head && isFile(c.Mode) {
			continue
		}
		key, err := m.keyOfChange(ctx, c)
		switch {
		case errors.Is(err, errNotOurs):
			if err := m.misplaced(ctx, c); err != nil {
				return nil, err
			}
		case err != nil:
			return nil, err
		case m.goesAlong(key):
			if err := m.leaveAlone(ctx, c, key); err != nil {
				return nil, err
			}
		default:
			set[key] = struct{}{}
		}
	}
	return set, nil
}

// foldersGone returns the folders in which files are gone: something else may stand there now, a
// symlink or a submodule, behind which the files may be.
func foldersGone(changes []gitstore.FileChange) map[string]bool {
	folders := map[string]bool{}
	for _, c := range changes {
		if !c.Head.IsZero() {
			continue
		}
		for dir := path.Dir(c.Path); dir != "." && !folders[dir]; dir = path.Dir(dir) {
			folders[dir] = true
		}
	}
	return folders
}

// goesAlong tells whether an object is mirrored only for the sake of others: a CRD or a
// Namespace that no rule names.
func (m *Mirror) goesAlong(key kube.Key) bool {
	gr := key.GroupResource()
	return m.follows(key) || m.opts.CRDs && gr == crdResource && !m.named(gr)
}

// leaveAlone sees to a CRD's or Namespace's file that people changed: it is neither
// applied nor overwritten, and agreed once the cluster has the same.
func (m *Mirror) leaveAlone(ctx context.Context, c gitstore.FileChange, key kube.Key) error {
	if !c.Head.IsZero() {
		state, err := m.cluster.Get(ctx, key)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			m.pending[key] = presentEntry(state)
			if agreed, err := m.agreeAtOnce(ctx, key); err != nil || agreed {
				return err
			}
		}
	}
	if c.Ref.IsZero() && c.Head.IsZero() || m.two.fresh && c.Head.IsZero() {
		return nil
	}
	m.two.judging[key] = true
	m.strange[c.Path] = Finding{Path: c.Path, Key: key,
		Text: "CRDs and Namespaces are not applied unless a rule names them; apply it with kubectl"}
	return nil
}

// keyOfChange returns the key that a changed path stands for. Where the path is cut, a file
// says it; one that was broken stands for the key that it had before.
func (m *Mirror) keyOfChange(ctx context.Context, c gitstore.FileChange) (kube.Key, error) {
	key, cut, err := KeyOf(c.Path)
	if err != nil {
		return key, fmt.Errorf("%w: %w", errNotOurs, err)
	}
	if !cut {
		return key, nil
	}
	for _, blob := range []gitstore.Hash{c.Head, c.Ref} {
		if blob.IsZero() {
			continue
		}
		content, readErr := m.repo.Read(ctx, blob)
		if readErr != nil {
			return key, readErr
		}
		if key, _, err = decodeAt(c.Path, content); err == nil {
			return key, nil
		}
	}
	return key, err
}

// misplaced reports a file that holds an object and does not lie where it would be
// applied from. Other files beside ours are nobody's business.
func (m *Mirror) misplaced(ctx context.Context, c gitstore.FileChange) error {
	ext := path.Ext(c.Path)
	if c.Head.IsZero() || c.Path == MarkerName || ext != ".yaml" && ext != ".yml" && ext != ".json" || !isFile(c.Mode) {
		return nil
	}
	if f, told := m.strange[c.Path]; told && f.blob == c.Head {
		return nil
	}
	content, err := m.repo.Read(ctx, c.Head)
	if err != nil {
		return err
	}
	f := Finding{Path: c.Path, Text: "lies where no object's file does; it is not applied", blob: c.Head}
	obj, err := kube.Decode(content)
	switch {
	case err == nil:
		if want, ok := m.keyOf(obj); ok && badName(want) != "" {
			f.Text = badName(want)
		} else if ok {
			f.Text = "lies where no object's file does; it would be applied at " + m.repo.FullPath(PathOf(want))
			f.holds = want
		}
	case path.Base(c.Path) == "kustomization.yaml" || errors.Is(err, kube.ErrIdentity):
		return nil
	default:
		f.Line, f.Text = lineOf(err)
		f.unreadable = true
	}
	m.strange[c.Path] = f
	return nil
}

// keyOf is the key of an object of a resource that is watched.
func (m *Mirror) keyOf(obj *unstructured.Unstructured) (kube.Key, bool) {
	gvk := obj.GroupVersionKind()
	for _, s := range m.cluster.Status() {
		gr := s.Scope.Resource
		if kind, _, ok := m.cluster.Kind(gr); ok && gr.Group == gvk.Group && kind == gvk.Kind {
			return kube.Key{Group: gr.Group, Resource: gr.Resource, Namespace: obj.GetNamespace(), Name: obj.GetName()}, true
		}
	}
	return kube.Key{}, false
}

// movedTo names the file that holds an object of which the own file is gone, or "".
func (m *Mirror) movedTo(key kube.Key) string {
	anywhere := key
	anywhere.Namespace = ""
	for _, at := range slices.Sorted(maps.Keys(m.strange)) {
		if held := m.strange[at].holds; held == key || held == anywhere {
			return m.repo.FullPath(at)
		}
	}
	return ""
}

// agreeAtOnce tells whether git has what the cluster had when it was read a moment ago
// (readTold): then base takes the file, and nothing has to be judged.
func (m *Mirror) agreeAtOnce(ctx context.Context, key kube.Key) (bool, error) {
	blob, equal, err := m.equalToGit(ctx, key)
	if equal {
		m.two.agree(key, blob)
	}
	return equal, err
}

// equalToGit tells whether git has an object's file as the pending entry of the object
// has it, and nothing of ours is under way.
func (m *Mirror) equalToGit(ctx context.Context, key kube.Key) (gitstore.Hash, bool, error) {
	t := m.two
	e, ok := m.pending[key]
	if _, landed := t.landed[key]; !ok || e.Op != Present || landed || t.wrote[key] || t.isOpen(key) {
		return gitstore.Hash{}, false, nil
	}
	blob, mode, ok := m.repo.LookupFile(PathOf(key))
	if !ok || !isFile(mode) {
		return blob, false, nil
	}
	if blob == digestOf(e) {
		return blob, true, nil
	}
	file, err := m.repo.Read(ctx, blob)
	if err != nil {
		return blob, false, err
	}
	content, err := m.content(ctx, e)
	return blob, err == nil && kube.Equal(file, content), err
}

// agree lets base take a file of git as it is.
func (t *twoWay) agree(key kube.Key, blob gitstore.Hash) {
	t.agreed = append(t.agreed, gitstore.Edit{Path: PathOf(key), Blob: blob})
	delete(t.left, key)
	t.setUnknown(key, gaps{})
}

// stillOpen tells whether nothing moved since the object was judged last, and that
// left something open which only a person can settle.
func (m *Mirror) stillOpen(key kube.Key) bool {
	t := m.two
	was, ok := t.left[key]
	_, dirty := m.pending[key]
	if _, landed := t.landed[key]; !ok || dirty || landed || was.retry || !was.known || t.isOpen(key) {
		return false
	}
	switch { // permissions, policies and schemas change without a word
	case was.refusal.of != nil && !t.now.Before(was.refusal.next):
		return false
	case was.refusal.of == nil && len(was.findings)+len(was.refusals) > 0 && t.now.Sub(was.judged) > judgeAgain:
		return false
	}
	base, _, err := m.repo.LookupIn(m.refs.Base, PathOf(key))
	git, _ := m.repo.Lookup(PathOf(key))
	return err == nil && was.baseBlob == base && was.gitBlob == git
}
