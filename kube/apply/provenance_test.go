package apply_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/kubetest"
)

// person is somebody at work on the same objects, with kubectl.
type person interface {
	// create, clientApply and serverApply give kubectl a whole file.
	create(t *testing.T, obj *unstructured.Unstructured)
	clientApply(t *testing.T, obj *unstructured.Unstructured)
	serverApply(t *testing.T, obj *unstructured.Unstructured) error
	// edit replaces the spec in an editor.
	edit(t *testing.T, name, spec string)
}

// TestProvenance has people go on with their files and editors after git changed a field.
func TestProvenance(t *testing.T) {
	w := install(t, "provenance")
	people := map[string]person{"requests": requests{w}}
	if kubectl, err := exec.LookPath("kubectl"); err == nil {
		people["kubectl"] = kubectlPerson{w, kubectl, kubetest.Shared(t).Kubeconfig}
	}
	for who, p := range people {
		t.Run(who+", client-side apply", func(t *testing.T) {
			at := w.within(t)
			name := "client-" + who
			p.clientApply(t, at.object(name, "{size: 1, color: red, ports: [{port: 1}]}"))
			at.write(at.become(at.get(name), "{size: 2, color: red, ports: [{port: 1, protocol: TCP}], replicas: 1, mode: auto}"))
			expectOwned(t, at.get(name), apply.Manager, "Apply", "spec.size")
			// The person has taken over git's value, and changes others.
			p.clientApply(t, at.object(name, "{size: 2, color: blue, ports: [{port: 1, note: x}]}"))
			at.expect(name, "{size: 2, color: blue, ports: [{port: 1, protocol: TCP, note: x}], replicas: 1, mode: auto}")
			p.edit(t, name, "{size: 2, color: green, ports: [{port: 1, protocol: TCP, note: x}], replicas: 4, mode: auto}")
			at.expect(name, "{size: 2, color: green, ports: [{port: 1, protocol: TCP, note: x}], replicas: 4, mode: auto}")
			expectOwned(t, at.get(name), apply.Manager, "Apply", "spec.size")
			// git moves on: our next write takes nothing else.
			at.write(at.become(at.get(name), "{size: 3, color: green, ports: [{port: 1, protocol: TCP, note: x}], replicas: 4, mode: auto}"))
			expectOwned(t, at.get(name), apply.Manager, "Apply", "spec.size")
		})
		t.Run(who+", server-side apply", func(t *testing.T) {
			at := w.within(t)
			name := "server-" + who
			if err := p.serverApply(t, at.object(name, "{size: 1, color: red}")); err != nil {
				t.Fatal(err)
			}
			at.write(at.become(at.get(name), "{size: 2, color: red, replicas: 1, mode: auto}"))
			if err := p.serverApply(t, at.object(name, "{size: 2, color: blue, replicas: 2}")); err != nil {
				t.Errorf("other fields: %v", err)
			}
			at.expect(name, "{size: 2, color: blue, replicas: 2, mode: auto}")
			// Of the field that git set, the server asks.
			if err := p.serverApply(t, at.object(name, "{size: 9, color: blue}")); err == nil || !strings.Contains(err.Error(), apply.Manager) {
				t.Errorf("git's field: %v; want a conflict with %s", err, apply.Manager)
			}
			p.edit(t, name, "{size: 7, color: blue, replicas: 2, mode: auto}") // an editor may take it
			at.expect(name, "{size: 7, color: blue, replicas: 2, mode: auto}")
		})
		t.Run(who+", made from git", func(t *testing.T) {
			at := w.within(t)
			name := "made-" + who
			if _, err := at.writer().Create(t.Context(), at.key(name), at.resource("v1"), at.object(name, "{size: 1, color: red}").Object, nil); err != nil {
				t.Fatal(err)
			}
			if err := p.serverApply(t, at.object(name, "{mode: manual, replicas: 3, legacy: x}")); err != nil {
				t.Errorf("other fields: %v", err)
			}
			p.clientApply(t, at.object(name, "{size: 1, color: red, mode: manual, replicas: 3, legacy: x, grade: low}"))
			p.edit(t, name, "{size: 1, color: red, replicas: 3, grade: high, legacy: x, mode: manual}")
			at.expect(name, "{size: 1, color: red, mode: manual, replicas: 3, legacy: x, grade: high}")
			expectOwned(t, at.get(name), apply.Manager, "Apply", "spec.color", "spec.size")
		})
		t.Run(who+", fields removed by git", func(t *testing.T) {
			at := w.within(t)
			name := "removed-" + who
			p.create(t, at.object(name, "{size: 1, color: red, legacy: x}"))
			at.write(at.become(at.get(name), "{size: 2, color: red, replicas: 1, mode: auto}"))
			expectOwned(t, at.get(name), apply.Manager, "Update", "spec.size")
			p.edit(t, name, "{size: 2, color: blue, replicas: 1, mode: auto}")
			at.expect(name, "{size: 2, color: blue, replicas: 1, mode: auto}")
		})
	}
}

func (w *widgets) within(t *testing.T) *widgets {
	at := *w
	at.t = t
	return &at
}

// kubectlPerson is the real thing.
type kubectlPerson struct {
	w                *widgets
	path, kubeconfig string
}

func (p kubectlPerson) run(t *testing.T, stdin []byte, env string, args ...string) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), p.path, append([]string{"--kubeconfig", p.kubeconfig, "-n", p.w.namespace}, args...)...)
	cmd.Env = append(cmd.Environ(), "KUBECACHEDIR="+t.TempDir(), env)
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return &kubectlError{string(out)}
	}
	return nil
}

type kubectlError struct{ out string }

func (e *kubectlError) Error() string { return e.out }

func (p kubectlPerson) file(t *testing.T, obj *unstructured.Unstructured, args ...string) error {
	t.Helper()
	content, err := json.Marshal(obj.Object)
	if err != nil {
		t.Fatal(err)
	}
	return p.run(t, content, "", append(args, "-f", "-")...)
}

func (p kubectlPerson) create(t *testing.T, obj *unstructured.Unstructured) {
	t.Helper()
	if err := p.file(t, obj, "create"); err != nil {
		t.Fatal(err)
	}
}

func (p kubectlPerson) clientApply(t *testing.T, obj *unstructured.Unstructured) {
	t.Helper()
	if err := p.file(t, obj, "apply"); err != nil {
		t.Fatal(err)
	}
}

func (p kubectlPerson) serverApply(t *testing.T, obj *unstructured.Unstructured) error {
	t.Helper()
	return p.file(t, obj, "apply", "--server-side")
}

// edit lets kubectl edit call an editor that writes the new object over the file.
func (p kubectlPerson) edit(t *testing.T, name, spec string) {
	t.Helper()
	live := p.w.within(t).get(name)
	live.SetManagedFields(nil)
	live.Object["spec"] = p.w.within(t).object(name, spec).Object["spec"]
	content, err := yaml.Marshal(live.Object)
	if err != nil {
		t.Fatal(err)
	}
	edited := t.TempDir() + "/edited.yaml"
	write(t, edited, content)
	if err := p.run(t, nil, "KUBE_EDITOR=cp "+edited, "edit", "widgets."+p.w.group, name); err != nil {
		t.Fatal(err)
	}
}

// requests sends what kubectl sends.
type requests struct{ w *widgets }

func (p requests) create(t *testing.T, obj *unstructured.Unstructured) {
	t.Helper()
	if _, err := p.w.in("v1").Create(t.Context(), obj, metav1.CreateOptions{FieldManager: "kubectl-create"}); err != nil {
		t.Fatal(err)
	}
}

// clientApply sends a merge patch of what the file says, with the annotation. Of a removed field
// it would send null; the files here remove none.
func (p requests) clientApply(t *testing.T, obj *unstructured.Unstructured) {
	t.Helper()
	applied, err := json.Marshal(obj.Object)
	if err != nil {
		t.Fatal(err)
	}
	obj.SetAnnotations(map[string]string{"kubectl.kubernetes.io/last-applied-configuration": string(applied)})
	if p.w.within(t).gone(obj.GetName()) {
		if _, err := p.w.in("v1").Create(t.Context(), obj, metav1.CreateOptions{FieldManager: "kubectl-client-side-apply"}); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, port := range list(obj.Object["spec"].(map[string]any)["ports"]) {
		port.(map[string]any)["protocol"] = "TCP" // a merge patch replaces lists
	}
	content, err := json.Marshal(obj.Object)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.w.in("v1").Patch(t.Context(), obj.GetName(), types.MergePatchType, content, metav1.PatchOptions{FieldManager: "kubectl-client-side-apply"}); err != nil {
		t.Fatal(err)
	}
}

func (p requests) serverApply(t *testing.T, obj *unstructured.Unstructured) error {
	_, err := p.w.in("v1").Apply(t.Context(), obj.GetName(), obj, metav1.ApplyOptions{FieldManager: "kubectl"})
	return err
}

func (p requests) edit(t *testing.T, name, spec string) {
	t.Helper()
	live := p.w.within(t).get(name)
	live.Object["spec"] = p.w.within(t).object(name, spec).Object["spec"]
	if _, err := p.w.in("v1").Update(t.Context(), live, metav1.UpdateOptions{FieldManager: "kubectl-edit"}); err != nil {
		t.Fatal(err)
	}
}
