//go:build long

package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/crmirror/crmirror/cmd/internal/config"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/sync"
)

// soakKind is a resource that the soak works on.
type soakKind struct {
	gvr        schema.GroupVersionResource
	kind       string
	namespaced bool
}

func soakCR(plural, kind string, namespaced bool) soakKind {
	return soakKind{schema.GroupVersionResource{Group: "soak.example.dev", Version: "v1", Resource: plural}, kind, namespaced}
}

var (
	widgets    = soakCR("widgets", "Widget", true)
	gadgets    = soakCR("gadgets", "Gadget", true)
	regions    = soakCR("regions", "Region", false)
	visitors   = soakCR("visitors", "Visitor", true) // its CRD goes and comes back
	configMaps = soakKind{schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "ConfigMap", true}

	soakKinds      = []soakKind{widgets, gadgets, regions, visitors, configMaps}
	soakNamespaces = []string{"soak-a", "soak-b", "soak-c"}

	crdGVR       = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	namespaceGVR = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

const soakCRD = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.soak.example.dev}
spec:
  group: soak.example.dev
  scope: %[3]s
  names: {plural: %[1]s, singular: %[4]s, kind: %[2]s, listKind: %[2]sList}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
            status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

// soakCluster changes objects at random and knows what should be in git.
type soakCluster struct {
	t      *testing.T
	rng    *rand.Rand
	client dynamic.Interface
	rules  *kube.Rules

	operations int
	live       map[kube.Key]bool
	noVisitors bool              // their CRD is deleted
	hadNone    bool              // it was, once
	reborn     map[kube.Key]bool // what was created since
}

func newSoakCluster(t *testing.T, rng *rand.Rand, conn *rest.Config, configFile string) *soakCluster {
	t.Helper()
	cfg, err := config.Load(configFile, os.Environ(), nil)
	if err != nil {
		t.Fatal(err)
	}
	selection := cfg.Selection()
	rules, err := selection.Compile()
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(conn)
	if err != nil {
		t.Fatal(err)
	}
	c := &soakCluster{t: t, rng: rng, client: client, rules: rules, live: map[kube.Key]bool{}, reborn: map[kube.Key]bool{}}
	for _, name := range soakNamespaces {
		ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
		ns.SetName(name)
		c.do("create namespace", apierrors.IsAlreadyExists, func(ctx context.Context) error {
			_, err := client.Resource(namespaceGVR).Create(ctx, ns, metav1.CreateOptions{})
			return err
		})
	}
	for _, k := range soakKinds {
		if k != configMaps {
			c.createCRD(k)
		}
		for i := range 3 { // never deleted, so that no kind ever vanishes as a whole
			c.create(c.key(k, soakNamespaces[0], fmt.Sprintf("anchor-%d", i)))
		}
	}
	return c
}

// do runs a request until it succeeds or is refused in a way that means that it
// had succeeded before: after a restart of the API server, not everything is served at once.
func (c *soakCluster) do(what string, done func(error) bool, request func(context.Context) error) {
	c.t.Helper()
	var last error
	waitFor(c.t, time.Minute, func() string { return fmt.Sprintf("%s: %v", what, last) }, func(ctx context.Context) bool {
		last = request(ctx)
		return last == nil || done(last)
	})
}

func (c *soakCluster) createCRD(k soakKind) {
	c.t.Helper()
	scope := "Cluster"
	if k.namespaced {
		scope = "Namespaced"
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(fmt.Appendf(nil, soakCRD, k.gvr.Resource, k.kind, scope, strings.ToLower(k.kind)), crd); err != nil {
		c.t.Fatal(err)
	}
	// One of the same name may still be terminating.
	c.do("create CRD", func(error) bool { return false }, func(ctx context.Context) error {
		_, err := c.client.Resource(crdGVR).Create(ctx, crd, metav1.CreateOptions{})
		return err
	})
	if k == visitors {
		c.noVisitors = false
	}
}

// deleteCRD deletes the CRD of visitors, and with it all of them.
func (c *soakCluster) deleteCRD() {
	c.t.Helper()
	c.noVisitors, c.hadNone = true, true
	for key := range c.live {
		if key.Resource == visitors.gvr.Resource {
			delete(c.live, key)
		}
	}
	c.do("delete CRD", apierrors.IsNotFound, func(ctx context.Context) error {
		return c.client.Resource(crdGVR).Delete(ctx, visitors.gvr.GroupResource().String(), metav1.DeleteOptions{})
	})
}

func (c *soakCluster) key(k soakKind, namespace, name string) kube.Key {
	key := kube.Key{Group: k.gvr.Group, Resource: k.gvr.Resource, Name: name}
	if k.namespaced {
		key.Namespace = namespace
	}
	return key
}

func (c *soakCluster) on(key kube.Key) dynamic.ResourceInterface {
	r := c.client.Resource(key.GroupResource().WithVersion("v1"))
	if key.Namespace == "" {
		return r
	}
	return r.Namespace(key.Namespace)
}

// soakNames are names that paths have to escape or cut, beside ordinary ones.
func (c *soakCluster) name() string {
	special := []string{"kustomization", "con", "aux.d", "a.b-c.d", strings.Repeat("long", 63), strings.Repeat("long", 62) + "-x"}
	if c.rng.IntN(10) == 0 {
		return special[c.rng.IntN(len(special))]
	}
	return fmt.Sprintf("o-%02d", c.rng.IntN(40))
}

// operate makes one random change.
func (c *soakCluster) operate() {
	c.t.Helper()
	k := soakKinds[c.rng.IntN(len(soakKinds))]
	if k == visitors && c.noVisitors {
		k = widgets
	}
	// soak-c holds little, so that it is empty now and then and its Namespace's file goes.
	namespace := soakNamespaces[c.rng.IntN(2)]
	if c.rng.IntN(60) == 0 {
		namespace = soakNamespaces[2]
	}
	key := c.key(k, namespace, c.name())
	c.operations++
	switch n := c.rng.IntN(100); {
	case !c.live[key]:
		c.create(key)
	case n < 30 || n < 70 && namespace == soakNamespaces[2]:
		c.remove(key)
	case n < 36: // the same name, another object
		c.remove(key)
		c.create(key)
		c.operations++
	case n < 46 && k != configMaps:
		c.update(key, "", func(obj *unstructured.Unstructured) { // leaves the selection, or comes back
			if obj.GetLabels()["skip"] == "yes" {
				obj.SetLabels(map[string]string{"skip": "no"})
			} else {
				obj.SetLabels(map[string]string{"skip": "yes"})
			}
		})
	case n < 56 && k != configMaps: // nothing that git would show
		c.update(key, "status", func(obj *unstructured.Unstructured) { obj.Object["status"] = c.fields(k) })
	default:
		c.update(key, "", func(obj *unstructured.Unstructured) { c.fill(obj, k) })
	}
}

// touch changes an object that is always there and always selected.
func (c *soakCluster) touch() {
	c.t.Helper()
	c.update(c.key(widgets, soakNamespaces[0], "anchor-0"), "", func(obj *unstructured.Unstructured) {
		obj.Object["spec"] = map[string]any{"touched": time.Now().Format(time.RFC3339Nano)}
	})
}

func kindOf(key kube.Key) soakKind {
	return soakKinds[slices.IndexFunc(soakKinds, func(k soakKind) bool { return k.gvr.GroupResource() == key.GroupResource() })]
}

func (c *soakCluster) create(key kube.Key) {
	c.t.Helper()
	k := kindOf(key)
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetGroupVersionKind(k.gvr.GroupVersion().WithKind(k.kind))
	obj.SetNamespace(key.Namespace)
	obj.SetName(key.Name)
	c.fill(obj, k)
	c.do("create "+key.String(), apierrors.IsAlreadyExists, func(ctx context.Context) error {
		_, err := c.on(key).Create(ctx, obj, metav1.CreateOptions{})
		return err
	})
	c.live[key] = true
	if c.hadNone {
		c.reborn[key] = true
	}
}

func (c *soakCluster) remove(key kube.Key) {
	c.t.Helper()
	c.do("delete "+key.String(), apierrors.IsNotFound, func(ctx context.Context) error {
		return c.on(key).Delete(ctx, key.Name, metav1.DeleteOptions{})
	})
	delete(c.live, key)
}

func (c *soakCluster) update(key kube.Key, subresource string, change func(*unstructured.Unstructured)) {
	c.t.Helper()
	var subresources []string
	if subresource != "" {
		subresources = append(subresources, subresource)
	}
	changed := false
	c.do("update "+key.String(), func(error) bool { return false }, func(ctx context.Context) error {
		obj, err := c.on(key).Get(ctx, key.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !changed { // draw once, however often the request is tried
			change(obj)
			changed = true
		} else {
			return nil // it was taken, though the answer got lost, or it is one change less
		}
		_, err = c.on(key).Update(ctx, obj, metav1.UpdateOptions{}, subresources...)
		return err
	})
}

func (c *soakCluster) fill(obj *unstructured.Unstructured, k soakKind) {
	if k == configMaps {
		data := map[string]any{}
		for name, value := range c.fields(k) {
			data[name] = fmt.Sprint(value)
		}
		obj.Object["data"] = data
		return
	}
	spec := c.fields(k)
	if c.rng.IntN(2) == 0 {
		spec["noise"] = int64(c.rng.IntN(1000))
	}
	obj.Object["spec"] = spec
}

// fields are values that a careless encoder would change.
func (c *soakCluster) fields(soakKind) map[string]any {
	values := []any{
		"yes", "null", "0x1F", "1e3", "2026-11-30", "", " leading", "trailing ", "a: b # c", "- x", "é☃\u2028", "tab\tand\x07bell",
		"line one\nline two\n", "no end\n  indented\n\n\nmore", strings.Repeat("long text ", 30), "{json: [1]}", "<<", "~",
		int64(9007199254740993), int64(-1), 1.5, true,
		map[string]any{}, []any{}, []any{"a", int64(1), map[string]any{"<<": "merge"}}, map[string]any{"a.b/c": "d", "y": "n"},
	}
	fields := map[string]any{"serial": int64(c.rng.IntN(1_000_000_000))}
	for range c.rng.IntN(6) {
		fields[fmt.Sprintf("field%d", c.rng.IntN(10))] = values[c.rng.IntN(len(values))]
	}
	return fields
}

// files returns what has to lie in git now, path → content.
func (c *soakCluster) files() map[string][]byte {
	c.t.Helper()
	files := map[string][]byte{}
	add := func(key kube.Key, obj *unstructured.Unstructured, shape *kube.Shape) {
		content, err := kube.Encode(obj, shape)
		if err != nil {
			c.t.Fatalf("encode %s: %v", key, err)
		}
		files[sync.PathOf(key)] = content
	}
	inhabited := map[string]bool{}
	for _, k := range soakKinds {
		rules, _ := c.rules.Resource(k.gvr.GroupResource(), k != configMaps)
		for _, obj := range c.list(k.gvr) {
			rule, ok := rules.Governs(&obj)
			if !ok {
				continue
			}
			add(c.key(k, obj.GetNamespace(), obj.GetName()), &obj, &rule.Shape)
			inhabited[obj.GetNamespace()] = true
		}
	}
	for _, crd := range c.list(crdGVR) {
		add(kube.Key{Group: crdGVR.Group, Resource: crdGVR.Resource, Name: crd.GetName()}, &crd, nil)
	}
	for _, ns := range c.list(namespaceGVR) {
		if inhabited[ns.GetName()] {
			add(kube.Key{Resource: namespaceGVR.Resource, Name: ns.GetName()}, &ns, nil)
		}
	}
	return files
}

// list returns all objects of a resource; none when it is not served.
func (c *soakCluster) list(gvr schema.GroupVersionResource) (items []unstructured.Unstructured) {
	c.t.Helper()
	c.do("list "+gvr.Resource, apierrors.IsNotFound, func(ctx context.Context) error {
		list, err := c.client.Resource(gvr).List(ctx, metav1.ListOptions{})
		if err == nil {
			items = list.Items
		}
		return err
	})
	return items
}
