package bulk

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/internal/rawjson"
	"github.com/crmirror/crmirror/kube/internal/wire"
)

// A page is to hold about pageBytes, whatever the size of its objects; the first one is small, to
// learn that. minPage keeps a kind of huge objects going; maxPage is for one whose first objects
// are the small ones.
const (
	firstPage, minPage, maxPage = 50, 5, 1000
	pageBytes                   = 8 << 20
)

// List hands over the objects of a resource in the order of the server, those of all
// namespaces if namespace is empty, and returns the resourceVersion of the listing. Each object
// is fn's to keep or to forget; one page as it came is all that is held of the others.
//
// It is complete or an error, and fn's error ends it. After an error nothing that was handed over counts. A
// listing that takes so long that the server does not remember its beginning goes on in the
// server's present state: whatever object was there all the time is handed over, once.
//
// Invariant: an answer that is not a whole list is an error, never a short list (TestListBroken).
func (c *Client) List(ctx context.Context, resource schema.GroupVersionResource, namespace, labelSelector string,
	fn func(*unstructured.Unstructured) error) (resourceVersion string, err error) {
	at := wire.Object{Resource: resource, Namespace: namespace}
	return c.list(ctx, at, labelSelector, func(page *page, raw []byte) error {
		live := &unstructured.Unstructured{}
		if err := json.Unmarshal(raw, &live.Object); err != nil || live.Object == nil {
			return fmt.Errorf("list %s: %w", resource.GroupResource(), noList("one of its items is not an object"))
		}
		page.complete(live)
		return fn(live)
	})
}

// CRDs returns the definitions of custom resources, by the resource that each defines.
func (c *Client) CRDs(ctx context.Context) (map[schema.GroupResource]*apiextensionsv1.CustomResourceDefinition, error) {
	found := map[schema.GroupResource]*apiextensionsv1.CustomResourceDefinition{}
	_, err := c.list(ctx, wire.Object{Resource: crdResource()}, "", func(_ *page, raw []byte) error {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := stdjson.Unmarshal(raw, crd); err != nil {
			return fmt.Errorf("list %s: %w", crdResource().GroupResource(), noList(err.Error()))
		}
		crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
		found[schema.GroupResource{Group: crd.Spec.Group, Resource: crd.Spec.Names.Plural}] = crd
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

func crdResource() schema.GroupVersionResource {
	return apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
}

// list reads all pages and hands over their items as they came.
func (c *Client) list(ctx context.Context, at wire.Object, labelSelector string, do func(*page, []byte) error) (resourceVersion string, err error) {
	token, limit, expired := "", int64(firstPage), false
	for {
		content, err := c.wire.Page(ctx, at, labelSelector, token, limit)
		if next := continued(err); next != "" && !expired {
			token, expired = next, true
			continue
		}
		if err != nil {
			return "", fmt.Errorf("list %s: %w", at.Resource.GroupResource(), apply.Unread(err, at))
		}
		expired = false
		page, err := parsePage(content)
		if err != nil {
			return "", fmt.Errorf("list %s: %w", at.Resource.GroupResource(), err)
		}
		if resourceVersion == "" {
			resourceVersion = page.metadata.ResourceVersion
		}
		count := int64(0)
		err = rawjson.Each(page.items, func(_, raw []byte) error {
			count++
			return do(page, raw)
		})
		if errors.Is(err, rawjson.ErrBroken) {
			err = fmt.Errorf("list %s: %w", at.Resource.GroupResource(), noList("the answer is not a whole list"))
		}
		if err != nil {
			return "", err
		}
		if token = page.metadata.Continue; token == "" {
			return resourceVersion, nil
		}
		limit = min(maxPage, max(minPage, pageBytes*count/int64(len(content))))
	}
}

// continued returns the token with which a listing goes on that the server does not remember, if the
// error says that.
func continued(err error) string {
	var status apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) {
		return ""
	}
	return status.Status().Continue
}

// page is a list as it came.
type page struct {
	apiVersion, kind string // of the list
	metadata         struct{ ResourceVersion, Continue string }
	items            []byte // JSON
}

func parsePage(content []byte) (*page, error) {
	p := &page{}
	var failed error
	err := rawjson.Each(content, func(name, value []byte) error {
		switch string(name) {
		case `"apiVersion"`:
			failed = stdjson.Unmarshal(value, &p.apiVersion)
		case `"kind"`:
			failed = stdjson.Unmarshal(value, &p.kind)
		case `"metadata"`:
			failed = stdjson.Unmarshal(value, &p.metadata)
		case `"items"`:
			if p.items = value; string(value) == "null" { // what Go makes of a list that nobody made
				p.items = []byte("[]")
			}
		}
		return failed
	})
	if err != nil || len(p.items) == 0 || p.items[0] != '[' || p.kind == "" {
		return nil, noList("the answer is not a whole list")
	}
	return p, nil
}

// noList is an answer that came, from whomever, and is none. It may be another one next time.
func noList(message string) error {
	return &apply.Rejected{Verdict: apply.Unavailable, Message: message, Retry: true}
}

// complete gives an item the kind that the lists of built-in kinds leave out.
func (p *page) complete(live *unstructured.Unstructured) {
	if live.GetKind() == "" {
		live.SetKind(strings.TrimSuffix(p.kind, "List"))
		live.SetAPIVersion(p.apiVersion)
	}
}
