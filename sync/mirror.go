package sync

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-git/go-git/v5/plumbing/filemode"
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
	Log         logrus.FieldLogger
}

// RefNames are the refs that belong to one cluster's path on one branch.
type RefNames struct {
	Base     string // what cluster and git last agreed on
	Held     string // the deletions that wait for approval
	Approved string // the deletions that a person let through
}

// Refs returns the names of our refs. The id in them is the cluster's name and a
// short digest of branch and path, so that two agents never share a ref.
func Refs(cluster, branch, path string) RefNames {
	sum := sha256.Sum256([]byte(branch + "\x00" + path))
	prefix := fmt.Sprintf("refs/crmirror/%s-%s/", cluster, hex.EncodeToString(sum[:4]))
	return RefNames{Base: prefix + "base", Held: prefix + "held", Approved: prefix + "approved"}
}

// All returns the names as a list, in the order base, held, approved.
func (r RefNames) All() []string { return []string{r.Base, r.Held, r.Approved} }

// Mirror carries the cluster's objects into git. It is owned by one goroutine;
// the informers reach it only through its Inbox.
type Mirror struct {
	opts    Options
	inbox   *Inbox
	cluster Cluster
	repo    *gitstore.Store
	refs    RefNames
	log     logrus.FieldLogger

	uid    string // the cluster's, once known
	loaded bool   // index and marker tell of repo.Head()
	index  *index
	marker *Tree // .crmirror.yaml in git; nil when there is none
	stale  bool  // the remote has to be asked before anything is derived

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

	unpushed   map[string]gitstore.Hash // files of local commits, as the remote has them
	held       HeldSet                  // what the guard held last
	heldDigest string                   // of the held deletions that were told last
	deleted    []Deletion               // executed without approval, for the guard's rolling window
	refless    bool                     // the remote takes no refs of ours
	checked    bool                     // files outside every scope were looked at since the last fetch
}

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

// NewMirror returns a Mirror over an open store. It does no I/O.
func NewMirror(opts Options, inbox *Inbox, cluster Cluster, repo *gitstore.Store, refs RefNames) *Mirror {
	return &Mirror{
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

		unpushed: map[string]gitstore.Hash{},
	}
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

func presentEntry(s informer.State) Entry {
	return Entry{
		Key: s.Key, Op: Present, Content: s.Content,
		UID: s.UID, ResourceVersion: s.ResourceVersion, Manager: s.Manager,
	}
}

// Spill keeps the contents of entries in the object store, so that memory holds
// only their digests, and remembers them until a push is acknowledged. Entries
// that git already has are dropped. It is called when a batch holds as many
// bytes as it may, long before it is committed.
func (m *Mirror) Spill(entries []Entry) error {
	m.remember(entries)
	return m.spill()
}

// remember adds entries to pending; they are newer than what is there.
func (m *Mirror) remember(entries []Entry) {
	// Before the head is known, and while local commits wait to be pushed,
	// nothing is said to be in git.
	known := m.loaded && !m.stale && !m.repo.Unpushed()
	for _, e := range entries {
		if e.Op == Present {
			delete(m.waiting, e.Key)
			if known && m.inGit(e) {
				delete(m.pending, e.Key)
				continue
			}
		}
		m.pending[e.Key] = e
	}
}

// inGit tells whether the head already holds the entry's bytes.
func (m *Mirror) inGit(e Entry) bool {
	path := PathOf(e.Key)
	h, exists := m.repo.Lookup(path)
	if !exists || h != digestOf(e) {
		return false
	}
	delete(m.foreign, path)
	return true
}

func digestOf(e Entry) gitstore.Hash {
	if e.Content == nil {
		return e.Digest
	}
	return gitstore.BlobHash(e.Content)
}

// spill writes the contents of all pending entries to the object store.
func (m *Mirror) spill() error {
	var keys []kube.Key
	var contents [][]byte
	for key, e := range m.pending {
		if e.Op == Present && e.Content != nil {
			keys = append(keys, key)
			contents = append(contents, e.Content)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	hashes, err := m.repo.PutBlobs(contents)
	if err != nil {
		return fmt.Errorf("keep %d waiting objects: %w", len(keys), err)
	}
	for i, key := range keys {
		e := m.pending[key]
		e.Content, e.Digest = nil, hashes[i]
		m.pending[key] = e
	}
	return nil
}

// content returns the bytes of a present entry, from memory or the object store.
func (m *Mirror) content(ctx context.Context, e Entry) ([]byte, error) {
	if e.Content != nil {
		return e.Content, nil
	}
	return m.repo.Read(ctx, e.Digest)
}

// recordDeletions notes executed deletions for the guard's rolling window.
func (m *Mirror) recordDeletions(keys []kube.Key, now time.Time) {
	for _, key := range keys {
		m.deleted = append(m.deleted, Deletion{Resource: key.GroupResource(), When: now})
	}
	m.deleted = slices.DeleteFunc(m.deleted, func(d Deletion) bool { return now.Sub(d.When) > GuardWindow })
}

// Recheck lets the next cycle ask the remote first: for an approval, or for what
// other writers pushed.
func (m *Mirror) Recheck() { m.stale = true }

// Waiting returns how many objects wait for a push to be acknowledged.
func (m *Mirror) Waiting() int { return len(m.pending) + len(m.unread) }

// isSettled tells whether the file of key is known to be as we write it, unless
// somebody touched it since.
func (m *Mirror) isSettled(key kube.Key) bool {
	gr := key.GroupResource()
	return m.settled[informer.Scope{Resource: gr}] || m.settled[informer.Scope{Resource: gr, Namespace: key.Namespace}]
}
