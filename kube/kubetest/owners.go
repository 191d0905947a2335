package kubetest

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ownName names an object as unresolvedOwners names it: "namespace/kind/name".
func (o *object) ownName() string {
	return o.key.Namespace + "/" + o.GroupVersionKind().GroupKind().String() + "/" + o.key.Name
}

// unresolvedOwners returns "kind/name" of the owners whose uid the file leaves open.
func (o *object) unresolvedOwners() []string {
	var owners []string
	for _, reference := range o.GetOwnerReferences() {
		if reference.UID == "" {
			group := schema.FromAPIVersionAndKind(reference.APIVersion, reference.Kind).GroupKind()
			owners = append(owners, group.String()+"/"+reference.Name)
		}
	}
	return owners
}

// resolveOwners gives the owner references without a uid those of the live owners.
func (l *loader) resolveOwners(ctx context.Context, o *object) error {
	if len(o.unresolvedOwners()) == 0 {
		return nil // as the file has them, down to the last field
	}
	references := o.GetOwnerReferences()
	for i, reference := range references {
		if reference.UID != "" {
			continue
		}
		resource, err := l.resources.of(schema.FromAPIVersionAndKind(reference.APIVersion, reference.Kind))
		if err != nil {
			return err
		}
		namespace := ""
		if resource.namespaced {
			namespace = o.key.Namespace
		}
		owner, err := l.client.Resource(resource.GVR).Namespace(namespace).Get(ctx, reference.Name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("find owner %s %s: %w", reference.Kind, reference.Name, err)
		}
		references[i].UID = owner.GetUID()
	}
	o.SetOwnerReferences(references)
	return nil
}
