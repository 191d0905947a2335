package deploy

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
)

// withKubectl says that there is a kubectl, for the commands that need one.
var withKubectl = flag.Bool("kubectl", false, "run the commands of deploy/README.md that need kubectl, too")

// The commands of deploy/README.md that need no container engine do what they say, one
// after the other, and what they make is taken by a server.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(world.deploy, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```sh (run|kubectl)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 4 {
		t.Errorf("deploy/README.md has %d blocks that are to be run, want 4", len(blocks))
	}
	secret := read(t, "agent", "secret.example.yaml")
	drop(t, secret) // another test may have made it
	for _, block := range blocks {
		if block[1] == "kubectl" && !*withKubectl {
			continue
		}
		shell := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", block[2])
		shell.Dir = filepath.Dir(world.deploy)
		shell.Env = []string{"HOME=" + t.TempDir(), "PATH=" + filepath.Dir(world.crmirror) + ":" + os.Getenv("PATH"), "KUBECONFIG=" + world.cluster.Kubeconfig}
		if said, err := shell.CombinedOutput(); err != nil {
			t.Fatalf("%s\n%v\n%s", block[2], err, said)
		}
	}
	objects := objectsOf(t, world.render, "kustomize", "prod-eu1")
	put(t, objects)
	put(t, []*unstructured.Unstructured{secret})
	checkPod(t, objects)
	if image, want := imageOf(t, objects), "registry.example.com/ops/crmirror:v1.0.0"; image != want {
		t.Errorf("image: got %s, want %s", image, want)
	}
	configured := parse(t, []byte(configText(t, objects)))[0]
	if name, _, _ := unstructured.NestedString(configured.Object, "cluster"); name != "prod-eu1" {
		t.Errorf("the configuration is of cluster %q, want prod-eu1", name)
	}
}

// drop deletes a Secret, if it is there.
func drop(t *testing.T, secret *unstructured.Unstructured) {
	t.Helper()
	client, err := kubernetes.NewForConfig(world.cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	err = client.CoreV1().Secrets(secret.GetNamespace()).Delete(t.Context(), secret.GetName(), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

func imageOf(t *testing.T, objects []*unstructured.Unstructured) string {
	t.Helper()
	containers, _, err := unstructured.NestedSlice(find(t, objects, "Deployment").Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		t.Fatalf("containers: %v, %v", containers, err)
	}
	image, _ := containers[0].(map[string]any)["image"].(string)
	return image
}
