package informer_test

import (
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/crmirror/crmirror/kube/kubetest"
)

// proxy stands between a fleet and the real API server and can do to the fleet
// what servers, networks and load balancers do.
type proxy struct {
	config  *rest.Config
	address string
	handler http.Handler
	server  *http.Server
	// intercept answers a request itself, or returns false.
	intercept atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
}

// newProxy starts a proxy that passes everything on as the given user.
func newProxy(t *testing.T, config *rest.Config) *proxy {
	t.Helper()
	p := &proxy{}
	forward := kubetest.Forward(t, config)
	p.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if intercept := p.intercept.Load(); intercept != nil && (*intercept)(w, r) {
			return
		}
		forward.ServeHTTP(w, r)
	})
	p.address = "127.0.0.1:0"
	p.up(t)
	t.Cleanup(p.down)
	p.config = &rest.Config{Host: "http://" + p.address}
	return p
}

// up listens, always on the same port.
func (p *proxy) up(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", p.address)
	if err != nil {
		t.Fatal(err)
	}
	p.address = listener.Addr().String()
	p.server = &http.Server{Handler: p.handler, ErrorLog: log.New(io.Discard, "", 0)}
	go func(server *http.Server) { _ = server.Serve(listener) }(p.server)
}

// down breaks all connections and refuses new ones.
func (p *proxy) down() { _ = p.server.Close() }

// answer sets what the proxy does; nil passes everything on.
func (p *proxy) answer(intercept func(http.ResponseWriter, *http.Request) bool) {
	if intercept == nil {
		p.intercept.Store(nil)
		return
	}
	p.intercept.Store(&intercept)
}

// refuse answers with an error status as the API server does.
func refuse(w http.ResponseWriter, code int32, reason metav1.StatusReason, message string) bool {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(code))
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	})
	return true
}

// streamsInitial says whether the request is for a stream of initial events.
func streamsInitial(r *http.Request) bool { return r.URL.Query().Get("sendInitialEvents") == "true" }

// watches says whether the request is a watch.
func watches(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }
