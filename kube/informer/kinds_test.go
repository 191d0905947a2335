package informer_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/informer"
	"github.com/crmirror/crmirror/kube/kubetest"
)

func TestCRDAppearsLater(t *testing.T) {
	server := kubetest.Shared(t)
	told := newRecorder()
	o := options(server.Config, selecting(t, "*.later.test.dev"), told)
	o.IncludeCRDs = true
	fleet := run(t, o)

	w := connect(t, server.Config).install("later.test.dev")
	w.create("default", "a")
	told.wait(t, 0, "changed "+w.key("default", "a").String())
	told.wait(t, 0, "listed "+w.name())
	told.wait(t, 0, "changed customresourcedefinitions.apiextensions.k8s.io "+w.name())
	if got := told.all("failing"); len(got) > 0 {
		t.Errorf("a kind that appears is told as failing: %q", got)
	}
	if !fleet.Synced() {
		t.Errorf("not synced: %+v", fleet.Status())
	}
}

func TestCRDDeletedWithObjects(t *testing.T) {
	server := kubetest.Shared(t)
	w := connect(t, server.Config).install("deleted.test.dev")
	for _, name := range []string{"a", "b", "c"} {
		w.create("default", name)
	}
	told := newRecorder()
	fleet := run(t, options(server.Config, selecting(t, "*.deleted.test.dev"), told))
	if err := fleet.Proven(t.Context(), w.resource()); err != nil {
		t.Errorf("Proven before: %v", err)
	}

	w.uninstall(t.Context())
	told.wait(t, 0, "gone "+w.name())
	if err := fleet.Proven(t.Context(), w.resource()); !errors.Is(err, informer.ErrKindGone) {
		t.Errorf("Proven after the CRD was deleted: got %v, want %v", err, informer.ErrKindGone)
	}
	poll(t, "status gone", func(context.Context) error {
		for _, s := range fleet.Status() {
			if s.Scope.Resource == w.resource() && s.Phase != informer.PhaseGone {
				return errors.New(string(s.Phase))
			}
		}
		return nil
	})
	if got := told.all("failing"); len(got) > 0 {
		t.Errorf("a deleted kind is told as failing: %q", got)
	}
	if got := told.all("gone"); len(got) != 1 {
		t.Errorf("gone is told %d times: %q", len(got), got)
	}
}

func TestCRDReborn(t *testing.T) {
	server := kubetest.Shared(t)
	c := connect(t, server.Config)
	w := c.install("reborn.test.dev")
	w.create("default", "lost")
	w.create("default", "kept")
	told := newRecorder()
	fleet := run(t, options(server.Config, selecting(t, "*.reborn.test.dev"), told))

	w.uninstall(t.Context())
	again := c.install("reborn.test.dev")
	again.create("default", "kept")
	told.wait(t, 0, "gone "+w.name())
	told.wait(t, 0, "listed "+w.name()+" reborn")
	mark := told.mark()
	again.create("default", "new")
	told.wait(t, mark, "changed "+w.key("default", "new").String())
	listing := told.listing(informer.Scope{Resource: w.resource()})
	if listing.Has(w.key("default", "lost")) || !listing.Has(w.key("default", "kept")) {
		t.Error("the listing after the rebirth is not the new objects")
	}
	if err := fleet.Proven(t.Context(), w.resource()); err != nil {
		t.Errorf("Proven after the rebirth: %v", err)
	}
	again.delete("default", "new")
	told.wait(t, mark, "deleted "+w.key("default", "new").String())
}

func TestVersionSwitch(t *testing.T) {
	server := kubetest.Shared(t)
	c := connect(t, server.Config)
	w := c.install("versions.test.dev", "v1alpha1")
	w.create("default", "a")
	w.create("default", "b")
	told := newRecorder()
	run(t, options(server.Config, selecting(t, "*.versions.test.dev"), told))

	mark := told.mark()
	definition, err := c.crds().Get(t.Context(), w.name(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	versions := crd("versions.test.dev", "v1", "v1alpha1").Object["spec"].(map[string]any)["versions"]
	definition.Object["spec"].(map[string]any)["versions"] = versions
	if _, err := c.crds().Update(t.Context(), definition, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	told.wait(t, mark, "listed "+w.name())
	for _, name := range []string{"a", "b"} {
		if got := string(told.state(w.key("default", name)).Content); !strings.HasPrefix(got, "apiVersion: versions.test.dev/v1\n") {
			t.Errorf("%s is not read at the new version:\n%s", name, got)
		}
	}
	for _, unwanted := range []string{"deleted", "gone", "failing", "unselected"} {
		if got := told.all(unwanted + " "); len(got) > 0 {
			t.Errorf("a change of version is told as %q", got)
		}
	}
}

// TestNewDefaults covers a CRD that changes what the server returns of objects that
// did not change.
func TestNewDefaults(t *testing.T) {
	server := kubetest.Shared(t)
	c := connect(t, server.Config)
	w := c.install("defaults.test.dev")
	w.create("default", "a")
	told := newRecorder()
	run(t, options(server.Config, selecting(t, w.name()), told))

	mark := told.mark()
	definition, err := c.crds().Get(t.Context(), w.name(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	versions := definition.Object["spec"].(map[string]any)["versions"].([]any)
	schema := versions[0].(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
	schema["properties"] = map[string]any{"spec": map[string]any{
		"type": "object", "x-kubernetes-preserve-unknown-fields": true,
		"properties": map[string]any{"color": map[string]any{"type": "string", "default": "red"}},
	}}
	if _, err := c.crds().Update(t.Context(), definition, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	told.wait(t, mark, "listed "+w.name())
	if got := string(told.state(w.key("default", "a")).Content); !strings.Contains(got, "color: red") {
		t.Errorf("the new default is not told:\n%s", got)
	}
}

func TestNamedResources(t *testing.T) {
	server := kubetest.Shared(t)
	c := connect(t, server.Config)
	ns := server.Namespace(t)
	told := newRecorder()
	rules := compile(t, kube.Selection{Select: []kube.Rule{{
		Resources:  []string{"configmaps", "roles.rbac.authorization.k8s.io", "widgets.named.test.dev"},
		Namespaces: []string{ns, "not-there-yet"},
	}}})
	run(t, options(server.Config, rules, told))
	told.wait(t, 0, "listed configmaps in namespace "+ns)
	told.wait(t, 0, "listed configmaps in namespace not-there-yet")
	told.wait(t, 0, "listed roles.rbac.authorization.k8s.io in namespace "+ns)
	told.wait(t, 0, "failing widgets.named.test.dev: look for widgets.named.test.dev: no server serves this resource")

	configMap := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "settings"},
		"data": map[string]any{"a": "b"},
	}}
	configMaps := c.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"})
	if _, err := configMaps.Namespace(ns).Create(t.Context(), configMap, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	told.wait(t, 0, "changed configmaps "+ns+"/settings")

	w := c.install("named.test.dev")
	told.wait(t, 0, "recovered "+w.name())
	w.create(ns, "a")
	told.wait(t, 0, "changed "+w.key(ns, "a").String())
	if got := told.all("failing widgets.named"); len(got) != 1 {
		t.Errorf("a resource that is not served is told %d times: %q", len(got), got)
	}
}

func TestUnavailableAggregatedAPI(t *testing.T) {
	server := kubetest.New(t, kubetest.Options{})
	c := connect(t, server.Config)
	services := c.client.Resource(schema.GroupVersionResource{
		Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices",
	})
	service := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": "v1.aggregated.test.dev"},
		"spec": map[string]any{
			"group": "aggregated.test.dev", "version": "v1", "insecureSkipTLSVerify": true,
			"groupPriorityMinimum": int64(100), "versionPriority": int64(10),
			"service": map[string]any{"name": "nobody", "namespace": "default"},
		},
	}}
	if _, err := services.Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	told := newRecorder()
	run(t, options(server.Config, selecting(t, "things.aggregated.test.dev", "configmaps"), told))
	told.wait(t, 0, "failing things.aggregated.test.dev")
	told.wait(t, 0, "listed configmaps")
}

func TestCRDsAndNamespacesIncluded(t *testing.T) {
	server := kubetest.Shared(t)
	c := connect(t, server.Config)
	in, out := c.install("included.test.dev"), c.install("other.test.dev")
	told := newRecorder()
	o := options(server.Config, selecting(t, in.name()), told)
	o.IncludeCRDs, o.IncludeNamespaces = true, true
	fleet := run(t, o)
	told.wait(t, 0, "changed customresourcedefinitions.apiextensions.k8s.io "+in.name())
	told.wait(t, 0, "unselected customresourcedefinitions.apiextensions.k8s.io "+out.name())
	told.wait(t, 0, "changed namespaces kube-system")
	mark := told.mark()
	ns := server.Namespace(t)
	told.wait(t, mark, "changed namespaces "+ns)

	uid, err := fleet.ClusterUID(t.Context())
	if want := string(told.state(kube.Key{Resource: "namespaces", Name: "kube-system"}).UID); err != nil || uid != want {
		t.Errorf("ClusterUID = %q, %v; want %q", uid, err, want)
	}
	for _, resource := range []schema.GroupResource{
		{Resource: "namespaces"}, {Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
	} {
		if err := fleet.Proven(t.Context(), resource); err != nil {
			t.Errorf("Proven %s: %v", resource, err)
		}
	}
}
