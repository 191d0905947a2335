package restore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/sync"
)

// Snapshot is what a commit has below the mirrored path: which object lies in which
// file, and the rules that the files were written under. Contents are read when they are
// needed. It is safe for concurrent use.
type Snapshot struct {
	Commit gitstore.Hash
	Time   time.Time  // of the commit
	Tree   *sync.Tree // what .crmirror.yaml says; nil when it is missing
	Items  []Item     // in the order of sync.CompareKeys
	// Findings are files that cannot be restored, and what is wrong with the marker.
	Findings []Finding

	repo     Repository
	rules    *kube.Rules
	keyKnown bool // redacted values can be compared
	byKey    map[kube.Key]int
}

// Item is one object of a snapshot.
type Item struct {
	Key  kube.Key
	Path string // below the mirrored path
	Blob gitstore.Hash
}

// The resources that others stand on.
var (
	crdResource       = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	namespaceResource = schema.GroupResource{Resource: "namespaces"}
)

func keyOf(resource string, obj *unstructured.Unstructured) kube.Key {
	return kube.Key{
		Group: obj.GroupVersionKind().Group, Resource: resource, Namespace: obj.GetNamespace(), Name: obj.GetName(),
	}
}

// decode reads the object of a file. The error has no path, and the line where there is one.
func (s *Snapshot) decode(path string, content []byte) (*unstructured.Unstructured, error) {
	obj, err := kube.Decode(content)
	if err != nil {
		return nil, err
	}
	id, err := kube.Identify(obj.Object)
	if err != nil {
		return nil, err
	}
	if _, err := sync.KeyOfFile(path, id.Group(), id.Namespace, id.Name); err != nil {
		return nil, errors.New("its content names another object than its path does")
	}
	return obj, nil
}

// Item returns what the snapshot has of an object, and whether it has it.
func (s *Snapshot) Item(key kube.Key) (Item, bool) {
	i, ok := s.byKey[key]
	if !ok {
		return Item{}, false
	}
	return s.Items[i], true
}

// FileError says that the file of an object holds none, or another one. It is a person's to
// mend; errors of the repository are none.
type FileError struct {
	Path string
	Err  error
}

// Error names the file, and the line where there is one.
func (e *FileError) Error() string { return e.Path + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *FileError) Unwrap() error { return e.Err }

// Object reads the object of a file, as it lies there.
func (s *Snapshot) Object(ctx context.Context, item Item) (*unstructured.Unstructured, error) {
	content, err := s.repo.Read(ctx, item.Blob)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", item.Path, err)
	}
	obj, err := s.decode(item.Path, content)
	if err != nil {
		return nil, &FileError{Path: item.Path, Err: err}
	}
	return obj, nil
}

// Prefetch brings the contents of items here in one go.
func (s *Snapshot) Prefetch(ctx context.Context, items []Item) error {
	blobs := make([]gitstore.Hash, len(items))
	for i := range items {
		blobs[i] = items[i].Blob
	}
	return s.repo.Prefetch(ctx, blobs)
}

// Shape returns the rules under which an object was written: those that govern it, as it is live or
// lies in git, or else the default ones.
func (s *Snapshot) Shape(gr schema.GroupResource, obj *unstructured.Unstructured) *kube.Shape {
	rule, ok := s.ruleOf(gr, obj)
	if !ok {
		return &kube.Shape{}
	}
	return &rule.Shape
}

// ruleOf returns the rule that governs an object, and whether there is one.
func (s *Snapshot) ruleOf(gr schema.GroupResource, obj *unstructured.Unstructured) (*kube.Rule, bool) {
	if !s.hasCRD(gr) {
		return s.rules.Governs(obj, gr)
	}
	rules, some := s.rules.Resource(gr, true)
	if !some {
		return nil, false
	}
	return rules.Governs(obj)
}

// mirrors tells whether a live object would lie in the tree, as far as its rules tell.
func (s *Snapshot) mirrors(key kube.Key, live *unstructured.Unstructured) bool {
	rules, some := s.rules.Resource(key.GroupResource(), s.hasCRD(key.GroupResource()))
	if !some {
		return true
	}
	_, ok := rules.Governs(live)
	return ok
}

// hasCRD tells whether a resource's definition lies in the snapshot.
func (s *Snapshot) hasCRD(gr schema.GroupResource) bool {
	_, ok := s.Item(crdKey(gr))
	return ok
}

// crdKey is the key of a resource's definition.
func crdKey(gr schema.GroupResource) kube.Key {
	return kube.Key{Group: crdResource.Group, Resource: crdResource.Resource, Name: gr.String()}
}

// namespaceKey is the key of a Namespace.
func namespaceKey(name string) kube.Key {
	return kube.Key{Resource: namespaceResource.Resource, Name: name}
}
