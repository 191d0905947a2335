package wire

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// recorder is a server that answers every request with an object and remembers the last one.
type recorder struct {
	requests []string
	body     string
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.requests, r.body = append(r.requests, req.Method+" "+req.URL.String()), string(body)
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"apiVersion":"g/v1","kind":"W","metadata":{"name":"a"}}`)
}

func connect(t *testing.T) (*Client, *recorder) {
	t.Helper()
	r := &recorder{}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	client, err := New(&rest.Config{Host: server.URL}, "m", 10*time.Second, false)
	if err != nil {
		t.Fatal(err)
	}
	return client, r
}

var widget = Object{Resource: schema.GroupVersionResource{Group: "g", Version: "v1", Resource: "ws"}, Namespace: "n", Name: "a"}

func judged(t *testing.T) Judged {
	t.Helper()
	j, err := Judge(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"uid": "u", "resourceVersion": "7"}}})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// TestForceApplyUnjudged tries to write without a judged state; nothing reaches the server.
func TestForceApplyUnjudged(t *testing.T) {
	client, server := connect(t)
	for name, live := range map[string]map[string]any{
		"nothing": {}, "no uid": {"metadata": map[string]any{"resourceVersion": "7"}}, "no version": {"metadata": map[string]any{"uid": "u"}},
	} {
		j, err := Judge(&unstructured.Unstructured{Object: live})
		if !errors.Is(err, ErrUnjudged) {
			t.Errorf("%s: judged, %v", name, err)
		}
		_, applied := client.ForceApply(t.Context(), widget, j, map[string]any{})
		_, patched := client.Patch(t.Context(), widget, j, nil)
		deleted := client.Delete(t.Context(), widget, j)
		_, put := client.Put(t.Context(), widget, "", j, map[string]any{})
		for _, err := range []error{applied, patched, deleted, put} {
			if !errors.Is(err, ErrUnjudged) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if j.Is(&unstructured.Unstructured{Object: live}) {
			t.Errorf("%s is itself", name)
		}
	}
	if len(server.requests) > 0 {
		t.Errorf("sent %q", server.requests)
	}
}

func TestBodies(t *testing.T) {
	client, server := connect(t)
	body := map[string]any{"apiVersion": "g/v1", "kind": "W", "metadata": map[string]any{"name": "a", "uid": "forged", "resourceVersion": "9"}}
	const at = "/apis/g/v1/namespaces/n/ws"
	const end = "&fieldValidation=Strict"
	for _, test := range []struct {
		name, request, body string
		send                func() error
	}{
		{"force", "PATCH " + at + "/a?fieldManager=m" + end + "&force=true", `{"apiVersion":"g/v1","kind":"W","metadata":{"name":"a","resourceVersion":"7","uid":"u"}}`,
			func() error { _, err := client.ForceApply(t.Context(), widget, judged(t), body); return err }},
		{"create by apply", "PATCH " + at + "/a?fieldManager=m" + end, `{"apiVersion":"g/v1","kind":"W","metadata":{"name":"a","resourceVersion":"1","uid":"forged"}}`,
			func() error { _, err := client.CreateApply(t.Context(), widget, body); return err }},
		{"patch", "PATCH " + at + "/a?fieldManager=m" + end,
			`[{"op":"test","path":"/metadata/uid","value":"u"},{"op":"test","path":"/metadata/resourceVersion","value":"7"},{"op":"add","path":"/x","value":null}]`,
			func() error {
				_, err := client.Patch(t.Context(), widget, judged(t), []Operation{{Op: "add", Path: "/x"}})
				return err
			}},
		{"post", "POST " + at + "?fieldManager=m" + end, `{"apiVersion":"g/v1","kind":"W","metadata":{"name":"a","resourceVersion":"9","uid":"forged"}}`,
			func() error { _, err := client.Post(t.Context(), widget, body); return err }},
		{"dry", "POST " + at + "?dryRun=All&fieldManager=m" + end, `{"apiVersion":"g/v1","kind":"W","metadata":{"name":"a","resourceVersion":"9","uid":"forged"}}`,
			func() error { _, err := client.DryRun().Post(t.Context(), widget, body); return err }},
		{"put", "PUT " + at + "/a/status?fieldManager=m" + end, `{"apiVersion":"g/v1","kind":"W","metadata":{"name":"a","resourceVersion":"7","uid":"u"}}`,
			func() error { _, err := client.Put(t.Context(), widget, "status", judged(t), body); return err }},
		{"delete", "DELETE " + at + "/a",
			`{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"u","resourceVersion":"7"},"propagationPolicy":"Background"}`,
			func() error { return client.Delete(t.Context(), widget, judged(t)) }},
	} {
		if err := test.send(); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if got := server.requests[len(server.requests)-1]; got != test.request || server.body != test.body {
			t.Errorf("%s: sent %s\n%s\nwant %s\n%s", test.name, got, server.body, test.request, test.body)
		}
	}
	if body["metadata"].(map[string]any)["uid"] != "forged" {
		t.Error("the caller's body was modified")
	}
}

func TestRedacted(t *testing.T) {
	client, server := connect(t)
	const marker = "x crmirror-redacted:v1:00"
	for name, body := range map[string]map[string]any{
		"value": {"a": []any{map[string]any{"b": marker}}}, "key": {"a": map[string]any{marker: 1}}, "metadata": {"metadata": map[string]any{"name": marker}},
	} {
		_, forced := client.ForceApply(t.Context(), widget, judged(t), body)
		_, applied := client.CreateApply(t.Context(), widget, body)
		_, created := client.Create(t.Context(), widget, body)
		_, patched := client.Patch(t.Context(), widget, judged(t), []Operation{{Op: "add", Path: "/x", Value: body}})
		_, posted := client.Post(t.Context(), widget, body)
		_, put := client.Put(t.Context(), widget, "", judged(t), body)
		for _, err := range []error{forced, applied, created, patched, posted, put} {
			if !errors.Is(err, ErrRedacted) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if _, err := client.Patch(t.Context(), widget, judged(t), []Operation{{Op: "add", Path: "/" + marker, Value: 1}}); !errors.Is(err, ErrRedacted) {
		t.Error(err)
	}
	if len(server.requests) > 0 {
		t.Errorf("sent %q", server.requests)
	}
}

func TestNames(t *testing.T) {
	client, server := connect(t)
	for _, at := range []Object{
		{Resource: widget.Resource, Namespace: "n"}, {Resource: widget.Resource, Namespace: "n", Name: ".."},
		{Resource: widget.Resource, Namespace: "..", Name: "a"}, {Resource: widget.Resource, Namespace: "n", Name: "a/status"},
		{Resource: widget.Resource, Namespace: "n/x", Name: "a"}, {Resource: widget.Resource, Name: "a%2f"},
	} {
		if err := client.Delete(t.Context(), at, judged(t)); err == nil {
			t.Errorf("%+v is deleted", at)
		}
		if _, err := client.Get(t.Context(), at); !errors.Is(err, ErrAddress) {
			t.Errorf("%+v is read: %v", at, err)
		}
		if _, err := client.Put(t.Context(), at, "", judged(t), nil); !errors.Is(err, ErrAddress) {
			t.Errorf("%+v is put: %v", at, err)
		}
	}
	if len(server.requests) > 0 {
		t.Errorf("sent %q", server.requests)
	}
}
