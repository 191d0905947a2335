package sync

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
)

// Hands is what two-way mode does to the cluster, one object at a time.
type Hands interface {
	// Read reads an object live at an API version. Error: apply.ErrNotFound.
	Read(ctx context.Context, key kube.Key, version string) (*unstructured.Unstructured, error)
	// Type returns the type of a kind, the deduced one when known is false.
	Type(ctx context.Context, kind schema.GroupVersionKind) (typ typed.ParseableType, known bool, err error)
	// Refresh forgets types that changed.
	Refresh(ctx context.Context) error
	// Write, Create and Delete write one judged change. Errors: *apply.Rejected,
	// apply.ErrMoved, apply.ErrUncertain.
	Write(ctx context.Context, c apply.Change) (apply.Result, error)
	Create(ctx context.Context, key kube.Key, resource schema.GroupVersionResource, want map[string]any, shaped *fieldpath.Set) (apply.Result, error)
	Delete(ctx context.Context, key kube.Key, resource schema.GroupVersionResource, live *unstructured.Unstructured) (gone bool, err error)
}

// TwoWay says how git's changes reach the cluster.
type TwoWay struct {
	Hands   Hands
	Prune   bool     // a file deleted in git deletes its object
	Respect []string // field managers whose fields are never taken
	// RemoveFinalizers lets the removal of a finalizer in git through to the cluster; else it is a finding.
	RemoveFinalizers bool
	DryRun           bool // nothing is written, neither to the cluster nor to git
	// Trial lets a dry run make its writes with Hands, which have to be such that
	// the server stores nothing: what it refuses is told. Without, the server is not asked.
	Trial bool
	// Reached, if any, is told of each step of the protocol; an error ends the
	// cycle there, as a crash would. It is for tests.
	Reached func(Step) error
}

// Step is a point of the protocol between two effects.
type Step string

// The steps, in the order of the protocol.
const (
	StepRecovered Step = "recovered" // what an earlier agent left open is settled in base
	StepAnnounced Step = "announced" // the writes are told in git
	StepWritten   Step = "written"   // they were tried
	StepCommitted Step = "committed" // branch and base moved here, not at the remote
)

// twoWay is what a Mirror knows in mode two-way.
type twoWay struct {
	opts TwoWay

	lease   Lease     // nil where no other agent stands by
	now     time.Time // of the cycle
	fresh   bool      // there is no base, and yet there are files: nothing is agreed
	unknown map[kube.Key]gaps
	mine    map[gitstore.Hash]bool // announcements of this process
	carried []announced            // another's writes that may land yet
	landed  map[kube.Key]landing   // what is agreed since writes that no push acknowledged
	doubt   map[kube.Key]announced // writes of this process that nobody answered
	settled map[kube.Key]bool      // landed, and in the base that is about to be pushed
	unmade  map[kube.Key]announced // open ones that nobody has made yet
	undone  map[kube.Key]bool      // deletions that a person approved and that are not done yet
	wrote   map[kube.Key]bool      // an informer may lag behind our own write
	taken   map[kube.Key][]loss
	left    map[kube.Key]leftOpen // what is open about an object, as it was judged last
	// readable are the contents of files that are known to be objects.
	readable map[gitstore.Hash]bool

	unshaped map[kube.Key]bool // files that are not in the present rules' form, since a write to the object is open

	judging map[kube.Key]bool // in this cycle; the mirror leaves them alone
	agreed  []gitstore.Edit   // of base: what both sides were seen to have
	base    []gitstore.Edit   // the next move of base
}

// landing is an agreement that holds as long as base has not moved for the object.
//
// Invariant: a living agent knows what landed and what was refused, until base is
// pushed (case B of the protocol). Test: TestRefusedIsNotOurs.
type landing struct {
	from gitstore.Hash // of the object's file in base
	agreement
}

func newTwoWay(opts TwoWay) *twoWay {
	return &twoWay{
		opts:     opts,
		mine:     map[gitstore.Hash]bool{},
		landed:   map[kube.Key]landing{},
		settled:  map[kube.Key]bool{},
		undone:   map[kube.Key]bool{},
		doubt:    map[kube.Key]announced{},
		unshaped: map[kube.Key]bool{},
		wrote:    map[kube.Key]bool{},
		taken:    map[kube.Key][]loss{},
		left:     map[kube.Key]leftOpen{},

		readable: map[gitstore.Hash]bool{},
	}
}

func (t *twoWay) reached(step Step) error {
	if t.opts.Reached == nil {
		return nil
	}
	return t.opts.Reached(step)
}

// RewoundError says that commits of the branch are gone which base stands on.
type RewoundError struct {
	Branch string
	Parent gitstore.Hash // the commit that base was pushed with
	Again  string        // Options.Again
}

func (e *RewoundError) Error() string {
	return fmt.Sprintf("branch %s was rewound or rewritten: commit %.12s, with which git and cluster last agreed, is not in it any more; "+
		"nothing is applied. To take the branch as it is now: crmirror adopt%s", e.Branch, e.Parent, e.Again)
}

// BranchGoneError says that the branch is gone which base stands on: there is none that could
// be applied or adopted.
type BranchGoneError struct {
	Branch string
	Parent gitstore.Hash // the commit that base was pushed with
	Base   string        // the ref
}

func (e *BranchGoneError) Error() string {
	return fmt.Sprintf("branch %s is gone from the remote, which git and cluster last agreed on; nothing is applied. "+
		"To have it back: git fetch REMOTE %s && git push REMOTE %s:refs/heads/%s; to begin anew with what the cluster has: git push REMOTE :%s",
		e.Branch, e.Base, e.Parent, e.Branch, e.Base)
}

// checkLineage refuses a branch that base does not stand on.
//
// Invariant: nothing is applied from a branch that was rewound. Test: TestRewoundBranch.
func (m *Mirror) checkLineage() error {
	base := m.repo.Ref(m.refs.Base)
	if base.IsZero() {
		return nil
	}
	info, err := m.repo.Info(base)
	if err != nil {
		return err
	}
	for _, parent := range info.Parents {
		if m.repo.Head().IsZero() {
			return &BranchGoneError{Branch: m.repo.Branch(), Parent: parent, Base: m.refs.Base}
		}
		if !m.repo.Descends(m.repo.Head(), parent) {
			return &RewoundError{Branch: m.repo.Branch(), Parent: parent, Again: m.opts.Again}
		}
	}
	return nil
}

// recover does what comes before everything else in mode two-way: it refuses a branch
// that was rewound, and settles what earlier writes left open.
func (m *Mirror) recover(ctx context.Context, now time.Time) error {
	m.two.now = now
	if err := m.checkLineage(); err != nil {
		return err
	}
	if err := m.readUnknown(ctx); err != nil || m.two.opts.DryRun {
		return err
	}
	return m.recoverWrites(ctx, now)
}

// mayReshape tells whether the tree may be re-encoded: not in a dry run.
func (m *Mirror) mayReshape() bool { return m.two == nil || !m.two.opts.DryRun }

// keepsShape tells whether an object's file is not re-encoded now, since a write to it is
// announced whose outcome is not known. It is when that is over.
//
// Invariant: the base that an announcement names stays as it is, in its form too, as long as
// the announcement is open (isOpen). Test: TestReshapeBesideOpenWrite.
func (m *Mirror) keepsShape(key kube.Key) bool {
	if m.two == nil || !m.two.isOpen(key) {
		return false
	}
	m.two.unshaped[key] = true
	return true
}

// lateShape tells whether a file can be re-encoded that had to wait for it.
func (m *Mirror) lateShape() bool {
	if m.two == nil {
		return false
	}
	for key := range m.two.unshaped {
		if !m.two.isOpen(key) {
			return true
		}
	}
	return false
}

// deriveTwoWay is derive's second half in mode two-way: it judges what git or both
// sides changed, announces and makes the writes to the cluster, and then writes
// branch and base. What only the cluster changed goes the mirror's way.
func (m *Mirror) deriveTwoWay(ctx context.Context, report *Report, reshaped bool, now time.Time) error {
	t := m.two
	keys, err := m.toJudge(ctx)
	if err != nil {
		return err
	}
	judged, err := m.judge(ctx, keys)
	if err != nil {
		return err
	}
	held, err := m.guardPrunes(ctx, judged, now)
	if err != nil {
		return err
	}
	if t.opts.DryRun {
		if err := m.try(ctx, judged); err != nil {
			return err
		}
	} else if !reshaped {
		if err := m.write(ctx, judged, now); err != nil {
			return err
		}
	}
	m.agreeToDelete(judged)
	p, err := m.plan(ctx, now)
	if err != nil {
		return err
	}
	t.base = append(t.agreed, p.edits...) // the mirror's part is agreed as it is written
	if err := m.settle(ctx, p, judged); err != nil {
		return err
	}
	p.held = append(p.held, held...).sorted()
	m.tellJudged(ctx, report, judged)
	if t.opts.DryRun {
		report.Postponed, report.Held = p.postponed, p.held
		report.add("", p.changes)
		return nil
	}
	if err := m.setAnnouncement(ctx, t.unanswered(), now); err != nil {
		return err
	}
	if err := m.commit(ctx, p, report, now); err != nil {
		return err
	}
	if err := t.reached(StepCommitted); err != nil {
		return err
	}
	return m.announceHeld(ctx, p, now)
}

// moveAgreed moves base by what this cycle agreed on.
func (m *Mirror) moveAgreed(ctx context.Context, now time.Time) error {
	t := m.two
	if len(t.base) == 0 {
		return nil
	}
	edits := t.base
	t.base = nil
	_, err := m.repo.DeriveBase(ctx, m.refs.Base, edits, m.baseMessage(m.deleted), now)
	return err
}

// acknowledged forgets what the remote's base holds from now on.
func (m *Mirror) acknowledged() {
	t := m.two
	for key := range t.settled {
		delete(t.landed, key)
	}
	clear(t.settled)
	for key, left := range t.left {
		left.known = true
		t.left[key] = left
	}
	m.announcementPushed()
}

// announcementPushed notes that the announcement at the remote is this process's.
func (m *Mirror) announcementPushed() {
	clear(m.two.mine)
	if at := m.repo.Ref(m.refs.Applying); !at.IsZero() {
		m.two.mine[at] = true
	}
}
