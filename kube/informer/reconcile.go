package informer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// idle is how long Run waits when nothing is due. Everything wakes it.
const idle = time.Hour

// reconcile starts, restarts and ends informers until they are the right ones for
// the CRDs there are and the resources that rules name. It returns when to look
// again. Only the loop of Run calls it.
func (f *Fleet) reconcile(ctx context.Context) time.Duration {
	f.mu.Lock()
	crds := f.kinds[crdResource()].informers[""]
	changes := f.changes
	definitions := slices.SortedFunc(maps.Values(f.definitions), func(a, b definition) int {
		return strings.Compare(a.resource.String(), b.resource.String())
	})
	f.mu.Unlock()
	if !crds.current().settled {
		return idle
	}
	f.loseUndefined(ctx)
	next := idle
	for _, d := range definitions {
		next = min(next, f.follow(ctx, d))
	}
	next = min(next, f.lookUpNamed(ctx))
	f.mu.Lock()
	f.planned = changes
	f.mu.Unlock()
	f.announce()
	return next
}

// loseUndefined ends the kinds whose CRD went while they were being started.
func (f *Fleet) loseUndefined(ctx context.Context) {
	var undefined []*kind
	f.mu.Lock()
	for _, k := range f.kinds {
		d, ok := f.definitions[k.resource]
		if k.uid != "" && !k.gone && (!ok || d.terminating || d.uid != k.uid) {
			k.gone, k.since = true, time.Now()
			undefined = append(undefined, k)
		}
	}
	f.mu.Unlock()
	for _, k := range undefined {
		f.lose(ctx, k)
	}
}

// follow brings the informers of one custom resource in line with its CRD. It
// returns when something is due.
func (f *Fleet) follow(ctx context.Context, d definition) time.Duration {
	if _, selected := f.options.Rules.Resource(d.resource, true); !selected || d.terminating || d.version == "" {
		return idle
	}
	f.mu.Lock()
	k := f.kinds[d.resource]
	fresh := k == nil || k.unserved != nil
	gone := k != nil && k.gone
	again := gone && k.told && k.uid != d.uid
	f.mu.Unlock()
	switch {
	case gone && !again:
		return idle
	case (fresh || again) && !d.established:
		return idle
	case fresh || again:
		if k != nil {
			stopInformers(k.informers)
			f.served(ctx, k)
		}
		f.start(ctx, &kind{definition: d, reborn: again})
		return idle
	}
	return f.restartWhenDue(ctx, k, d)
}

// restartWhenDue restarts the informers of a kind whose CRD has changed, some
// time after the change. What they knew is compared with the new listing.
func (f *Fleet) restartWhenDue(ctx context.Context, k *kind, d definition) time.Duration {
	if k.uid == "" { // found by its name, while the CRDs could not be listed
		f.mu.Lock()
		k.uid, k.generation = d.uid, d.generation
		f.mu.Unlock()
	}
	if k.version == d.version && k.generation == d.generation {
		delete(f.due, d.resource)
		return idle
	}
	if _, ok := f.due[d.resource]; !ok {
		f.due[d.resource] = time.Now().Add(f.options.Settle)
	}
	if wait := time.Until(f.due[d.resource]); wait > 0 {
		return wait
	}
	delete(f.due, d.resource)
	f.mu.Lock()
	informers, listed := k.informers, k.listed()
	f.mu.Unlock()
	stopInformers(informers)
	f.start(ctx, &kind{definition: d, known: k.known, reborn: k.reborn && !listed})
	return idle
}

// listed says that every informer of the kind has completed a listing.
func (k *kind) listed() bool {
	for _, i := range k.informers {
		if !i.current().listed {
			return false
		}
	}
	return true
}

// stopInformers ends informers and waits for them.
func stopInformers(informers map[string]*informer) {
	for _, i := range informers {
		i.cancel()
	}
	for _, i := range informers {
		i.stop()
	}
}

// lookUpNamed starts what rules name and no CRD defines: built-ins, and the
// resources of aggregated servers. It returns when to look again for those that
// no server serves.
func (f *Fleet) lookUpNamed(ctx context.Context) time.Duration {
	next := idle
	for _, resource := range f.options.Rules.Named() {
		f.mu.Lock()
		k := f.kinds[resource]
		_, custom := f.definitions[resource]
		wanted := k == nil || k.wanting()
		f.mu.Unlock()
		if _, selected := f.options.Rules.Resource(resource, false); custom || !selected || !wanted {
			continue
		}
		if k != nil {
			if wait := time.Until(f.checked[resource].Add(f.options.Recheck)); wait > 0 {
				next = min(next, wait)
				continue
			}
		}
		f.lookUp(ctx, resource, k)
		next = min(next, f.options.Recheck)
	}
	return next
}

// wanting says that a kind no CRD defines is to be looked for: it was not found
// yet, or the server answers to all of its informers that there is no such
// resource, because an upgrade has moved it to another version.
func (k *kind) wanting() bool {
	if k.unserved != nil {
		return !k.gone
	}
	for _, i := range k.informers {
		if h := i.current(); h.phase != PhaseFailing || !apierrors.IsNotFound(h.err) {
			return false
		}
	}
	return k.uid == "" && len(k.informers) > 0 && !k.fixed
}

// lookUp asks the server for one resource and starts it, or tells why it cannot.
func (f *Fleet) lookUp(ctx context.Context, resource schema.GroupResource, k *kind) {
	d, err := f.discover(ctx, resource)
	f.checked[resource] = time.Now()
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		fresh := &kind{definition: d}
		if k != nil {
			stopInformers(k.informers)
			f.served(ctx, k)
			fresh.known = k.known
		}
		f.start(ctx, fresh)
		return
	}
	if k != nil && k.unserved == nil {
		return // its informers tell that they fail
	}
	f.mu.Lock()
	if k == nil && f.kinds[resource] != nil { // its CRD came meanwhile
		f.mu.Unlock()
		return
	}
	if k == nil {
		k = &kind{definition: definition{resource: resource}, since: time.Now()}
		f.kinds[resource] = k
	}
	again := k.unserved != nil && signature(k.unserved) == signature(err)
	k.unserved = err
	f.mu.Unlock()
	if !again {
		f.options.Sink.Failing(ctx, Scope{Resource: resource}, err)
	}
}

// served tells that a resource that was looked for in vain has appeared.
func (f *Fleet) served(ctx context.Context, k *kind) {
	if k.unserved != nil {
		f.options.Sink.Recovered(ctx, Scope{Resource: k.resource})
	}
}

// discover finds the version and kind under which a resource is served.
func (f *Fleet) discover(ctx context.Context, resource schema.GroupResource) (definition, error) {
	versions := []string{"v1"}
	if resource.Group != "" {
		var err error
		if versions, err = f.versions(ctx, resource.Group); err != nil {
			return definition{}, fmt.Errorf("look for %s: %w", resource, err)
		}
	}
	for _, version := range versions {
		gv := schema.GroupVersion{Group: resource.Group, Version: version}
		list, err := f.discovery.ServerResourcesForGroupVersionWithContext(ctx, gv.String())
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return definition{}, fmt.Errorf("look for %s: %w", resource, err)
		}
		for _, r := range list.APIResources {
			if r.Name != resource.Resource {
				continue
			}
			if !slices.Contains(r.Verbs, "list") {
				return definition{}, fmt.Errorf("look for %s: the server does not list it", resource)
			}
			return definition{resource: resource, kind: r.Kind, namespaced: r.Namespaced, version: version, established: true}, nil
		}
	}
	return definition{}, fmt.Errorf("look for %s: %w", resource, errNotServed)
}

// versions returns the versions of an API group, the preferred one first.
func (f *Fleet) versions(ctx context.Context, group string) ([]string, error) {
	groups, err := f.discovery.ServerGroupsWithContext(ctx)
	if err != nil {
		return nil, err
	}
	for _, g := range groups.Groups {
		if g.Name == group {
			return inOrder(g), nil
		}
	}
	return nil, errNotServed
}

func inOrder(group metav1.APIGroup) []string {
	versions := []string{group.PreferredVersion.Version}
	for _, v := range group.Versions {
		if v.Version != group.PreferredVersion.Version {
			versions = append(versions, v.Version)
		}
	}
	return versions
}
