package sync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
)

// Side is whose value a conflict is settled with.
type Side string

// The sides.
const (
	TakeGit     Side = "git"
	TakeCluster Side = "cluster"
)

// Resolution says which conflicts to settle, and how. Empty fields match all.
type Resolution struct {
	Take      Side
	Resource  string // plural.group
	Name      string
	Namespace string
	Field     string // as Conflict has it, or Line makes it
	Labels    labels.Selector
}

func (r *Resolution) matches(c *Conflict) bool {
	return (r.Resource == "" || r.Resource == c.Key.GroupResource().String()) &&
		(r.Name == "" || r.Name == c.Key.Name) &&
		(r.Namespace == "" || r.Namespace == c.Key.Namespace) &&
		(r.Field == "" || r.Field == c.Field || r.Field == Line(c.Field) || "."+r.Field == c.Field)
}

// errApplying says that an agent is between announcing a write and settling it.
var errApplying = errors.New("an agent is applying a change of it just now, or died doing so; run crmirror apply, or let the agent settle it, and try again")

// errNothingAgreed says that base has to begin with a whole cycle: it tells what is agreed of
// every object, and what is not.
var errNothingAgreed = errors.New("git and the cluster have agreed on nothing yet; let the agent run once, or run crmirror apply, and try again")

// errOtherShape says that the files were written under other rules.
var errOtherShape = errors.New("the files were written under other shaping rules than the configuration has; " +
	"let the agent, or crmirror apply, re-encode them first")

// errStays says that git's value cannot be applied whoever wants it.
var errStays = errors.New("git's value cannot be applied")

// Resolve settles the matching conflicts among those that a cycle of this Mirror has
// reported, and pushes. Taking the cluster's side writes its values to git. Taking git's lets
// base say that the cluster's values were agreed on, so that git's are a change to be
// applied: the agent, or the next apply, writes them. It returns what was settled, and what matched and could not be: for a
// single object that is an error instead, and nothing is settled.
//
// Invariant: nothing is written to the cluster here, and git changes only where a
// person said so. Tests: TestResolve.
func (m *Mirror) Resolve(ctx context.Context, r Resolution, now time.Time) ([]Conflict, []Unsettled, error) {
	for attempt := 1; ; attempt++ {
		s := &settling{Resolution: r, commit: gitstore.Commit{When: now}}
		if err := m.resolve(ctx, s); err != nil {
			return nil, nil, err
		}
		if len(s.settled) == 0 {
			return nil, s.left, nil
		}
		err := m.repo.PushIf(ctx)
		if err == nil || !errors.Is(err, gitstore.ErrDiverged) || attempt == rederivations {
			return s.settled, s.left, err
		}
		if err := m.refresh(ctx); err != nil {
			return nil, nil, err
		}
	}
}

func (m *Mirror) resolve(ctx context.Context, s *settling) error {
	if err := m.mayResolve(ctx); err != nil {
		return err
	}
	keys, err := m.toResolve(ctx, s)
	if err != nil {
		return err
	}
	judged, err := m.judge(ctx, keys)
	if err != nil {
		return err
	}
	m.two.base = nil
	for _, j := range judged {
		if !j.decided() {
			err = s.skip(j.key, "", errors.New(j.finding+j.waits))
		} else if s.Labels == nil || s.Labels.Matches(labelsOf(j)) {
			err = m.resolveOne(ctx, j, s)
		}
		if err != nil {
			return err
		}
	}
	if len(s.settled) == 0 {
		return nil
	}
	if len(s.commit.Edits) > 0 {
		s.commit.Message = Message(MessageInput{Cluster: m.opts.ClusterName, Settled: s.Take, Changes: s.changes})
		if m.at, err = m.repo.Commit(ctx, s.commit); err != nil {
			return err
		}
	}
	if m.two.base, err = m.withUnknown(m.two.base); err != nil {
		return err
	}
	return m.moveAgreed(ctx, s.commit.When)
}

// mayResolve tells whether branch and base are such that anything can be settled.
func (m *Mirror) mayResolve(ctx context.Context) error {
	if err := m.checkMarker(); err != nil {
		return err
	}
	if m.marker != nil && !m.marker.SameShaping(&m.opts.Tree) {
		return errOtherShape
	}
	if err := m.checkLineage(); err != nil {
		return err
	}
	if err := m.readUnknown(ctx); err != nil {
		return err
	}
	if m.two.fresh {
		return fmt.Errorf("resolve: %w", errNothingAgreed)
	}
	return nil
}

// toResolve returns the objects that have matching conflicts and may be settled now.
func (m *Mirror) toResolve(ctx context.Context, s *settling) ([]kube.Key, error) {
	applying, err := m.announcedNow(ctx)
	if err != nil {
		return nil, err
	}
	var matching, keys []kube.Key
	for _, key := range sortedKeys(m.two.left) {
		if slices.ContainsFunc(m.two.left[key].conflicts, func(c Conflict) bool { return s.matches(&c) }) {
			matching = append(matching, key)
		}
	}
	if err := s.oneObject(matching); err != nil {
		return nil, err
	}
	for _, key := range matching {
		if !hasWrite(applying, key) {
			keys = append(keys, key)
		} else if err := s.skip(key, "", errApplying); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

func labelsOf(j *judgement) labels.Set {
	obj := &unstructured.Unstructured{Object: j.git}
	if j.live != nil {
		obj = j.live
	}
	if obj.Object == nil {
		return nil
	}
	return obj.GetLabels()
}

// resolveOne settles an object's matching conflicts: what git is to have is added to
// the commit, what base is to say to base's edits.
func (m *Mirror) resolveOne(ctx context.Context, j *judgement, s *settling) error {
	var settled []Conflict
	set, remove := fieldpath.NewSet(), fieldpath.NewSet()
	whole := false
	for _, c := range m.conflictsOf(j, nil) {
		if !s.matches(&c) {
			continue
		}
		if s.Take == TakeGit && c.Instead != "" {
			if err := s.skip(j.key, c.Field, fmt.Errorf("%w: %s; %s, or take the cluster's: --take cluster", errStays, c.Reason, c.Instead)); err != nil {
				return err
			}
			continue
		}
		settled = append(settled, c)
		switch {
		case len(c.path) == 0:
			whole = true
		case c.Cluster == absent:
			remove.Insert(c.path)
		default:
			set.Insert(c.path)
		}
	}
	if len(settled) == 0 {
		return nil
	}
	base, file, err := j.settledWith(s.Take, set, remove, whole)
	if err != nil {
		return s.skip(j.key, "", err)
	}
	baseEdit, err := m.baseEdit(j.key, base)
	if err != nil {
		return s.skip(j.key, "", err)
	}
	if file == nil && j.git != nil || file != nil && (j.git == nil || !sameObject(file, j.git)) {
		edit, err := m.fileEdit(j, file)
		if err != nil {
			return s.skip(j.key, "", err)
		}
		change := changeOf(j, edit, file)
		if s.Take == TakeCluster {
			m.undoSettled(ctx, j, change, settled)
		}
		s.commit.Edits, s.changes = append(s.commit.Edits, edit), append(s.changes, *change)
	}
	m.two.setUnknown(j.key, base.gaps)
	m.two.base = append(m.two.base, baseEdit)
	s.settled = append(s.settled, settled...)
	return nil
}

// undoSettled says in a change of a file whose commits it undoes, where conflicts are settled with the
// cluster's side. A file that comes back is no new object.
func (m *Mirror) undoSettled(ctx context.Context, j *judgement, c *Change, settled []Conflict) {
	var questions []asked
	for i := range settled {
		questions = append(questions, askSince(j, settled[i].path))
	}
	var undone []string
	for _, by := range m.since(ctx, questions) {
		if by.Commit == "" {
			continue
		}
		if who := by.Commit[:7] + " by " + by.Author; !slices.Contains(undone, who) {
			undone = append(undone, who)
		}
	}
	if c.Undoes = strings.Join(undone, ", "); c.Undoes != "" && c.Op == Created {
		c.Op = Changed
	}
}

// settledWith returns what base and git's file are to have when these fields, or the object, are
// settled with a side.
func (j *judgement) settledWith(take Side, set, remove *fieldpath.Set, whole bool) (agreement, map[string]any, error) {
	// What the cluster moved besides goes to git with it: base has it from now on.
	if whole && take == TakeCluster {
		return agreement{content: j.cluster}, j.cluster, nil
	}
	if whole {
		return agreement{content: j.cluster}, j.git, nil
	}
	open := gaps{unknown: j.decision.Unknown, taken: takenBackIn(j.decision.Conflicts)}
	base := agreement{gaps: open.without(set.Union(remove))}
	var err error
	if base.content, err = apply.Advance(j.decision.Kept, j.cluster, set, remove); err != nil || take != TakeCluster {
		return base, j.decision.File, err
	}
	file, err := apply.Advance(j.decision.File, j.cluster, set, remove)
	return base, file, err
}

// fileEdit lets an object's file have that content.
func (m *Mirror) fileEdit(j *judgement, content map[string]any) (gitstore.Edit, error) {
	if content == nil {
		return gitstore.Edit{Path: j.path, Delete: true}, nil
	}
	text, err := kube.Encode(&unstructured.Unstructured{Object: content}, j.shape)
	return gitstore.Edit{Path: j.path, Content: text}, err
}

// changeOf tells of an edit that lets a judged object's file have that content.
func changeOf(j *judgement, e gitstore.Edit, content map[string]any) *Change {
	c := &Change{Key: j.key, Op: Changed, path: j.path, before: j.gitBlob}
	switch {
	case e.Delete:
		c.Op = Deleted
	case j.git == nil:
		c.Op = Created
	default:
		// Both were encoded or decoded a moment ago.
		c.Fields, _ = kube.DiffPaths(j.file, e.Content, fieldsPerObject)
	}
	if !e.Delete {
		c.blob = gitstore.BlobHash(e.Content)
	}
	if j.live != nil {
		c.Manager = j.changer(content)
	}
	return c
}

// changer is who changed in the cluster what is to become of the file: who owns it, and not crmirror,
// which may have written another field of the object a moment ago. Of what nobody owns,
// as what was removed, it is who wrote last.
func (j *judgement) changer(content map[string]any) kube.Manager {
	by := j.owners.Changer(func(path fieldpath.Path) bool {
		return !valueOf(j.git, path).equals(valueOf(content, path))
	})
	if newest := kube.NewestManager(j.live); by.Name == "" && newest.Name != apply.Manager {
		by = newest
	}
	return by
}
