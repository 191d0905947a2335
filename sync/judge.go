package sync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/threeway"
)

// judgement is the three-way decision about one object, and what it stands on.
type judgement struct {
	key      kube.Key
	path     string
	baseBlob gitstore.Hash // of its file in base; zero for none
	gitBlob  gitstore.Hash // at the branch's head; zero for none
	file     []byte        // what git has

	git, cluster map[string]any
	base         agreement
	live         *unstructured.Unstructured // nil: there is no object
	kind         schema.GroupVersionKind
	resource     schema.GroupVersionResource
	typ          typed.ParseableType
	shape        *kube.Shape
	shaped       *fieldpath.Set
	owners       apply.Ownership

	decision threeway.Decision
	prune    bool      // its object may be deleted
	done     []applied // what was written
	refused  *apply.Rejected
	since    time.Time // of refused, when it was not tried again; else zero
	waiting  string    // why its object is not deleted
	again    bool      // that may change by itself
	finding  string    // why the file cannot be judged; then there is no decision
	line     int       // where in the file; 0 when that is not known
	gone     bool      // there is no file, and nothing of the object is ours any more
	waits    string    // why it cannot be judged or written now; it is tried again
	moved    bool      // its object did, between the judgement and the write
}

// writes tells whether the decision asks for a write to the cluster.
func (j *judgement) writes() bool {
	d := &j.decision
	return j.judged() && (d.Object == threeway.CreateObject || d.Object == threeway.DeleteObject || !d.Set.Empty() || !d.Remove.Empty())
}

// judged tells whether there is a decision, of the state that was read last.
func (j *judgement) judged() bool { return j.decision.Set != nil }

// decided tells whether there is a decision that can be acted upon now.
func (j *judgement) decided() bool { return j.finding == "" && j.waits == "" }

// toWrite tells whether the cluster is to be written now: a deletion only if it may be made.
func (j *judgement) toWrite() bool {
	return j.decided() && j.writes() && (j.decision.Object != threeway.DeleteObject || j.prune)
}

// judge reads the objects of keys live and decides about each. What cannot be
// judged says so in its judgement; the error is one that stops them all.
func (m *Mirror) judge(ctx context.Context, keys []kube.Key) ([]*judgement, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	if err := m.two.opts.Hands.Refresh(ctx); err != nil {
		return nil, err
	}
	all := make([]*judgement, len(keys))
	for i, key := range keys {
		j, err := m.readFiles(ctx, key)
		if err != nil {
			return nil, err
		}
		all[i] = j
	}
	var g errgroup.Group
	g.SetLimit(liveReads)
	for _, j := range all {
		if j.finding == "" {
			g.Go(func() error { m.readObject(ctx, j); return nil })
		}
	}
	_ = g.Wait() // what failed is in the judgement
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	for _, j := range all {
		if j.decided() {
			m.two.endLosses(j)
			m.decide(j)
		}
	}
	return all, nil
}

// readFiles reads what git and base have of an object.
func (m *Mirror) readFiles(ctx context.Context, key kube.Key) (*judgement, error) {
	j := &judgement{key: key, path: PathOf(key)}
	var err error
	if j.baseBlob, _, err = m.repo.LookupIn(m.refs.Base, j.path); err != nil {
		return nil, err
	}
	if j.base, err = m.agreementOn(ctx, key, j.baseBlob); err != nil {
		return nil, err
	}
	blob, mode, ok := m.repo.LookupFile(j.path)
	if !ok {
		return j, nil
	}
	j.gitBlob = blob
	if !isFile(mode) {
		j.finding = modeName(mode) + ", not a file; it is not read"
		return j, nil
	}
	if j.finding = m.misscoped(key); j.finding != "" {
		return j, nil
	}
	if j.file, err = m.repo.Read(ctx, blob); err != nil {
		return nil, err
	}
	obj, err := kube.Decode(j.file)
	if err == nil {
		err = m.ours(key, j.file)
	}
	if err != nil {
		j.line, j.finding = lineOf(err)
		return j, nil
	}
	if j.finding = badName(key); j.finding == "" {
		j.git = obj.Object
	}
	return j, nil
}

// version is the API version at which the object is compared: git's, else base's.
func (j *judgement) version() (schema.GroupVersion, error) {
	for _, content := range []map[string]any{j.git, j.base.content} {
		if content != nil {
			id, err := kube.Identify(content)
			if err != nil {
				return schema.GroupVersion{}, err
			}
			return schema.ParseGroupVersion(id.APIVersion)
		}
	}
	return schema.GroupVersion{}, nil
}

// readObject reads the object live, with its owners and its type.
//
// Invariant: nothing is decided on what an informer remembers (case H of the
// protocol). Test: TestJudgesLiveReads.
func (m *Mirror) readObject(ctx context.Context, j *judgement) {
	gv, err := j.version()
	if err != nil {
		j.finding = err.Error()
		return
	}
	gr := j.key.GroupResource()
	kind, _, served := m.cluster.Kind(gr)
	if !served && !m.mayGovern(gr) || j.gitBlob.IsZero() && m.misscoped(j.key) != "" {
		j.unselected()
		return
	}
	if !served {
		j.waits = fmt.Sprintf("the cluster does not serve %s", gr)
		return
	}
	if gv.Empty() { // neither git nor base has it: as the informer reads it
		if gv.Version, served = m.cluster.Version(gr); !served {
			j.waits = fmt.Sprintf("the cluster does not serve %s", gr)
			return
		}
	}
	j.kind = schema.GroupVersionKind{Group: j.key.Group, Version: gv.Version, Kind: kind}
	j.resource = gr.WithVersion(gv.Version)
	j.live, err = m.two.opts.Hands.Read(ctx, j.key, gv.Version)
	if err != nil && !errors.Is(err, apply.ErrNotFound) {
		j.waits = err.Error()
		return
	}
	if j.typ, _, err = m.two.opts.Hands.Type(ctx, j.kind); err != nil {
		j.waits = err.Error()
		return
	}
	if j.live == nil {
		return
	}
	if j.owners, err = apply.ReadOwnership(j.live); err != nil {
		j.finding = err.Error()
	}
}

// decide decides about an object that was read.
func (m *Mirror) decide(j *judgement) {
	if m.normalize(j); j.finding != "" {
		return
	}
	d, err := threeway.Decide(threeway.Input{
		Base: j.base.content, Git: j.git, Cluster: j.cluster,
		Unknown: j.base.unknown, Type: j.typ, Shaped: j.shaped, KeepFinalizers: !m.two.opts.RemoveFinalizers,
		Judge: func(move threeway.Move) string { return m.two.object(j, move) },
	})
	if err != nil {
		j.finding = err.Error()
		return
	}
	j.decision = d
	if j.finding = j.unstorable(); j.finding != "" {
		j.decision = threeway.Decision{}
		return
	}
	switch {
	case j.live != nil && j.live.GetDeletionTimestamp() != nil && j.writes():
		j.waits = "the object is being deleted"
	case m.two.landedMeanwhile(j):
		j.waits = "another agent wrote it meanwhile"
	}
}

// notSelected is what is wrong with a file that no rule lets reach the cluster.
const notSelected = "no rule selects it; it is not applied"

// unselected notes that no rule selects the object. Without a file, nothing of it is ours any
// more, and base has nothing to say of it.
func (j *judgement) unselected() {
	j.finding, j.gone = notSelected, j.gitBlob.IsZero()
}

// normalize brings the live object into the form that files have.
func (m *Mirror) normalize(j *judgement) {
	judged := &unstructured.Unstructured{Object: j.git}
	if j.live != nil {
		judged = j.live
	} else if j.git == nil {
		judged = &unstructured.Unstructured{Object: j.base.content}
	}
	j.cluster, j.shape, j.shaped = nil, &kube.Shape{}, fieldpath.NewSet()
	if judged.Object == nil {
		return // gone on both sides, and not in base
	}
	rule, selected := m.ruleOf(judged, j.key.GroupResource())
	if !selected {
		j.unselected()
		return
	}
	j.shape = &rule.Shape
	j.addShaped(j.git, j.base.content)
	if j.live == nil {
		return
	}
	encoded, err := kube.Encode(j.live, j.shape)
	if err != nil {
		j.finding = j.explain(err)
		return
	}
	obj, err := kube.Decode(encoded)
	if err != nil {
		j.finding = err.Error()
		return
	}
	j.cluster = obj.Object
	j.addShaped(j.live.Object, j.cluster)
}

// mayGovern tells whether a rule may select objects of a resource that the cluster does
// not serve, so that they are worth waiting for.
func (m *Mirror) mayGovern(gr schema.GroupResource) bool {
	_, selected := m.opts.Rules.Resource(gr, strings.Contains(gr.Group, "."))
	return selected
}

// addShaped notes what the rules drop or redact in contents.
func (j *judgement) addShaped(contents ...map[string]any) {
	for _, content := range contents {
		if content != nil {
			j.shaped = j.shaped.Union(threeway.Places(j.typ, content, j.shape.Places(content)))
		}
	}
}

// landedMeanwhile tells whether another agent's write may have landed after its
// outcome was looked at.
func (t *twoWay) landedMeanwhile(j *judgement) bool {
	return slices.ContainsFunc(t.unanswered(), func(e announced) bool {
		return e.Key == j.key && (j.live == nil) != (e.UID == "") ||
			e.Key == j.key && j.live != nil && j.live.GetResourceVersion() != e.ResourceVersion
	})
}
