package informer_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/informer"
	"github.com/crmirror/crmirror/kube/kubetest"
)

func TestDeadConversionWebhook(t *testing.T) {
	server := kubetest.Shared(t)
	c := connect(t, server.Config)
	w, other := c.install("webhook.test.dev", "v1alpha1"), c.install("healthy.test.dev")
	w.create("default", "a") // is stored as v1alpha1, and will need conversion
	told := newRecorder()
	run(t, options(server.Config, selecting(t, w.name(), other.name()), told))

	change := func(conversion map[string]any) {
		t.Helper()
		definition, err := c.crds().Get(t.Context(), w.name(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		spec := definition.Object["spec"].(map[string]any)
		spec["versions"] = crd(w.group, "v1", "v1alpha1").Object["spec"].(map[string]any)["versions"]
		spec["conversion"] = conversion
		if _, err := c.crds().Update(t.Context(), definition, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	change(map[string]any{"strategy": "Webhook", "webhook": map[string]any{
		"conversionReviewVersions": []any{"v1"},
		"clientConfig":             map[string]any{"url": "https://127.0.0.1:1/convert"},
	}})
	told.wait(t, 0, "failing "+w.name())
	mark := told.mark()
	other.create("default", "b")
	told.wait(t, mark, "changed "+other.key("default", "b").String())

	change(map[string]any{"strategy": "None"})
	told.wait(t, mark, "listed "+w.name())
	told.wait(t, mark, "recovered "+w.name())
	if got := append(told.all("deleted "), told.all("gone ")...); len(got) > 0 {
		t.Errorf("a dead webhook is told as %q", got)
	}
	if got := told.all("failing " + other.name()); len(got) > 0 {
		t.Errorf("another kind is told as %q", got)
	}
}

func TestPagedListing(t *testing.T) {
	server := kubetest.Shared(t)
	w := connect(t, server.Config).install("paged.test.dev")
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		w.create("default", name)
	}
	event := fmt.Sprintf(`{"type":"ADDED","object":{"apiVersion":"%s/v1","kind":"Widget","metadata":{"name":"a","namespace":"default"}}}`, w.group)
	for _, test := range []struct {
		name   string
		stream func(http.ResponseWriter) // answers a request for initial events
		begins int                       // how often a listing begins
	}{
		{"no WatchList feature", func(out http.ResponseWriter) {
			refuse(out, 422, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")
		}, 1},
		{"streams that break off", func(out http.ResponseWriter) {
			out.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(out, event)
		}, 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newProxy(t, server.Config)
			var pages atomic.Int32
			p.answer(func(out http.ResponseWriter, r *http.Request) bool {
				ours := strings.Contains(r.URL.Path, w.group)
				if ours && streamsInitial(r) {
					test.stream(out)
					return true
				}
				if ours && r.URL.Query().Get("limit") == "2" {
					pages.Add(1)
				}
				return false
			})
			told := newRecorder()
			o := options(p.config, selecting(t, w.name()), told)
			o.PageSize = 2
			_, stop := runUntilStopped(t, o)
			told.wait(t, 0, "listed "+w.name())
			if got := told.listing(informer.Scope{Resource: w.resource()}).Count; got != 5 {
				t.Errorf("listed %d objects, want 5", got)
			}
			if got := pages.Load(); got != 3 {
				t.Errorf("read %d pages, want 3", got)
			}
			if got := len(told.all("listing " + w.name())); got != test.begins {
				t.Errorf("the listing begins %d times, want %d", got, test.begins)
			}
			w.create("default", "f")
			told.wait(t, 0, "changed "+w.key("default", "f").String())
			w.delete("default", "f")
			told.wait(t, 0, "deleted "+w.key("default", "f").String())
			if got := told.all("failing "); len(got) > 0 {
				t.Errorf("got %q", got)
			}
			stop()
		})
	}
}

func TestFailingListDeletesNothing(t *testing.T) {
	server := kubetest.Shared(t)
	w := connect(t, server.Config).install("broken.test.dev")
	for _, name := range []string{"a", "b", "c"} {
		w.create("default", name)
	}
	p := newProxy(t, server.Config)
	noStream := func(out http.ResponseWriter, r *http.Request) bool {
		return streamsInitial(r) && refuse(out, 422, metav1.StatusReasonInvalid, "no WatchList")
	}
	p.answer(noStream)
	told := newRecorder()
	o := options(p.config, selecting(t, w.name()), told)
	o.PageSize = 1
	fleet := run(t, o)

	mark := told.mark()
	p.answer(func(out http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, w.group) && r.URL.Query().Get("continue") != "" {
			return refuse(out, 500, metav1.StatusReasonInternalError, "etcd leader changed")
		}
		return noStream(out, r)
	})
	fleet.Relist()
	told.wait(t, mark, "failing "+w.name())
	w.delete("default", "b")
	p.answer(noStream)
	told.wait(t, mark, "recovered "+w.name())
	told.wait(t, mark, "deleted "+w.key("default", "b").String())
	if got := told.all("deleted "); len(got) != 1 {
		t.Errorf("got %q, want only b deleted", got)
	}
}

func TestExpiredWatch(t *testing.T) {
	server := kubetest.Shared(t)
	w := connect(t, server.Config).install("expired.test.dev")
	for _, name := range []string{"a", "b"} {
		w.create("default", name)
	}
	p := newProxy(t, server.Config)
	var once sync.Once
	expire := make(chan struct{})
	p.answer(func(out http.ResponseWriter, r *http.Request) (answered bool) {
		if streamsInitial(r) {
			return refuse(out, 422, metav1.StatusReasonInvalid, "no WatchList")
		}
		if !strings.Contains(r.URL.Path, w.group) || !watches(r) {
			return false
		}
		once.Do(func() { // the first watch shows nothing, then ends as too old
			answered = true
			out.Header().Set("Content-Type", "application/json")
			_ = http.NewResponseController(out).Flush()
			<-expire
			_ = json.NewEncoder(out).Encode(metav1.WatchEvent{Type: "ERROR", Object: runtime.RawExtension{
				Raw: []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`),
			}})
		})
		return answered
	})
	told := newRecorder()
	run(t, options(p.config, selecting(t, w.name()), told))
	mark := told.mark()
	w.delete("default", "a")
	w.create("default", "c")
	close(expire)
	told.wait(t, mark, "deleted "+w.key("default", "a").String())
	told.wait(t, mark, "changed "+w.key("default", "c").String())
	told.wait(t, mark, "listed "+w.name())
	if got := told.all("failing "); len(got) > 0 {
		t.Errorf("an expired watch is told as %q", got)
	}
}

func TestOutage(t *testing.T) {
	server := kubetest.Shared(t)
	w := connect(t, server.Config).install("outage.test.dev")
	w.create("default", "a")
	p := newProxy(t, server.Config)
	told := newRecorder()
	run(t, options(p.config, selecting(t, w.name()), told))

	p.down()
	told.wait(t, 0, "failing "+w.name())
	if got := told.all("failing " + w.name()); !strings.HasSuffix(got[0], "connection refused") && !strings.HasSuffix(got[0], "EOF") {
		t.Errorf("got %q", got)
	}
	w.delete("default", "a")
	w.create("default", "b")
	p.up(t)
	told.wait(t, 0, "recovered "+w.name())
	told.wait(t, 0, "changed "+w.key("default", "b").String())
	told.wait(t, 0, "deleted "+w.key("default", "a").String())
	if got := told.all("gone "); len(got) > 0 {
		t.Errorf("an outage is told as %q", got)
	}
}

func TestUnreachableServer(t *testing.T) {
	told := newRecorder()
	run(t, options(&rest.Config{Host: "https://127.0.0.1:1"}, selecting(t, "*", "configmaps"), told))
	told.wait(t, 0, "failing customresourcedefinitions.apiextensions.k8s.io")
	told.wait(t, 0, "failing configmaps: ")
}

func TestUnconfirmedDeletion(t *testing.T) {
	server := kubetest.Shared(t)
	w := connect(t, server.Config).install("unconfirmed.test.dev")
	w.create("default", "a", "mirror=yes")
	p := newProxy(t, server.Config)
	var asked atomic.Bool
	p.answer(func(out http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, w.group+"/v1/namespaces/default/widgets/a") {
			return false
		}
		asked.Store(true)
		return refuse(out, 500, metav1.StatusReasonInternalError, "etcd is slow")
	})
	told := newRecorder()
	rules := compile(t, kube.Selection{Select: []kube.Rule{{Resources: []string{w.name()}, LabelSelector: "mirror=yes"}}})
	run(t, options(p.config, rules, told))
	w.delete("default", "a")
	told.wait(t, 0, "failing "+w.name()+": look up")
	if !told.listing(informer.Scope{Resource: w.resource()}).Has(w.key("default", "a")) {
		t.Error("an object whose deletion is not confirmed is not listed any more")
	}
	if got := told.all("deleted "); len(got) > 0 || !asked.Load() {
		t.Errorf("told %q without a confirmation", got)
	}
	p.answer(nil)
	told.wait(t, 0, "deleted "+w.key("default", "a").String())
	told.wait(t, 0, "recovered "+w.name())
}

func TestGetNotServed(t *testing.T) {
	server := kubetest.Shared(t)
	w := connect(t, server.Config).install("notserved.test.dev")
	w.create("default", "a")
	p := newProxy(t, server.Config)
	fleet := run(t, options(p.config, selecting(t, w.name()), newRecorder()))
	if state, err := fleet.Get(t.Context(), w.key("default", "a")); err != nil || len(state.Content) == 0 {
		t.Errorf("Get = %+v, %v", state, err)
	}
	if _, err := fleet.Get(t.Context(), w.key("default", "b")); !errors.Is(err, informer.ErrNotFound) {
		t.Errorf("Get of what does not exist: %v", err)
	}
	for name, answer := range map[string]func(http.ResponseWriter){
		"a page of a proxy":    func(out http.ResponseWriter) { http.Error(out, "404 page not found", http.StatusNotFound) },
		"an unnamed not found": func(out http.ResponseWriter) { refuse(out, 404, metav1.StatusReasonNotFound, "not found") },
	} {
		p.answer(func(out http.ResponseWriter, _ *http.Request) bool {
			answer(out)
			return true
		})
		if _, err := fleet.Get(t.Context(), w.key("default", "a")); err == nil || errors.Is(err, informer.ErrNotFound) {
			t.Errorf("Get behind %s: got %v, want another error", name, err)
		}
		if err := fleet.Proven(t.Context(), w.resource()); err == nil || errors.Is(err, informer.ErrKindGone) {
			t.Errorf("Proven behind %s: got %v, want another error", name, err)
		}
	}
	if _, err := fleet.Get(t.Context(), kube.Key{Resource: "pods", Name: "a"}); !errors.Is(err, informer.ErrUnknownKind) {
		t.Errorf("Get of a kind that is not watched: %v", err)
	}
}
