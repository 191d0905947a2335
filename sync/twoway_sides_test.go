package sync

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/crmirror/crmirror/kube"
)

// create creates a widget in the cluster; spec is YAML.
func (p *pair) create(manager, name, spec string) {
	p.t.Helper()
	obj := p.decode(p.text(name, spec))
	if _, err := p.server.widgets().Create(p.t.Context(), obj, metav1.CreateOptions{FieldManager: manager}); err != nil {
		p.t.Fatal(err)
	}
}

// patch merges a patch of the spec, in the cluster, as that manager.
func (p *pair) patch(manager, name, spec string) {
	p.t.Helper()
	content, err := yaml.YAMLToJSON([]byte("spec: " + spec))
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.server.widgets().Patch(p.t.Context(), name, types.MergePatchType, content, metav1.PatchOptions{FieldManager: manager}); err != nil {
		p.t.Fatal(err)
	}
}

// namespace creates a namespace.
func (p *pair) namespace(name string) {
	p.t.Helper()
	obj := p.decode("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + name + "}\n")
	if _, err := p.server.client.Resource(namespaceResource.WithVersion("v1")).Create(p.t.Context(), obj, metav1.CreateOptions{}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pair) delete(name string) {
	p.t.Helper()
	if err := p.server.widgets().Delete(p.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		p.t.Fatal(err)
	}
}

// announced is the announcement at the remote; "" when there never was one.
func (p *pair) announced() string {
	p.t.Helper()
	if p.git("-C", p.remote, "for-each-ref", p.mirror.refs.Applying) == "" {
		return ""
	}
	return p.git("-C", p.remote, "cat-file", "blob", p.mirror.refs.Applying+":"+announcementFile)
}

// text is the manifest of a widget.
func (p *pair) text(name, spec string) string {
	return fmt.Sprintf("apiVersion: %s/v1\nkind: Widget\nmetadata:\n  name: %s\n  namespace: %s\nspec: %s\n", p.server.group, name, p.server.namespace, spec)
}

// spec is what the cluster has, as YAML in flow style; "" when there is no object.
func (p *pair) spec(name string) string {
	p.t.Helper()
	live, err := p.server.widgets().Get(p.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return p.flow(live.Object["spec"])
}

func (p *pair) flow(v any) string {
	p.t.Helper()
	m, ok := v.(map[string]any)
	if !ok {
		return fmt.Sprint(v)
	}
	var parts []string
	for _, key := range sortedNames(m) {
		parts = append(parts, fmt.Sprintf("%s: %v", key, m[key]))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func (p *pair) pathOf(name string) string { return PathOf(p.server.key(name)) }

// inGit is the spec that the branch has; "" when there is no file.
func (p *pair) inGit(name string) string {
	p.t.Helper()
	content := p.file(p.pathOf(name))
	if content == "" {
		return ""
	}
	return p.flow(p.decode(content).Object["spec"])
}

// inBase is the spec that base has.
func (p *pair) inBase(name string) string {
	p.t.Helper()
	ref := p.mirror.refs.Base
	if p.git("-C", p.remote, "ls-tree", ref, "--", "clusters/lab/"+p.pathOf(name)) == "" {
		return ""
	}
	return p.flow(p.decode(p.git("-C", p.remote, "cat-file", "blob", ref+":clusters/lab/"+p.pathOf(name))).Object["spec"])
}

// edit lets a person commit a change of files; "" deletes one.
func (p *pair) edit(message string, specs map[string]string) {
	p.t.Helper()
	p.person(message, func(dir string) {
		for name, spec := range specs {
			file := filepath.Join(dir, "clusters/lab", p.pathOf(name))
			if spec == "" {
				if err := os.Remove(file); err != nil {
					p.t.Fatal(err)
				}
				continue
			}
			if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
				p.t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(p.text(name, spec)), 0o666); err != nil {
				p.t.Fatal(err)
			}
		}
	})
}

// want compares what the three have of a widget.
func (p *pair) want(name, cluster, git, base string) {
	p.t.Helper()
	for _, x := range []struct{ what, got, want string }{
		{"cluster", p.spec(name), cluster}, {"git", p.inGit(name), git}, {"base", p.inBase(name), base},
	} {
		if x.got != x.want {
			p.t.Errorf("%s: %s has %s, want %s", name, x.what, x.got, x.want)
		}
	}
}

func (p *pair) wantConflicts(r *Report, fields ...string) {
	p.t.Helper()
	var got []string
	for _, c := range r.Conflicts {
		got = append(got, c.Field)
	}
	if fmt.Sprint(got) != fmt.Sprint(fields) {
		p.t.Errorf("conflicts %q, want %q\nrefusals: %v\nfindings: %v", got, fields, r.Refusals, r.Findings)
	}
}

func sortedNames(m map[string]any) []string {
	return slices.Sorted(maps.Keys(m))
}

func fieldPathsOf(t *testing.T, texts ...string) []kube.FieldPath {
	t.Helper()
	var out []kube.FieldPath
	for _, text := range texts {
		path, err := kube.ParseFieldPath(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, path)
	}
	return out
}
