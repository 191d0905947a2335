package kubetest

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

const crdKind = "CustomResourceDefinition"

var (
	crdResource       = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	namespaceResource = corev1.SchemeGroupVersion.WithResource("namespaces")
)

// resource is what a create needs to know of a kind.
type resource struct {
	GVR               schema.GroupVersionResource
	namespaced        bool
	statusSubresource bool
}

// resources maps kinds to resources: custom ones as their CRDs say, which is
// known earlier than discovery tells it, built-in ones by discovery.
type resources struct {
	custom  map[schema.GroupVersionKind]resource
	builtin meta.RESTMapper
}

func newResources(ctx context.Context, client dynamic.Interface, config *rest.Config) (*resources, error) {
	list, err := client.Resource(crdResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list CRDs: %w", err)
	}
	r := &resources{custom: make(map[schema.GroupVersionKind]resource)}
	for _, item := range list.Items {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &crd); err != nil {
			return nil, fmt.Errorf("read CRD %s: %w", item.GetName(), err)
		}
		for _, version := range crd.Spec.Versions {
			gv := schema.GroupVersion{Group: crd.Spec.Group, Version: version.Name}
			r.custom[gv.WithKind(crd.Spec.Names.Kind)] = resource{
				GVR:               gv.WithResource(crd.Spec.Names.Plural),
				namespaced:        crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
				statusSubresource: version.Subresources != nil && version.Subresources.Status != nil,
			}
		}
	}
	discoverer, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to kube-apiserver: %w", err)
	}
	groups, err := restmapper.GetAPIGroupResources(discoverer)
	if err != nil {
		return nil, fmt.Errorf("discover resources: %w", err)
	}
	r.builtin = restmapper.NewDiscoveryRESTMapper(groups)
	return r, nil
}

// of returns the resource of a kind.
func (r *resources) of(kind schema.GroupVersionKind) (resource, error) {
	if found, ok := r.custom[kind]; ok {
		return found, nil
	}
	mapping, err := r.builtin.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return resource{}, fmt.Errorf("find resource of %s: %w", kind, err)
	}
	return resource{
		GVR:        mapping.Resource,
		namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace,
	}, nil
}

// loadCRDs creates the CRDs and waits until each is established.
func (l *loader) loadCRDs(ctx context.Context, documents []document) error {
	client := l.client.Resource(crdResource)
	seen := make(map[string]document)
	var fresh []document
	for _, doc := range documents {
		if first, twice := seen[doc.GetName()]; twice {
			l.refuse(doc, fmt.Errorf("already read from %s", first.File))
			continue
		}
		seen[doc.GetName()] = doc
		fresh = append(fresh, doc)
	}
	return parallel(ctx, fresh, func(doc document) {
		stripServerFields(doc.Unstructured)
		delete(doc.Object, "status")
		_, err := client.Create(ctx, doc.Unstructured, metav1.CreateOptions{FieldManager: fieldManager})
		if err == nil || apierrors.IsAlreadyExists(err) {
			err = waitEstablished(ctx, client, doc.GetName())
		}
		if err != nil {
			l.refuse(doc, err)
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.report.CRDs++
	})
}

// waitEstablished waits until the server says that it takes objects of a CRD, or
// that it never will because the names are another CRD's.
func waitEstablished(ctx context.Context, client dynamic.ResourceInterface, name string) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, servedTimeout, true, func(ctx context.Context) (bool, error) {
		object, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &crd); err != nil {
			return false, err
		}
		for _, condition := range crd.Status.Conditions {
			switch {
			case condition.Type == apiextensionsv1.NamesAccepted && condition.Status == apiextensionsv1.ConditionFalse:
				return false, fmt.Errorf("names not accepted: %s", condition.Message)
			case condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue:
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("wait for CRD %s: %w", name, err)
	}
	return nil
}
