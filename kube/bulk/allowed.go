package bulk

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/internal/wire"
)

// reviews is how many permissions are asked for at once.
const reviews = 16

// Allowed asks the server for each access whether it is allowed, and returns the answers in the
// same order. The error is that of a question without an answer.
func (c *Client) Allowed(ctx context.Context, accesses []Access) ([]Permission, error) {
	answers := make([]Permission, len(accesses))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(reviews)
	for i, access := range accesses {
		group.Go(func() (err error) {
			answers[i], err = c.review(ctx, access)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return answers, nil
}

func (c *Client) review(ctx context.Context, access Access) (Permission, error) {
	gv := authorizationv1.SchemeGroupVersion
	at := wire.Object{Resource: gv.WithResource("selfsubjectaccessreviews")}
	obj := map[string]any{
		"apiVersion": gv.String(), "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": map[string]any{
			"verb": access.Verb, "group": access.Resource.Group, "resource": access.Resource.Resource,
			"subresource": access.Subresource, "namespace": access.Namespace,
		}},
	}
	answer, err := c.wire.Create(ctx, at, obj)
	if err != nil { // it stores nothing, so it is as good as read
		return Permission{}, fmt.Errorf("ask whether to %s %s is allowed: %w", access.Verb, access.Resource, apply.Unread(err, at))
	}
	var p Permission
	p.Allowed, _, _ = unstructured.NestedBool(answer.Object, "status", "allowed")
	p.Reason, _, _ = unstructured.NestedString(answer.Object, "status", "reason")
	return p, nil
}
