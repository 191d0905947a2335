package bulk_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/bulk"
	"github.com/crmirror/crmirror/kube/kubetest"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

func TestMain(m *testing.M) { kubetest.Main(m) }

// widgets is a kind of its own for one test, in a namespace of its own.
type widgets struct {
	t         testing.TB
	config    *rest.Config
	dynamic   dynamic.Interface
	client    *bulk.Client
	group     string
	namespace string
}

func install(t testing.TB, name string) *widgets {
	t.Helper()
	w := connect(t, kubetest.Shared(t), name)
	kubetest.InstallWidgets(t, w.dynamic, w.group, w.namespace, nil)
	return w
}

// connect is install without the kind.
func connect(t testing.TB, server *kubetest.Cluster, name string) *widgets {
	t.Helper()
	config := rest.CopyConfig(server.Config)
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	w := &widgets{t: t, config: config, client: newClient(t, config, bulk.Options{}), namespace: server.Namespace(t)}
	var err error
	if w.dynamic, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	w.group = name + "." + w.namespace + ".dev" // another one each time, for go test -count
	return w
}

func newClient(t testing.TB, config *rest.Config, options bulk.Options) *bulk.Client {
	t.Helper()
	client, err := bulk.New(config, options)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (w *widgets) typed() kubernetes.Interface {
	w.t.Helper()
	client, err := kubernetes.NewForConfig(w.config)
	if err != nil {
		w.t.Fatal(err)
	}
	return client
}

func (w *widgets) resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: w.group, Version: "v1", Resource: "widgets"}
}

func (w *widgets) in() dynamic.ResourceInterface {
	return w.dynamic.Resource(w.resource()).Namespace(w.namespace)
}

// object is a widget with that spec, given as YAML.
func (w *widgets) object(name, spec string) map[string]any {
	w.t.Helper()
	text := fmt.Sprintf("{apiVersion: %s/v1, kind: Widget, metadata: {name: %q, namespace: %s}, spec: %s}", w.group, name, w.namespace, spec)
	content, err := yaml.YAMLToJSON([]byte(text))
	obj := &unstructured.Unstructured{}
	if err == nil {
		err = obj.UnmarshalJSON(content)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return obj.Object
}

// create creates a widget with the client under test.
func (w *widgets) create(name, spec string) bulk.Written {
	w.t.Helper()
	written, err := w.client.Create(w.t.Context(), w.resource(), w.object(name, spec), false)
	if err != nil {
		w.t.Fatal(err)
	}
	return written
}

func (w *widgets) get(name string) *unstructured.Unstructured {
	w.t.Helper()
	live, err := w.in().Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return live
}

func (w *widgets) delete(name string) {
	w.t.Helper()
	if err := w.in().Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// rejected checks that an error is a refusal with that verdict, and returns it.
func rejected(t *testing.T, err error, verdict apply.Verdict) apply.Rejected {
	t.Helper()
	var r *apply.Rejected
	if !errors.As(err, &r) || r.Verdict != verdict {
		t.Fatalf("got %v, want %s", err, verdict)
	}
	return *r
}

// proxied is a connection through a proxy that does with each request what the test says.
func proxied(t *testing.T, config *rest.Config, serve func(rw http.ResponseWriter, r *http.Request, pass http.Handler)) *rest.Config {
	t.Helper()
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	if proxy.Transport, err = rest.TransportFor(config); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { serve(rw, r, proxy) }))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, QPS: -1}
}

// poll calls until there is no error.
func poll(t *testing.T, what string, call func(context.Context) error) {
	t.Helper()
	kubetest.Poll(t.Context(), t, patience, what, call)
}
