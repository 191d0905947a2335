package informer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/crmirror/crmirror/kube"
)

// errRelist ends an attempt because a fresh listing was asked for.
var errRelist = errors.New("relist")

// informer lists and watches one scope until its context ends.
type informer struct {
	scope    Scope
	resource schema.GroupVersionResource
	selector string // given to the server; empty for all objects
	reborn   bool   // the first listing follows a replaced CRD
	known    *known
	client   dynamic.NamespaceableResourceInterface
	sink     Sink
	log      logrus.FieldLogger
	options  *Options
	// governs judges an object.
	governs func(*unstructured.Unstructured) (*kube.Shape, bool)
	// seen and vanished, where set, learn of every object before the Sink does. A
	// uid that is not known is empty.
	seen     func(context.Context, *unstructured.Unstructured)
	vanished func(ctx context.Context, name string, uid types.UID)
	// slots, where set, has room for the listings that may run.
	slots chan struct{}
	// changed is called when status would return something else.
	changed func()

	mu     sync.Mutex
	health health
	again  context.CancelCauseFunc // ends the attempt under way
	inSlot bool                    // a listing under way takes a slot

	started time.Time
	cancel  context.CancelFunc
	done    chan struct{}
}

// start runs the informer in the background.
func (i *informer) start(ctx context.Context) {
	ctx, i.cancel = context.WithCancel(ctx)
	i.done = make(chan struct{})
	i.started = time.Now()
	go func() {
		defer close(i.done)
		i.run(ctx)
	}()
}

// stop ends the informer and waits for it.
func (i *informer) stop() {
	i.cancel()
	<-i.done
}

// run lists and watches, and tries again when that ends.
func (i *informer) run(ctx context.Context) {
	store := &feed{ctx: ctx, informer: i}
	from := &source{
		informer: i, client: i.client, feed: store,
		pageSize: i.options.PageSize, timeout: i.options.RequestTimeout,
	}
	if i.scope.Namespace != "" {
		from.client = i.client.Namespace(i.scope.Namespace)
	}
	defer from.wait()
	logger := quiet(i.log.WithField("resource", i.scope.String()))
	reflector := cache.NewReflectorWithOptions(from, nil, store, cache.ReflectorOptions{
		Logger: &logger, Name: i.scope.String(), TypeDescription: i.scope.String(), Backoff: i.backoff(),
	})
	ctx = klog.NewContext(ctx, logger)
	pause := i.backoff()
	for {
		began := time.Now()
		err := i.attempt(ctx, reflector)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > i.options.RetryMax {
			pause = i.backoff()
		}
		if err == nil || errors.Is(err, errRelist) {
			continue
		}
		if !i.sleep(ctx, pause.Step()) {
			return
		}
	}
}

// attempt lists and watches until something ends that. It returns nil only where
// going on at once is right.
func (i *informer) attempt(ctx context.Context, reflector *cache.Reflector) error {
	attempt, cancel := context.WithCancelCause(ctx)
	defer i.leave()
	defer cancel(nil)
	i.mu.Lock()
	i.again = cancel
	i.mu.Unlock()
	began := time.Now()
	err := reflector.ListAndWatchWithContext(attempt)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case context.Cause(attempt) != nil:
		err = context.Cause(attempt)
		if !errors.Is(err, errRelist) {
			i.failing(ctx, err)
		}
	case err == nil && time.Since(began) < i.options.RetryMax:
		return errors.New("watch ended early")
	case err != nil && !stale(err):
		i.failing(ctx, cause(err))
	}
	return err
}

// admit waits until a listing may begin.
func (i *informer) admit(ctx context.Context) error {
	i.mu.Lock()
	waits := i.slots != nil && !i.inSlot
	i.mu.Unlock()
	if !waits {
		return ctx.Err()
	}
	select {
	case i.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	i.mu.Lock()
	i.inSlot = true
	i.mu.Unlock()
	if ctx.Err() != nil { // the attempt may be over: nobody else would leave
		i.leave()
	}
	return ctx.Err()
}

// leave lets another listing begin.
func (i *informer) leave() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.inSlot {
		i.inSlot = false
		<-i.slots
	}
}

// backoff is how long to wait between attempts that fail in a row.
func (i *informer) backoff() *wait.Backoff {
	return &wait.Backoff{
		Duration: i.options.RetryMin, Cap: i.options.RetryMax, Factor: 2, Jitter: 0.3, Steps: 1 << 20,
	}
}

// sleep waits, and says whether the context lives on.
func (i *informer) sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// relist ends the attempt under way, so that a new listing begins. With an error
// the scope is failing until that listing is complete.
func (i *informer) relist(err error) {
	i.mu.Lock()
	again := i.again
	i.mu.Unlock()
	if again == nil {
		return
	}
	if err == nil {
		err = errRelist
	}
	again(err)
}

// key names an object of this informer.
func (i *informer) key(namespace, name string) kube.Key {
	return kube.Key{Group: i.resource.Group, Resource: i.resource.Resource, Namespace: namespace, Name: name}
}

// has says whether an object of the scope is selected and exists.
func (i *informer) has(key kube.Key) bool { return i.scope.Covers(key) && i.known.has(key) }

// tell passes something on to the Sink, unless the informer has been stopped.
func (i *informer) tell(ctx context.Context, call func(context.Context)) {
	if ctx.Err() == nil {
		call(ctx)
	}
}

// confirm looks up whether an object that the server calls deleted is. It returns
// zero for one that exists and is selected.
func (i *informer) confirm(ctx context.Context, id types.NamespacedName) (Absence, error) {
	live, err := get(ctx, i.client, id, i.options.RequestTimeout)
	switch {
	case errors.Is(err, ErrNotFound):
		return Deleted, nil
	case err != nil:
		return 0, fmt.Errorf("look up %s: %w", i.key(id.Namespace, id.Name), cause(err))
	}
	if _, ok := i.governs(live); ok {
		return 0, nil
	}
	return Unselected, nil
}
