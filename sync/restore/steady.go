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

// Discover is that of the cluster.
func (s *steady) Discover(ctx context.Context) (served *bulk.Served, err error) {
	err = s.persist(ctx, func(ctx context.Context) error {
		served, err = s.Cluster.Discover(ctx)
		return err
	})
	return served, err
}

// CRDs is that of the cluster.
func (s *steady) CRDs(ctx context.Context) (crds map[schema.GroupResource]*apiextensionsv1.CustomResourceDefinition, err error) {
	err = s.persist(ctx, func(ctx context.Context) error {
		crds, err = s.Cluster.CRDs(ctx)
		return err
	})
	return crds, err
}

// List is that of the cluster, but that fn may be called more than once for an object.
func (s *steady) List(ctx context.Context, gvr schema.GroupVersionResource, namespace, labelSelector string,
	fn func(*unstructured.Unstructured) error) (resourceVersion string, err error) {
	err = s.persist(ctx, func(ctx context.Context) error {
		resourceVersion, err = s.Cluster.List(ctx, gvr, namespace, labelSelector, fn)
		return err
	})
	return resourceVersion, err
}

// Get is that of the cluster.
func (s *steady) Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (live *unstructured.Unstructured, err error) {
	err = s.persist(ctx, func(ctx context.Context) error {
		live, err = s.Cluster.Get(ctx, gvr, namespace, name)
		return err
	})
	return live, err
}

// Allowed is that of the cluster.
func (s *steady) Allowed(ctx context.Context, accesses []bulk.Access) (permissions []bulk.Permission, err error) {
	err = s.persist(ctx, func(ctx context.Context) error {
		permissions, err = s.Cluster.Allowed(ctx, accesses)
		return err
	})
	return permissions, err
}

// Endpoints is that of the cluster.
func (s *steady) Endpoints(ctx context.Context, service types.NamespacedName) (ready bool, err error) {
	err = s.persist(ctx, func(ctx context.Context) error {
		ready, err = s.Cluster.Endpoints(ctx, service)
		return err
	})
	return ready, err
}

// Type is that of the cluster.
func (s *steady) Type(ctx context.Context, kind schema.GroupVersionKind) (t typed.ParseableType, known bool, err error) {
	err = s.persist(ctx, func(ctx context.Context) error {
		t, known, err = s.Cluster.Type(ctx, kind)
		return err
	})
	return t, known, err
}
