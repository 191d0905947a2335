package bulk

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/internal/wire"
)

// How often discovery is asked for what is about to be there, and how long after it was read a CRD that is not served is
// looked at again: discovery documents are small, and CRDs are not.
const firstLook, lastLook, nextRead = 20 * time.Millisecond, 500 * time.Millisecond, 3 * time.Second

// WaitServed returns when discovery has all resources of a CRD that are wanted; if there are none, when the CRD is
// established. It waits until ctx ends, and fails at once where waiting cannot help: the CRD is gone,
// is being deleted, or its names are another one's.
//
// The server routes requests to a kind a moment before or after it says so: for some 100 ms
// more a write may be refused with apply.NoKind (which has Retry), and a write at once after an update
// of the CRD may still meet its old schema.
func (c *Client) WaitServed(ctx context.Context, crd string, want []schema.GroupVersionResource) error {
	if err := c.waitServed(ctx, crd, want); err != nil {
		return fmt.Errorf("wait for CRD %s: %w", crd, err)
	}
	return nil
}

func (c *Client) waitServed(ctx context.Context, crd string, want []schema.GroupVersionResource) error {
	var read time.Time
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		if len(want) == 0 || time.Since(read) >= nextRead {
			established, err := c.established(ctx, crd)
			if err != nil || established && len(want) == 0 {
				return err
			}
			read = time.Now()
		}
		lacking, err := c.lacking(ctx, want)
		if err != nil || len(want) > 0 && lacking == "" {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", cmp.Or(lacking, "it is not established"), ctx.Err())
		}
	}
}

// established tells whether a CRD is established, and fails if it never will be.
func (c *Client) established(ctx context.Context, name string) (bool, error) {
	never := func(verdict apply.Verdict, message string) (bool, error) {
		return false, &apply.Rejected{Verdict: verdict, Message: message}
	}
	live, err := c.Get(ctx, crdResource(), "", name)
	if err != nil {
		return false, err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, &crd); err != nil {
		return false, fmt.Errorf("read CRD: %w", err)
	}
	if crd.DeletionTimestamp != nil {
		return never(apply.Terminating, "it is being deleted")
	}
	for _, condition := range crd.Status.Conditions {
		switch {
		case condition.Type == apiextensionsv1.NamesAccepted && condition.Status == apiextensionsv1.ConditionFalse:
			return never(apply.Invalid, "its names are not accepted: "+condition.Message)
		case condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue:
			return true, nil
		}
	}
	return false, nil
}

// lacking says which of the resources is not in discovery yet; "" if all are.
func (c *Client) lacking(ctx context.Context, want []schema.GroupVersionResource) (string, error) {
	for _, resource := range want {
		there, err := c.discovered(ctx, resource)
		if err != nil || !there {
			return fmt.Sprintf("%s is not served at %s", resource.GroupResource(), resource.Version), err
		}
	}
	return "", nil
}

func (c *Client) discovered(ctx context.Context, resource schema.GroupVersionResource) (bool, error) {
	content, err := c.wire.Raw(ctx, "/apis/"+url.PathEscape(resource.Group)+"/"+url.PathEscape(resource.Version))
	if apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err) {
		return false, nil // the group is new
	}
	if err != nil {
		return false, apply.Unread(err, wire.Object{Resource: resource})
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(content, &list); err != nil {
		return false, fmt.Errorf("read what %s has: %w", resource.GroupVersion(), err)
	}
	for _, r := range list.APIResources {
		if r.Name == resource.Resource {
			return true, nil
		}
	}
	return false, nil
}

// Endpoints tells whether there is somebody behind a Service: an endpoint that is ready. A Service
// that stands for a name outside of the cluster counts as ready, one that does not exist as not.
func (c *Client) Endpoints(ctx context.Context, service types.NamespacedName) (ready bool, err error) {
	live, err := c.Get(ctx, corev1.SchemeGroupVersion.WithResource("services"), service.Namespace, service.Name)
	if errors.Is(err, apply.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if kind, _, _ := unstructured.NestedString(live.Object, "spec", "type"); kind == string(corev1.ServiceTypeExternalName) {
		return true, nil
	}
	slices := discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
	_, err = c.list(ctx, wire.Object{Resource: slices, Namespace: service.Namespace}, discoveryv1.LabelServiceName+"="+service.Name,
		func(_ *page, raw []byte) error {
			var slice discoveryv1.EndpointSlice
			if err := json.Unmarshal(raw, &slice); err != nil {
				return fmt.Errorf("read endpoints of %s: %w", service, err)
			}
			for _, e := range slice.Endpoints {
				// What does not say whether it is ready is.
				ready = ready || e.Conditions.Ready == nil || *e.Conditions.Ready
			}
			return nil
		})
	if err != nil {
		return false, err
	}
	return ready, nil
}
