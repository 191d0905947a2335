package kubetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/crmirror/crmirror/kube"
)

const loadGroup = "load.kubetest.example.dev"

const loadCRDs = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.load.kubetest.example.dev, uid: stale, resourceVersion: "1"}
spec:
  group: load.kubetest.example.dev
  names: {plural: things, singular: thing, kind: Thing, listKind: ThingList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {size: {type: integer, maximum: 10}}
          status:
            type: object
            x-kubernetes-preserve-unknown-fields: true
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: worlds.load.kubetest.example.dev}
spec:
  group: load.kubetest.example.dev
  names: {plural: worlds, singular: world, kind: World, listKind: WorldList}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

const loadObjects = `
apiVersion: load.kubetest.example.dev/v1
kind: Thing
metadata:
  name: child
  ownerReferences: [{apiVersion: load.kubetest.example.dev/v1, kind: Thing, name: parent}]
---
# a comment, then an empty document
---
apiVersion: load.kubetest.example.dev/v1
kind: Thing
metadata:
  name: parent
  uid: 00000000-0000-0000-0000-000000000000
  resourceVersion: "77"
  ownerReferences: [{apiVersion: load.kubetest.example.dev/v1, kind: World, name: earth}]
status: {phase: Ready}
---
apiVersion: load.kubetest.example.dev/v1
kind: Thing
metadata: {name: parent, namespace: default}
spec: {size: 2}
---
apiVersion: load.kubetest.example.dev/v1
kind: Thing
metadata: {generateName: some-, namespace: load-elsewhere}
---
apiVersion: load.kubetest.example.dev/v1
kind: Thing
metadata: {name: large}
spec: {size: 11}
---
apiVersion: v1
kind: List
items:
- {apiVersion: load.kubetest.example.dev/v1, kind: World, metadata: {name: earth, namespace: nowhere}}
- {apiVersion: load.kubetest.example.dev/v1, kind: World, metadata: {name: earth}}
---
apiVersion: load.kubetest.example.dev/v9
kind: Thing
metadata: {name: unknown-version}
---
kind: [not, an, object]
`

func TestLoad(t *testing.T) {
	cluster := Shared(t)
	dir := t.TempDir()
	for name, content := range map[string]string{"crds.yaml": loadCRDs, "objects.yml": loadObjects, "README.md": "no: manifest"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	report, err := Load(t.Context(), cluster.Config, dir)
	if err != nil {
		t.Fatal(err)
	}

	var got []kube.Key
	for _, loaded := range report.Objects {
		got = append(got, loaded.Key)
	}
	generated := "some-"
	if len(got) > 3 {
		generated = got[3].Name
	}
	thing := func(namespace, name string) kube.Key {
		return kube.Key{Group: loadGroup, Resource: "things", Namespace: namespace, Name: name}
	}
	want := []kube.Key{
		thing("default", "child"),
		thing("default", "parent"),
		thing("default-2", "parent"),
		thing("load-elsewhere", generated),
		{Group: loadGroup, Resource: "worlds", Name: "earth"},
		{Group: loadGroup, Resource: "worlds", Name: "earth-2"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("loaded objects (-want +got):\n%s", diff)
	}
	if len(generated) != len("some-")+10 {
		t.Errorf("generated name: got %q, want some- and ten digits", generated)
	}
	if report.CRDs != 2 {
		t.Errorf("CRDs: got %d, want 2", report.CRDs)
	}
	checkRefused(t, report.Refused, "Thing large", "Thing unknown-version", "")

	parent := get(t, cluster, "things", "default", "parent")
	if phase, _, _ := unstructured.NestedString(parent.Object, "status", "phase"); phase != "Ready" {
		t.Errorf("status of parent: got phase %q, want Ready", phase)
	}
	child := get(t, cluster, "things", "default", "child")
	if owners := child.GetOwnerReferences(); len(owners) != 1 || owners[0].UID != parent.GetUID() {
		t.Errorf("owner of child: got %v, want the uid %s of parent", owners, parent.GetUID())
	}

	// Again on the same cluster: everything is taken, and still gets in.
	again, err := Load(t.Context(), cluster.Config, dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(again.Objects) != len(want) || again.CRDs != 2 {
		t.Errorf("loaded again: got %d CRDs and %d objects, want 2 and %d; refused: %v",
			again.CRDs, len(again.Objects), len(want), again.Refused)
	}
}

// checkRefused compares the refused objects, in any order.
func checkRefused(t *testing.T, refused []Refusal, want ...string) {
	t.Helper()
	got := make(map[string]bool)
	for _, refusal := range refused {
		got[strings.TrimSpace(refusal.Object)] = true
	}
	if len(refused) != len(want) {
		t.Errorf("refused: got %d, want %d: %v", len(refused), len(want), refused)
	}
	for _, object := range want {
		if !got[object] {
			t.Errorf("refused: got %v, want also %q", refused, object)
		}
	}
}

func get(t *testing.T, cluster *Cluster, resource, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	client, err := dynamic.NewForConfig(cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	gvr := schema.GroupVersionResource{Group: loadGroup, Version: "v1", Resource: resource}
	object, err := client.Resource(gvr).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return object
}
