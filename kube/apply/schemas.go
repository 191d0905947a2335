package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/crmirror/crmirror/kube/internal/wire"
)

// Schemas gives the types of kinds as the server's OpenAPI v3 has them. A document is
// read when a kind of its group version is first asked for, and again when the
// server says that it changed. It is safe for concurrent use.
type Schemas struct {
	client *wire.Client

	mu   sync.Mutex
	docs map[schema.GroupVersion]document
}

// document is one group version's OpenAPI. Its address holds a digest of its content.
type document struct {
	address string
	types   managedfields.TypeConverter
}

// NewSchemas reads from the server of that connection; timeout limits each request.
func NewSchemas(config *rest.Config, timeout time.Duration) (*Schemas, error) {
	client, err := wire.New(config, Manager, timeout, false)
	if err != nil {
		return nil, err
	}
	return &Schemas{client: client, docs: map[schema.GroupVersion]document{}}, nil
}

// Type returns the type of a kind. Where the server publishes none, it is the deduced
// type, which takes lists as one piece, and known is false.
func (s *Schemas) Type(ctx context.Context, kind schema.GroupVersionKind) (_ typed.ParseableType, known bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	doc := s.docs[kind.GroupVersion()]
	t, known := doc.typeOf(kind)
	if known {
		return t, true, nil
	}
	if err := s.load(ctx, kind.GroupVersion()); err != nil {
		return typed.ParseableType{}, false, fmt.Errorf("read the schema of %s: %w", kind, err)
	}
	t, known = s.docs[kind.GroupVersion()].typeOf(kind)
	return t, known, nil
}

// Refresh forgets what the server no longer publishes as it was read. Call it at the
// start of each cycle, and when a write was refused for a field that the type has.
func (s *Schemas) Refresh(ctx context.Context) error {
	index, err := s.index(ctx)
	if err != nil {
		return fmt.Errorf("read the index of schemas: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for version, doc := range s.docs {
		if index[version] != doc.address {
			delete(s.docs, version)
		}
	}
	return nil
}

// index returns the address of each group version's document.
func (s *Schemas) index(ctx context.Context) (map[schema.GroupVersion]string, error) {
	content, err := s.client.Raw(ctx, "/openapi/v3")
	if err != nil {
		return nil, err
	}
	var published handler3.OpenAPIV3Discovery
	if err := json.Unmarshal(content, &published); err != nil {
		return nil, err
	}
	index := make(map[schema.GroupVersion]string, len(published.Paths))
	for path, doc := range published.Paths {
		if version, ok := groupVersion(path); ok {
			index[version] = doc.ServerRelativeURL
		}
	}
	return index, nil
}

// load reads the document of one group version. That there is none is remembered
// nowhere: the kind may be new.
func (s *Schemas) load(ctx context.Context, version schema.GroupVersion) error {
	index, err := s.index(ctx)
	if err != nil || index[version] == "" || index[version] == s.docs[version].address {
		return err
	}
	content, err := s.client.Raw(ctx, index[version])
	if err != nil {
		return err
	}
	var published spec3.OpenAPI
	if err := json.Unmarshal(content, &published); err != nil {
		return err
	}
	if published.Components == nil {
		return nil
	}
	types, err := managedfields.NewTypeConverter(published.Components.Schemas, false)
	if err != nil {
		return err
	}
	s.docs[version] = document{address: index[version], types: types}
	return nil
}

// groupVersion reads a path of the index: "api/v1", "apis/apps/v1".
func groupVersion(path string) (schema.GroupVersion, bool) {
	const core, named = "api/", "apis/"
	switch {
	case len(path) > len(named) && path[:len(named)] == named:
		path = path[len(named):]
	case len(path) > len(core) && path[:len(core)] == core:
		path = path[len(core):]
	default:
		return schema.GroupVersion{}, false
	}
	version, err := schema.ParseGroupVersion(path)
	return version, err == nil && version.Version != ""
}

// typeOf returns the type of a kind: that of an object which is nothing but one.
func (d document) typeOf(kind schema.GroupVersionKind) (typed.ParseableType, bool) {
	if d.types == nil {
		return typed.DeducedParseableType, false
	}
	apiVersion, name := kind.ToAPIVersionAndKind()
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": name}}
	value, err := d.types.ObjectToTyped(object)
	if err != nil {
		return typed.DeducedParseableType, false
	}
	return typed.ParseableType{Schema: value.Schema(), TypeRef: value.TypeRef()}, true
}
