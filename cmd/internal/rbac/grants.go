package rbac

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// grants are rights by namespace; "" is the whole cluster.
type grants map[string]*rights

// rights are verbs by resource, within one namespace or the whole cluster.
type rights struct {
	verbs    map[schema.GroupResource][]string
	identify bool // read the Namespace kube-system, whose uid names the cluster
}

func (g grants) in(namespace string) *rights {
	if g[namespace] == nil {
		g[namespace] = &rights{verbs: map[schema.GroupResource][]string{}}
	}
	return g[namespace]
}

func (g grants) namespaces() []string { return slices.Sorted(maps.Keys(g)) }

// narrow takes away what is granted by a wider rule already: of a wildcard, or in
// the whole cluster.
func (g grants) narrow() {
	for namespace, r := range g {
		maps.DeleteFunc(r.verbs, func(gr schema.GroupResource, verbs []string) bool {
			if namespace != "" && g[""].allow(gr, verbs) {
				return true
			}
			return r.allowByOther(gr, verbs)
		})
		if len(r.verbs) == 0 && !r.identify {
			delete(g, namespace)
		}
	}
}

// allow tells whether all the verbs are granted, by name or by a wildcard.
func (r *rights) allow(gr schema.GroupResource, verbs []string) bool {
	return covers(r.verbs[gr], verbs) || r.allowByOther(gr, verbs)
}

// allowByOther tells whether a wildcard that is another entry grants all the verbs.
func (r *rights) allowByOther(gr schema.GroupResource, verbs []string) bool {
	for _, wide := range []schema.GroupResource{{Group: gr.Group, Resource: "*"}, {Group: "*", Resource: "*"}} {
		if wide != gr && covers(r.verbs[wide], verbs) {
			return true
		}
	}
	return false
}

func covers(granted, verbs []string) bool {
	return !slices.ContainsFunc(verbs, func(verb string) bool { return !slices.Contains(granted, verb) })
}

// add grants verbs, besides those that are granted already.
func (r *rights) add(gr schema.GroupResource, verbs ...string) {
	all := append(slices.Clone(r.verbs[gr]), verbs...)
	slices.Sort(all)
	r.verbs[gr] = slices.Compact(all)
}

// rules writes the rights as rules: one for each group and set of verbs, sorted.
func (r *rights) rules() []rbacv1.PolicyRule {
	type key struct{ group, verbs string }
	resources := map[key][]string{}
	for gr, verbs := range r.verbs {
		k := key{gr.Group, strings.Join(verbs, ",")}
		resources[k] = append(resources[k], gr.Resource)
	}
	var out []rbacv1.PolicyRule
	for k, names := range resources {
		slices.Sort(names)
		out = append(out, rbacv1.PolicyRule{APIGroups: []string{k.group}, Resources: names, Verbs: strings.Split(k.verbs, ",")})
	}
	if r.identify && !covers(r.verbs[namespacesResource()], []string{"get"}) {
		out = append(out, rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{metav1.NamespaceSystem}, Verbs: []string{"get"},
		})
	}
	slices.SortFunc(out, func(a, b rbacv1.PolicyRule) int {
		return cmp.Or(slices.Compare(a.APIGroups, b.APIGroups), slices.Compare(a.Resources, b.Resources), slices.Compare(a.Verbs, b.Verbs))
	})
	return out
}

// leases is what leader election needs. RBAC cannot restrict a create to a name.
func leases(name string) []rbacv1.PolicyRule {
	groups, resources := []string{"coordination.k8s.io"}, []string{"leases"}
	return []rbacv1.PolicyRule{
		{APIGroups: groups, Resources: resources, Verbs: []string{"create"}},
		{APIGroups: groups, Resources: resources, ResourceNames: []string{name}, Verbs: []string{"get", "update"}},
	}
}
