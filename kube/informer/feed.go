package informer

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/crmirror/crmirror/kube"
)

// entry is what a listing carries of an object until it is complete. It passes for
// a Kubernetes object with nothing but a name, which is what the Reflector wants to
// see.
type entry struct {
	namespace, name string
	selected        bool
	size            uint32 // of the content, in bytes
}

func (e *entry) id() types.NamespacedName {
	return types.NamespacedName{Namespace: e.namespace, Name: e.name}
}

// GetObjectMeta makes an entry readable by the Reflector's own store.
func (e *entry) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: e.namespace, Name: e.name}
}

// GetObjectKind makes an entry a runtime.Object.
func (e *entry) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject makes an entry a runtime.Object.
func (e *entry) DeepCopyObject() runtime.Object {
	copied := *e
	return &copied
}

// known is the set of selected objects of one scope, all that is kept of them. It
// outlives the informers that fill it: after a change of version, the next listing
// is compared with it.
type known struct {
	mu      sync.RWMutex
	objects map[types.NamespacedName]uint32 // the last complete listing that had it; 0 for none
	listing uint32
}

func newKnown() *known {
	return &known{objects: map[types.NamespacedName]uint32{}}
}

func (k *known) has(key kube.Key) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	_, ok := k.objects[types.NamespacedName{Namespace: key.Namespace, Name: key.Name}]
	return ok
}

func (k *known) count() int {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return len(k.objects)
}

func (k *known) put(id types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.objects[id] = 0
}

// remove forgets an object.
func (k *known) remove(id types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.objects, id)
}

// keep marks an object as present in the current listing.
func (k *known) keep(id types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.objects[id]; ok {
		k.objects[id] = k.listing
	}
}

// replace starts the set of a new complete listing and returns, sorted, what was
// known before and is not in it. Those are still known when it returns.
func (k *known) replace(items []any) []types.NamespacedName {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.listing++
	for _, item := range items {
		if e, ok := item.(*entry); ok && e.selected {
			k.objects[e.id()] = k.listing
		}
	}
	var missing []types.NamespacedName
	for id, listing := range k.objects {
		if listing != k.listing {
			missing = append(missing, id)
		}
	}
	slices.SortFunc(missing, func(a, b types.NamespacedName) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return missing
}

// feed is the Reflector's store: it passes on to the Sink what it is given and
// keeps the names. The Reflector calls it from one goroutine at a time.
type feed struct {
	// ctx is the informer's. The Reflector's store has no other way to get one.
	ctx      context.Context //nolint:containedctx // see above
	informer *informer
}

var _ cache.TransformingStore = (*feed)(nil)

// Transformer lets the Reflector encode objects while they stream in, before the
// listing is complete.
func (f *feed) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return f.read(obj), nil }
}

// Add tells of an object seen by the watch.
func (f *feed) Add(obj any) error {
	f.read(obj)
	return nil
}

// Update tells of an object changed.
func (f *feed) Update(obj any) error {
	f.read(obj)
	return nil
}

// Delete tells of an object deleted. An object that was not known was not
// selected, or is told already.
func (f *feed) Delete(obj any) error {
	live, ok := obj.(*unstructured.Unstructured)
	if !ok || f.ctx.Err() != nil {
		return nil
	}
	i := f.informer
	if i.vanished != nil {
		i.vanished(f.ctx, live.GetName(), live.GetUID())
	}
	id := types.NamespacedName{Namespace: live.GetNamespace(), Name: live.GetName()}
	if i.known.has(i.key(id.Namespace, id.Name)) {
		if err := f.absent(id); err != nil {
			i.relist(err)
		}
	}
	return nil
}

// Replace takes a complete listing.
//
// Invariant: this is the only place that makes absence out of a listing, and it
// is reached only when the server has ended the listing without an error
// (TestFailingListDeletesNothing).
func (f *feed) Replace(items []any, _ string) error {
	i := f.informer
	var unsure error
	for _, id := range i.known.replace(items) {
		if f.ctx.Err() != nil {
			return nil
		}
		if i.vanished != nil {
			i.vanished(f.ctx, id.Name, "")
		}
		if err := f.absent(id); err != nil {
			unsure = errors.Join(unsure, err)
			i.known.keep(id)
		}
	}
	i.listed(f.ctx, unsure)
	return nil
}

// Resync has nothing to do: nothing waits in the store.
func (f *feed) Resync() error { return nil }

// absent tells that an object known so far is gone. Under a label selector the
// server says "deleted" also of an object that lost its label: then the object is
// looked up first, and an error of that leaves it known.
func (f *feed) absent(id types.NamespacedName) error {
	i := f.informer
	absence := Deleted
	if i.selector != "" {
		found, err := i.confirm(f.ctx, id)
		if err != nil {
			return err
		}
		if found == 0 {
			return nil
		}
		absence = found
	}
	i.known.remove(id)
	i.tell(f.ctx, func(ctx context.Context) { i.sink.Absent(ctx, i.key(id.Namespace, id.Name), absence) })
	if f.ctx.Err() != nil { // perhaps not heard: the next informer tells it again
		i.known.put(id)
	}
	return nil
}

// read judges, encodes and tells one object, and returns what is kept of it.
func (f *feed) read(obj any) *entry {
	if e, ok := obj.(*entry); ok {
		return e // listed in pages: read already
	}
	live, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return &entry{}
	}
	i := f.informer
	e := &entry{namespace: unique.Make(live.GetNamespace()).Value(), name: live.GetName()}
	if f.ctx.Err() != nil {
		return e
	}
	if i.seen != nil {
		i.seen(f.ctx, live)
	}
	key := i.key(e.namespace, e.name)
	shape, ok := i.governs(live)
	if !ok {
		i.known.remove(e.id())
		i.tell(f.ctx, func(ctx context.Context) { i.sink.Absent(ctx, key, Unselected) })
		return e
	}
	e.selected = true
	i.known.put(e.id())
	state, err := encode(key, live, shape)
	if err != nil {
		i.tell(f.ctx, func(ctx context.Context) { i.sink.Refused(ctx, key, &RefusedError{UID: live.GetUID(), Err: err}) })
		return e
	}
	e.size = uint32(len(state.Content))
	i.tell(f.ctx, func(ctx context.Context) { i.sink.Changed(ctx, state) })
	return e
}

// encode makes the State of a live object.
func encode(key kube.Key, live *unstructured.Unstructured, shape *kube.Shape) (State, error) {
	content, err := kube.Encode(live, shape)
	if err != nil {
		return State{}, err
	}
	return State{
		Key:             key,
		UID:             live.GetUID(),
		ResourceVersion: live.GetResourceVersion(),
		Manager:         kube.NewestManager(live),
		Content:         content,
	}, nil
}
