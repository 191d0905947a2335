package bulk

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/internal/wire"
)

// FieldManager is the manager as which a restore writes, unless Options say another.
const FieldManager = "crmirror-restore"

// Options are those of a Client.
type Options struct {
	// Timeout limits each request; zero means 30 seconds.
	Timeout time.Duration
	// FieldManager is the manager as which it writes; empty means FieldManager.
	FieldManager string
	// Shaped, if set, returns the paths of an object whose values no message may show.
	// It is asked about objects of which the server refused a write.
	Shaped func(resource schema.GroupResource, obj map[string]any) *fieldpath.Set
}

// Client speaks to an API server. It is safe for concurrent use, and does not
// limit its rate: the server has its priority and fairness, and the caller its pace.
type Client struct {
	options   Options
	wire      *wire.Client
	discovery *discovery.DiscoveryClient
}

// New returns a client for a connection.
func New(config *rest.Config, options Options) (*Client, error) {
	if options.Timeout == 0 {
		options.Timeout = 30 * time.Second
	}
	if options.FieldManager == "" {
		options.FieldManager = FieldManager
	}
	config = rest.CopyConfig(config)
	config.QPS, config.RateLimiter = -1, nil
	c := &Client{options: options}
	var err error
	if c.wire, err = wire.New(config, options.FieldManager, options.Timeout, false); err != nil {
		return nil, err
	}
	config.Timeout = options.Timeout
	if c.discovery, err = discovery.NewDiscoveryClientForConfig(config); err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return c, nil
}

// Get reads an object with everything that the server has of it.
func (c *Client) Get(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	at := wire.Object{Resource: resource, Namespace: namespace, Name: name}
	live, err := c.wire.Get(ctx, at)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key(at), apply.Unread(err, at))
	}
	return live, nil
}

// ClusterUID returns what identifies the cluster: the uid of its Namespace kube-system.
func (c *Client) ClusterUID(ctx context.Context) (string, error) {
	live, err := c.Get(ctx, schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", metav1.NamespaceSystem)
	if err != nil {
		return "", fmt.Errorf("identify cluster: %w", err)
	}
	return string(live.GetUID()), nil
}

func key(at wire.Object) kube.Key {
	return kube.Key{Group: at.Resource.Group, Resource: at.Resource.Resource, Namespace: at.Namespace, Name: at.Name}
}
