package restore

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/bulk"
	"github.com/crmirror/crmirror/sync"
)

// questions is how many the server is asked at once.
const questions = 16

// Rehearse asks the server whether it would take what a plan writes, and stores nothing: its schemas with their rules in
// CEL, its webhooks and policies. What it refuses is blocked in the plan, in its words, and so is what stands on that.
// Of what stands on something that is still to be made it cannot be asked; a finding counts that.
//
// It takes about as long as writing. The error is that of ctx, or about what the server serves.
//
// Invariant: nothing is stored (TestRehearse).
func Rehearse(ctx context.Context, snapshot *Snapshot, target Target, plan *Plan, opts *Options) error {
	x := newExecutor(snapshot, rehearsal{Cluster: target, target: target}, plan, ExecuteOptions{Options: *opts, Patience: defaultPatience})
	x.rehearses = true
	var err error
	if x.served, err = target.Discover(ctx); err != nil {
		if _, err := refusedFor(err); err != nil {
			return err
		}
		x.served = &bulk.Served{}
	}
	var asked []int
	silent := 0 // that nothing was said of
	for i := range plan.Actions {
		switch a := &plan.Actions[i]; {
		case !a.writes():
		case x.canAsk(a):
			asked = append(asked, i)
		default:
			silent++
		}
	}
	answers := make([]error, len(asked))
	var g errgroup.Group
	g.SetLimit(questions)
	for n, i := range asked {
		g.Go(func() error {
			if ctx.Err() == nil {
				answers[n] = x.rehearse(ctx, &plan.Actions[i])
			}
			return nil
		})
	}
	_ = g.Wait() // each error stands in answers
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for n, i := range asked {
		if !plan.Actions[i].answered(answers[n]) {
			silent++
		}
	}
	x.blockBehindRefused()
	if silent > 0 {
		plan.Findings = append(plan.Findings, Finding{What: "server", Text: fmt.Sprintf(
			"not asked about %d of the objects that would be written: it can tell only when their CRD, namespace or owner is there", silent)})
	}
	return nil
}

func (a *Action) writes() bool { return a.Verb == Create || a.Verb == Update }

// canAsk tells whether the server can say today what it will say when an object is written.
func (x *executor) canAsk(a *Action) bool {
	kind, _ := x.served.Resource(a.Resource.GroupResource())
	if _, served := kind.Version(a.Resource.Version); !served || x.makes(crdKey(a.Key.GroupResource())) || x.makes(namespaceKey(a.Key.Namespace)) {
		return false
	}
	for _, o := range a.awaits() {
		if !o.Dropped && o.UID == "" {
			return false
		}
	}
	return true
}

// makes tells whether the plan writes an object.
func (x *executor) makes(key kube.Key) bool {
	i, ok := x.tasks[key]
	return ok && x.plan.Actions[i].writes()
}

// rehearse sends what an action writes.
func (x *executor) rehearse(ctx context.Context, a *Action) error {
	j := x.newJob(a, a.Phase)
	if a.relinksOnly() {
		return x.relink(ctx, j)
	}
	desired, err := x.wanted(ctx, a)
	switch {
	case err != nil:
		return err
	case a.Verb == Create:
		return x.create(ctx, j, desired)
	}
	return x.update(ctx, j, desired)
}

// answered takes over what the server says of an action, and tells whether it said anything.
func (a *Action) answered(err error) bool {
	var refused *apply.Rejected
	switch {
	case err == nil:
		return true
	case !errors.As(err, &refused) || refused.Verdict == apply.Unavailable:
		return false
	}
	words := sync.Printable(refused.Error(), messageRunes)
	if refused.Retry {
		a.Notes = append(a.Notes, "the server would refuse it as things are, and it would be tried again for a while: "+words)
	} else {
		a.Verb, a.Reason = Blocked, "the server refuses it: "+words
	}
	return true
}

// blockBehindRefused blocks what stands on something that is refused.
func (x *executor) blockBehindRefused() {
	for again := true; again; {
		again = false
		for i := range x.plan.Actions {
			a := &x.plan.Actions[i]
			on := []kube.Key{crdKey(a.Key.GroupResource()), namespaceKey(a.Key.Namespace)}
			for _, o := range a.awaits() {
				if !o.Dropped {
					on = append(on, o.Key)
				}
			}
			for _, key := range on {
				if at, ok := x.tasks[key]; ok && a.writes() && x.keepsBack(&x.plan.Actions[at], a) {
					a.Verb, a.Reason, again = Blocked, fmt.Sprintf("%s is blocked; see there", key), true
				}
			}
		}
	}
}

// keepsBack tells whether an object cannot be written since another that it stands on is not.
func (x *executor) keepsBack(on, a *Action) bool {
	kind, _ := x.served.Resource(a.Resource.GroupResource())
	_, served := kind.Version(a.Resource.Version)
	return on.Verb == Blocked && (on.UID == "" || on.Phase == CRDs && !served)
}

// rehearsal is a target that stores nothing.
type rehearsal struct {
	Cluster
	target Target
}

// Create has the server do all but store.
func (r rehearsal) Create(ctx context.Context, resource schema.GroupVersionResource, obj map[string]any, _ bool) (bulk.Written, error) {
	return r.target.Create(ctx, resource, obj, true)
}

// Replace has the server do all but store.
func (r rehearsal) Replace(ctx context.Context, resource schema.GroupVersionResource, obj map[string]any, _ bool) (bulk.Written, error) {
	return r.target.Replace(ctx, resource, obj, true)
}

// PutStatus does nothing.
func (r rehearsal) PutStatus(context.Context, schema.GroupVersionResource, map[string]any) (bulk.Written, error) {
	return bulk.Written{}, nil
}

// Release does nothing.
func (r rehearsal) Release(context.Context, schema.GroupVersionResource, string, string, string, string) error {
	return nil
}

// WaitServed does nothing.
func (r rehearsal) WaitServed(context.Context, string, []schema.GroupVersionResource) error {
	return nil
}
