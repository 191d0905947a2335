package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/internal/wire"
)

// Create makes an object that the cluster lacks. If there is one by now, nothing is
// changed and the error is ErrMoved; others are those of Write.
//
// It is an apply, not a POST: then crmirror owns what git has and not what the server
// adds, so that a person may set a defaulted field without a conflict, and the Apply entry tells
// after a crash that the object is ours. An apply would merge into an object that exists; what
// keeps it from that is a resourceVersion that no object has (TestCreateExists).
func (w *Writer) Create(ctx context.Context, key kube.Key, resource schema.GroupVersionResource, want map[string]any, shaped *fieldpath.Set) (Result, error) {
	after, err := w.create(ctx, location(key, resource.Version), key, want, hide(shaped, want))
	if err != nil {
		return Result{}, fmt.Errorf("create %s: %w", key, err)
	}
	return Result{Method: Created, Object: after}, nil
}

func (w *Writer) create(ctx context.Context, at wire.Object, key kube.Key, want map[string]any, hide hidden) (*unstructured.Unstructured, error) {
	id, err := kube.Identify(want)
	if err != nil {
		return nil, err
	}
	if id.Name != key.Name || id.Namespace != key.Namespace || id.Group() != key.Group {
		return nil, errors.New("the content is that of another object")
	}
	body, err := w.newBody(ctx, at, want)
	if err != nil {
		return nil, err
	}
	after, err := w.client.CreateApply(ctx, at, body)
	if err = classify(err, at, hide); errors.Is(err, errUnmergeable) || errors.Is(err, ErrMoved) && w.absent(ctx, at) {
		// A POST creates or is refused too. Of what is wrong with a body, the server says more then;
		// and an API that is not kube-apiserver's own may not take a create with a resourceVersion.
		after, err = w.client.Create(ctx, at, body)
		err = classify(err, at, hide)
	}
	return after, err
}

// absent tells whether the server says that there is no such object.
func (w *Writer) absent(ctx context.Context, at wire.Object) bool {
	_, err := w.client.Get(ctx, at)
	return isMissing(err, at)
}

// newBody returns what is sent of a content: all but status and what the server sets.
func (w *Writer) newBody(ctx context.Context, at wire.Object, want map[string]any) (map[string]any, error) {
	body := maps.Clone(want)
	delete(body, "status")
	from := want["metadata"].(map[string]any)
	metadata := identity(want)["metadata"].(map[string]any)
	for _, key := range settable {
		if v, ok := from[key]; ok {
			metadata[key] = v
		}
	}
	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		annotations = maps.Clone(annotations)
		delete(annotations, lastApplied)
		metadata["annotations"] = annotations
	}
	if wanted, ok := from["ownerReferences"].([]any); ok {
		references, err := w.references(ctx, at, nil, wanted)
		if err != nil {
			return nil, err
		}
		metadata["ownerReferences"] = references
	}
	body["metadata"] = metadata
	return body, nil
}

// Delete deletes an object if it is still the judged one. Its dependents go as they do with kubectl. It returns true if
// the object is gone, and false if something (a finalizer) keeps it while it terminates.
// Errors are those of Write; an object that is gone already is ErrMoved.
func (w *Writer) Delete(ctx context.Context, key kube.Key, resource schema.GroupVersionResource, live *unstructured.Unstructured) (bool, error) {
	gone, err := w.delete(ctx, location(key, resource.Version), key, live)
	if err != nil {
		return false, fmt.Errorf("delete %s: %w", key, err)
	}
	return gone, nil
}

func (w *Writer) delete(ctx context.Context, at wire.Object, key kube.Key, live *unstructured.Unstructured) (bool, error) {
	judged, err := wire.Judge(live)
	if err != nil {
		return false, err
	}
	if live.GetName() != key.Name || live.GetNamespace() != key.Namespace {
		return false, errors.New("the live object is another one")
	}
	if live.GetDeletionTimestamp() != nil {
		return false, &Rejected{Verdict: Terminating, Message: "the object is being deleted", Retry: true}
	}
	err = classify(w.client.Delete(ctx, at, judged), at, hide(nil, live.Object))
	if err != nil {
		return false, err
	}
	after, err := w.client.Get(ctx, at)
	switch {
	case isMissing(err, at):
		return true, nil
	case err != nil:
		return false, nil // it was deleted; whether it is gone shows at the next read
	}
	return after.GetUID() != live.GetUID(), nil
}
