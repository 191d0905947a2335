package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/kube/internal/wire"
)

// references returns the owner references that an object is to have: those of live
// that are wanted too, as live has them, and new ones with the uid of the owner that
// there is now. An owner that there is not is Rejected with NoOwner.
//
// Invariant: no uid of an owner is written that was not read from the owner just now or
// stood there before: a stale one makes garbage collection delete the object (TestOwnerReferences).
func (w *Writer) references(ctx context.Context, at wire.Object, live, wanted []any) ([]any, error) {
	var out []any
	for _, item := range wanted {
		reference, ok := item.(map[string]any)
		if !ok {
			return nil, &Rejected{Verdict: Invalid, Message: "metadata.ownerReferences holds something else than a reference"}
		}
		reference = maps.Clone(reference)
		delete(reference, "uid")
		uid, ok := uidOf(live, reference)
		if !ok {
			var err error
			if uid, err = w.findOwner(ctx, at, reference); err != nil {
				return nil, err
			}
		}
		reference["uid"] = uid
		out = append(out, reference)
	}
	return out, nil
}

// uidOf returns the uid by which a list of references names an owner.
func uidOf(list []any, reference map[string]any) (any, bool) {
	i := slices.IndexFunc(list, func(item any) bool {
		other, ok := item.(map[string]any)
		return ok && owner(other) == owner(reference)
	})
	if i < 0 {
		return nil, false
	}
	return list[i].(map[string]any)["uid"], true
}

// ownerID is what an owner is called in any version and cluster.
type ownerID struct{ group, kind, name string }

func owner(reference map[string]any) ownerID {
	text := func(key string) string { s, _ := reference[key].(string); return s }
	version, _ := schema.ParseGroupVersion(text("apiVersion"))
	return ownerID{version.Group, text("kind"), text("name")}
}

// findOwner reads the owner and returns its uid.
func (w *Writer) findOwner(ctx context.Context, at wire.Object, reference map[string]any) (any, error) {
	apiVersion, _ := reference["apiVersion"].(string)
	id := owner(reference)
	none := func(why string) error {
		return &Rejected{Verdict: NoOwner, Retry: true, Message: fmt.Sprintf("%s %s %q: %s", apiVersion, id.kind, id.name, why)}
	}
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil || id.kind == "" || id.name == "" {
		return nil, none("names no object")
	}
	resource, namespaced, err := w.resourceOf(ctx, version, id.kind)
	switch {
	case errors.Is(err, errNoKind):
		return nil, none("the kind is not served")
	case err != nil:
		return nil, unread(err)
	case namespaced && at.Namespace == "":
		return nil, none("lies in a namespace, and what it is to own does not")
	}
	found := wire.Object{Resource: resource, Name: id.name}
	if namespaced {
		found.Namespace = at.Namespace
	}
	live, err := w.client.Get(ctx, found)
	switch {
	case isMissing(err, found):
		return nil, none("does not exist")
	case err != nil:
		return nil, unread(err)
	case live.GetDeletionTimestamp() != nil:
		return nil, none("is being deleted")
	}
	return string(live.GetUID()), nil
}

var errNoKind = errors.New("no such kind")

// resourceOf finds the resource of a kind in its version, or, where that is not served,
// in the version that its group prefers.
func (w *Writer) resourceOf(ctx context.Context, version schema.GroupVersion, kind string) (schema.GroupVersionResource, bool, error) {
	resource, namespaced, err := w.resourceAt(ctx, version, kind)
	if !errors.Is(err, errNoKind) || version.Group == "" {
		return resource, namespaced, err
	}
	content, err := w.client.Raw(ctx, "/apis/"+url.PathEscape(version.Group))
	if apierrors.IsNotFound(err) {
		return schema.GroupVersionResource{}, false, errNoKind
	}
	var group metav1.APIGroup
	if err == nil {
		err = json.Unmarshal(content, &group)
	}
	if err != nil {
		return schema.GroupVersionResource{}, false, err
	}
	return w.resourceAt(ctx, schema.GroupVersion{Group: version.Group, Version: group.PreferredVersion.Version}, kind)
}

func (w *Writer) resourceAt(ctx context.Context, version schema.GroupVersion, kind string) (schema.GroupVersionResource, bool, error) {
	address := "/apis/" + url.PathEscape(version.Group) + "/" + url.PathEscape(version.Version)
	if version.Group == "" {
		address = "/api/" + url.PathEscape(version.Version)
	}
	content, err := w.client.Raw(ctx, address)
	if apierrors.IsNotFound(err) {
		return schema.GroupVersionResource{}, false, errNoKind
	}
	var list metav1.APIResourceList
	if err == nil {
		err = json.Unmarshal(content, &list)
	}
	if err != nil {
		return schema.GroupVersionResource{}, false, err
	}
	for _, r := range list.APIResources {
		if r.Kind == kind && !slices.Contains([]byte(r.Name), '/') {
			return version.WithResource(r.Name), r.Namespaced, nil
		}
	}
	return schema.GroupVersionResource{}, false, errNoKind
}

// ownerReferences is where an object names its owners.
var ownerReferences = fieldpath.MakePathOrDie("metadata", "ownerReferences")

// withoutReferences returns a set without paths of owner references, which stand in it by a key
// of their own.
func withoutReferences(set *fieldpath.Set) *fieldpath.Set {
	return set.RecursiveDifference(fieldpath.NewSet(ownerReferences))
}
