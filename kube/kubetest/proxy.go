package kubetest

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"

	"k8s.io/client-go/rest"
)

// Forward returns a proxy to an API server that passes requests on as the user of a connection, and answers
// as they come, watches too. Where the server breaks off, so does it.
func Forward(t testing.TB, config *rest.Config) *httputil.ReverseProxy {
	t.Helper()
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
}
