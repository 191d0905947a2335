package sync

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/informer"
)

// Cluster is what the mirror asks of the cluster besides what the informers
// tell. *informer.Fleet implements it.
type Cluster interface {
	// Get reads one object live. Errors: informer.ErrNotFound, informer.ErrUnselected.
	Get(ctx context.Context, key kube.Key) (informer.State, error)
	// Proven asks live whether absences of a resource are proof that its
	// objects were deleted. Error: informer.ErrKindGone.
	Proven(ctx context.Context, gr schema.GroupResource) error
	// Kind returns the kind of a served resource.
	Kind(gr schema.GroupResource) (kind string, namespaced, ok bool)
	// Version returns the API version at which a served resource is read.
	Version(gr schema.GroupResource) (version string, ok bool)
	// Created returns when a resource's CRD was created; zero when it has none.
	Created(gr schema.GroupResource) time.Time
	// ClusterUID returns the uid of the namespace kube-system.
	ClusterUID(ctx context.Context) (string, error)
	// Synced tells whether every scope is known and was listed, or told to be failing.
	Synced() bool
	// Status tells of every resource and scope.
	Status() []informer.ResourceStatus
}

// Options is what a Mirror needs to know.
type Options struct {
	ClusterName string // [a-z0-9-]; in commits, refs and reports
	Rules       *kube.Rules
	Tree        Tree // what .crmirror.yaml shall say, without the cluster's uid
	Namespaces  bool // the Namespaces that hold mirrored objects are mirrored too
	CRDs        bool // the CRDs of the mirrored resources are mirrored too
	Guard       Limits
	TwoWay      *TwoWay  // nil in mode mirror
	Observer    Observer // nil for none
	Again       string   // flags that a command told to a person needs to mean the same, with a space before; may be ""
	Log         logrus.FieldLogger
	Lease       Lease  // nil where no other agent stands by
	Identity    string // of this process, in the message of the commit by which it takes over
}

// Mirror carries the cluster's objects into git. It is owned by one goroutine;
// the informers reach it only through its Inbox.
type Mirror struct {
	opts    Options
	inbox   *Inbox
	cluster Cluster
	repo    *gitstore.Store
	refs    RefNames
	log     logrus.FieldLogger

	uid    string // the cluster's, as it said last
	marker *Tree  // .crmirror.yaml in git; nil when there is none
	index  *index
	loaded bool // index and marker were read, of the commit at
	at     gitstore.Hash

	remoteAt gitstore.Hash  // the branch's head at the remote, as we saw it last
	shared   gitstore.Files // what the remote had when it was loaded, or took our commits
	stale    bool           // the remote has to be asked before anything is derived

	// pending holds the newest state of every object whose push was not
	// acknowledged. Invariant (promise 2): an entry leaves it only when the
	// remote has acknowledged a commit that holds it, or already has that
	// state. TestRemoteDown holds it to that.
	pending map[kube.Key]Entry
	swept   map[informer.Scope]bool // scopes whose listing was compared with git, not acknowledged
	settled map[informer.Scope]bool // scopes whose files are known to be as we write them

	waiting map[kube.Key]candidate // absent objects whose deletion is held
	foreign map[string]writer      // files that somebody else wrote, by path
	unread  map[kube.Key]error     // objects to read live, since somebody wrote their files
	strange map[string]Finding     // files at our paths that are not ours, by path
	orphans map[kube.Key]struct{}  // files that no rule selects any more

	sweeps    map[informer.Scope]sweep // listings that were not compared with git yet
	held      HeldSet                  // what the guard held last
	heldAt    gitstore.Hash            // the commit that the held ref shall name
	told      string                   // digest of the held deletions that were logged last
	deleted   map[kube.Key]time.Time   // deleted without approval, for the guard's rolling window
	rewritten Finding                  // the remote's branch lost commits; told once
	refless   bool                     // the remote takes no refs of ours
	recalled  bool                     // what an earlier process held is known
	agreed    time.Time                // when an earlier process moved the base last
	two       *twoWay                  // nil in mode mirror
	look      outside                  // files that may lie outside every scope
	fence     bool                     // another agent led before, and nothing was pushed since

	observer Observer
	spilled  int // entries that left the batch before it closed
}

// NewMirror returns a Mirror over an open store. It does no I/O.
func NewMirror(opts Options, inbox *Inbox, cluster Cluster, repo *gitstore.Store, refs RefNames) *Mirror {
	m := &Mirror{
		opts: opts, inbox: inbox, cluster: cluster, repo: repo, refs: refs, log: opts.Log,
		stale:   true,
		pending: map[kube.Key]Entry{},
		swept:   map[informer.Scope]bool{},
		settled: map[informer.Scope]bool{},
		waiting: map[kube.Key]candidate{},
		foreign: map[string]writer{},
		unread:  map[kube.Key]error{},
		strange: map[string]Finding{},
		orphans: map[kube.Key]struct{}{},

		sweeps:  map[informer.Scope]sweep{},
		deleted: map[kube.Key]time.Time{},
		index:   newIndex(),
		look:    outside{all: true},

		observer: orNobody(opts.Observer),
	}
	if opts.TwoWay != nil {
		m.two = newTwoWay(*opts.TwoWay)
		m.two.lease = opts.Lease
	}
	return m
}

// Recheck lets the next cycle ask the remote first: for an approval, or for what
// other writers pushed.
func (m *Mirror) Recheck() { m.stale = true }

// Maintain merges the repository's packs, and leaves out of our own clone what
// nothing needs, when that is due or the packs have piled up. It tells whether it did.
func (m *Mirror) Maintain(ctx context.Context, due bool) (done bool, err error) {
	if !due && !m.repo.Crowded() {
		return false, nil
	}
	var keep []gitstore.Hash // nothing in the repository refers to these yet
	for _, e := range m.pending {
		if e.Op == Present && e.Content == nil {
			keep = append(keep, e.Digest)
		}
	}
	return true, m.observe(OpMaintain, func() error { return m.repo.Maintain(ctx, keep) })
}

// observe does an operation and lets it be measured.
func (m *Mirror) observe(op Operation, do func() error) error {
	end := m.observer.Begin(op)
	err := do()
	end(err)
	return err
}

// Waiting returns how many objects wait for a push to be acknowledged.
func (m *Mirror) Waiting() int { return len(m.pending) + len(m.unread) }

// isSettled tells whether the file of key is known to be as we write it, unless
// somebody touched it since.
func (m *Mirror) isSettled(key kube.Key) bool {
	gr := key.GroupResource()
	return m.settled[informer.Scope{Resource: gr}] || m.settled[informer.Scope{Resource: gr, Namespace: key.Namespace}]
}
