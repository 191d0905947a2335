package restore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// waitsAtOnce is how many CRDs are watched at the same time.
const waitsAtOnce = 16

// serve waits until the kinds of all objects that are left are served. Objects of those that are
// not, in the end, are blocked.
func (x *executor) serve(ctx context.Context) {
	began := time.Now()
	waits := x.unserved()
	if len(waits) == 0 || ctx.Err() != nil {
		return
	}
	r := StageReport{Stage: StageServed, Total: len(waits)}
	x.progress(Progress{Stage: StageServed, Total: len(waits), Began: began})
	failed := x.waitServed(ctx, waits, func() {
		r.Done++
		x.progress(Progress{Stage: StageServed, Done: r.Done, Total: len(waits), Began: began})
	})
	err := x.persist(ctx, func(ctx context.Context) error {
		served, err := x.target.Discover(ctx)
		if err == nil {
			x.served = served
		}
		return err
	})
	for _, i := range x.left(Objects) {
		a, o := &x.plan.Actions[i], &x.report.Outcomes[i]
		reason := failed[a.Key.GroupResource()]
		if reason == nil {
			reason = err
		}
		if reason != nil && ctx.Err() == nil && waits[a.Key.GroupResource()] != nil {
			o.Result, o.Reason = WasBlocked, fmt.Sprintf("its kind is not served: %v; see the CRD's conditions, and run again", reason)
		}
	}
	r.Took = time.Since(began)
	x.report.Stages = append(x.report.Stages, r)
}

// unserved returns the resources, at the versions at which they are written, that have to be
// waited for: those that are not served yet, and those whose CRD was written just now.
func (x *executor) unserved() map[schema.GroupResource][]schema.GroupVersionResource {
	waits := map[schema.GroupResource][]schema.GroupVersionResource{}
	for _, i := range x.left(Objects) {
		at := x.plan.Actions[i].Resource
		gr := at.GroupResource()
		kind, _ := x.served.Resource(gr)
		_, served := kind.Version(at.Version)
		if _, renewed := x.renewed[gr]; served && !renewed {
			continue
		}
		if !slices.Contains(waits[gr], at) {
			waits[gr] = append(waits[gr], at)
		}
	}
	return waits
}

// waitServed returns, of each resource that is not served in the end, why. done is called for each
// of the others, one after the other.
func (x *executor) waitServed(ctx context.Context, waits map[schema.GroupResource][]schema.GroupVersionResource, done func()) map[schema.GroupResource]error {
	failed := map[schema.GroupResource]error{}
	var group errgroup.Group
	group.SetLimit(waitsAtOnce)
	for gr, want := range waits {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, x.opts.Patience)
			defer cancel()
			err := x.persist(ctx, func(ctx context.Context) error { return x.target.WaitServed(ctx, gr.String(), want) })
			x.mu.Lock()
			defer x.mu.Unlock()
			if err != nil {
				failed[gr] = err
			} else {
				done()
			}
			return nil
		})
	}
	_ = group.Wait() // each error stands in failed
	return failed
}

// persist calls f again, with growing waits, as long as it fails for a while.
func (x *executor) persist(ctx context.Context, f func(context.Context) error) error {
	return persist(ctx, x.opts.Patience, x.jitter, f)
}
