package informer

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
)

// crdResource is the resource of the definitions themselves.
func crdResource() schema.GroupResource {
	return schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
}

// definition is what a CustomResourceDefinition says that matters for listing its
// objects.
type definition struct {
	resource   schema.GroupResource
	kind       string
	namespaced bool
	uid        types.UID
	created    time.Time
	// generation changes with every change of the spec.
	generation int64
	// version is the one to read objects at: the storage version if it is
	// served, else the first served one in Kubernetes' order of preference. It is
	// empty if none is served.
	version     string
	established bool
	terminating bool
}

// defined reads a CustomResourceDefinition. It does not fail: what a definition
// lacks makes it one that is not established.
func defined(crd *unstructured.Unstructured) definition {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	scope, _, _ := unstructured.NestedString(crd.Object, "spec", "scope")
	return definition{
		resource:    schema.GroupResource{Group: group, Resource: plural},
		kind:        kind,
		namespaced:  scope == "Namespaced",
		uid:         crd.GetUID(),
		created:     crd.GetCreationTimestamp().Time,
		generation:  crd.GetGeneration(),
		version:     readVersion(crd),
		established: condition(crd, "Established"),
		terminating: crd.GetDeletionTimestamp() != nil,
	}
}

// readVersion chooses the version at which objects are read.
func readVersion(crd *unstructured.Unstructured) string {
	best := ""
	for _, v := range mapsAt(crd, "spec", "versions") {
		name, _ := v["name"].(string)
		if served, _ := v["served"].(bool); !served {
			continue
		}
		if storage, _ := v["storage"].(bool); storage {
			return name
		}
		if best == "" || version.CompareKubeAwareVersionStrings(name, best) > 0 {
			best = name
		}
	}
	return best
}

// condition says whether the condition of that type is true.
func condition(crd *unstructured.Unstructured, name string) bool {
	for _, c := range mapsAt(crd, "status", "conditions") {
		if c["type"] == name {
			return c["status"] == "True"
		}
	}
	return false
}

// mapsAt returns the maps in the list at that path, without copying them.
func mapsAt(obj *unstructured.Unstructured, path ...string) []map[string]any {
	value, _, _ := unstructured.NestedFieldNoCopy(obj.Object, path...)
	list, _ := value.([]any)
	found := make([]map[string]any, 0, len(list))
	for _, item := range list {
		if m, ok := item.(map[string]any); ok {
			found = append(found, m)
		}
	}
	return found
}
