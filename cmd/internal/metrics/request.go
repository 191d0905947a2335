package metrics

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Transport measures the requests of a connection to the API server. It fits
// rest.Config.Wrap.
func (m *Metrics) Transport(next http.RoundTripper) http.RoundTripper {
	return &transport{next: next, of: m}
}

type transport struct {
	next http.RoundTripper
	of   *Metrics
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	answer, err := t.next.RoundTrip(r)
	code := "error"
	if err == nil {
		code = strconv.Itoa(answer.StatusCode)
	}
	t.of.requests.WithLabelValues(verb(r), code).Observe(time.Since(began).Seconds())
	return answer, err
}

// WrappedRoundTripper lets client-go find the transport below.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// verb is the request's verb as RBAC and audit logs call it; discover for what is no object.
func verb(r *http.Request) string {
	switch r.Method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	if r.URL.Query().Get("watch") != "" {
		return "watch"
	}
	// api/v1/… or apis/GROUP/VERSION/…, and then RESOURCE or namespaces/NS/RESOURCE
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		parts = parts[3:]
	default:
		return "discover"
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	if len(parts) == 1 {
		return "list"
	}
	return "get"
}
