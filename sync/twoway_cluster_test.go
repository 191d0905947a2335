package sync

import (
	"context"
	"slices"
	gosync "sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/informer"
)

// hands are the real ones; a test may do something between an agent's step and the next.
type hands struct {
	*apply.Writer
	*apply.Schemas
	mu          gosync.Mutex
	beforeWrite func(kube.Key) error // called once; an error takes the place of the write's answer
	afterWrite  func(kube.Key) error // the same
	eachWrite   func(kube.Key)       // called before each write
	writes      int
	beforeRead  func()
}

func (h *hands) Read(ctx context.Context, key kube.Key, version string) (*unstructured.Unstructured, error) {
	if h.beforeRead != nil {
		h.beforeRead()
	}
	return h.Writer.Read(ctx, key, version)
}

func (h *hands) Write(ctx context.Context, c apply.Change) (apply.Result, error) {
	return around(h, c.Key, func() (apply.Result, error) { return h.Writer.Write(ctx, c) })
}

func (h *hands) Create(ctx context.Context, key kube.Key, resource schema.GroupVersionResource, want map[string]any, shaped *fieldpath.Set) (apply.Result, error) {
	h.each(key)
	return h.Writer.Create(ctx, key, resource, want, shaped)
}

func (h *hands) Delete(ctx context.Context, key kube.Key, resource schema.GroupVersionResource, live *unstructured.Unstructured) (bool, error) {
	h.each(key)
	return h.Writer.Delete(ctx, key, resource, live)
}

func (h *hands) each(key kube.Key) {
	if h.eachWrite != nil {
		h.eachWrite(key)
	}
}

func around[T any](h *hands, key kube.Key, write func() (T, error)) (T, error) {
	var none T
	h.each(key)
	if before := h.once(&h.beforeWrite); before != nil {
		if err := before(key); err != nil {
			return none, err
		}
	}
	result, err := write()
	if after := h.once(&h.afterWrite); after != nil {
		if err := after(key); err != nil {
			return none, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writes++
	return result, err
}

// once takes a hook: writes run side by side, and one of them meets it.
func (h *hands) once(hook *func(kube.Key) error) func(kube.Key) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := *hook
	*hook = nil
	return f
}

// liveCluster answers what a Mirror asks from a real API server. What the informers tell, a
// test tells: so it can be late.
type liveCluster struct {
	t         *testing.T
	client    dynamic.Interface
	group     string
	namespace string
	kinds     []liveKind // the first is Widget
	rules     *kube.Rules
}

// liveKind is a kind that the informers watch.
type liveKind struct {
	schema.GroupVersionResource
	kind string
}

var secretResource = schema.GroupResource{Resource: "secrets"}

// watchSecrets lets secrets be watched too.
func (c *liveCluster) watchSecrets() {
	c.kinds = append(c.kinds, liveKind{secretResource.WithVersion("v1"), "Secret"})
}

// of returns the kind of a resource, or nil.
func (c *liveCluster) of(gr schema.GroupResource) *liveKind {
	i := slices.IndexFunc(c.kinds, func(k liveKind) bool { return k.GroupResource() == gr })
	if i < 0 {
		return nil
	}
	return &c.kinds[i]
}

func (c *liveCluster) resource() schema.GroupResource { return c.kinds[0].GroupResource() }

// objects speaks of the objects of a kind that is watched.
func (c *liveCluster) objects(gr schema.GroupResource) dynamic.ResourceInterface {
	return c.client.Resource(c.of(gr).GroupVersionResource).Namespace(c.namespace)
}

func (c *liveCluster) widgets() dynamic.ResourceInterface {
	return c.objects(c.resource())
}

func (c *liveCluster) key(name string) kube.Key {
	return kube.Key{Group: c.group, Resource: "widgets", Namespace: c.namespace, Name: name}
}

func (c *liveCluster) Get(ctx context.Context, key kube.Key) (informer.State, error) {
	if c.of(key.GroupResource()) == nil {
		return informer.State{}, informer.ErrUnknownKind
	}
	live, err := c.objects(key.GroupResource()).Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return informer.State{}, informer.ErrNotFound
	}
	if err != nil {
		return informer.State{}, err
	}
	shape := &kube.Shape{}
	if rules, ok := c.rules.Resource(key.GroupResource(), key.Group != ""); ok {
		rule, ok := rules.Governs(live)
		if !ok {
			return informer.State{}, informer.ErrUnselected
		}
		shape = &rule.Shape
	}
	content, err := kube.Encode(live, shape)
	return informer.State{
		Key: key, UID: live.GetUID(), ResourceVersion: live.GetResourceVersion(),
		Manager: kube.NewestManager(live), Content: content,
	}, err
}

func (c *liveCluster) Proven(context.Context, schema.GroupResource) error { return nil }

func (c *liveCluster) Kind(gr schema.GroupResource) (string, bool, bool) {
	k := c.of(gr)
	if k == nil {
		return "", false, false
	}
	return k.kind, true, true
}

func (c *liveCluster) Version(gr schema.GroupResource) (string, bool) {
	k := c.of(gr)
	if k == nil {
		return "", false
	}
	return k.Version, true
}

func (c *liveCluster) Created(schema.GroupResource) time.Time { return time.Time{} }

func (c *liveCluster) ClusterUID(context.Context) (string, error) { return "uid-one", nil }

func (c *liveCluster) Synced() bool { return true }

func (c *liveCluster) Status() []informer.ResourceStatus {
	var out []informer.ResourceStatus
	for _, k := range c.kinds {
		out = append(out, informer.ResourceStatus{Scope: informer.Scope{Resource: k.GroupResource()}, Phase: informer.PhaseSynced})
	}
	return out
}
