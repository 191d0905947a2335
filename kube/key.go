// Package kube is what crmirror knows of Kubernetes: the identity of an object
// (Key), its normalized form (Encode, Decode) and which rule governs it
// (Selection). It knows neither git nor when anything happens.
package kube

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Key identifies an object across versions and clusters. It has no API version:
// a version bump of the resource moves no file.
type Key struct {
	Group     string `json:"group,omitempty"`     // "" for the core group
	Resource  string `json:"resource"`            // plural, lower case: "certificates"
	Namespace string `json:"namespace,omitempty"` // "" for a cluster-scoped object
	Name      string `json:"name"`
}

// GroupResource returns the key's resource.
func (k Key) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}

// String writes the key as people read it in logs and commit messages:
// "certificates.cert-manager.io shop/frontend-tls", without the namespace
// when the object is cluster-scoped.
func (k Key) String() string {
	name := k.Name
	if k.Namespace != "" {
		name = k.Namespace + "/" + k.Name
	}
	return k.GroupResource().String() + " " + name
}
