package main_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/crmirror/crmirror/gitstore/gittest"
)

// scene is a repository that is written by hand, and the lab's second cluster, into which it is restored. It has a
// group of its own, NAME.example.dev, and a namespace called NAME.
type scene struct {
	*disaster
	group, namespace string
}

func newScene(t *testing.T, name string) *scene {
	t.Helper()
	u := newUser(t).onCluster(1)
	s := &scene{
		disaster: &disaster{t: t, u: u, repo: u.path("backup"), cluster: world.lab.Clusters[1], client: client(t, 1)},
		group:    name + ".example.dev", namespace: name,
	}
	gittest.Git(t, u.home, "init", "--quiet", "--initial-branch", "main", s.repo)
	s.space(name)
	return s
}

func (s *scene) write(path, content string) {
	s.t.Helper()
	gittest.WriteFile(s.t, s.repo, path, content)
}

// space puts a Namespace into the repository, as a mirror would write it.
func (s *scene) space(name string) {
	s.t.Helper()
	s.write("cluster/namespaces/"+name+".yaml", "apiVersion: v1\nkind: Namespace\nmetadata:\n"+
		"  labels:\n    kubernetes.io/metadata.name: "+name+"\n  name: "+name+"\nspec:\n  finalizers:\n  - kubernetes\n")
}

// kind puts a CRD into the repository: Widget as widgets, say. Its first version is the one that is stored.
func (s *scene) kind(kind string, versions ...string) {
	s.t.Helper()
	s.write("cluster/customresourcedefinitions.apiextensions.k8s.io/"+s.plural(kind)+"."+s.group+".yaml",
		s.definition(kind, versions...))
}

func (s *scene) plural(kind string) string { return strings.ToLower(kind) + "s" }

// definition is a CRD with everything that a server would add.
func (s *scene) definition(kind string, versions ...string) string {
	text := fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: %[2]s.%[3]s
spec:
  conversion:
    strategy: None
  group: %[3]s
  names: {kind: %[1]s, listKind: %[1]sList, plural: %[2]s, singular: %[4]s}
  scope: Namespaced
  versions:
`, kind, s.plural(kind), s.group, strings.ToLower(kind))
	for i, version := range versions {
		text += fmt.Sprintf(`  - name: %s
    served: true
    storage: %t
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {size: {type: integer}, color: {type: string}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`, version, i == 0)
	}
	return text
}

// object puts an object of version v1 into the repository. more are further lines of its metadata and after; lines of
// metadata are indented by two.
func (s *scene) object(namespace, kind, name, more string) {
	s.t.Helper()
	s.write(s.file(namespace, kind, name), fmt.Sprintf(
		"apiVersion: %s/v1\nkind: %s\nmetadata:\n  name: %s\n  namespace: %s\n%s", s.group, kind, name, namespace, more))
}

func (s *scene) file(namespace, kind, name string) string {
	return "namespaces/" + namespace + "/" + s.plural(kind) + "." + s.group + "/" + name + ".yaml"
}

// commit commits what was written.
func (s *scene) commit() {
	s.t.Helper()
	gittest.Git(s.t, s.repo, "add", "--all")
	gittest.Git(s.t, s.repo, "commit", "--quiet", "--message", "Write by hand")
}

// in is where the objects of a kind are in the cluster.
func (s *scene) in(namespace, kind string) dynamic.ResourceInterface {
	return s.client.Resource(schema.GroupVersionResource{Group: s.group, Version: "v1", Resource: s.plural(kind)}).Namespace(namespace)
}

func (s *scene) get(namespace, kind, name string) *unstructured.Unstructured {
	s.t.Helper()
	obj, err := s.in(namespace, kind).Get(s.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return obj
}

// wantMissing checks that the cluster has no such object.
func (s *scene) wantMissing(namespace, kind, name string) {
	s.t.Helper()
	if _, err := s.in(namespace, kind).Get(s.t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		s.t.Errorf("%s %s/%s: got %v, want that there is none", kind, namespace, name, err)
	}
}

// install creates the CRD of such a text in the cluster, and waits until it is served.
func (s *scene) install(kind, text string) {
	s.t.Helper()
	s.create(crds, "", text)
	eventually(s.t, kind+" to be served", func() error {
		_, err := s.in(s.namespace, kind).List(s.t.Context(), metav1.ListOptions{})
		return err
	})
}

// create creates the object of a text in the cluster.
func (s *scene) create(resource schema.GroupVersionResource, namespace, text string) {
	s.t.Helper()
	obj := &unstructured.Unstructured{}
	err := yaml.Unmarshal([]byte(text), &obj.Object)
	if err == nil {
		_, err = s.client.Resource(resource).Namespace(namespace).Create(s.t.Context(), obj, metav1.CreateOptions{FieldManager: "a-person"})
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// parse reads what restore or verify reported as JSON.
func (d *disaster) parse(r result, code int) restored {
	d.t.Helper()
	var report restored
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil || r.code != code {
		d.t.Fatalf("got %v\nwant exit code %d and a report (%v)", r, code, err)
	}
	return report
}

// outcome is what a report says of one object.
type outcome struct{ Object, File, Result, Reason string }

func (r restored) objects(t *testing.T) (objects []outcome) {
	t.Helper()
	if err := json.Unmarshal(r.Objects, &objects); err != nil {
		t.Fatal(err)
	}
	return objects
}

// result is what became of an object, named "widgets.example.dev namespace/name"; "" if the report does not have it.
func (r restored) result(t *testing.T, object string) string {
	t.Helper()
	for _, o := range r.objects(t) {
		if o.Object == object {
			return o.Result
		}
	}
	return ""
}

// wantTold checks that each text stands in a report.
func wantTold(t *testing.T, report string, want ...string) {
	t.Helper()
	for _, text := range want {
		if !strings.Contains(report, text) {
			t.Errorf("got %s\nwant %q in it", report, text)
		}
	}
}
