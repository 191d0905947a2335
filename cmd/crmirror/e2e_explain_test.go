package main_test

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var configmaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// newConfigMaps creates ConfigMaps in a Namespace of the first cluster, which goes with the test.
func newConfigMaps(t *testing.T, namespace string, names ...string) {
	t.Helper()
	c := client(t, 0)
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}}}
	if _, err := c.Resource(namespaces).Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		obj := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": namespace},
			"data": map[string]any{"size": "1", "seen": "planted-value", "password": "planted-value"},
		}}
		if _, err := c.Resource(configmaps).Namespace(namespace).Create(t.Context(), obj, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestExplain asks about objects that a rule governs, that one excludes, that none selects, and that are gone.
func TestExplain(t *testing.T) {
	t.Parallel()
	newConfigMaps(t, "explain", "a", "b", "other")
	u := newUser(t)
	u.file("key", "0123456789abcdef0123456789abcdef\n")
	cfg := u.file("crmirror.yaml", `apiVersion: crmirror.dev/v1alpha1
kind: Config
cluster: e2e
repository: {url: `+u.path("repo")+`}
select:
- resources: [configmaps]
  namespaces: [explain]
  names: [a, b]
  drop:
  - .data.seen
  redact: [.data.password]
redaction: {keyFile: `+u.path("key")+`}
exclude:
- resources: [configmaps]
  names: [b]
`)
	u.succeed("backup", "--config", cfg)
	explain := func(name string) string {
		t.Helper()
		text := u.succeed("explain", "configmaps", name, "-n", "explain", "--config", cfg).stdout
		if strings.Contains(text, "planted-value") {
			t.Errorf("explain shows a value:\n%s", text)
		}
		return strings.Join(strings.Fields(text), " ")
	}
	want := func(got string, texts ...string) {
		t.Helper()
		for _, text := range texts {
			if !strings.Contains(got, text) {
				t.Errorf("got %s\nwant %q in it", got, text)
			}
		}
	}
	file := "File: namespaces/explain/configmaps/"
	want(explain("a"), "Rule: governed by select[0] ("+cfg+":6)", file+"a.yaml State: git has it as the cluster does",
		".data stored as it is", ".data.seen dropped left out by select[0].drop[0] ("+cfg+":10)",
		".data.password redacted a digest takes its place, by select[0].redact[0] ("+cfg+":11)",
		".metadata.resourceVersion server-set left out: the server sets it")
	want(explain("b"), "Rule: left out by exclude[0] ("+cfg+":14)", file+"b.yaml (not there) State: only the cluster has it")
	want(explain("other"), "Rule: no select rule matches", "only the cluster has it")

	c := client(t, 0).Resource(configmaps).Namespace("explain")
	a, err := c.Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_ = unstructured.SetNestedField(a.Object, "2", "data", "size")
	if _, err := c.Update(t.Context(), a, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	want(explain("a"), "git and the cluster differ in data.size")
	if err := c.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	want(explain("a"), "governed by select[0]", "State: only git has it")

	var x struct {
		Selected, InGit, InCluster bool
		State                      string
	}
	out := u.succeed("explain", "configmaps", "a", "-n", "explain", "--config", cfg, "-o", "json").stdout
	if err := json.Unmarshal([]byte(out), &x); err != nil || !x.Selected || !x.InGit || x.InCluster || x.State != "only in git" {
		t.Errorf("got %+v of %s (%v)", x, out, err)
	}
	u.run("explain", "configmap", "a", "-n", "explain", "--config", cfg).wantFailure(t, 2, `did you mean "configmaps"?`)
	u.run("explain", "configmaps", "a", "--config", cfg).wantFailure(t, 2, "add -n NAMESPACE")
	u.run("explain", "configmaps", "nothing", "-n", "explain", "--config", cfg).wantFailure(t, 1, "neither the cluster nor", "crmirror log --deleted")
}
