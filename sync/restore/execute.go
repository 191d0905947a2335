package restore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/bulk"
)

// Target is a cluster that a plan is carried out in. A *bulk.Client and an *apply.Schemas,
// embedded side by side, are one.
type Target interface {
	Cluster
	// Create creates an object; apply.ErrExists if there is one. With dryRun, nothing is stored.
	Create(ctx context.Context, resource schema.GroupVersionResource, obj map[string]any, dryRun bool) (bulk.Written, error)
	// Replace writes an object in the state of its uid and resourceVersion; else apply.ErrMoved.
	Replace(ctx context.Context, resource schema.GroupVersionResource, obj map[string]any, dryRun bool) (bulk.Written, error)
	// PutStatus is Replace of the status alone.
	PutStatus(ctx context.Context, resource schema.GroupVersionResource, obj map[string]any) (bulk.Written, error)
	// Release gives up the fields that were owned by writing them.
	Release(ctx context.Context, resource schema.GroupVersionResource, namespace, name, uid, resourceVersion string) error
	// WaitServed returns when the kind of a CRD is served at all the versions wanted.
	WaitServed(ctx context.Context, crd string, want []schema.GroupVersionResource) error
}

// How long to wait, unless ExecuteOptions say another.
const (
	defaultPatience = 2 * time.Minute
	// settling is how long after its CRD was written a kind may still refuse fields that it has by now.
	settling = 5 * time.Second
)

// ExecuteOptions say how a plan is carried out.
type ExecuteOptions struct {
	Options // with which the plan was made
	// Concurrency is how many requests may be under way at once. Zero means as many as make it
	// quicker, up to 64.
	Concurrency int
	// Patience is how long what fails for a while is tried again, and how long a CRD may take to
	// be served. Zero means two minutes.
	Patience time.Duration
	// Saver keeps objects before they are configured. Without one, none is configured.
	Saver *Saver
	// Progress, unless nil, is told how far it is, from one goroutine and for each object.
	Progress func(Progress)
}

// errOtherCluster means that a plan is carried out where it was not made.
var errOtherCluster = errors.New("the plan was made for another cluster; make a new one")

// Execute carries out a plan. What was made of each object is in the Report; the error is about
// the whole, before anything was written. When ctx ends, what is under way is finished, and the Report
// says what is left.
//
// Invariant: nothing is deleted; nothing that exists is written but what the plan says is to be
// updated, in the state in which it was read, compared again and saved just before
// (TestUpdateRace, TestUpdateUnplanned); and nothing with a redacted value is sent
// (TestRedactedIsNotSent).
func Execute(ctx context.Context, snapshot *Snapshot, target Target, plan *Plan, opts ExecuteOptions) (*Report, error) {
	uid, err := target.ClusterUID(ctx)
	if err != nil {
		return nil, err
	}
	if uid != plan.ClusterUID {
		return nil, errOtherCluster
	}
	if opts.Patience == 0 {
		opts.Patience = defaultPatience
	}
	x := newExecutor(snapshot, target, plan, opts)
	if x.served, err = target.Discover(ctx); err != nil {
		if _, err := refusedFor(err); err != nil {
			return nil, err
		}
		x.served = &bulk.Served{} // the plan blocks what that keeps from being written
	}
	x.run(ctx)
	if opts.Saver != nil {
		x.report.Saved = opts.Saver.Path()
	}
	x.report.Interrupted = ctx.Err() != nil
	return x.report, nil
}

// executor carries out one plan.
type executor struct {
	snapshot *Snapshot
	target   Target
	plan     *Plan
	opts     ExecuteOptions
	report   *Report // of the goroutine that runs
	pace     *pace
	jitter   func() float64
	tasks    map[kube.Key]int // index of the plan's actions

	rehearses bool // nothing is stored

	served  *bulk.Served
	renewed map[schema.GroupResource]time.Time // kinds whose CRD was written

	mu   sync.Mutex
	uids map[kube.Key]string // of objects that this run wrote, or met as owners
}

func newExecutor(snapshot *Snapshot, target Target, plan *Plan, opts ExecuteOptions) *executor {
	x := &executor{
		snapshot: snapshot, target: target, plan: plan, opts: opts, report: newReport(plan, opts.ReleaseOwnership), pace: newPace(opts.Concurrency), jitter: rand.Float64,
		tasks: map[kube.Key]int{}, renewed: map[schema.GroupResource]time.Time{}, uids: map[kube.Key]string{},
	}
	for i := range plan.Actions {
		a := &plan.Actions[i]
		if other, twice := x.tasks[a.Key]; !twice || plan.Actions[other].Verb == Blocked { // two may be mapped to one key
			x.tasks[a.Key] = i
		}
	}
	return x
}

// run goes through the phases.
func (x *executor) run(ctx context.Context) {
	x.write(ctx, StageCRDs, CRDs)
	x.blockUnrenewed()
	x.blockBehind(CRDs, func(a *Action) (kube.Key, bool) { return crdKey(a.Key.GroupResource()), true }, "its CRD %s is not there")
	x.serve(ctx)
	x.write(ctx, StageNamespaces, Namespaces)
	x.blockBehind(Namespaces, func(a *Action) (kube.Key, bool) { return namespaceKey(a.Key.Namespace), a.Key.Namespace != "" }, "its namespace %s is not there")
	x.write(ctx, StageObjects, Objects)
}

// left returns the actions of a phase that are still to be done.
func (x *executor) left(phase Phase) []int {
	var left []int
	for i := range x.plan.Actions {
		if x.plan.Actions[i].Phase == phase && x.report.Outcomes[i].Result == WasLeft {
			left = append(left, i)
		}
	}
	return left
}

// blockBehind blocks the objects of later phases that stand on one which the cluster lacks though the
// plan has it.
func (x *executor) blockBehind(phase Phase, on func(*Action) (kube.Key, bool), reason string) {
	for i := range x.plan.Actions {
		a, o := &x.plan.Actions[i], &x.report.Outcomes[i]
		key, ok := on(a)
		if !ok || a.Phase <= phase || o.Result != WasLeft {
			continue
		}
		at, planned := x.tasks[key]
		if planned && !x.report.Outcomes[at].there && x.report.Outcomes[at].Result != WasLeft {
			o.Result, o.Reason = WasBlocked, fmt.Sprintf(reason, key.Name)+"; see there, and run again"
		}
	}
}

// blockUnrenewed blocks the objects at versions which only an update of their CRD would have brought, that did not come.
func (x *executor) blockUnrenewed() {
	for _, i := range x.left(Objects) {
		at := x.plan.Actions[i].Resource
		kind, _ := x.served.Resource(at.GroupResource())
		_, served := kind.Version(at.Version)
		crd, planned := x.tasks[crdKey(at.GroupResource())]
		if served || !planned || x.plan.Actions[crd].Verb != Update {
			continue
		}
		if r := x.report.Outcomes[crd].Result; r != WasConfigured && r != WasUnchanged && r != WasLeft {
			o := &x.report.Outcomes[i]
			o.Result, o.Reason = WasBlocked, fmt.Sprintf("its CRD %s was not updated; see there, and run again", at.GroupResource())
		}
	}
}

// write writes what is left of a phase.
func (x *executor) write(ctx context.Context, stage Stage, phase Phase) {
	left := x.left(phase)
	if len(left) == 0 {
		return
	}
	r := StageReport{Stage: stage, Total: len(left)}
	began := time.Now()
	jobs := make([]*job, len(left))
	for n, i := range left {
		jobs[n] = x.newJob(&x.plan.Actions[i], phase)
	}
	order := newOrder(x.waits(left))
	s := newSchedule(order, func(n int) []string { return jobs[n].gates() }, x.opts.Patience, x.jitter)
	ended := 0
	end := func(n int, err error) bool {
		x.outcome(left[n], jobs[n], err)
		ended++
		if jobs[n].made {
			r.Done++
		}
		there := jobs[n].made || x.mayOwn(jobs[n].action)
		if !there {
			x.blockDependents(s.behind(n), left, jobs[n])
		}
		x.progress(Progress{Stage: stage, Done: ended, Total: len(left), Began: began})
		return there
	}
	for _, n := range order.circles() {
		end(n, blocked(inCircle))
		x.blockDependents(s.behind(n), left, jobs[n])
	}
	x.progress(Progress{Stage: stage, Done: ended, Total: len(left), Began: began})
	p := pool{schedule: s, pace: x.pace, ended: end, attempt: func(ctx context.Context, n int) error { return x.attempt(ctx, jobs[n]) }}
	p.run(ctx)
	r.Took, r.Requests = time.Since(began), x.pace.limit
	x.report.Stages = append(x.report.Stages, r)
}

// waits returns, for each of the actions, the positions of those of them that are its owners.
func (x *executor) waits(left []int) [][]int {
	position := make(map[int]int, len(left))
	for n, i := range left {
		position[i] = n
	}
	waits := make([][]int, len(left))
	for n, i := range left {
		for _, owner := range x.plan.Actions[i].awaits() {
			at, planned := x.tasks[owner.Key]
			m, waiting := position[at]
			if planned && waiting && !owner.Dropped && !slices.Contains(waits[n], m) {
				waits[n] = append(waits[n], m)
			}
		}
	}
	return waits
}

// outcome notes what became of an object.
func (x *executor) outcome(i int, j *job, err error) {
	o := &x.report.Outcomes[i]
	o.Notes = append(slices.Clip(o.Notes), j.notes...)
	o.there = o.there || j.made || j.met
	if j.changes != nil {
		o.Changes = j.changes
	}
	var refused *refusedError
	var rejected *apply.Rejected
	switch {
	case err == nil:
		o.Result, o.Reason = j.result, ""
	case errors.As(err, &refused):
		o.Result, o.Reason = refused.result, refused.reason
	case errors.As(err, &rejected): // without the object's name, which stands beside
		o.Result, o.Reason = HasFailed, rejected.Error()
	default:
		o.Result, o.Reason = HasFailed, err.Error()
	}
	if err != nil && j.made {
		o.Reason = string(j.result) + ", but: " + o.Reason
	}
}

// mayOwn tells whether an object that is not as git has it may be there for all that: what it owns finds
// out before it is written; see ownerUID.
func (x *executor) mayOwn(a *Action) bool { return a.UID != "" || x.uid(a.Key) != "" }

// blockDependents blocks what waits for an object that did not come.
func (x *executor) blockDependents(behind, left []int, owner *job) {
	reason := fmt.Sprintf("its owner %s is not there; see there, and run again", owner.action.Key)
	if owner.met {
		reason = ownerGoes(owner.action.Key)
	}
	for _, n := range behind {
		if o := &x.report.Outcomes[left[n]]; o.Result == WasLeft {
			o.Result, o.Reason = WasBlocked, reason
		}
	}
}

func (x *executor) progress(p Progress) {
	if x.opts.Progress != nil {
		x.opts.Progress(p)
	}
}

// is notes the uid of an object that is there, and that nobody deletes.
func (x *executor) is(key kube.Key, uid string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if uid != "" {
		x.uids[key] = uid
	}
}

// uid returns that of an object that is there, or "".
func (x *executor) uid(key kube.Key) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.uids[key]
}
