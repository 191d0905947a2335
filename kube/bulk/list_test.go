package bulk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/bulk"
	"github.com/crmirror/crmirror/kube/kubetest"
)

// collect lists and returns the objects by name. None may come twice.
func collect(t *testing.T, client *bulk.Client, resource schema.GroupVersionResource, namespace, selector string) (map[string]any, string, error) {
	t.Helper()
	found := map[string]any{}
	version, err := client.List(t.Context(), resource, namespace, selector, func(live *unstructured.Unstructured) error {
		if found[live.GetName()] != nil {
			t.Errorf("%s came twice", live.GetName())
		}
		found[live.GetName()] = live.Object
		return nil
	})
	return found, version, err
}

// plain is what client-go lists.
func (w *widgets) plain(resource schema.GroupVersionResource, namespace, selector string) (map[string]any, string) {
	w.t.Helper()
	list, err := w.dynamic.Resource(resource).Namespace(namespace).List(w.t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		w.t.Fatal(err)
	}
	found := map[string]any{}
	for _, item := range list.Items {
		found[item.GetName()] = item.Object
	}
	return found, list.GetResourceVersion()
}

// TestList compares with what client-go lists, over several pages, for kinds that say what they are and such that do not.
func TestList(t *testing.T) {
	w := install(t, "list")
	maps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	for i := range 130 {
		obj := w.object(fmt.Sprintf("w%03d", i), fmt.Sprintf(`{size: %d, color: "}],\\\"", extra: {big: 9007199254740993, f: 1.5, n: null, l: [], m: {}}}`, i))
		obj["metadata"].(map[string]any)["labels"] = map[string]any{"third": fmt.Sprint(i % 3)}
		if _, err := w.client.Create(t.Context(), w.resource(), obj, false); err != nil {
			t.Fatal(err)
		}
	}
	config := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c", "namespace": w.namespace}, "data": map[string]any{"a": "b"}}
	if _, err := w.client.Create(t.Context(), maps, config, false); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, namespace, selector string
		resource                  schema.GroupVersionResource
		count                     int
	}{
		{"all namespaces", "", "", w.resource(), 130},
		{"one namespace", w.namespace, "", w.resource(), 130},
		{"another namespace", "default", "", w.resource(), 0},
		{"by label", "", "third=1", w.resource(), 43},
		{"built-in", w.namespace, "", maps, 1},
	} {
		want, version := w.plain(test.resource, test.namespace, test.selector)
		got, at, err := collect(t, w.client, test.resource, test.namespace, test.selector)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" || len(got) != test.count {
			t.Errorf("%s: %d objects (-want +got):\n%s", test.name, len(got), diff)
		}
		if at != version {
			t.Errorf("%s: at %s, want %s", test.name, at, version)
		}
	}
	enough, count := errors.New("enough"), 0
	_, err := w.client.List(t.Context(), w.resource(), "", "", func(*unstructured.Unstructured) error {
		if count++; count == 60 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || count != 60 {
		t.Errorf("%d objects, %v", count, err)
	}
}

// TestListBroken has answers cut, garbled or replaced, at the first page or the second: each is an error.
func TestListBroken(t *testing.T) {
	w := install(t, "broken")
	for i := range 60 {
		w.create(fmt.Sprintf("w%d", i), "{size: 1}")
	}
	for name, test := range map[string]struct {
		damage  func(body string) string
		verdict apply.Verdict
	}{
		"empty":       {func(string) string { return "" }, apply.Unavailable},
		"half":        {func(b string) string { return b[:len(b)/2] }, apply.Unavailable},
		"no end":      {func(b string) string { return strings.TrimSpace(b)[:len(strings.TrimSpace(b))-1] }, apply.Unavailable},
		"no items":    {func(b string) string { return strings.Replace(b, `"items"`, `"itens"`, 1) }, apply.Unavailable},
		"items":       {func(b string) string { return strings.Replace(b, `"items":[`, `"items":{`, 1) }, apply.Unavailable},
		"an item":     {func(b string) string { return strings.Replace(b, `"items":[{`, `"items":[1,{`, 1) }, apply.Unavailable},
		"no object":   {func(b string) string { return strings.Replace(b, `"items":[{`, `"items":[null,{`, 1) }, apply.Unavailable},
		"a comma":     {func(b string) string { return strings.Replace(b, `"spec":{`, `"spec":{,`, 1) }, apply.Unavailable},
		"more":        {func(b string) string { return b + b }, apply.Unavailable},
		"another one": {func(string) string { return `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}` }, apply.Unavailable},
		"a page":      {func(string) string { return "<html>Log in</html>" }, apply.Unavailable},
	} {
		for page := range 2 {
			requests := 0
			client := newClient(t, proxied(t, w.config, func(rw http.ResponseWriter, r *http.Request, pass http.Handler) {
				recorder := httptest.NewRecorder()
				r.Header.Set("Accept-Encoding", "identity")
				pass.ServeHTTP(recorder, r)
				body := recorder.Body.String()
				if requests == page {
					body = test.damage(body)
				}
				requests++
				rw.Header().Set("Content-Type", "application/json")
				_, _ = rw.Write([]byte(body))
			}), bulk.Options{})
			_, _, err := collect(t, client, w.resource(), "", "")
			if r := rejected(t, err, test.verdict); !r.Retry {
				t.Errorf("%s, page %d: no retry", name, page)
			}
			if requests != page+1 {
				t.Errorf("%s, page %d: %d requests", name, page, requests)
			}
		}
	}
}

func TestListRefused(t *testing.T) {
	w := install(t, "refused")
	config, _, err := kubetest.Shared(t).User("nobody")
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = collect(t, newClient(t, config, bulk.Options{}), w.resource(), "", "")
	if r := rejected(t, err, apply.Forbidden); r.Retry || !strings.Contains(r.Message, "nobody") {
		t.Error(err)
	}
	_, _, err = collect(t, w.client, schema.GroupVersionResource{Group: w.group, Version: "v1", Resource: "gadgets"}, "", "")
	rejected(t, err, apply.NoKind)
	_, _, err = collect(t, w.client, w.resource(), "", "not a selector")
	if r := rejected(t, err, apply.Invalid); r.Retry {
		t.Error("a selector that is none is tried again")
	}
	_, _, err = collect(t, w.client, schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"}, "", "")
	if r := rejected(t, err, apply.Invalid); r.Retry {
		t.Error("what cannot be listed is tried again")
	}
}

// TestListExpired lists so slowly that the server forgets the beginning: the rest still comes, once.
func TestListExpired(t *testing.T) {
	server := kubetest.New(t, kubetest.Options{Flags: map[string][]string{"watch-cache": {"false"}, "etcd-compaction-interval": {"250ms"}}})
	w := connect(t, server, "expired")
	maps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	config := func(i int) map[string]any {
		name := fmt.Sprintf("c%03d", i)
		return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": w.namespace}}
	}
	for i := range 120 {
		if _, err := w.client.Create(t.Context(), maps, config(i), false); err != nil {
			t.Fatal(err)
		}
	}
	first, err := w.dynamic.Resource(maps).Namespace(w.namespace).List(t.Context(), metav1.ListOptions{Limit: 5})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	_, err = w.client.List(t.Context(), maps, w.namespace, "", func(live *unstructured.Unstructured) error {
		if found[live.GetName()] {
			t.Errorf("%s came twice", live.GetName())
		}
		if found[live.GetName()] = true; len(found) != 10 {
			return nil
		}
		poll(t, "the server to forget", func(ctx context.Context) error {
			if _, err := w.client.Create(ctx, maps, config(900), false); err != nil && !errors.Is(err, apply.ErrExists) {
				return err
			}
			if err := w.dynamic.Resource(maps).Namespace(w.namespace).Delete(ctx, "c900", metav1.DeleteOptions{}); err != nil {
				return err
			}
			_, err := w.dynamic.Resource(maps).Namespace(w.namespace).List(ctx, metav1.ListOptions{Limit: 5, Continue: first.GetContinue()})
			if !apierrors.IsResourceExpired(err) {
				return fmt.Errorf("it answers with %w", err)
			}
			return nil
		})
		return nil
	})
	if err != nil || len(found) != 120 {
		t.Errorf("%d objects, %v", len(found), err)
	}
}

// TestListForgets has a server that never remembers where a listing was.
func TestListForgets(t *testing.T) {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		requests++
		rw.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("continue") == "" {
			_, _ = rw.Write([]byte(`{"kind":"WList","apiVersion":"g/v1","metadata":{"resourceVersion":"5","continue":"x"},"items":[]}`))
			return
		}
		rw.WriteHeader(http.StatusGone)
		_, _ = rw.Write([]byte(`{"kind":"Status","apiVersion":"v1","metadata":{"continue":"y"},"status":"Failure","reason":"Expired","code":410}`))
	}))
	defer server.Close()
	client := newClient(t, &rest.Config{Host: server.URL}, bulk.Options{})
	_, _, err := collect(t, client, schema.GroupVersionResource{Group: "g", Version: "v1", Resource: "ws"}, "", "")
	if r := rejected(t, err, apply.Unavailable); !r.Retry || requests != 3 {
		t.Errorf("%d requests, %v", requests, err)
	}
}

func TestCRDs(t *testing.T) {
	w := install(t, "crds")
	crds, err := w.client.CRDs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	live, err := w.dynamic.Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")).Get(t.Context(), "widgets."+w.group, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, want); err != nil {
		t.Fatal(err)
	}
	got := crds[w.resource().GroupResource()]
	a, _ := json.Marshal(want)
	b, _ := json.Marshal(got)
	if diff := cmp.Diff(string(a), string(b)); got == nil || diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
