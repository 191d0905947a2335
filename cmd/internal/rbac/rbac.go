// Package rbac derives the rights that the agent needs from its configuration: in
// go the rules and the mode, out come a ServiceAccount and the roles and bindings
// that give it these rights and no others. It speaks to no server and is
// deterministic. What the agent really calls is held against it by the tests of
// package deploy.
package rbac

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crmirror/crmirror/kube"
)

// Options say what the agent is to do, and who it is.
type Options struct {
	// Name is that of the ServiceAccount, the roles and the bindings; Namespace is
	// where the agent runs.
	Name, Namespace string
	// Rules select what is mirrored.
	Rules *kube.Rules
	// Custom are the custom resources that the cluster has: what "*" and "*.group"
	// stand for, one by one.
	Custom []Resource
	// Wildcard takes "*" and "*.group" for what RBAC understands by it, instead of
	// Custom: every resource of every group, or of that group.
	Wildcard bool
	// TwoWay is mode two-way; Prune lets it delete.
	TwoWay, Prune bool
	// Namespaces is include.namespaces.
	Namespaces bool
	// Lease is that of leader election; its zero value is none, and one without a
	// namespace lies in the agent's.
	Lease types.NamespacedName
}

// Resource is a custom resource, and whether its objects lie in namespaces.
type Resource struct {
	schema.GroupResource
	Namespaced bool
}

// Needs tells whether the rules select by wildcard, so that Custom, or Wildcard, is
// needed to say what that is.
func Needs(rules *kube.Rules) bool {
	groups, all := rules.Wildcards()
	return all || len(groups) > 0
}

// Manifests returns the ServiceAccount and its rights: one ClusterRole, a Role in
// each namespace if rules name namespaces, and one for the Lease of leader
// election, each with its binding.
func Manifests(o Options) []runtime.Object {
	granted := o.grants()
	out := []runtime.Object{&corev1.ServiceAccount{
		TypeMeta: typeMeta(corev1.SchemeGroupVersion, "ServiceAccount"), ObjectMeta: o.meta(o.Name, o.Namespace),
	}}
	for _, namespace := range granted.namespaces() {
		out = append(out, o.role(o.Name, namespace, granted[namespace].rules())...)
	}
	if o.Lease.Name != "" {
		out = append(out, o.role(o.Name+"-leader-election", cmp.Or(o.Lease.Namespace, o.Namespace), leases(o.Lease.Name))...)
	}
	return out
}

// grants collects the rights by the namespace in which they are needed; "" is the
// whole cluster.
func (o Options) grants() grants {
	g := grants{}
	everywhere := g.in("")
	everywhere.add(schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}, read()...)
	if o.Namespaces {
		everywhere.add(namespacesResource(), read()...)
	} else {
		everywhere.identify = true
	}
	for _, r := range o.selected() {
		for _, namespace := range o.scopes(r) {
			in := g.in(namespace)
			in.add(r.GroupResource, read()...)
			if !o.TwoWay {
				continue
			}
			in.add(r.GroupResource, write()...)
			if o.Prune {
				in.add(r.GroupResource, "delete")
			}
			// Where an object is to be created, its Namespace is looked at.
			in.add(namespacesResource(), "get")
			// Of an object without a namespace events lie in "default": it is selected
			// in the whole cluster.
			in.add(schema.GroupResource{Resource: "events"}, write()...)
		}
	}
	g.narrow()
	return g
}

// read is what an informer and a look at one object need; write, what server-side
// apply needs, and an Event.
func read() []string  { return []string{"get", "list", "watch"} }
func write() []string { return []string{"create", "patch"} }

func namespacesResource() schema.GroupResource { return schema.GroupResource{Resource: "namespaces"} }

// selected returns what the rules select: resources by name and, with Wildcard,
// whole groups.
func (o Options) selected() []Resource {
	var out []Resource
	groups, all := o.Rules.Wildcards()
	if o.Wildcard {
		for _, group := range groups {
			out = append(out, Resource{schema.GroupResource{Group: group, Resource: "*"}, true})
		}
		if all {
			out = append(out, Resource{schema.GroupResource{Group: "*", Resource: "*"}, true})
		}
	} else {
		out = append(out, o.Custom...)
	}
	for _, named := range o.Rules.Named() {
		known := slices.ContainsFunc(out, func(r Resource) bool { return r.GroupResource == named })
		if !known {
			// Whether it lies in namespaces is not known; a Role there does no harm.
			out = append(out, Resource{named, true})
		}
	}
	return out
}

// scopes returns the namespaces in which a resource is read, as the informers have
// it: the named ones if all its rules name some, else the whole cluster.
func (o Options) scopes(r Resource) []string {
	custom := r.Resource == "*" || kube.LooksCustom(r.Group) || slices.Contains(o.Custom, r)
	rules, ok := o.Rules.Resource(r.GroupResource, custom)
	if !ok {
		return nil
	}
	switch namespaces := rules.Namespaces(); {
	case namespaces == nil:
		return []string{""}
	case r.Namespaced:
		return namespaces
	}
	return nil // rules that name namespaces select nothing outside of them
}

// role returns a role with its binding; in namespace "" they are the cluster's.
func (o Options) role(name, namespace string, rules []rbacv1.PolicyRule) []runtime.Object {
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: o.Name, Namespace: o.Namespace}}
	meta := o.meta(name, namespace)
	if namespace == "" {
		return []runtime.Object{
			&rbacv1.ClusterRole{TypeMeta: typeMeta(rbacv1.SchemeGroupVersion, "ClusterRole"), ObjectMeta: meta, Rules: rules},
			&rbacv1.ClusterRoleBinding{
				TypeMeta: typeMeta(rbacv1.SchemeGroupVersion, "ClusterRoleBinding"), ObjectMeta: meta, Subjects: subjects,
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			},
		}
	}
	return []runtime.Object{
		&rbacv1.Role{TypeMeta: typeMeta(rbacv1.SchemeGroupVersion, "Role"), ObjectMeta: meta, Rules: rules},
		&rbacv1.RoleBinding{
			TypeMeta: typeMeta(rbacv1.SchemeGroupVersion, "RoleBinding"), ObjectMeta: meta, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		},
	}
}

func (o Options) meta(name, namespace string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{"app.kubernetes.io/name": "crmirror"}}
}

func typeMeta(version schema.GroupVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: version.String(), Kind: kind}
}
