package sync

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/crmirror/crmirror/kube"
)

func fieldPaths(t *testing.T, list ...string) []kube.FieldPath {
	t.Helper()
	paths, err := parseFields(list)
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func shapedSelection(t *testing.T) kube.Selection {
	return kube.Selection{Select: []kube.Rule{
		{Resources: []string{"certificates.cert-manager.io"}, Namespaces: []string{"shop"}, Shape: kube.Shape{
			Status: true, Drop: fieldPaths(t, ".spec.replicas", `.metadata.annotations["x.io/seen"]`),
		}},
		{Resources: []string{"*"}, LabelSelector: "a=b", Shape: kube.Shape{Redact: fieldPaths(t, ".data.*"), RedactKey: []byte("secret")}},
	}}
}

func TestTreeRoundTrip(t *testing.T) {
	plain := NewTree("prod-eu1", kube.Selection{Select: []kube.Rule{{Resources: []string{"*"}}}})
	plain.ClusterUID = "0192117"
	shaped := NewTree("prod-eu1", shapedSelection(t))
	shaped.ClusterUID, shaped.Adopted = "8c3f", &TreeAdoption{From: "0d1e", Commit: "72225e2"}
	tests := []struct {
		name string
		tree Tree
		want string
	}{
		{"plain", plain, treeComment + `apiVersion: crmirror.dev/v1alpha1
cluster: prod-eu1
clusterUID: "0192117"
format: 1
kind: Tree
`},
		{"shaped", shaped, treeComment + `adopted:
  commit: "72225e2"
  from: "0d1e"
apiVersion: crmirror.dev/v1alpha1
cluster: prod-eu1
clusterUID: "8c3f"
format: 1
kind: Tree
redactKey: KEY
rules:
- drop:
  - ".metadata.annotations[\"x.io/seen\"]"
  - ".spec.replicas"
  namespaces:
  - shop
  resources:
  - certificates.cert-manager.io
  status: true
- labelSelector: a=b
  redact:
  - ".data.*"
  resources:
  - "*"
`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			content, err := tt.tree.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			back, err := ParseTree(content)
			if err != nil {
				t.Fatalf("ParseTree: %v\n%s", err, content)
			}
			if diff := cmp.Diff(&tt.tree, back); diff != "" || !back.Equal(&tt.tree) {
				t.Errorf("read back (-want +got):\n%s", diff)
			}
			got := strings.ReplaceAll(string(content), redactKeyName([]byte("secret")), "KEY")
			unquote := strings.NewReplacer(`"`, "", `'`, "", `\`, "") // how to quote is canon's choice
			if diff := cmp.Diff(strings.Split(unquote.Replace(tt.want), "\n"), strings.Split(unquote.Replace(got), "\n")); diff != "" {
				t.Errorf("content (-want +got):\n%s", diff)
			}
			if strings.Contains(got, "secret") {
				t.Error("the redaction key itself is in the file")
			}
		})
	}
}

func TestTreeSelection(t *testing.T) {
	tree := NewTree("c", shapedSelection(t))
	selection, err := tree.Selection([]byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	again := NewTree("c", selection)
	if diff := cmp.Diff(tree, again); diff != "" {
		t.Errorf("tree of its own selection (-want +got):\n%s", diff)
	}
}

func TestParseTreeRefuses(t *testing.T) {
	const good = "apiVersion: crmirror.dev/v1alpha1\nkind: Tree\nformat: 1\ncluster: a\nclusterUID: b\n"
	if _, err := ParseTree([]byte(good)); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, content, want string }{
		{"empty", "", `kind is ""`},
		{"no YAML", "{", "read it"},
		{"another kind", strings.Replace(good, "Tree", "Config", 1), `kind is "Config"`},
		{"newer format", strings.Replace(good, "format: 1", "format: 2\nhue: red", 1), "written by a newer crmirror"},
		{"newer version", strings.Replace(good, "v1alpha1", "v1", 1), "written by a newer crmirror"},
		{"no format", strings.Replace(good, "format: 1\n", "", 1), "format is missing"},
		{"no uid", strings.Replace(good, "clusterUID: b\n", "", 1), "clusterUID is missing"},
		{"unknown key", good + "hue: red\n", "hue"},
		{"duplicate key", good + "cluster: c\n", "cluster"},
		{"wrong type", good + "rules: 3\n", "rules"},
		{"bad field path", good + "rules: [{resources: ['*'], drop: ['..']}]\n", "rules[0].drop"},
		{"bad field path to redact", good + "rules: [{resources: ['*'], redact: ['..']}]\n", "rules[0].redact"},
	}
	for _, tt := range tests {
		if tree, err := ParseTree([]byte(tt.content)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: ParseTree = %v, %v, want an error with %q", tt.name, tree, err, tt.want)
		}
	}
}

func TestTreesCompared(t *testing.T) {
	base := NewTree("a", shapedSelection(t))
	tests := []struct {
		name                 string
		edit                 func(*Tree)
		shaping, same, equal bool
	}{
		{"the same", func(*Tree) {}, true, true, true},
		{"name", func(o *Tree) { o.Cluster = "b" }, true, true, false},
		{"uid", func(o *Tree) { o.ClusterUID = "b" }, true, false, false},
		{"adopted", func(o *Tree) { o.Adopted = &TreeAdoption{} }, true, true, false},
		{"key", func(o *Tree) { o.RedactKey = "b" }, false, true, false},
		{"a rule less", func(o *Tree) { o.Rules = o.Rules[:1] }, false, true, false},
		{"order", func(o *Tree) { o.Rules[0], o.Rules[1] = o.Rules[1], o.Rules[0] }, false, true, false},
		{"resources", func(o *Tree) { o.Rules[0].Resources = []string{"x"} }, false, true, false},
		{"namespaces", func(o *Tree) { o.Rules[0].Namespaces = nil }, false, true, false},
		{"excluded namespaces", func(o *Tree) { o.Rules[0].ExcludeNamespaces = []string{"x"} }, false, true, false},
		{"names", func(o *Tree) { o.Rules[0].Names = []string{"x"} }, false, true, false},
		{"selector", func(o *Tree) { o.Rules[1].LabelSelector = "" }, false, true, false},
		{"status", func(o *Tree) { o.Rules[0].Status = false }, false, true, false},
		{"drop", func(o *Tree) { o.Rules[0].Drop = nil }, false, true, false},
		{"redact", func(o *Tree) { o.Rules[1].Redact = nil }, false, true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			other := NewTree("a", shapedSelection(t))
			tt.edit(&other)
			if got := base.SameShaping(&other); got != tt.shaping {
				t.Errorf("SameShaping = %v, want %v", got, tt.shaping)
			}
			if got := base.SameCluster(&other); got != tt.same {
				t.Errorf("SameCluster = %v, want %v", got, tt.same)
			}
			if got := base.Equal(&other); got != tt.equal {
				t.Errorf("Equal = %v, want %v", got, tt.equal)
			}
		})
	}
}
