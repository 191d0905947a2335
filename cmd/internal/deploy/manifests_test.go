package deploy

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/crmirror/crmirror/cmd/internal/config"
	"github.com/crmirror/crmirror/kube/kubetest"
)

const namespace = "crmirror"

// Every manifest of the agent is listed, but for the kustomization and the example.
func TestAgentListsItsManifests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(world.deploy, "agent", "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	listed, _, err := unstructured.NestedStringSlice(parse(t, text)[0].Object, "resources")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(world.deploy, "agent", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, file := range files {
		if name := filepath.Base(file); name != "kustomization.yaml" && name != "secret.example.yaml" {
			want = append(want, name)
		}
	}
	if slices.Sort(listed); !slices.Equal(listed, want) {
		t.Errorf("resources of the kustomization: got %q, want %q", listed, want)
	}
}

// What is rendered is taken by a real server, unknown fields refused; its
// configuration is one, its pod may run where only restricted ones may, and its rights
// are what crmirror rbac prints for its configuration.
func TestRendered(t *testing.T) {
	monitoring(t)
	full := filepath.Join(world.root, "cmd", "internal", "deploy", "testdata", "full-values.yaml")
	for _, tt := range []struct {
		name      string
		namespace string
		args      []string
	}{
		{"base", namespace, []string{"kustomize", "base"}},
		{"two-way", namespace, []string{"kustomize", "two-way"}},
		{"monitored", namespace, []string{"kustomize", overlay(t, "components: [../components/monitoring]")}},
		{"chart", "other", []string{"helm", "chart/crmirror", "crmirror", "other"}},
		{"chart with everything", "full", []string{"helm", "chart/crmirror", "backup", "full", full}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			objects := objectsOf(t, world.render, tt.args...)
			if tt.args[0] == "helm" {
				objects = append(restricted(tt.namespace), objects...)
			}
			put(t, objects)
			secret := read(t, "agent", "secret.example.yaml")
			secret.SetNamespace(tt.namespace)
			put(t, []*unstructured.Unstructured{secret})
			checkConfig(t, objects)
			checkPod(t, objects)
		})
	}
}

// overlay makes a folder beside the base that holds a kustomization of it and more.
func overlay(t *testing.T, more string) string {
	t.Helper()
	dir, err := os.MkdirTemp(world.deploy, "overlay-")
	if err != nil {
		t.Fatal(err)
	}
	content := "resources: [../base]\n" + more + "\n"
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return filepath.Base(dir)
}

// monitoring installs the kinds of the Prometheus operator.
func monitoring(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "monitoring.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, parse(t, text))
}

// restricted is a Namespace as a platform team makes it, for a chart does not.
func restricted(name string) []*unstructured.Unstructured {
	return []*unstructured.Unstructured{{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"pod-security.kubernetes.io/enforce": "restricted"}},
	}}}
}

// read reads a file of the folder deploy that holds one object.
func read(t *testing.T, elements ...string) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{world.deploy}, elements...)...))
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, text)[0]
}

// find returns the object of a kind.
func find(t *testing.T, objects []*unstructured.Unstructured, kind string) *unstructured.Unstructured {
	t.Helper()
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind })
	if i < 0 {
		t.Fatalf("no %s is rendered", kind)
	}
	return objects[i]
}

func configText(t *testing.T, objects []*unstructured.Unstructured) string {
	t.Helper()
	text, _, err := unstructured.NestedString(find(t, objects, "ConfigMap").Object, "data", "config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// configFile writes the rendered configuration to a file.
func configFile(t *testing.T, objects []*unstructured.Unstructured) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(configText(t, objects)), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func checkConfig(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	file := configFile(t, objects)
	if _, err := config.Load(file, nil, nil); err != nil {
		t.Error(err)
	}
	account := find(t, objects, "ServiceAccount")
	wanted := objectsOf(t, world.crmirror, "rbac", "--config", file, "--wildcard", "--namespace", account.GetNamespace(), "--name", account.GetName())
	if d := difference(t, rightsOf(t, wanted), rightsOf(t, objects)); d != "" {
		t.Errorf("rights (- crmirror rbac --wildcard, + rendered):\n%s", d)
	}
}

// checkPod creates the Deployment's pod, which no controller does here.
func checkPod(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	client, err := kubernetes.NewForConfig(world.cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	deployment := find(t, objects, "Deployment")
	template, _, err := unstructured.NestedMap(deployment.Object, "spec", "template")
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(template, pod); err != nil {
		t.Fatal(err)
	}
	pod.GenerateName = "agent-"
	in := client.CoreV1().Pods(deployment.GetNamespace())
	kubetest.Poll(t.Context(), t, patience, "the pod to be admitted", func(ctx context.Context) error {
		_, err := in.Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	pod.Spec.SecurityContext = nil // the check above can fail
	if _, err := in.Create(t.Context(), pod, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("create a pod that is not restricted: got %v, want forbidden", err)
	}
}
