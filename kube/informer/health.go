package informer

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// unservedGrace is how long a fresh informer may get "no such resource" before
// that is told: a server takes a moment to serve a CRD that it has accepted.
const unservedGrace = 10 * time.Second

// Phase is what an informer is doing.
type Phase string

const (
	// PhaseListing informers have not completed their first listing.
	PhaseListing Phase = "listing"
	// PhaseSynced informers have listed everything and watch.
	PhaseSynced Phase = "synced"
	// PhaseFailing informers cannot list or watch, and keep trying.
	PhaseFailing Phase = "failing"
	// PhaseGone kinds have lost their CRD. Nothing runs for them.
	PhaseGone Phase = "gone"
)

// ResourceStatus says how one scope is doing.
type ResourceStatus struct {
	Scope   Scope
	Version string // the API version read; empty when none is known
	Phase   Phase
	Since   time.Time // when the phase began
	Err     error     // why it is failing
	Objects int       // selected objects known
}

// health is an informer's phase with what led to it.
type health struct {
	phase   Phase
	since   time.Time
	err     error
	told    string // the error as last told
	listed  bool   // listed completely once
	settled bool   // listed, or told to be failing
	// streaming says that the listing under way goes over into the watch.
	streaming bool
}

func (h *health) set(phase Phase, err error) {
	if h.phase != phase {
		h.phase, h.since = phase, time.Now()
	}
	h.err = err
}

// failing notes an error and tells it, unless it is the one told before.
func (i *informer) failing(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	i.mu.Lock()
	early := apierrors.IsNotFound(err) && i.health.phase == PhaseListing && time.Since(i.started) < unservedGrace
	text := signature(err)
	again := i.health.phase == PhaseFailing && i.health.told == text
	if !early && !again {
		i.health.set(PhaseFailing, err)
		i.health.told = text
	}
	i.mu.Unlock()
	if early || again {
		i.log.WithError(err).WithField("resource", i.scope.String()).Debug("list or watch fails")
		return
	}
	i.sink.Failing(ctx, i.scope, err)
	i.settle()
}

// listing notes and tells that a listing begins.
func (i *informer) listing(ctx context.Context, streaming bool) {
	i.mu.Lock()
	i.health.streaming = streaming
	i.mu.Unlock()
	i.tell(ctx, func(ctx context.Context) { i.sink.Listing(ctx, i.scope) })
}

// listed notes and tells that a listing is complete. With unsure, some objects'
// absence could not be confirmed: they are still known, and it is listed again.
func (i *informer) listed(ctx context.Context, unsure error) {
	listing := Listing{Has: i.has, Count: i.known.count(), Filtered: i.selector != "", Reborn: i.reborn}
	i.reborn = false
	i.tell(ctx, func(ctx context.Context) { i.sink.Listed(ctx, i.scope, listing) })
	i.leave()
	i.mu.Lock()
	i.health.listed = true
	streaming := i.health.streaming
	if i.health.phase == PhaseListing {
		i.health.set(PhaseSynced, nil)
	}
	i.mu.Unlock()
	switch {
	case unsure != nil:
		i.relist(unsure)
	case streaming:
		i.healthy(ctx)
	}
	i.settle()
}

// healthy notes that the scope is listed and watched.
func (i *informer) healthy(ctx context.Context) {
	i.mu.Lock()
	recovered := i.health.phase == PhaseFailing
	i.health.set(PhaseSynced, nil)
	i.health.told = ""
	i.mu.Unlock()
	if recovered {
		i.tell(ctx, func(ctx context.Context) { i.sink.Recovered(ctx, i.scope) })
		i.changed()
	}
}

// settle notes that the Sink knows how the scope stands.
func (i *informer) settle() {
	i.mu.Lock()
	i.health.settled = true
	i.mu.Unlock()
	i.changed()
}

// current returns the health for reading.
func (i *informer) current() health {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.health
}

func (i *informer) status() ResourceStatus {
	h := i.current()
	return ResourceStatus{
		Scope: i.scope, Version: i.resource.Version, Phase: h.phase, Since: h.since, Err: h.err, Objects: i.known.count(),
	}
}

// cause strips an error of what the Sink is told anyway, the scope, and of the URL
// of the request: what the server said, or why it was not reached.
func cause(err error) error {
	var said *apierrors.StatusError
	if errors.As(err, &said) && said.Error() != "" {
		return said
	}
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

// signature is the text of an error without its numbers: ports, resource versions
// and durations differ each time.
func signature(err error) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, err.Error())
}

// Status returns how every scope is doing, sorted.
func (f *Fleet) Status() []ResourceStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []ResourceStatus
	for resource, k := range f.kinds {
		switch {
		case k.gone:
			all = append(all, ResourceStatus{Scope: Scope{Resource: resource}, Phase: PhaseGone, Since: k.since})
		case k.unserved != nil:
			all = append(all, ResourceStatus{
				Scope: Scope{Resource: resource}, Phase: PhaseFailing, Since: k.since, Err: k.unserved,
			})
		}
		for _, i := range k.informers {
			if !k.gone {
				all = append(all, i.status())
			}
		}
	}
	slices.SortFunc(all, func(a, b ResourceStatus) int {
		return cmp.Or(strings.Compare(a.Scope.Resource.String(), b.Scope.Resource.String()),
			strings.Compare(a.Scope.Namespace, b.Scope.Namespace))
	})
	return all
}
