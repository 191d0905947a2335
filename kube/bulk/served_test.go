package bulk_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/bulk"
	"github.com/crmirror/crmirror/kube/kubetest"
)

func TestDiscover(t *testing.T) {
	w := install(t, "discover")
	var served *bulk.Served
	poll(t, "discovery of the kind", func(ctx context.Context) (err error) {
		served, err = w.client.Discover(ctx)
		if err == nil && len(served.Kinds[w.resource().GroupResource()].Versions) != 2 {
			err = errors.New("not yet")
		}
		return err
	})
	k, _ := served.Resource(w.resource().GroupResource())
	verbs := []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
	want := bulk.Kind{Resource: w.resource().GroupResource(), Kind: "Widget", Namespaced: true, Versions: []bulk.Version{
		{Name: "v1", Status: true, Verbs: verbs}, {Name: "v1beta1", Status: true, Verbs: verbs},
	}}
	if diff := cmp.Diff(want, k); diff != "" || k.Preferred() != w.resource() {
		t.Errorf("preferred %s (-want +got):\n%s", k.Preferred(), diff)
	}
	for _, test := range []struct {
		kind       schema.GroupVersionKind
		want       string
		namespaced bool
	}{
		{schema.GroupVersionKind{Group: w.group, Version: "v1beta1", Kind: "Widget"}, "widgets", true},
		{schema.GroupVersionKind{Group: w.group, Version: "v2", Kind: "Widget"}, "", false},
		{schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, "namespaces", false},
		{schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, "deployments", true},
		{schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}, "", false}, // only subresources
	} {
		got, namespaced, ok := served.ByKind(test.kind)
		if got.Resource != test.want || namespaced != test.namespaced || ok != (test.want != "") || ok && got.GroupVersion() != test.kind.GroupVersion() {
			t.Errorf("%s: %s, %v, %v", test.kind, got, namespaced, ok)
		}
	}
	if len(served.Failed) > 0 {
		t.Errorf("failed: %v", served.Failed)
	}
}

// TestDiscoverDead has an aggregated API that nobody serves: it is named, and the rest is there.
func TestDiscoverDead(t *testing.T) {
	server := kubetest.New(t, kubetest.Options{}) // discovery is the whole server's
	w := connect(t, server, "dead")
	services := schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	dead := schema.GroupVersion{Group: "dead.example.com", Version: "v1"}
	_, err := w.client.Create(t.Context(), services, map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1.dead.example.com"},
		"spec": map[string]any{
			"group": dead.Group, "version": dead.Version, "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
			"insecureSkipTLSVerify": true, "service": map[string]any{"namespace": "default", "name": "nobody"},
		},
	}, false)
	if err != nil {
		t.Fatal(err)
	}
	var served *bulk.Served
	poll(t, "the dead API to be noticed", func(ctx context.Context) (err error) {
		if served, err = w.client.Discover(ctx); err == nil && served.Failed[dead] == nil {
			err = errors.New("not yet")
		}
		return err
	})
	if len(served.Failed) != 1 {
		t.Errorf("failed: %v", served.Failed)
	}
	if _, ok := served.Resource(schema.GroupResource{Group: "apps", Resource: "deployments"}); !ok {
		t.Error("the rest is not there")
	}
}

func TestClusterUID(t *testing.T) {
	w := connect(t, kubetest.Shared(t), "uid")
	want, err := w.typed().CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := w.client.ClusterUID(t.Context()); err != nil || got != string(want.UID) {
		t.Errorf("got %q, %v; want %q", got, err, want.UID)
	}
}

func TestAllowed(t *testing.T) {
	w := connect(t, kubetest.Shared(t), "allowed")
	user := "user-" + w.namespace
	config, _, err := kubetest.Shared(t).User(user)
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"g"}, Resources: []string{"widgets"}, Verbs: []string{"create"}},
		{APIGroups: []string{"g"}, Resources: []string{"widgets/status"}, Verbs: []string{"update"}},
	}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "r"}, RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "r"},
		Subjects: []rbacv1.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "User", Name: user}},
	}
	if _, err := w.typed().RbacV1().Roles(w.namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.typed().RbacV1().RoleBindings(w.namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	widgets := schema.GroupResource{Group: "g", Resource: "widgets"}
	accesses := []bulk.Access{
		{Verb: "create", Resource: widgets, Namespace: w.namespace},
		{Verb: "update", Resource: widgets, Namespace: w.namespace},
		{Verb: "update", Resource: widgets, Subresource: "status", Namespace: w.namespace},
		{Verb: "create", Resource: widgets},
		{Verb: "create", Resource: widgets, Namespace: "default"},
	}
	want := []bool{true, false, true, false, false}
	client := newClient(t, config, bulk.Options{})
	poll(t, "the role", func(ctx context.Context) error {
		permissions, err := client.Allowed(ctx, accesses)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]bool, len(permissions))
		for i, p := range permissions {
			got[i] = p.Allowed
		}
		if !slices.Equal(got, want) || !strings.Contains(permissions[0].Reason, "RBAC") {
			return errors.New("got " + cmp.Diff(want, got))
		}
		return nil
	})
}

func TestEndpoints(t *testing.T) {
	w := connect(t, kubetest.Shared(t), "endpoints")
	at := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}}
	}
	yes, no := true, false
	for name, endpoints := range map[string][]discoveryv1.Endpoint{
		"none": nil, "unready": {{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &no}}},
		"ready": {
			{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &no}},
			{Addresses: []string{"10.0.0.2"}, Conditions: discoveryv1.EndpointConditions{Ready: &yes}},
		},
		"unsaid": {{Addresses: []string{"10.0.0.1"}}},
	} {
		service := &corev1.Service{ObjectMeta: at(name), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}}}
		if _, err := w.typed().CoreV1().Services(w.namespace).Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		slice := &discoveryv1.EndpointSlice{ObjectMeta: at(name), AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints}
		if _, err := w.typed().DiscoveryV1().EndpointSlices(w.namespace).Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	outside := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "outside"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}}
	if _, err := w.typed().CoreV1().Services(w.namespace).Create(t.Context(), outside, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"missing": false, "none": false, "unready": false, "ready": true, "unsaid": true, "outside": true} {
		got, err := w.client.Endpoints(t.Context(), types.NamespacedName{Namespace: w.namespace, Name: name})
		if err != nil || got != want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// gadgets is a CRD of one version.
func (w *widgets) gadgets(plural, kind string) map[string]any {
	return map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": plural + "." + w.group},
		"spec": map[string]any{
			"group": w.group, "scope": "Cluster", "names": map[string]any{"plural": plural, "kind": kind},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}
}

func (w *widgets) crds() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

// TestWaitServed waits for a CRD just created, and writes an object as soon as that may be.
func TestWaitServed(t *testing.T) {
	w := connect(t, kubetest.Shared(t), "wait")
	if _, err := w.client.Create(t.Context(), w.crds(), w.gadgets("gadgets", "Gadget"), false); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	gadgets := schema.GroupVersionResource{Group: w.group, Version: "v1", Resource: "gadgets"}
	if err := w.client.WaitServed(ctx, "gadgets."+w.group, []schema.GroupVersionResource{gadgets}); err != nil {
		t.Fatal(err)
	}
	obj := map[string]any{"apiVersion": w.group + "/v1", "kind": "Gadget", "metadata": map[string]any{"name": "a"}}
	poll(t, "the first write", func(ctx context.Context) error {
		_, err := w.client.Create(ctx, gadgets, obj, false)
		if r := (*apply.Rejected)(nil); err != nil && (!errors.As(err, &r) || r.Verdict != apply.NoKind || !r.Retry) {
			t.Fatalf("the first write: %v", err) // what an executor would not try again
		}
		return err
	})
	// Served at once, the second time.
	if err := w.client.WaitServed(ctx, "gadgets."+w.group, []schema.GroupVersionResource{gadgets}); err != nil {
		t.Fatal(err)
	}
}

// TestWaitServedNever waits for what does not come: it ends at the deadline, or at once where waiting is in vain.
func TestWaitServedNever(t *testing.T) {
	w := connect(t, kubetest.Shared(t), "never")
	wait := func(crd string, timeout time.Duration, want ...schema.GroupVersionResource) error {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		return w.client.WaitServed(ctx, crd, want)
	}
	if err := wait("nothings."+w.group, patience); !errors.Is(err, apply.ErrNotFound) {
		t.Errorf("no CRD: %v", err)
	}
	if _, err := w.client.Create(t.Context(), w.crds(), w.gadgets("gadgets", "Gadget"), false); err != nil {
		t.Fatal(err)
	}
	if err := wait("gadgets."+w.group, patience, schema.GroupVersionResource{Group: w.group, Version: "v1", Resource: "gadgets"}); err != nil {
		t.Fatal(err)
	}
	v2 := schema.GroupVersionResource{Group: w.group, Version: "v2", Resource: "gadgets"}
	if err := wait("gadgets."+w.group, time.Second, v2); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "is not served at v2") {
		t.Errorf("another version: %v", err)
	}
	if _, err := w.client.Create(t.Context(), w.crds(), w.gadgets("gizmos", "Gadget"), false); err != nil {
		t.Fatal(err)
	}
	var r *apply.Rejected
	if err := wait("gizmos."+w.group, patience); !errors.As(err, &r) || r.Retry || !strings.Contains(r.Message, "names are not accepted") {
		t.Errorf("the kind of another: %v", err)
	}
	finalize := func(finalizers ...string) { // again as long as the server writes conditions
		poll(t, "its finalizers", func(ctx context.Context) error {
			live, err := w.client.Get(ctx, w.crds(), "", "gizmos."+w.group)
			if err != nil {
				return err
			}
			live.SetFinalizers(finalizers)
			_, err = w.client.Replace(ctx, w.crds(), live.Object, false)
			return err
		})
	}
	finalize("crmirror.dev/test")
	if err := w.dynamic.Resource(w.crds()).Delete(t.Context(), "gizmos."+w.group, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := wait("gizmos."+w.group, patience); !errors.As(err, &r) || r.Retry || r.Verdict != apply.Terminating {
		t.Errorf("being deleted: %v", err)
	}
	finalize()
}
