package bulk_test

import (
	"context"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/bulk"
	"github.com/crmirror/crmirror/kube/kubetest"
)

// TestAnswers loses the answers of creates that land and of some that do not, and has the server turn others away.
func TestAnswers(t *testing.T) {
	w := install(t, "answers")
	answer := func(code int, header, body string) func(http.ResponseWriter, *http.Request, context.CancelFunc) {
		return func(rw http.ResponseWriter, _ *http.Request, _ context.CancelFunc) {
			rw.Header().Set("Content-Type", "application/json")
			if header != "" {
				rw.Header().Set("Retry-After", header)
			}
			rw.WriteHeader(code)
			_, _ = rw.Write([]byte(body))
		}
	}
	for name, test := range map[string]struct {
		lose    func(http.ResponseWriter, *http.Request, context.CancelFunc)
		lands   bool
		verdict apply.Verdict // or uncertain
		after   time.Duration
	}{
		"lost":         {func(http.ResponseWriter, *http.Request, context.CancelFunc) { panic(http.ErrAbortHandler) }, true, "", 0},
		"never-sent":   {func(http.ResponseWriter, *http.Request, context.CancelFunc) { panic(http.ErrAbortHandler) }, false, "", 0},
		"unavailable":  {answer(503, "3", ""), false, "", 0},
		"etcd":         {answer(500, "", `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"etcdserver: request timed out","code":500}`), true, "", 0},
		"cut":          {answer(201, "", `{"metadata":{"uid":"`), true, "", 0},
		"too-many":     {answer(429, "7", "Too many requests, please try again later."), false, apply.Unavailable, 7 * time.Second},
		"quota-is-hot": {answer(409, "", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","details":{"name":"q","kind":"resourcequotas"},"code":409}`), false, apply.Denied, 0},
		"interrupted": {func(_ http.ResponseWriter, r *http.Request, cancel context.CancelFunc) {
			cancel()
			<-r.Context().Done()
		}, true, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var sent atomic.Int32
			client := newClient(t, proxied(t, w.config, func(rw http.ResponseWriter, r *http.Request, pass http.Handler) {
				sent.Add(1)
				if test.lands {
					pass.ServeHTTP(discard{http.Header{}}, r)
				}
				test.lose(rw, r, cancel)
			}), bulk.Options{Timeout: patience})
			_, err := client.Create(ctx, w.resource(), w.object(name, "{}"), false)
			if test.verdict != "" {
				if r := rejected(t, err, test.verdict); !r.Retry || r.RetryAfter != test.after {
					t.Errorf("retry %v after %s", r.Retry, r.RetryAfter)
				}
			} else if !errors.Is(err, apply.ErrUncertain) || errors.Is(err, apply.ErrMoved) {
				t.Errorf("got %v, want ErrUncertain", err)
			}
			if sent.Load() != 1 {
				t.Errorf("sent %d times", sent.Load())
			}
			if _, err := w.client.Get(t.Context(), w.resource(), w.namespace, name); errors.Is(err, apply.ErrNotFound) == test.lands {
				t.Errorf("landed: %v", err)
			}
		})
	}
}

// discard is an answer that nobody gets.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

func TestUnavailable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config := &rest.Config{Host: "http://" + listener.Addr().String()}
	listener.Close()
	client := newClient(t, config, bulk.Options{})
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	obj := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "a", "namespace": "b", "uid": "u", "resourceVersion": "1"}}
	_, created := client.Create(t.Context(), pods, obj, false)
	_, replaced := client.Replace(t.Context(), pods, obj, false)
	_, status := client.PutStatus(t.Context(), pods, obj)
	_, read := client.Get(t.Context(), pods, "b", "a")
	_, identified := client.ClusterUID(t.Context())
	_, listed := client.List(t.Context(), pods, "", "", func(*unstructured.Unstructured) error { return nil })
	_, crds := client.CRDs(t.Context())
	_, discovered := client.Discover(t.Context())
	_, allowed := client.Allowed(t.Context(), []bulk.Access{{Verb: "get", Resource: pods.GroupResource()}})
	for name, err := range map[string]error{
		"create": created, "replace": replaced, "status": status, "get": read, "uid": identified, "list": listed, "crds": crds,
		"discover": discovered, "allowed": allowed,
	} {
		var r *apply.Rejected
		if !errors.As(err, &r) || r.Verdict != apply.Unavailable || !r.Retry {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSecretData has the server complain about a Secret: no message shows its data, plain or encoded.
func TestSecretData(t *testing.T) {
	server := kubetest.Shared(t)
	client := newClient(t, server.Config, bulk.Options{})
	encoded := base64.StdEncoding.EncodeToString([]byte("open sesame"))
	obj := map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "a", "namespace": server.Namespace(t)},
		"type": "kubernetes.io/dockerconfigjson", "data": map[string]any{".dockerconfigjson": encoded, "bad key": encoded, encoded: encoded},
	}
	_, err := client.Create(t.Context(), schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, obj, false)
	rejected(t, err, apply.Invalid)
	if strings.Contains(err.Error(), encoded) || strings.Contains(err.Error(), "sesame") {
		t.Errorf("got %v", err)
	}
}
