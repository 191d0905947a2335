package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

// Stored is what the server says of an object that it stored whole.
type Stored struct {
	UID             string
	ResourceVersion string
	Generation      int64
	// Object is all of it after a dry run, which is made to see that, and nil otherwise.
	Object *unstructured.Unstructured
}

// onlyMetadata asks for no more than the metadata of what was stored: a write costs less
// then, on both sides. A server that cannot leave the rest out answers with all of it.
const onlyMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// Page reads one page of the objects beside o: at most limit of them that match the label
// selector, from the token on with which the page before ended. It returns the
// server's list as it came.
func (c *Client) Page(ctx context.Context, o Object, labelSelector, token string, limit int64) ([]byte, error) {
	address, err := o.all()
	if err != nil {
		return nil, err
	}
	request := c.rest.Get().AbsPath(address...).Param("limit", strconv.FormatInt(limit, 10))
	if labelSelector != "" {
		request = request.Param("labelSelector", labelSelector)
	}
	if token != "" {
		request = request.Param("continue", token)
	}
	return c.raw(ctx, request)
}

// Post creates an object.
func (c *Client) Post(ctx context.Context, o Object, body map[string]any) (Stored, error) {
	address, err := o.all()
	if err != nil {
		return Stored{}, err
	}
	return c.store(ctx, c.rest.Post().AbsPath(address...), body)
}

// Put replaces an object, or its subresource unless that is "", if it is still the
// judged one. The body has all of the object.
func (c *Client) Put(ctx context.Context, o Object, subresource string, judged Judged, body map[string]any) (Stored, error) {
	if err := judged.check(); err != nil {
		return Stored{}, err
	}
	address, err := o.one()
	if err != nil {
		return Stored{}, err
	}
	if subresource != "" {
		address = append(address, subresource)
	}
	body = withMetadata(body, map[string]any{"uid": judged.uid, "resourceVersion": judged.resourceVersion})
	return c.store(ctx, c.rest.Put().AbsPath(address...), body)
}

func (c *Client) store(ctx context.Context, request *rest.Request, body map[string]any) (Stored, error) {
	request = request.SetHeader("Content-Type", "application/json")
	if c.dryRun {
		object, err := parse(c.write(ctx, request, body, body))
		if err != nil {
			return Stored{}, err
		}
		return Stored{UID: string(object.GetUID()), ResourceVersion: object.GetResourceVersion(), Generation: object.GetGeneration(), Object: object}, nil
	}
	content, err := c.write(ctx, request.SetHeader("Accept", onlyMetadata), body, body)
	if err != nil {
		return Stored{}, err
	}
	var answer struct {
		Metadata struct {
			UID             string
			ResourceVersion string
			Generation      int64
		}
	}
	if err := json.Unmarshal(content, &answer); err != nil {
		return Stored{}, fmt.Errorf("read the answer: %w", err)
	}
	m := answer.Metadata
	return Stored{UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation}, nil
}
