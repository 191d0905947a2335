package informer

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/crmirror/crmirror/kube"
)

var (
	// ErrNotFound says that the object does not exist: the server knows its
	// resource and denied the object.
	ErrNotFound = errors.New("no such object")
	// ErrUnselected says that the object exists and that no rule selects it.
	ErrUnselected = errors.New("not selected")
	// ErrUnknownKind says that no informer has been started for the resource.
	ErrUnknownKind = errors.New("resource is not watched")
	// ErrKindGone says that the CRD of a resource is terminating, deleted or
	// not the one that was listed.
	ErrKindGone = errors.New("its CRD is gone, terminating or was replaced")
)

// Get reads one object from the server and encodes it as its rule says. Errors
// are ErrNotFound, ErrUnselected, ErrUnknownKind (also for a kind that is gone),
// those of kube.Encode and those of the request; only the first is proof that the
// object does not exist.
func (f *Fleet) Get(ctx context.Context, key kube.Key) (State, error) {
	k, ok := f.kind(key.GroupResource())
	if !ok || k.version == "" || k.gone {
		return State{}, fmt.Errorf("get %s: %w", key, ErrUnknownKind)
	}
	client := f.client.Resource(k.resource.WithVersion(k.version))
	id := types.NamespacedName{Namespace: key.Namespace, Name: key.Name}
	live, err := get(ctx, client, id, f.options.RequestTimeout)
	if err != nil {
		return State{}, fmt.Errorf("get %s: %w", key, err)
	}
	shape, ok := f.judge(k, live)
	if !ok {
		return State{}, fmt.Errorf("get %s: %w", key, ErrUnselected)
	}
	state, err := encode(key, live, shape)
	if err != nil {
		return State{}, fmt.Errorf("get %s: %w", key, err)
	}
	return state, nil
}

// Proven checks, live, that absences of a resource's objects are deletions: the
// CRD is the one that was listed and not terminating, or, for a resource without
// a CRD, the server still serves it. The error is ErrKindGone when not, and another
// one when that cannot be known.
//
// Invariant: no deletion is acted upon unless Proven returned nil after the
// deletion was told: the events of a CRD and of its objects come on two
// connections, in any order (TestProven).
func (f *Fleet) Proven(ctx context.Context, resource schema.GroupResource) error {
	k, ok := f.kind(resource)
	switch {
	case !ok || k.unserved != nil:
		return fmt.Errorf("check %s: %w", resource, ErrUnknownKind)
	case k.gone:
		return fmt.Errorf("check %s: %w", resource, ErrKindGone)
	case k.fixed:
		return nil // part of every server
	case k.uid == "" && k.resource.Group != "" && !f.crdsListed():
		return fmt.Errorf("check %s: whether it has a CRD is not known: the CRDs could not be listed", resource)
	case k.uid == "":
		d, err := f.discover(ctx, resource)
		if errors.Is(err, errNotServed) {
			return fmt.Errorf("check %s: %w", resource, ErrKindGone)
		}
		if err == nil && d.namespaced != k.namespaced {
			err = ErrKindGone
		}
		return err
	}
	client := f.client.Resource(crdResource().WithVersion("v1"))
	crd, err := get(ctx, client, types.NamespacedName{Name: resource.String()}, f.options.RequestTimeout)
	if errors.Is(err, ErrNotFound) || err == nil && (crd.GetUID() != k.uid || crd.GetDeletionTimestamp() != nil) {
		return fmt.Errorf("check %s: %w", resource, ErrKindGone)
	}
	if err != nil {
		return fmt.Errorf("check %s: read its CRD: %w", resource, err)
	}
	return nil
}

// Kind returns the kind's name and whether its objects lie in namespaces. It is
// false for a resource that is not watched.
func (f *Fleet) Kind(resource schema.GroupResource) (name string, namespaced, ok bool) {
	k, ok := f.kind(resource)
	return k.kind, k.namespaced, ok && k.kind != ""
}

// Version returns the API version at which a resource is read. It is false for one that is
// not watched, or not served.
func (f *Fleet) Version(resource schema.GroupResource) (version string, ok bool) {
	k, ok := f.kind(resource)
	return k.version, ok && k.version != "" && !k.gone
}

// Created returns when the CRD of a watched resource was created, by the server's
// clock; zero for a resource without one.
func (f *Fleet) Created(resource schema.GroupResource) time.Time {
	k, _ := f.kind(resource)
	return k.created
}

// ClusterUID returns what identifies the cluster: the uid of its Namespace
// kube-system.
func (f *Fleet) ClusterUID(ctx context.Context) (string, error) {
	client := f.client.Resource(namespacesResource().WithVersion("v1"))
	live, err := get(ctx, client, types.NamespacedName{Name: metav1.NamespaceSystem}, f.options.RequestTimeout)
	if err != nil {
		return "", fmt.Errorf("identify cluster: get namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return string(live.GetUID()), nil
}

// crdsListed says that every CRD has been seen.
func (f *Fleet) crdsListed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	crds := f.kinds[crdResource()]
	return crds != nil && crds.listed()
}

// kind returns a copy of what is known of a resource.
func (f *Fleet) kind(resource schema.GroupResource) (kind, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if k := f.kinds[resource]; k != nil {
		return *k, true
	}
	return kind{}, false
}

// judge returns the shape of an object, or false if it is not selected.
func (f *Fleet) judge(k kind, live *unstructured.Unstructured) (*kube.Shape, bool) {
	switch {
	case k.fixed && k.resource == crdResource():
		return f.governsCRD(live)
	case k.fixed:
		return f.governsNamespace(live)
	}
	rules, _ := f.options.Rules.Resource(k.resource, k.uid != "")
	return shapeBy(rules, live)
}

// get reads an object. The error is ErrNotFound only if the server knows the
// resource: a path that it does not serve is answered with 404 too.
//
// Invariant: a 404 that does not name the object proves nothing (TestGetNotServed).
func get(ctx context.Context, client dynamic.NamespaceableResourceInterface, id types.NamespacedName, timeout time.Duration) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	live, err := client.Namespace(id.Namespace).Get(ctx, id.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && names(err, id.Name) {
		return nil, ErrNotFound
	}
	return live, err
}

// names says whether an error of the server is about the object of that name.
func names(err error, name string) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name == name && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
