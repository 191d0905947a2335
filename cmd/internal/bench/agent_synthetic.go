package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// synthetic is an API server that has n objects of about size bytes and nothing
// that changes. It makes them as they are asked for, so that it stands any number,
// and it speaks what a mirror needs: LIST in pages, WATCH, and the stream of
// initial events. It is for measuring the memory of a client, which cannot tell it
// from the real one.
type synthetic struct {
	*httptest.Server
	n, size int
}

// syntheticVersion is the resource version of everything.
const syntheticVersion = "1000000"

func newSynthetic(n, size int) *synthetic {
	s := &synthetic{n: n, size: size}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.answer))
	s.EnableHTTP2 = true // as the real one
	s.StartTLS()
	return s
}

// kubeconfig writes a file that leads to the server.
func (s *synthetic) kubeconfig(file string) error {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	content, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "synthetic",
		"clusters": []any{map[string]any{"name": "synthetic", "cluster": map[string]any{"server": s.URL, "certificate-authority-data": ca}}},
		"users":    []any{map[string]any{"name": "synthetic", "user": map[string]any{}}},
		"contexts": []any{map[string]any{"name": "synthetic", "context": map[string]any{"cluster": "synthetic", "user": "synthetic"}}},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o600)
}

// served is one resource of the server.
type served struct {
	kind, apiVersion string
	n                int
	object           func(i int) map[string]any
}

func (s *synthetic) answer(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	resource, name := s.resource(r.URL.Path)
	switch query := r.URL.Query(); {
	case resource == nil:
		http.NotFound(w, r)
	case name != "":
		resource.get(w, name)
	case query.Get("watch") != "":
		resource.watch(w, r, query.Get("sendInitialEvents") == "true")
	default:
		resource.list(w, query.Get("limit"), query.Get("continue"))
	}
}

// resource finds what a path names: a resource, and perhaps one object of it.
func (s *synthetic) resource(path string) (*served, string) {
	find := func(prefix string) (string, bool) {
		rest, ok := strings.CutPrefix(path, prefix)
		return strings.TrimPrefix(rest, "/"), ok && (rest == "" || rest[0] == '/')
	}
	if name, ok := find("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"); ok {
		return &served{"CustomResourceDefinition", "apiextensions.k8s.io/v1", kinds, syntheticDefinition}, name
	}
	if name, ok := find("/api/v1/namespaces"); ok {
		return &served{"Namespace", "v1", namespaces + 1, syntheticNamespace}, name
	}
	for kind := range kinds {
		if name, ok := find("/apis/" + group + "/v1/" + resourceOf(kind).Resource); ok {
			one := func(i int) map[string]any { return s.object(i*kinds + kind) }
			return &served{fmt.Sprintf("Widget%02d", kind), group + "/v1", s.n / kinds, one}, name
		}
	}
	return nil, ""
}

// object is an object as the server returns it: with what the server adds, and the
// managed fields, which are about as long as the spec.
func (s *synthetic) object(i int) map[string]any {
	live := object(i, s.size).Object
	owned := map[string]any{}
	for field := range live["spec"].(map[string]any) {
		owned["f:"+field] = map[string]any{}
	}
	stamp(live, i, "bench", map[string]any{"f:metadata": map[string]any{"f:labels": map[string]any{
		".": map[string]any{}, "f:app.kubernetes.io/name": map[string]any{}, "f:app.kubernetes.io/part-of": map[string]any{},
	}}, "f:spec": owned})
	return live
}

func syntheticDefinition(i int) map[string]any {
	crd := definition(i).Object
	stamp(crd, i, "bench", map[string]any{"f:spec": map[string]any{"f:group": map[string]any{}, "f:names": map[string]any{}}})
	crd["status"] = map[string]any{"conditions": []any{
		map[string]any{"type": "NamesAccepted", "status": "True"}, map[string]any{"type": "Established", "status": "True"},
	}}
	return crd
}

// syntheticNamespace is one of those that hold objects; the last one is the
// cluster's own.
func syntheticNamespace(i int) map[string]any {
	name := fmt.Sprintf("team-%02d", i)
	if i == namespaces {
		name = metav1.NamespaceSystem
	}
	ns := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}
	stamp(ns, i, "bench", map[string]any{"f:metadata": map[string]any{}})
	return ns
}

// stamp adds the metadata that a server sets.
func stamp(live map[string]any, i int, manager string, owned map[string]any) {
	const created = "2026-01-02T03:04:05Z"
	maps.Copy(live["metadata"].(map[string]any), map[string]any{
		"uid": fmt.Sprintf("0f8fad5b-d9cb-469f-a165-%012d", i), "resourceVersion": strconv.Itoa(1000 + i),
		"creationTimestamp": created, "generation": 1,
		"managedFields": []any{map[string]any{
			"manager": manager, "operation": "Update", "apiVersion": live["apiVersion"],
			"time": created, "fieldsType": "FieldsV1", "fieldsV1": owned,
		}},
	})
}

func (v *served) get(w http.ResponseWriter, name string) {
	for i := range v.n {
		if live := v.object(i); live["metadata"].(map[string]any)["name"] == name {
			_ = json.NewEncoder(w).Encode(live) // the client went away
			return
		}
	}
	http.Error(w, "no such object", http.StatusNotFound)
}

// list writes one page.
func (v *served) list(w http.ResponseWriter, limit, from string) {
	begin, _ := strconv.Atoi(from)
	end := v.n
	if size, _ := strconv.Atoi(limit); size > 0 {
		end = min(end, begin+size)
	}
	items := make([]any, 0, end-begin)
	for i := begin; i < end; i++ {
		items = append(items, v.object(i))
	}
	next := ""
	if end < v.n {
		next = strconv.Itoa(end)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": v.apiVersion, "kind": v.kind + "List", "items": items,
		"metadata": map[string]any{"resourceVersion": syntheticVersion, "continue": next},
	})
}

// watch keeps the request open until the client goes; before, it streams what
// there is, if that is asked for.
func (v *served) watch(w http.ResponseWriter, r *http.Request, initial bool) {
	control := http.NewResponseController(w)
	_ = control.Flush()
	if initial {
		for i := range v.n {
			if event(w, "ADDED", v.object(i)) != nil {
				return
			}
		}
		_ = event(w, "BOOKMARK", map[string]any{
			"apiVersion": v.apiVersion, "kind": v.kind, "metadata": map[string]any{
				"resourceVersion": syntheticVersion, "annotations": map[string]any{metav1.InitialEventsAnnotationKey: "true"},
			},
		})
		_ = control.Flush()
	}
	seconds, _ := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	over := time.NewTimer(time.Duration(max(seconds, 60)) * time.Second)
	defer over.Stop()
	select {
	case <-r.Context().Done():
	case <-over.C:
	}
}

func event(w io.Writer, kind string, live map[string]any) error {
	var frame bytes.Buffer
	if err := json.NewEncoder(&frame).Encode(map[string]any{"type": kind, "object": live}); err != nil {
		return err
	}
	_, err := w.Write(frame.Bytes())
	return err
}
