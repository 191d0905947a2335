package restore

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/crmirror/crmirror/gitstore"
)

// strayed is what a plan says of a file: "" nothing, else its text.
func strayed(p *Plan, path string) (text string, fatal bool) {
	for _, f := range p.Findings {
		if f.What == path {
			return f.Text, f.Fatal
		}
	}
	return "", false
}

// An object that lies beside its path is told of, however it came there; files of other people are not.
func TestPlanStrays(t *testing.T) {
	const at, name = "namespaces/shop/widgets.example.com/", "widgets.example.com shop/lost"
	for path, content := range map[string]string{
		at + "lost.yml":                                 widget("shop", "lost", "1"),
		at + "lost.YAML":                                widget("shop", "lost", "1"),
		at + "LOST.yaml":                                widget("shop", "lost", "1"),
		at + "l%6Fst.yaml":                              widget("shop", "lost", "1"),
		at + "lost.json":                                `{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "lost", "namespace": "shop"}}`,
		at + "old/lost.yaml":                            widget("shop", "lost", "1"),
		"namespaces/shop/lost.yaml":                     widget("shop", "lost", "1"),
		"namespaces/widgets.example.com/lost.yml":       widget("shop", "lost", "1"),
		"namespaces/Shop/widgets.example.com/lost.yaml": widget("shop", "lost", "1"),
		"Namespaces/shop/widgets.example.com/lost.yaml": widget("shop", "lost", "1"),
	} {
		w := shop(t)
		w.file(path, content)
		for _, opts := range []Options{{}, {Namespaces: []string{"shop"}, Names: []string{"lost", "a"}}} {
			plan := w.plan(opts)
			text, fatal := strayed(plan, path)
			if !fatal || plan.Complete() || w.verify(opts).Same() {
				t.Errorf("%s: got %q, fatal %v, complete %v, want it told and nothing complete", path, text, fatal, plan.Complete())
			}
			wantText(t, text, name, "move it to "+at+"lost.yaml")
		}
		if plan := w.plan(Options{Names: []string{"a"}}); !plan.Complete() {
			t.Errorf("%s, another object: %+v, want it complete", path, plan.Findings)
		}
	}
}

// What others stand on is one of ours too, if they do.
func TestPlanStrayFoundations(t *testing.T) {
	w := newScene(t)
	w.file("cluster/namespaces/shop.yml", namespaceText("shop"))
	w.file("cluster/namespaces/theirs.yml", namespaceText("theirs"))
	w.file("cluster/crds/widgets.yml", widgetCRD("v1"))
	w.file("namespaces/shop/widgets.example.com/a.yml", widget("shop", "a", "1"))
	plan := w.plan(Options{})
	for path, want := range map[string]string{
		"cluster/namespaces/shop.yml":               "cluster/namespaces/shop.yaml",
		"cluster/crds/widgets.yml":                  "cluster/customresourcedefinitions.apiextensions.k8s.io/widgets.example.com.yaml",
		"namespaces/shop/widgets.example.com/a.yml": "namespaces/shop/widgets.example.com/a.yaml",
		"cluster/namespaces/theirs.yml":             "",
	} {
		text, fatal := strayed(plan, path)
		if wantText(t, text, want); fatal != (want != "") {
			t.Errorf("%s: got %q, fatal %v", path, text, fatal)
		}
	}
}

func TestPlanStraysOfOthers(t *testing.T) {
	w := shop(t)
	w.serve("deployments.apps", "Deployment", true, "v1")
	at := "namespaces/shop/widgets.example.com/"
	silent := map[string]string{
		"cluster/apps/base/deployment.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, namespace: shop}\n",
		"cluster/apps/kustomization.yaml":   "resources: [deployment.yaml]\n",
		"cluster/apps/base/copy.yaml":       widget("shop", "a", "1"),
		"namespaces/shop/b-copy.yaml":       widget("shop", "b", "2"),
		"namespaces/shop/notes.yaml":        "a: b\n",
		"namespaces/shop/deploy.yaml":       "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x, namespace: shop}\n",
		"docs/widget.yaml":                  widget("shop", "example", "1"),
		at + "README.md":                    "mine",
	}
	told := map[string]string{
		at + "a.yml":       "a.yaml, which is",
		at + "broken.yml":  "cannot be read: line 2",
		at + "nothing.yml": "cannot be read",
	}
	w.file(at+"a.yml", widget("shop", "a", "2"))
	w.file(at+"broken.yml", "spec: [\n")
	w.file(at+"nothing.yml", "")
	for path, content := range silent {
		w.file(path, content)
	}
	link := at + "link.yml"
	w.file(link, "a.yaml")
	w.files[link] = gitstore.TreeFile{Blob: w.files[link].Blob, Mode: filemode.Symlink}
	plan := w.plan(Options{})
	for path, want := range told {
		text, fatal := strayed(plan, path)
		if wantText(t, text, want); fatal {
			t.Errorf("%s: it is fatal: %s", path, text)
		}
	}
	for path := range silent {
		if text, _ := strayed(plan, path); text != "" {
			t.Errorf("%s: got %q, want nothing said of other people's files", path, text)
		}
	}
	if !plan.Complete() {
		t.Errorf("findings: %+v, want the plan complete", plan.Findings)
	}
	if !slices.ContainsFunc(plan.Findings, func(f Finding) bool { return strings.HasSuffix(f.What, "a.yml") }) {
		t.Error("the copy is not told of")
	}
}
