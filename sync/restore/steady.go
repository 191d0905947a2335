package restore

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/bulk"
)

// persist calls f again, with growing waits, as long as it fails for a while and patience lasts.
func persist(ctx context.Context, patience time.Duration, jitter func() float64, f func(context.Context) error) error {
	began := time.Now()
	for tries := 1; ; tries++ {
		err := f(ctx)
		var rejected *apply.Rejected
		if err == nil || !errors.As(err, &rejected) || !rejected.Retry {
			return err
		}
		if rejected.RetryAfter > patience && patience > 0 {
			err = impatient(rejected)
		}
		rest := patience - time.Since(began)
		if rest <= 0 {
			return err
		}
		select {
		case <-time.After(min(rest, max(rejected.RetryAfter, backoff(tries, jitter)))):
		case <-ctx.Done():
			return err
		}
	}
}

// steady is a cluster that is read again where reading fails for a while, for two minutes. Once that
// was in vain, what follows is tried once. The uid of the cluster is asked for once in any case: whether anybody is
// there at all is told at once.
type steady struct {
	Cluster
	jitter func() float64
	spent  atomic.Bool // patience was in vain once
}

func (s *steady) persist(ctx context.Context, f func(context.Context) error) error {
	patience := defaultPatience
	if s.spent.Load() {
		patience = 0
	}
	err := persist(ctx, patience, s.jitter, f)
	var rejected *apply.Rejected
	if errors.As(err, &rejected) && rejected.Retry {
		s.spent.Store(true)
	}
	return err
}

// steadily is persist for what reads one thing.
func steadily[T any](ctx context.Context, s *steady, read func(context.Context) (T, error)) (v T, err error) {
	err = s.persist(ctx, func(ctx context.Context) error {
		v, err = read(ctx)
		return err
	})
	return v, err
}

// Discover is that of the cluster.
func (s *steady) Discover(ctx context.Context) (*bulk.Served, error) {
	return steadily(ctx, s, s.Cluster.Discover)
}

// CRDs is that of the cluster.
func (s *steady) CRDs(ctx context.Context) (map[schema.GroupResource]*apiextensionsv1.CustomResourceDefinition, error) {
	return steadily(ctx, s, s.Cluster.CRDs)
}

// List is that of the cluster, but that fn may be called more than once for an object.
func (s *steady) List(ctx context.Context, gvr schema.GroupVersionResource, namespace, labelSelector string,
	fn func(*unstructured.Unstructured) error) (resourceVersion string, err error) {
	return steadily(ctx, s, func(ctx context.Context) (string, error) {
		return s.Cluster.List(ctx, gvr, namespace, labelSelector, fn)
	})
}

// Get is that of the cluster.
func (s *steady) Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	return steadily(ctx, s, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return s.Cluster.Get(ctx, gvr, namespace, name)
	})
}

// Allowed is that of the cluster.
func (s *steady) Allowed(ctx context.Context, accesses []bulk.Access) ([]bulk.Permission, error) {
	return steadily(ctx, s, func(ctx context.Context) ([]bulk.Permission, error) { return s.Cluster.Allowed(ctx, accesses) })
}

// Endpoints is that of the cluster.
func (s *steady) Endpoints(ctx context.Context, service types.NamespacedName) (bool, error) {
	return steadily(ctx, s, func(ctx context.Context) (bool, error) { return s.Cluster.Endpoints(ctx, service) })
}

// Type is that of the cluster.
func (s *steady) Type(ctx context.Context, kind schema.GroupVersionKind) (t typed.ParseableType, known bool, err error) {
	err = s.persist(ctx, func(ctx context.Context) error {
		t, known, err = s.Cluster.Type(ctx, kind)
		return err
	})
	return t, known, err
}
