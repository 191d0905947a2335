package kube

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func compile(t *testing.T, sel Selection) *Rules {
	t.Helper()
	rules, err := sel.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func TestResource(t *testing.T) {
	rules := compile(t, Selection{
		Select: []Rule{
			{Resources: []string{"*.cert-manager.io"}},
			{Resources: []string{"configmaps", "deployments.apps", "widgets.example.com"}},
			{Resources: []string{"*.only.example.com"}, Names: []string{"a"}},
		},
		Exclude: []Rule{{Resources: []string{"secretthings.cert-manager.io"}}, {Resources: []string{"*.only.example.com"}, Names: []string{"b"}}},
	})
	all := compile(t, Selection{Select: []Rule{{Resources: []string{"*"}}}})
	tests := []struct {
		rules    *Rules
		resource string
		custom   bool
		want     bool
	}{
		{rules, "certificates.cert-manager.io", true, true},
		{rules, "certificates.cert-manager.io", false, false},
		{rules, "orders.acme.cert-manager.io", true, false},
		{rules, "secretthings.cert-manager.io", true, false},
		{rules, "configmaps", false, true},
		{rules, "secrets", false, false},
		{rules, "deployments.apps", false, true},
		{rules, "replicasets.apps", false, false},
		{rules, "widgets.example.com", true, true},
		{rules, "things.only.example.com", true, true},
		{all, "anything.example.com", true, true},
		{all, "configmaps", false, false},
		{all, "pods.metrics.k8s.io", false, false},
	}
	for _, tt := range tests {
		if _, got := tt.rules.Resource(schema.ParseGroupResource(tt.resource), tt.custom); got != tt.want {
			t.Errorf("Resource(%s, %v) = %v", tt.resource, tt.custom, got)
		}
	}
	var named []string
	for _, gr := range rules.Named() {
		named = append(named, gr.String())
	}
	if diff := cmp.Diff([]string{"configmaps", "deployments.apps", "widgets.example.com"}, named); diff != "" {
		t.Errorf("Named (-want +got):\n%s", diff)
	}
}

func TestJudge(t *testing.T) {
	rules := compile(t, Selection{
		Select: []Rule{
			{Resources: []string{"*.example.com"}, Namespaces: []string{"shop", "team-*"}, ExcludeNamespaces: []string{"team-x"}, SkipOwned: true},
			{Resources: []string{"widgets.example.com"}, Names: []string{"a*"}, LabelSelector: "tier in (web)"},
			{Resources: []string{"gadgets.example.com"}, Namespaces: []string{"*"}},
			{Resources: []string{"*"}, ExcludeNamespaces: []string{"kube-*"}},
		},
		Exclude: []Rule{
			{Resources: []string{"*"}, LabelSelector: "skip=yes"},
			{Resources: []string{"widgets.example.com"}, Names: []string{"tmp-?"}, Namespaces: []string{"shop"}},
		},
	})
	object := func(ns, name, labels string, owned bool) *unstructured.Unstructured {
		obj := &unstructured.Unstructured{Object: map[string]any{}}
		obj.SetNamespace(ns)
		obj.SetName(name)
		if k, v, ok := strings.Cut(labels, "="); ok {
			obj.SetLabels(map[string]string{k: v})
		}
		if owned {
			obj.Object["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "1", "controller": true}}
		}
		return obj
	}
	tests := []struct {
		name     string
		resource string
		obj      *unstructured.Unstructured
		want     string
	}{
		{"first rule", "widgets.example.com", object("shop", "x", "", false), "governed by select[0]"},
		{"glob", "widgets.example.com", object("team-a", "x", "", false), "governed by select[0]"},
		{"excluded namespace", "widgets.example.com", object("team-x", "x", "", false), "governed by select[3]"},
		{"second rule", "widgets.example.com", object("other", "abc", "tier=web", false), "governed by select[1]"},
		{"wrong label", "widgets.example.com", object("other", "abc", "tier=db", false), "governed by select[3]"},
		{"cluster-scoped is in no namespace", "widgets.example.com", object("", "abc", "", false), "governed by select[3]"},
		{"cluster-scoped is not in any namespace either", "gadgets.example.com", object("", "abc", "", false), "governed by select[3]"},
		{"any namespace", "gadgets.example.com", object("other", "abc", "", false), "governed by select[2]"},
		{"owned stays out, whatever follows", "widgets.example.com", object("shop", "x", "", true), "left out by skipOwned of select[0]: it has a controller owner"},
		{"owned elsewhere", "widgets.example.com", object("other", "x", "", true), "governed by select[3]"},
		{"exclude by label", "widgets.example.com", object("shop", "x", "skip=yes", false), "left out by exclude[0]"},
		{"exclude by name", "widgets.example.com", object("shop", "tmp-1", "", false), "left out by exclude[1]"},
		{"exclude elsewhere", "widgets.example.com", object("other", "tmp-1", "", false), "governed by select[3]"},
		{"nothing matches", "other.org.io", object("kube-system", "x", "", false), "no select rule matches"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res, ok := rules.Resource(schema.ParseGroupResource(tt.resource), true)
			if !ok {
				t.Fatal("resource not selected")
			}
			got := res.Judge(tt.obj)
			if got.String() != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			rule, ok := res.Governs(tt.obj)
			if ok != strings.HasPrefix(tt.want, "governed") || ok != (rule != nil) {
				t.Errorf("Governs = %v, %v", rule, ok)
			}
			if _, again := rules.Governs(tt.obj, schema.ParseGroupResource(tt.resource)); again != ok {
				t.Errorf("Rules.Governs = %v", again)
			}
		})
	}
	if _, ok := rules.Governs(object("shop", "x", "", false), schema.GroupResource{Group: "networking.k8s.io", Resource: "ingresses"}); ok {
		t.Error(`"*" governs the file of a built-in resource`)
	}
	if _, ok := rules.Governs(object("shop", "x", "", false), schema.GroupResource{Group: "gateway.networking.k8s.io", Resource: "gateways"}); !ok {
		t.Error(`"*" does not govern a custom resource of a k8s.io group`)
	}
}

func TestNamespacesAndSelector(t *testing.T) {
	tests := []struct {
		name       string
		sel        []Rule
		namespaces []string
		selector   string
	}{
		{"anything", []Rule{{Resources: []string{"*"}}}, nil, ""},
		{"named", []Rule{{Resources: []string{"*"}, Namespaces: []string{"b", "a"}}, {Resources: []string{"*.x.io"}, Namespaces: []string{"b"}}}, []string{"a", "b"}, ""},
		{"a glob", []Rule{{Resources: []string{"*"}, Namespaces: []string{"a", "b*"}}}, nil, ""},
		{"one rule for all", []Rule{{Resources: []string{"*"}, Namespaces: []string{"a"}}, {Resources: []string{"*"}}}, nil, ""},
		{"shared selector", []Rule{{Resources: []string{"*"}, LabelSelector: "a=b,c"}, {Resources: []string{"*.x.io"}, LabelSelector: "c, a = b"}}, nil, "a=b,c"},
		{"another rule's selector does not matter", []Rule{{Resources: []string{"*"}, LabelSelector: "a=b"}, {Resources: []string{"*.y.io"}}}, nil, "a=b"},
		{"different selectors", []Rule{{Resources: []string{"*"}, LabelSelector: "a=b"}, {Resources: []string{"*"}, LabelSelector: "a=c"}}, nil, ""},
		{"one without", []Rule{{Resources: []string{"*"}}, {Resources: []string{"*"}, LabelSelector: "a=c"}}, nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res, ok := compile(t, Selection{Select: tt.sel}).Resource(schema.GroupResource{Group: "x.io", Resource: "ws"}, true)
			if !ok {
				t.Fatal("not selected")
			}
			if diff := cmp.Diff(tt.namespaces, res.Namespaces()); diff != "" {
				t.Errorf("Namespaces (-want +got):\n%s", diff)
			}
			if got := res.LabelSelector(); got != tt.selector {
				t.Errorf("LabelSelector = %q, want %q", got, tt.selector)
			}
		})
	}
}

func TestCompileFindsAllMistakes(t *testing.T) {
	sel := Selection{
		Select: []Rule{
			{},
			{Resources: []string{"*", "Pods", "a*.x.io", "deployments/status.apps", "x.", "*.UP", ""}, Namespaces: []string{"ok", "[", ""}, Names: []string{"a["}, ExcludeNamespaces: []string{`a\`}, LabelSelector: "a in b"},
			{Resources: []string{"configmaps", "secrets"}, Shape: Shape{Redact: mustPaths(t, ".spec.x")}},
			{Resources: []string{"secrets"}, Shape: Shape{Redact: mustPaths(t, ".data.*"), RedactKey: []byte("k")}},
		},
		Exclude: []Rule{{Resources: []string{"x.y.io"}, SkipOwned: true}},
	}
	_, err := sel.Compile()
	if err == nil {
		t.Fatal("no error")
	}
	got := strings.Split(err.Error(), "\n")
	want := []string{
		`select[0].resources: names no resource; "*" means every custom resource`,
		`select[1].resources[1]: "Pods": the plural is no lower-case name`,
		`select[1].resources[2]: "a*.x.io": the only wildcards are "*" and "*.group"`,
		`select[1].resources[3]: "deployments/status.apps": a resource is named plural.group, without version or subresource`,
		`select[1].resources[4]: "x.": the group is no lower-case DNS name`,
		`select[1].resources[5]: "*.UP": the group is no lower-case DNS name`,
		`select[1].resources[6]: is empty`,
		`select[1].namespaces[1]: "[" is no glob: syntax error in pattern`,
		`select[1].namespaces[2]: is empty`,
		`select[1].excludeNamespaces[0]: "a\\" is no glob: syntax error in pattern`,
		`select[1].names[0]: "a[" is no glob: syntax error in pattern`,
	}
	if diff := cmp.Diff(want, got[:len(want)]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	rest := strings.Join(got[len(want):], "\n")
	for _, part := range []string{"select[1].labelSelector: ", "select[2].redact: needs a key", `select[2].resources[1]: secrets are stored only`, "exclude[0].skipOwned: belongs to select rules"} {
		if !strings.Contains(rest, part) {
			t.Errorf("no %q in\n%s", part, rest)
		}
	}
	if strings.Contains(rest, "select[3]") {
		t.Errorf("a good rule is refused:\n%s", rest)
	}
	var rule *RuleError
	if !errors.As(err, &rule) || rule.List != "select" || rule.Index != 0 || rule.Item != -1 {
		t.Errorf("first mistake: %+v", rule)
	}
}

func TestWildcards(t *testing.T) {
	for _, tt := range []struct {
		resources []string
		groups    []string
		all       bool
	}{
		{[]string{"pods", "a.b.dev"}, nil, false},
		{[]string{"*.z.dev", "a.b.dev", "*.b.dev", "*.z.dev"}, []string{"b.dev", "z.dev"}, false},
		{[]string{"*", "*.b.dev"}, []string{"b.dev"}, true},
	} {
		rules := compile(t, Selection{Select: []Rule{{Resources: tt.resources}}, Exclude: []Rule{{Resources: []string{"*.x.dev"}}}})
		if groups, all := rules.Wildcards(); !slices.Equal(groups, tt.groups) || all != tt.all {
			t.Errorf("%q: got %q, %t, want %q, %t", tt.resources, groups, all, tt.groups, tt.all)
		}
	}
}
