package bulk

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/internal/wire"
)

// Create creates an object, which has all but what the server sets. Fields that the kind has not
// are refused. The error is apply.ErrExists if there is an object of that name. With dryRun the server does all but
// store it.
func (c *Client) Create(ctx context.Context, resource schema.GroupVersionResource, obj map[string]any, dryRun bool) (Written, error) {
	at := location(resource, obj)
	stored, err := c.sender(dryRun).Post(ctx, at, obj)
	if err != nil {
		return Written{}, fmt.Errorf("create %s: %w", key(at), c.refusal(err, at, obj))
	}
	return Written(stored), nil
}

// Replace makes a live object another one. obj is the whole object as it shall be, and
// its uid and resourceVersion say which state of which object it was made of; without them
// nothing is sent. The status is left as it is where it is a subresource. The error is apply.ErrMoved
// if the object changed, is gone, or was made again.
func (c *Client) Replace(ctx context.Context, resource schema.GroupVersionResource, obj map[string]any, dryRun bool) (Written, error) {
	return c.put(ctx, "replace", resource, "", obj, dryRun)
}

// PutStatus makes a live object's status that of obj, which is a whole object as for
// Replace: of a built-in kind the server may take other metadata from it too. A kind that has no such
// subresource is refused with apply.NoKind.
func (c *Client) PutStatus(ctx context.Context, resource schema.GroupVersionResource, obj map[string]any) (Written, error) {
	return c.put(ctx, "write status of", resource, "status", obj, false)
}

// put is the one way in which an object that exists is written.
//
// Invariant: nothing that exists is written but in the state of which uid and resourceVersion
// are in obj (TestReplaceUnjudged, TestReplaceMoved).
func (c *Client) put(ctx context.Context, verb string, resource schema.GroupVersionResource, subresource string, obj map[string]any, dryRun bool) (Written, error) {
	at := location(resource, obj)
	judged, err := wire.Judge(&unstructured.Unstructured{Object: obj})
	var stored wire.Stored
	if err == nil {
		stored, err = c.sender(dryRun).Put(ctx, at, subresource, judged, obj)
	}
	if err != nil {
		return Written{}, fmt.Errorf("%s %s: %w", verb, key(at), c.refusal(err, at, obj))
	}
	return Written(stored), nil
}

func (c *Client) sender(dryRun bool) *wire.Client {
	if dryRun {
		return c.wire.DryRun()
	}
	return c.wire
}

func (c *Client) refusal(err error, at wire.Object, obj map[string]any) error {
	var shaped *fieldpath.Set
	if c.options.Shaped != nil {
		shaped = c.options.Shaped(at.Resource.GroupResource(), obj)
	}
	return apply.Refusal(err, at, shaped, obj)
}

func location(resource schema.GroupVersionResource, obj map[string]any) wire.Object {
	u := unstructured.Unstructured{Object: obj}
	return wire.Object{Resource: resource, Namespace: u.GetNamespace(), Name: u.GetName()}
}

// ReleasedMark is an annotation which nobody sets: owning it is owning nothing.
const ReleasedMark = "crmirror.dev/restored"

// ownsNothing is an entry of managedFields that owns only ReleasedMark. With no entry at all, the server
// makes the next apply meet a manager that owns everything.
const ownsNothing = `{"f:metadata":{"f:annotations":{"f:` + ReleasedMark + `":{}}}}`

// Release gives up the fields that the client's manager owns of an object, if it is in the state of that
// uid and resourceVersion. Afterwards others may apply any of them without a conflict. What other
// managers own stays theirs, and no field changes.
func (c *Client) Release(ctx context.Context, resource schema.GroupVersionResource, namespace, name, uid, resourceVersion string) error {
	live, err := c.Get(ctx, resource, namespace, name)
	at := wire.Object{Resource: resource, Namespace: namespace, Name: name}
	switch {
	case err != nil:
		return fmt.Errorf("release %s: %w", key(at), err)
	case string(live.GetUID()) != uid || live.GetResourceVersion() != resourceVersion:
		return fmt.Errorf("release %s: %w", key(at), apply.ErrMoved)
	}
	var others []metav1.ManagedFieldsEntry
	before := live.GetManagedFields()
	for _, entry := range before {
		if entry.Manager != c.options.FieldManager {
			others = append(others, entry)
		}
	}
	if len(others) == len(before) && len(before) > 0 {
		return nil
	}
	if len(others) == 0 {
		others = append(others, metav1.ManagedFieldsEntry{
			Manager: c.options.FieldManager, Operation: metav1.ManagedFieldsOperationUpdate,
			APIVersion: resource.GroupVersion().String(), FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(ownsNothing),
		})
	}
	live.SetManagedFields(others)
	_, err = c.put(ctx, "release", resource, "", live.Object, false)
	return err
}
