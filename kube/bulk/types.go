package bulk

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is a resource as a server serves it.
type Kind struct {
	Resource   schema.GroupResource
	Kind       string
	Namespaced bool
	// Versions are those served, in the server's order: the preferred one first.
	Versions []Version
}

// Version is one version of a Kind.
type Version struct {
	Name   string
	Status bool // it has a status subresource
	Verbs  []string
}

// Version returns one version of the kind, and whether it is served.
func (k Kind) Version(name string) (Version, bool) {
	i := slices.IndexFunc(k.Versions, func(v Version) bool { return v.Name == name })
	if i < 0 {
		return Version{}, false
	}
	return k.Versions[i], true
}

// Preferred returns the resource at the version that the server prefers.
func (k Kind) Preferred() schema.GroupVersionResource {
	return k.Resource.WithVersion(k.Versions[0].Name)
}

// Served is everything that a server serves: of each resource whatever version could be
// discovered.
type Served struct {
	// Kinds have one version at least.
	Kinds map[schema.GroupResource]Kind
	// Failed are the group versions that could not be discovered, as those of an
	// aggregated API that does not answer. Their resources may be missing in Kinds.
	Failed map[schema.GroupVersion]error
}

// Resource returns a resource by its name, and whether it is served.
func (s *Served) Resource(gr schema.GroupResource) (Kind, bool) {
	k, ok := s.Kinds[gr]
	return k, ok
}

// ByKind returns the resource of a kind, and whether it is served at that version. Of several
// it is the first by name.
func (s *Served) ByKind(gvk schema.GroupVersionKind) (gvr schema.GroupVersionResource, namespaced, ok bool) {
	for gr, k := range s.Kinds {
		if gr.Group != gvk.Group || k.Kind != gvk.Kind || ok && gr.Resource > gvr.Resource {
			continue
		}
		if _, served := k.Version(gvk.Version); served {
			gvr, namespaced, ok = gr.WithVersion(gvk.Version), k.Namespaced, true
		}
	}
	return gvr, namespaced, ok
}

// Access is something that one may or may not do.
type Access struct {
	Verb        string // get, list, watch, create, update, patch
	Resource    schema.GroupResource
	Subresource string // "status", or ""
	Namespace   string // "" for all namespaces, and for what lies in none
}

// Permission is the server's answer about an Access.
type Permission struct {
	Allowed bool
	Reason  string // the server's words; often empty
}

// Written is what a write made of an object.
type Written struct {
	UID             string
	ResourceVersion string
	Generation      int64
	// Object is the whole object as it would be stored, after a dry run; nil otherwise.
	Object *unstructured.Unstructured
}
