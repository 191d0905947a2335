// Package deploy holds the tests of the folder deploy and of the rights that
// "crmirror rbac" prints: a real API server takes what kustomize and Helm make of
// the manifests, and the agent makes no call that its rights do not cover.
package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"github.com/crmirror/crmirror/kube/kubetest"
)

// world is what all tests of this package share: the built binary, the renderer,
// and an API server that writes down what service accounts ask of it. It is state
// of the package because it is one of the process: to make it costs a minute.
var world struct {
	root     string // of the repository
	deploy   string // a copy of its folder deploy, that tests may add to
	crmirror string
	render   string
	cluster  *kubetest.Cluster
	audit    string // the log
}

// patience bounds every wait. Nothing takes that long but on a machine that has
// much else to do.
const patience = 2 * time.Minute

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "crmirror-deploy-")
	if err == nil {
		err = startWorld(context.Background(), dir)
	}
	code := 1
	if err == nil {
		code = m.Run()
	}
	if world.cluster != nil {
		err = errors.Join(err, world.cluster.Stop())
	}
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func startWorld(ctx context.Context, dir string) (err error) {
	if world.root, err = kubetest.Root(); err != nil {
		return err
	}
	world.deploy = filepath.Join(dir, "deploy")
	if err := os.CopyFS(world.deploy, os.DirFS(filepath.Join(world.root, "deploy"))); err != nil {
		return err
	}
	world.crmirror, world.render = filepath.Join(dir, "crmirror"), filepath.Join(dir, "render")
	if err := build(ctx, world.root, world.crmirror, "./cmd/crmirror"); err != nil {
		return err
	}
	if err := build(ctx, filepath.Join(world.root, "testdata", "render"), world.render, "."); err != nil {
		return err
	}
	world.audit = filepath.Join(dir, "audit.log")
	policy := filepath.Join(dir, "audit.yaml")
	err = os.WriteFile(policy, []byte(`apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: ["system:serviceaccounts"]}
- {level: None}
`), 0o600)
	if err != nil {
		return err
	}
	world.cluster, err = kubetest.Start(ctx, kubetest.Options{Flags: map[string][]string{
		"audit-policy-file": {policy}, "audit-log-path": {world.audit}, "audit-log-mode": {"blocking"},
	}})
	return err
}

func build(ctx context.Context, dir, output, what string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", output, what)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s in %s: %w\n%s", what, dir, err, out)
	}
	return nil
}

// output runs a command of the world and returns its standard output; the error has
// what it said.
func output(t *testing.T, binary string, args ...string) ([]byte, error) {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Dir = world.deploy
	cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + world.cluster.Kubeconfig}
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%v: %w\n%s", args, err, errOut.String())
	}
	return out.Bytes(), nil
}

// objectsOf runs a command that prints manifests, and reads them.
func objectsOf(t *testing.T, binary string, args ...string) []*unstructured.Unstructured {
	t.Helper()
	text, err := output(t, binary, args...)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, text)
}

// parse reads YAML documents.
func parse(t *testing.T, text []byte) []*unstructured.Unstructured {
	t.Helper()
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	var out []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(object.Object) > 0 {
			out = append(out, object)
		}
	}
}

// put applies objects as administrator, and has the server refuse fields that it
// does not know.
func put(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	client, err := dynamic.NewForConfig(world.cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		mapping := mappingOf(t, object)
		var in dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			in = client.Resource(mapping.Resource).Namespace(object.GetNamespace())
		}
		body, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		force := true
		_, err = in.Patch(t.Context(), object.GetName(), types.ApplyPatchType, body, metav1.PatchOptions{
			FieldManager: "test", Force: &force, FieldValidation: metav1.FieldValidationStrict,
		})
		if err != nil {
			t.Errorf("apply %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
}

// mappingOf asks the server for an object's resource; one of a new CRD takes a moment.
func mappingOf(t *testing.T, object *unstructured.Unstructured) *meta.RESTMapping {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(world.cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	var mapping *meta.RESTMapping
	kubetest.Poll(t.Context(), t, patience, object.GetKind()+" to be served", func(context.Context) error {
		groups, err := restmapper.GetAPIGroupResources(client)
		if err != nil {
			return err
		}
		gvk := object.GroupVersionKind()
		mapping, err = restmapper.NewDiscoveryRESTMapper(groups).RESTMapping(gvk.GroupKind(), gvk.Version)
		return err
	})
	return mapping
}
