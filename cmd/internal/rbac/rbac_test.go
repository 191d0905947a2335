package rbac

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	diff "github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crmirror/crmirror/kube"
)

func compile(t *testing.T, selection kube.Selection) *kube.Rules {
	t.Helper()
	rules, err := selection.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// granted writes the rules of the roles as "namespace: resource.group,… verb,…", but
// those for CRDs, Namespaces and leases, which TestAlways has.
func granted(o Options) []string {
	var out []string
	for _, object := range Manifests(o) {
		namespace, rules := "", []rbacv1.PolicyRule(nil)
		switch role := object.(type) {
		case *rbacv1.ClusterRole:
			namespace, rules = "*", role.Rules
		case *rbacv1.Role:
			namespace, rules = role.Namespace, role.Rules
		}
		for _, rule := range rules {
			line := fmt.Sprintf("%s: %s/%s %s", namespace, rule.APIGroups[0], strings.Join(rule.Resources, ","), strings.Join(rule.Verbs, ","))
			if line != always && !strings.HasSuffix(line, "/namespaces get,list,watch") && rule.Resources[0] != "leases" {
				out = append(out, line)
			}
		}
	}
	return out
}

const always = "*: apiextensions.k8s.io/customresourcedefinitions get,list,watch"

func TestGrants(t *testing.T) {
	custom := []Resource{
		{schema.GroupResource{Group: "b.dev", Resource: "trees"}, true},
		{schema.GroupResource{Group: "a.dev", Resource: "zones"}, false},
		{schema.GroupResource{Group: "a.dev", Resource: "apples"}, true},
	}
	sel := func(namespaces []string, resources ...string) kube.Rule {
		return kube.Rule{Resources: resources, Namespaces: namespaces}
	}
	for _, tt := range []struct {
		name      string
		selection kube.Selection
		options   Options
		want      []string
	}{
		{
			"every custom resource, one by one", kube.Selection{Select: []kube.Rule{sel(nil, "*")}}, Options{},
			[]string{"*: a.dev/apples,zones get,list,watch", "*: b.dev/trees get,list,watch"},
		}, {
			"every custom resource, by wildcard", kube.Selection{Select: []kube.Rule{sel(nil, "*")}}, Options{Wildcard: true},
			[]string{"*: */* get,list,watch"},
		}, {
			"what is excluded is not granted",
			kube.Selection{Select: []kube.Rule{sel(nil, "*")}, Exclude: []kube.Rule{sel(nil, "zones.a.dev"), sel([]string{"n"}, "apples.a.dev")}}, Options{},
			[]string{"*: a.dev/apples get,list,watch", "*: b.dev/trees get,list,watch"},
		}, {
			"a group by wildcard has its resources in it",
			kube.Selection{Select: []kube.Rule{sel(nil, "apples.a.dev", "*.a.dev", "deployments.apps")}}, Options{Wildcard: true},
			[]string{"*: a.dev/* get,list,watch", "*: apps/deployments get,list,watch"},
		}, {
			"namespaces give roles, and no right to what lies in none",
			kube.Selection{Select: []kube.Rule{sel([]string{"n", "m"}, "*.a.dev")}}, Options{TwoWay: true},
			[]string{
				"m: /events create,patch", "m: a.dev/apples create,get,list,patch,watch",
				"n: /events create,patch", "n: a.dev/apples create,get,list,patch,watch",
			},
		}, {
			"one rule for all namespaces is enough", kube.Selection{Select: []kube.Rule{sel([]string{"n"}, "*.a.dev"), sel(nil, "apples.a.dev")}}, Options{},
			[]string{"*: a.dev/apples get,list,watch"},
		}, {
			"a glob of namespaces is the whole cluster", kube.Selection{Select: []kube.Rule{sel([]string{"n-*"}, "trees.b.dev")}}, Options{},
			[]string{"*: b.dev/trees get,list,watch"},
		}, {
			"two-way writes, and deletes only to prune",
			kube.Selection{Select: []kube.Rule{sel(nil, "trees.b.dev")}}, Options{TwoWay: true, Prune: true},
			[]string{"*: /events create,patch", "*: b.dev/trees create,delete,get,list,patch,watch"},
		}, {
			"what the agent reads anyway is written where a rule names it",
			kube.Selection{Select: []kube.Rule{sel(nil, "namespaces")}}, Options{TwoWay: true},
			[]string{"*: /events create,patch", "*: /namespaces create,get,list,patch,watch"},
		}, {
			"a kind that is not installed yet is granted by its name",
			kube.Selection{Select: []kube.Rule{sel([]string{"n"}, "later.c.dev")}}, Options{},
			[]string{"n: c.dev/later get,list,watch"},
		}, {
			"a group's role covers that of a namespace",
			kube.Selection{Select: []kube.Rule{sel(nil, "*.a.dev"), sel([]string{"n"}, "secretly.b.dev")}}, Options{Wildcard: true},
			[]string{"*: a.dev/* get,list,watch", "n: b.dev/secretly get,list,watch"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := tt.options
			o.Name, o.Namespace, o.Namespaces, o.Custom, o.Rules = "crmirror", "crmirror", true, custom, compile(t, tt.selection)
			got := granted(o)
			if d := diff.Diff(tt.want, got); d != "" {
				t.Errorf("(- want, + got):\n%s", d)
			}
			slices.Reverse(custom)
			if again := granted(o); !slices.Equal(got, again) {
				t.Errorf("in another order: got %q, want %q", again, got)
			}
		})
	}
}

// Whatever is selected: the CRDs, the Namespaces or the one that names the cluster, and the
// Lease, if there is one.
func TestAlways(t *testing.T) {
	o := Options{Name: "agent", Namespace: "home", Rules: compile(t, kube.Selection{Select: []kube.Rule{{Resources: []string{"a.b.dev"}}}})}
	rules := func(o Options) (out []rbacv1.PolicyRule) {
		for _, object := range Manifests(o) {
			switch role := object.(type) {
			case *rbacv1.ClusterRole:
				out = append(out, role.Rules...)
			case *rbacv1.Role:
				out = append(out, role.Rules...)
				if role.Namespace != cmp.Or(o.Lease.Namespace, "home") || role.Name != "agent-leader-election" {
					t.Errorf("role %s in %s", role.Name, role.Namespace)
				}
			}
		}
		return out
	}
	all := []string{"get", "list", "watch"}
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"kube-system"}, Verbs: []string{"get"}},
		{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: all},
		{APIGroups: []string{"b.dev"}, Resources: []string{"a"}, Verbs: all},
	}
	if d := diff.Diff(want, rules(o)); d != "" {
		t.Errorf("(- want, + got):\n%s", d)
	}
	o.Namespaces = true
	want[0] = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: all}
	if d := diff.Diff(want, rules(o)); d != "" {
		t.Errorf("with include.namespaces (- want, + got):\n%s", d)
	}
	group, leases := []string{"coordination.k8s.io"}, []string{"leases"}
	want = append(want,
		rbacv1.PolicyRule{APIGroups: group, Resources: leases, Verbs: []string{"create"}},
		rbacv1.PolicyRule{APIGroups: group, Resources: leases, ResourceNames: []string{"mine"}, Verbs: []string{"get", "update"}})
	for _, namespace := range []string{"", "elsewhere"} {
		o.Lease = types.NamespacedName{Namespace: namespace, Name: "mine"}
		if d := diff.Diff(want, rules(o)); d != "" {
			t.Errorf("with a lease in namespace %q (- want, + got):\n%s", namespace, d)
		}
	}
}
