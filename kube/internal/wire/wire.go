// Package wire sends the requests of kube/apply and kube/bulk: each once, with a time limit.
// What may be asked of an API server is what can be said here, so the rules that
// no caller may break are kept here.
//
// Errors are those of client-go (*errors.StatusError for an answer of the
// server), but for ErrAddress, ErrRedacted and ErrUnjudged, which are told before anything is sent.
package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/crmirror/crmirror/kube"
)

// Errors that are told before anything is sent.
var (
	// ErrAddress means that a name or namespace is none, so there is nowhere to send to.
	ErrAddress = errors.New("names no object")
	// ErrRedacted means that a body holds the marker of a redacted value.
	ErrRedacted = errors.New("holds a redacted value")
	// ErrUnjudged means that a live object has no uid or no resourceVersion.
	ErrUnjudged = errors.New("no uid or no resourceVersion of the judged object")
)

// absent is a resourceVersion that no object has: etcd gives its first write a later one.
const absent = "1"

// Object says where an object lies.
type Object struct {
	Resource        schema.GroupVersionResource
	Namespace, Name string
}

// one returns the address of the object. A name that the path would swallow, such as ".."
// or none at all, would make it the address of something else.
func (o Object) one() ([]string, error) {
	if o.Name == "" {
		return nil, fmt.Errorf("no name: %w", ErrAddress)
	}
	if reasons := content.IsPathSegmentName(o.Name); len(reasons) > 0 {
		return nil, fmt.Errorf("name %q %s: %w", o.Name, reasons[0], ErrAddress)
	}
	all, err := o.all()
	return append(all, o.Name), err
}

// all returns the address of all objects beside it.
func (o Object) all() ([]string, error) {
	if reasons := content.IsPathSegmentName(o.Namespace); len(reasons) > 0 {
		return nil, fmt.Errorf("namespace %q %s: %w", o.Namespace, reasons[0], ErrAddress)
	}
	segments := []string{"/apis", o.Resource.Group, o.Resource.Version}
	if o.Resource.Group == "" {
		segments = []string{"/api", o.Resource.Version}
	}
	if o.Namespace != "" {
		segments = append(segments, "namespaces", o.Namespace)
	}
	return append(segments, o.Resource.Resource), nil
}

// Judged is the state of a live object that a decision was made on. Judge is the only
// way to get one that is worth anything.
type Judged struct {
	uid, resourceVersion string
}

// Judge takes uid and resourceVersion from a live object; the error is ErrUnjudged.
func Judge(live *unstructured.Unstructured) (Judged, error) {
	j := Judged{}
	if live != nil {
		j = Judged{uid: string(live.GetUID()), resourceVersion: live.GetResourceVersion()}
	}
	return j, j.check()
}

// Is tells whether an object is in exactly the judged state.
func (j Judged) Is(live *unstructured.Unstructured) bool {
	return j.check() == nil && string(live.GetUID()) == j.uid && live.GetResourceVersion() == j.resourceVersion
}

func (j Judged) check() error {
	if j.uid == "" || j.resourceVersion == "" {
		return ErrUnjudged
	}
	return nil
}

// Client sends requests as one field manager.
type Client struct {
	rest    *rest.RESTClient
	manager string
	timeout time.Duration
	dryRun  bool
}

// New returns a client that writes as that field manager. Each request is given up
// after timeout; with dryRun the server does all but store.
func New(config *rest.Config, manager string, timeout time.Duration, dryRun bool) (*Client, error) {
	config = dynamic.ConfigFor(config)
	config.GroupVersion = nil
	config.APIPath = "/"
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return &Client{rest: client, manager: manager, timeout: timeout, dryRun: dryRun}, nil
}

// DryRun returns a client of the same connection that has the server do all but store.
func (c *Client) DryRun() *Client {
	dry := *c
	dry.dryRun = true
	return &dry
}

// Get reads an object with everything the server has of it.
func (c *Client) Get(ctx context.Context, o Object) (*unstructured.Unstructured, error) {
	address, err := o.one()
	if err != nil {
		return nil, err
	}
	return parse(c.raw(ctx, c.rest.Get().AbsPath(address...)))
}

// Raw reads an address of the server, such as that of a discovery document.
func (c *Client) Raw(ctx context.Context, address string) ([]byte, error) {
	return c.raw(ctx, c.rest.Get().RequestURI(address))
}

// ForceApply applies body, and takes its fields over from whoever has them, if the object is
// still the judged one.
//
// Invariant: no forced apply is sent without uid and resourceVersion of the judged
// object in its body (TestForceOnlyHere, TestForceApplyUnjudged).
func (c *Client) ForceApply(ctx context.Context, o Object, judged Judged, body map[string]any) (*unstructured.Unstructured, error) {
	if err := judged.check(); err != nil {
		return nil, err
	}
	body = withMetadata(body, map[string]any{"uid": judged.uid, "resourceVersion": judged.resourceVersion})
	address, err := o.one()
	if err != nil {
		return nil, err
	}
	return parse(c.write(ctx, c.rest.Patch(types.ApplyPatchType).AbsPath(address...).Param("force", "true"), body, body))
}

// CreateApply applies body if there is no object of that name. It is not forced. An object that
// exists is refused by its resourceVersion, which is another one than that in the body.
func (c *Client) CreateApply(ctx context.Context, o Object, body map[string]any) (*unstructured.Unstructured, error) {
	body = withMetadata(body, map[string]any{"resourceVersion": absent})
	address, err := o.one()
	if err != nil {
		return nil, err
	}
	return parse(c.write(ctx, c.rest.Patch(types.ApplyPatchType).AbsPath(address...), body, body))
}

// Create creates an object by POST.
func (c *Client) Create(ctx context.Context, o Object, body map[string]any) (*unstructured.Unstructured, error) {
	address, err := o.all()
	if err != nil {
		return nil, err
	}
	return parse(c.write(ctx, c.rest.Post().AbsPath(address...).SetHeader("Content-Type", "application/json"), body, body))
}

// Operation is one of a JSON patch (RFC 6902).
type Operation struct {
	Op, Path string
	Value    any // not of "remove"
}

// MarshalJSON writes a value where the operation has one, null included.
func (o Operation) MarshalJSON() ([]byte, error) {
	out := map[string]any{"op": o.Op, "path": o.Path}
	if o.Op != "remove" {
		out["value"] = o.Value
	}
	return json.Marshal(out)
}

// Patch sends a JSON patch that is refused unless the object is still the judged one.
func (c *Client) Patch(ctx context.Context, o Object, judged Judged, operations []Operation) (*unstructured.Unstructured, error) {
	if err := judged.check(); err != nil {
		return nil, err
	}
	tests := []Operation{
		{Op: "test", Path: "/metadata/uid", Value: judged.uid},
		{Op: "test", Path: "/metadata/resourceVersion", Value: judged.resourceVersion},
	}
	values := make([]any, 0, len(operations))
	for _, op := range operations {
		values = append(values, op.Path, op.Value)
	}
	address, err := o.one()
	if err != nil {
		return nil, err
	}
	return parse(c.write(ctx, c.rest.Patch(types.JSONPatchType).AbsPath(address...), append(tests, operations...), values))
}

// Delete deletes the object if it is still the judged one.
func (c *Client) Delete(ctx context.Context, o Object, judged Judged) error {
	if err := judged.check(); err != nil {
		return err
	}
	uid, background := types.UID(judged.uid), metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{
		TypeMeta:          metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &judged.resourceVersion},
		PropagationPolicy: &background,
	}
	if c.dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	address, err := o.one()
	if err != nil {
		return err
	}
	body, err := json.Marshal(options)
	if err != nil {
		return err
	}
	_, err = c.raw(ctx, c.rest.Delete().AbsPath(address...).SetHeader("Content-Type", "application/json").Body(body))
	return err
}

// write is the last step before any write that has a body.
//
// Invariant: no body with a redacted value reaches a cluster (TestRedacted).
func (c *Client) write(ctx context.Context, request *rest.Request, body, values any) ([]byte, error) {
	if kube.ContainsRedaction(values) {
		return nil, ErrRedacted
	}
	content, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	request = request.Param("fieldManager", c.manager).Param("fieldValidation", metav1.FieldValidationStrict).Body(content)
	if c.dryRun {
		request = request.Param("dryRun", metav1.DryRunAll)
	}
	return c.raw(ctx, request)
}

// raw sends a request once. client-go would send it again when the server asks for
// that, and a write that had landed would then be told as refused.
func (c *Client) raw(ctx context.Context, request *rest.Request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	result := request.MaxRetries(0).Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}

func parse(content []byte, err error) (*unstructured.Unstructured, error) {
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(content); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	return object, nil
}

// withMetadata returns a copy of body whose metadata has further fields.
func withMetadata(body, fields map[string]any) map[string]any {
	body = maps.Clone(body)
	metadata, _ := body["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	if metadata == nil {
		metadata = map[string]any{}
	}
	maps.Copy(metadata, fields)
	body["metadata"] = metadata
	return body
}
