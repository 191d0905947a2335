package restore

import (
	"context"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube/bulk"
)

// Cluster is what planning and verifying read of a cluster. A *bulk.Client and an
// *apply.Schemas, embedded side by side, are one.
type Cluster interface {
	// ClusterUID identifies the cluster: the uid of its Namespace kube-system.
	ClusterUID(ctx context.Context) (string, error)
	// Discover says what is served. What cannot be discovered is in the result, not in the error.
	Discover(ctx context.Context) (*bulk.Served, error)
	// CRDs are the definitions of custom resources, by the resource that they define.
	CRDs(ctx context.Context) (map[schema.GroupResource]*apiextensionsv1.CustomResourceDefinition, error)
	// List hands over the objects of a resource, those of all namespaces if namespace is
	// empty, one by one. It is complete or an error.
	List(ctx context.Context, gvr schema.GroupVersionResource, namespace, labelSelector string,
		fn func(*unstructured.Unstructured) error) (resourceVersion string, err error)
	// Get reads one object; apply.ErrNotFound when the server says that there is none.
	Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error)
	// Allowed answers for each of the accesses, in their order.
	Allowed(ctx context.Context, accesses []bulk.Access) ([]bulk.Permission, error)
	// Endpoints tells whether somebody answers behind a Service.
	Endpoints(ctx context.Context, service types.NamespacedName) (ready bool, err error)
	// Type is the type of a kind, for comparing field by field. Where the server publishes none
	// it is the deduced type, and known is false.
	Type(ctx context.Context, kind schema.GroupVersionKind) (t typed.ParseableType, known bool, err error)
}

// Repository is what planning and verifying read of a repository; a *gitstore.Store is one.
type Repository interface {
	// FilesAt returns the files below the mirrored path in a commit, by their paths below it.
	FilesAt(ctx context.Context, commit gitstore.Hash) (map[string]gitstore.TreeFile, error)
	// Read returns the content of a blob.
	Read(ctx context.Context, blob gitstore.Hash) ([]byte, error)
	// Prefetch fetches those of the blobs that are not here in one go.
	Prefetch(ctx context.Context, blobs []gitstore.Hash) error
	// Info says what a commit says of itself.
	Info(commit gitstore.Hash) (gitstore.CommitInfo, error)
}
