// Package deploy holds the tests of the manifests in the folder deploy: a real
// API server takes them, and what they grant is what the agent needs.
package deploy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/crmirror/crmirror/cmd/internal/config"
	"github.com/crmirror/crmirror/kube/kubetest"
)

const namespace = "crmirror"

func TestMain(m *testing.M) { kubetest.Main(m) }

// base returns the folder of the kustomize base.
func base(t *testing.T) string {
	t.Helper()
	root, err := kubetest.Root()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "deploy", "base")
}

func TestKustomizationListsTheManifests(t *testing.T) {
	var kustomization struct{ Resources []string }
	read(t, "kustomization.yaml", &kustomization)
	files, err := filepath.Glob(filepath.Join(base(t), "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, file := range files {
		if name := filepath.Base(file); name != "kustomization.yaml" && name != "secret.example.yaml" {
			want = append(want, name)
		}
	}
	if got := slices.Sorted(slices.Values(kustomization.Resources)); !slices.Equal(got, want) {
		t.Errorf("resources of the kustomization: got %q, want %q", got, want)
	}
}

func TestConfigIsValid(t *testing.T) {
	var configMap corev1.ConfigMap
	read(t, "config.yaml", &configMap)
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(configMap.Data["config.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(file, nil, nil); err != nil {
		t.Error(err)
	}
}

// The API server takes all manifests; the agent's account may read what it needs
// and nothing else; its pod is allowed where only restricted ones are.
func TestManifestsOnAServer(t *testing.T) {
	cluster := kubetest.Shared(t)
	report, err := kubetest.Load(t.Context(), cluster.Config, base(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, refusal := range report.Refused {
		if !strings.HasPrefix(refusal.Object, "Kustomization") {
			t.Errorf("refused: %v", refusal)
		}
	}
	checkRights(t, cluster)
	checkPod(t, cluster)
	checkTwoWay(t, cluster)
}

// checkTwoWay: the role of mode two-way is taken, and lets the agent send events.
func checkTwoWay(t *testing.T, cluster *kubetest.Cluster) {
	t.Helper()
	report, err := kubetest.Load(t.Context(), cluster.Config, filepath.Join(filepath.Dir(base(t)), "two-way", "rbac.yaml"))
	if err != nil || len(report.Refused) > 0 {
		t.Fatalf("load the role of mode two-way: refused %v, %v", report, err)
	}
	agent, _, err := cluster.User("system:serviceaccount:crmirror:crmirror", "system:serviceaccounts", "system:authenticated")
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(agent)
	if err != nil {
		t.Fatal(err)
	}
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "crmirror-"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "cert-manager.io/v1", Kind: "Certificate", Namespace: namespace, Name: "web"},
		Reason:         "GitConflict",
	}
	if _, err := client.CoreV1().Events(namespace).Create(t.Context(), event, metav1.CreateOptions{}); err != nil {
		t.Errorf("create an event: %v", err)
	}
}

func checkRights(t *testing.T, cluster *kubetest.Cluster) {
	t.Helper()
	agent, _, err := cluster.User("system:serviceaccount:crmirror:crmirror", "system:serviceaccounts", "system:authenticated")
	if err != nil {
		t.Fatal(err)
	}
	crds, err := apiextensions.NewForConfig(agent)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(agent)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := crds.ApiextensionsV1().CustomResourceDefinitions().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("list CRDs: %v", err)
	}
	if _, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("list namespaces: %v", err)
	}
	if _, err := client.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list secrets: got %v, want forbidden", err)
	}
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	if _, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), configMap, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("create a config map: got %v, want forbidden", err)
	}
}

func checkPod(t *testing.T, cluster *kubetest.Cluster) {
	t.Helper()
	client, err := kubernetes.NewForConfig(cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	var deployment appsv1.Deployment
	read(t, "deployment.yaml", &deployment)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "agent", Labels: deployment.Spec.Template.Labels},
		Spec:       deployment.Spec.Template.Spec,
	}
	if _, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("create the agent's pod: %v", err)
	}
	pod.Spec.SecurityContext = nil // the check above can fail
	if _, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); !apierrors.IsForbidden(err) {
		t.Errorf("create a pod that is not restricted: got %v, want forbidden", err)
	}
}

func read(t *testing.T, name string, into any) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(base(t), name))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(content, into); err != nil {
		t.Fatalf("read %s: %v", name, err)
	}
}
