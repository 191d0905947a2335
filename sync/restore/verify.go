package restore

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	gosync "sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/sync"
)

// State is how an object of the cluster stands to git's.
type State string

// The states that are told of.
const (
	Missing     State = "missing"       // the cluster lacks it
	Differs     State = "differs"       // Changes say in which fields
	Terminating State = "being deleted" // the cluster has it, and not for long
	Unknown     State = "unknown"       // it cannot be compared; Reason says why
	// WouldRun is Missing, of a resource that runs when created and was not asked for by name: a
	// restore leaves it out.
	WouldRun State = "left out"
)

// Difference is an object that is not as git has it. Its JSON form is a contract and holds no values
// of fields.
type Difference struct {
	State   State    `json:"state"`
	Key     kube.Key `json:"key"`  // in the cluster, after MapNamespaces
	From    kube.Key `json:"from"` // in git
	Path    string   `json:"path"`
	Reason  string   `json:"reason,omitempty"`
	Changes []Change `json:"changes,omitempty"`
}

// NotCompared is an object of which some fields could not be compared, since git has only digests of them
// and the key is not known. It counts as equal if the others are.
type NotCompared struct {
	Key    kube.Key `json:"key"`
	Fields []string `json:"fields"`
}

// Verification is what came of comparing a cluster with a commit.
type Verification struct {
	Commit     Commit    `json:"commit"`
	Time       time.Time `json:"time"` // of the commit
	ClusterUID string    `json:"clusterUID"`
	Objects    int       `json:"objects"` // of the commit that were looked for, without those in Beside
	Equal      int       `json:"equal"`
	// Differences and the others are in the order of keys.
	Differences []Difference  `json:"differences,omitempty"`
	NotCompared []NotCompared `json:"notCompared,omitempty"`
	// Beside are CRDs and Namespaces that differ, were not selected themselves, and are what others stand on. A
	// restore of the same selection leaves them alone: they are no difference.
	Beside []Difference `json:"beside,omitempty"`
	// Extra are objects of the same resources that only the cluster has. They are no difference.
	Extra    []kube.Key `json:"extra,omitempty"`
	Findings []Finding  `json:"findings,omitempty"` // about files, selectors, and kinds that cannot be read
}

// Same tells whether the cluster has all that the commit has, as it has it, but for what would run
// again.
func (v *Verification) Same() bool {
	for i := range v.Differences {
		if v.Differences[i].State != WouldRun {
			return false
		}
	}
	return !slices.ContainsFunc(v.Findings, isFatal)
}

// Verify compares the objects of a snapshot that the options select, and the CRDs and Namespaces that they
// stand on, with a cluster; of the latter only being there counts. It reads each kind with one listing, and takes for equal what has the very
// encoding that lies in git; the rest it compares field by field.
func Verify(ctx context.Context, s *Snapshot, cluster Cluster, opts *Options) (*Verification, error) {
	extra := extras{s: s, opts: opts, keys: map[kube.Key]bool{}}
	m := &maker{s: s, cluster: &steady{Cluster: cluster, jitter: rand.Float64}, opts: opts, runs: opts.running(), plan: &Plan{}, extra: extra.see,
		verifies: true}
	var err error
	if extra.rules, err = opts.rules(); err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{m.look, m.choose, m.compare, m.checkLinks} {
		if err := step(ctx); err != nil {
			return nil, fmt.Errorf("verify %s: %w", s.Commit, err)
		}
	}
	v := &Verification{
		Commit: Commit(s.Commit), Time: s.Time, ClusterUID: m.plan.ClusterUID,
		Extra: slices.SortedFunc(maps.Keys(extra.keys), sync.CompareKeys), Findings: m.plan.Findings,
	}
	for _, t := range m.targets {
		v.add(t, m.runs[t.item.Key.GroupResource()])
	}
	for _, list := range [][]Difference{v.Differences, v.Beside} {
		slices.SortFunc(list, func(a, b Difference) int { return sync.CompareKeys(a.Key, b.Key) })
	}
	slices.SortFunc(v.NotCompared, func(a, b NotCompared) int { return sync.CompareKeys(a.Key, b.Key) })
	return v, nil
}

// add counts an object, or tells of it. One that runs would do its work again.
//
// Invariant: what others stand on counts only as far as it is there (TestVerifySupport).
func (v *Verification) add(t *target, runs bool) {
	if t.assumed {
		return
	}
	a := t.action
	v.Objects++
	if len(t.notCompared) > 0 {
		v.NotCompared = append(v.NotCompared, NotCompared{Key: a.Key, Fields: t.notCompared})
	}
	d := Difference{Key: a.Key, From: a.From, Path: a.Path, Changes: a.Changes}
	switch {
	case a.Verb == Unchanged:
		v.Equal++
		return
	case t.terminates:
		d.State = Terminating
	case len(a.Changes) > 0:
		d.State = Differs
	case a.Verb != "":
		d.State, d.Reason = Unknown, a.Reason
	case runs:
		d.State = WouldRun
	default:
		d.State = Missing
	}
	if t.support && t.found && !t.terminates {
		v.Objects--
		v.Beside = append(v.Beside, d)
		return
	}
	v.Differences = append(v.Differences, d)
}

// extras collects objects that git lacks.
type extras struct {
	s     *Snapshot
	opts  *Options
	rules *kube.Rules

	mu   gosync.Mutex
	keys map[kube.Key]bool
}

// see looks at a live object that is none of the snapshot's selected ones.
func (e *extras) see(key kube.Key, live *unstructured.Unstructured) {
	if e.opts.Selector != nil && !e.opts.Selector.Matches(labels.Set(live.GetLabels())) {
		return
	}
	from := e.opts.unmapKey(key)
	_, inGit := e.s.Item(from)
	if inGit || phaseOf(key.GroupResource()) != Objects || !e.s.selects(e.rules, e.opts, from) || !e.s.mirrors(key, live) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.keys[key] = true
}
