package gitstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/odb"
	"github.com/crmirror/crmirror/gitstore/refs"
	"github.com/crmirror/crmirror/gitstore/tree"
)

// Edit is what becomes of one file: Delete, or Blob (stored before by
// PutBlobs) unless zero, or Content.
type Edit struct {
	Path    string // relative to Options.Path
	Content []byte
	Blob    Hash
	Delete  bool
}

// Commit is a change to be made of the branch.
type Commit struct {
	Edits   []Edit
	Message string
	When    time.Time
	// BaseMessage, unless empty, is what Base will be called with right after, with
	// the same When: what that needs is stored along, for one pack costs half of two.
	BaseMessage string
}

// BlobHash is the hash that a file of that content has.
func BlobHash(content []byte) Hash { return object.Sum(object.Blob, content) }

// PutBlobs stores contents as one pack, on disk when it returns, and refers to
// them from nowhere.
func (s *Store) PutBlobs(contents [][]byte) ([]Hash, error) {
	hashes := make([]Hash, len(contents))
	objects := make([]odb.Object, len(contents))
	for i, c := range contents {
		hashes[i] = BlobHash(c)
		objects[i] = odb.Object{Type: object.Blob, Hash: hashes[i], Content: c}
	}
	if err := s.db.Write(objects); err != nil {
		return nil, fmt.Errorf("store %d files: %w", len(contents), err)
	}
	return hashes, nil
}

// Commit makes a commit on top of Head and moves the branch to it, here. Its
// cost follows the edits. Edits that change nothing make no commit; then Head
// is returned. ErrDiverged when a person moved the branch of their own
// repository meanwhile: Fetch, derive again. ErrBusy while a person merges or
// rebases the branch, or has it checked out in another worktree.
//
// Invariant: objects are on disk before the ref that names them moves.
// Tests: TestOrderOfNames, TestKilledWhileWriting.
func (s *Store) Commit(ctx context.Context, c Commit) (Hash, error) {
	if s.branch == "" {
		return Hash{}, errors.New("commit: the branch is not known before a first fetch")
	}
	if s.layout.own {
		// A person may have packed or pruned what was found here a moment ago.
		if err := s.db.Rescan(); err != nil {
			return Hash{}, fmt.Errorf("commit: %w", s.ownDamage(err))
		}
	}
	var parents []Hash
	if !s.head.IsZero() {
		parents = []Hash{s.head}
	}
	d, err := s.derive(s.tree, c.Edits, parents, c.Message, c.When)
	if err != nil {
		return Hash{}, fmt.Errorf("commit: %w", err)
	}
	if d.tree.Hash() == s.tree.Hash() {
		return s.head, nil
	}
	if err := s.checkBusy(); err != nil {
		return Hash{}, fmt.Errorf("commit to %s: %w", s.branch, err)
	}
	if c.BaseMessage != "" {
		b := s.baseOf(d.tree)
		b.addCommit(s.encodeCommit(b.tree.Hash(), []Hash{d.commit}, c.BaseMessage, c.When))
		d.objects = append(d.objects, b.objects...)
	}
	if err := s.db.Write(d.objects); err != nil {
		return Hash{}, fmt.Errorf("commit: %w", err)
	}
	if err := s.moveBranch(ctx, d.commit); err != nil {
		return Hash{}, s.distrust(fmt.Errorf("commit to %s: %w", s.branch, err))
	}
	s.unsent.add(d.sends)
	s.head, s.tree = d.commit, d.tree
	if s.remote == nil || s.db.Packs() > maxPacks {
		s.compact()
	}
	return d.commit, nil
}

// moveBranch moves the branch from Head, with a note that the worktree lags.
func (s *Store) moveBranch(ctx context.Context, to Hash) error {
	noted, err := s.markBehind(ctx)
	if err != nil {
		return err
	}
	err = s.refs.Update(ctx, branchRef(s.branch), s.head, to)
	if errors.Is(err, refs.ErrMoved) {
		err = fmt.Errorf("%w: %w", ErrDiverged, err)
	}
	if err != nil && noted {
		// The branch is not ours alone now: nothing of what it became is to be
		// carried into a person's files.
		err = errors.Join(err, s.unmarkBehind())
	}
	return err
}

// derived is a commit that was computed and not stored yet.
type derived struct {
	tree    tree.Tree
	commit  Hash
	objects []odb.Object // to be stored
	sends   []send       // what a remote that has the old tree lacks
}

// derive computes a commit: a tree with edits, on parents.
func (s *Store) derive(on tree.Tree, edits []Edit, parents []Hash, message string, when time.Time) (*derived, error) {
	d := newDerived(edits)
	changes := make([]tree.Edit, len(edits))
	for i, e := range edits {
		if err := checkPath(e.Path); err != nil {
			return nil, err
		}
		path := s.full(e.Path)
		changes[i].Path = path
		if e.Delete {
			continue
		}
		if err := s.attributes.checkFilter(path); err != nil {
			return nil, err
		}
		h := e.Blob
		if h.IsZero() {
			h = BlobHash(e.Content)
			d.objects = append(d.objects, odb.Object{Type: object.Blob, Hash: h, Content: e.Content})
		} else if !s.db.Has(h) {
			return nil, fmt.Errorf("edit %s: blob %s: %w", e.Path, h, ErrMissing)
		}
		changes[i].Blob = h
		was, _, _ := on.Lookup(path)
		if was != h {
			d.sends = append(d.sends, send{hash: h, kind: object.Blob, base: was})
		}
	}
	next, news, err := on.Apply(changes)
	if err != nil {
		return nil, err
	}
	d.tree = next
	d.addTrees(news)
	d.addCommit(s.encodeCommit(next.Hash(), parents, message, when))
	return d, nil
}

// newDerived has room for what edits will make of a large tree.
func newDerived(edits []Edit) *derived {
	const trees = 16 // or a few for every hundred files
	blobs := 0
	for _, e := range edits {
		if !e.Delete && e.Blob.IsZero() {
			blobs++
		}
	}
	more := trees + len(edits)/32
	return &derived{objects: make([]odb.Object, 0, blobs+more), sends: make([]send, 0, len(edits)+more)}
}

func (d *derived) addTrees(news []tree.New) {
	for _, n := range news {
		d.objects = append(d.objects, odb.Object{Type: object.Tree, Hash: n.Hash, Content: n.Content, Base: n.Base, Delta: n.Delta})
		d.sends = append(d.sends, send{hash: n.Hash, kind: object.Tree, base: n.Base, delta: n.Delta})
	}
}

func (d *derived) addCommit(content []byte) {
	d.commit = object.Sum(object.Commit, content)
	d.objects = append(d.objects, odb.Object{Type: object.Commit, Hash: d.commit, Content: content})
	d.sends = append(d.sends, send{hash: d.commit, kind: object.Commit})
}

func (s *Store) encodeCommit(root Hash, parents []Hash, message string, when time.Time) []byte {
	by := object.Signature{Name: s.opts.Author.Name, Email: s.opts.Author.Email, When: when}
	return object.EncodeCommit(root, parents, by, message)
}

// Base moves ref, here, to a commit whose tree holds nothing but
// Options.Path's part of Head and whose parent is Head. When it is there
// already nothing is written.
func (s *Store) Base(ctx context.Context, ref, message string, when time.Time) (Hash, error) {
	return s.moveBase(ctx, ref, s.baseOf(s.tree), message, when)
}

// baseOf derives the tree that holds nothing but Options.Path's part of another.
func (s *Store) baseOf(t tree.Tree) *derived {
	nested, news := tree.Nest(s.opts.Path, t.Sub(s.opts.Path))
	d := &derived{tree: nested}
	d.addTrees(news)
	return d
}

// DeriveBase is Base with a content of its own: the tree that ref has now,
// with edits.
func (s *Store) DeriveBase(ctx context.Context, ref string, edits []Edit, message string, when time.Time) (Hash, error) {
	var on tree.Tree
	if h := s.local[ref]; !h.IsZero() {
		root, _, err := s.commitTree(h)
		if err != nil {
			return Hash{}, s.distrust(fmt.Errorf("derive %s: %w", ref, err))
		}
		if on, err = tree.Load(s.db.Read, root, s.tree); err != nil {
			return Hash{}, s.distrust(fmt.Errorf("derive %s: %w", ref, err))
		}
	}
	d, err := s.derive(on, edits, nil, message, when)
	if err != nil {
		return Hash{}, fmt.Errorf("derive %s: %w", ref, err)
	}
	// The commit derived has no parent; moveBase makes the one that has.
	d.objects, d.sends = d.objects[:len(d.objects)-1], d.sends[:len(d.sends)-1]
	return s.moveBase(ctx, ref, d, message, when)
}

func (s *Store) moveBase(ctx context.Context, ref string, d *derived, message string, when time.Time) (Hash, error) {
	var parents []Hash
	if !s.head.IsZero() {
		parents = []Hash{s.head}
	}
	was := s.local[ref]
	if !was.IsZero() {
		root, old, err := s.commitTree(was)
		if err != nil {
			return Hash{}, s.distrust(fmt.Errorf("move %s: %w", ref, err))
		}
		if root == d.tree.Hash() && slices.Equal(old, parents) {
			return was, nil
		}
	}
	return s.moveTo(ctx, ref, d.tree.Hash(), parents, d, message, when)
}

// Anew moves ref, here, to another commit of what it has: the same tree and parents with
// another message. From its push on, the remote refuses whoever expects the old one.
func (s *Store) Anew(ctx context.Context, ref, message string, when time.Time) (Hash, error) {
	root, parents, err := s.commitTree(s.local[ref])
	if err != nil {
		return Hash{}, s.distrust(fmt.Errorf("move %s: %w", ref, err))
	}
	return s.moveTo(ctx, ref, root, parents, &derived{}, message, when)
}

// moveTo moves ref to a new commit of a tree, whose new objects d has.
func (s *Store) moveTo(ctx context.Context, ref string, root Hash, parents []Hash, d *derived, message string, when time.Time) (Hash, error) {
	was := s.local[ref]
	d.addCommit(s.encodeCommit(root, parents, message, when))
	if err := s.db.Write(d.objects); err != nil {
		return Hash{}, fmt.Errorf("move %s: %w", ref, err)
	}
	s.unsent.add(d.sends)
	if err := s.SetRef(ctx, ref, d.commit); err != nil {
		return d.commit, err
	}
	if !s.layout.own {
		s.superseded = append(s.superseded, was)
	}
	return d.commit, nil
}

// File is one file of a commit made by CommitFile.
type File struct {
	Name    string
	Content []byte
}

// CommitFile stores a commit that holds one file and is on no branch. SetRef
// gives it a name.
func (s *Store) CommitFile(parents []Hash, f File, message string, when time.Time) (Hash, error) {
	if err := checkPath(f.Name); err != nil {
		return Hash{}, fmt.Errorf("commit file: %w", err)
	}
	d := &derived{}
	blob := BlobHash(f.Content)
	next, news, err := tree.Tree{}.Apply([]tree.Edit{{Path: f.Name, Blob: blob}})
	if err != nil {
		return Hash{}, fmt.Errorf("commit file %s: %w", f.Name, err)
	}
	d.objects = []odb.Object{{Type: object.Blob, Hash: blob, Content: f.Content}}
	d.sends = []send{{hash: blob, kind: object.Blob}}
	d.addTrees(news)
	d.addCommit(s.encodeCommit(next.Hash(), parents, message, when))
	if err := s.db.Write(d.objects); err != nil {
		return Hash{}, fmt.Errorf("commit file %s: %w", f.Name, err)
	}
	s.unsent.add(d.sends)
	return d.commit, nil
}

// SetRef points one of Options.Refs, here, at a commit; it goes out with the
// next Push. The zero hash deletes it. ErrDiverged when somebody else set it
// since it was last read.
func (s *Store) SetRef(ctx context.Context, name string, to Hash) error {
	if !slices.Contains(s.opts.Refs, name) {
		return fmt.Errorf("set ref %s: it is not among the refs that the store was opened with", name)
	}
	if !to.IsZero() && !s.db.Has(to) {
		return fmt.Errorf("set ref %s: %s: %w", name, to, ErrMissing)
	}
	was := s.local[name]
	now, err := s.refs.Read(name)
	if err == nil && now != was {
		err = refs.ErrMoved
	}
	if err == nil && was != to {
		err = s.refs.Update(ctx, name, was, to)
	}
	if errors.Is(err, refs.ErrMoved) {
		return fmt.Errorf("set ref %s: %w: %w", name, ErrDiverged, err)
	}
	if err != nil {
		return s.distrust(fmt.Errorf("set ref %s: %w", name, err))
	}
	s.setLocal(name, to)
	return nil
}

// DeleteRef removes a ref here; the next Push removes it at the remote.
func (s *Store) DeleteRef(ctx context.Context, name string) error {
	return s.SetRef(ctx, name, Hash{})
}
