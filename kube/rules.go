package kube

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Rules is a compiled Selection. It is immutable and safe for concurrent use.
type Rules struct {
	sel, excl []compiledRule
}

// Named returns the resources that select rules name in full, sorted: those
// whose absence from the server is worth a complaint.
func (r *Rules) Named() []schema.GroupResource {
	var named []schema.GroupResource
	for _, c := range r.sel {
		for _, p := range c.patterns {
			if !p.all && !p.allGroup && !slices.Contains(named, p.gr) {
				named = append(named, p.gr)
			}
		}
	}
	slices.SortFunc(named, func(a, b schema.GroupResource) int {
		return strings.Compare(a.String(), b.String())
	})
	return named
}

// Wildcards returns what select rules say of custom resources without naming them:
// the groups of "*.group", sorted, and whether "*" stands in any.
func (r *Rules) Wildcards() (groups []string, all bool) {
	for _, c := range r.sel {
		for _, p := range c.patterns {
			all = all || p.all
			if p.allGroup && !slices.Contains(groups, p.gr.Group) {
				groups = append(groups, p.gr.Group)
			}
		}
	}
	slices.Sort(groups)
	return groups, all
}

// Resource returns the rules that can match objects of one resource, and whether
// any can be selected at all. A custom resource is one that has a CRD.
func (r *Rules) Resource(gr schema.GroupResource, custom bool) (*ResourceRules, bool) {
	res := &ResourceRules{}
	for _, c := range r.sel {
		if c.concerns(gr, custom) {
			res.sel = append(res.sel, c)
		}
	}
	for _, c := range r.excl {
		if !c.concerns(gr, custom) {
			continue
		}
		res.excl = append(res.excl, c)
		if c.unconditional() {
			return res, false
		}
	}
	return res, len(res.sel) > 0
}

// Governs returns the rule that governs an object of which only a file is at hand,
// so that no server tells whether its resource has a CRD. Group names do: a
// CRD's group has a dot and is none of Kubernetes' own.
func (r *Rules) Governs(obj metav1.Object, gr schema.GroupResource) (*Rule, bool) {
	res, ok := r.Resource(gr, strings.Contains(gr.Group, ".") && !slices.Contains(builtInGroups[:], gr.Group))
	if !ok {
		return nil, false
	}
	return res.Governs(obj)
}

// LooksCustom tells by the name of a group whether its resources have CRDs: it has a
// dot then, and is none of Kubernetes' own.
func LooksCustom(group string) bool {
	return strings.Contains(group, ".") && !slices.Contains(builtInGroups[:], group)
}

// builtInGroups are the groups with a dot that an API server serves by itself.
var builtInGroups = [...]string{
	"admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "authentication.k8s.io",
	"authorization.k8s.io", "certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io",
	"flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "networking.k8s.io", "node.k8s.io",
	"rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io", "storagemigration.k8s.io",
}

// ResourceRules are the rules that concern one resource.
type ResourceRules struct {
	sel, excl []compiledRule
}

// Governs returns the rule that governs an object, and false when the object is
// not selected. The rule is shared: read it only.
func (r *ResourceRules) Governs(obj metav1.Object) (*Rule, bool) {
	v := r.Judge(obj)
	return v.Rule, v.Selected()
}

// Verdict says why an object is selected or is not. All indexes count from 0
// in the configuration's lists and are -1 for none.
type Verdict struct {
	Rule    *Rule // the rule that governs; nil when the object is not selected
	Select  int   // the first select rule that matches
	Exclude int   // the exclude rule that leaves it out
	Owned   bool  // left out by the select rule's skipOwned
}

// Selected tells whether a rule governs the object.
func (v Verdict) Selected() bool { return v.Rule != nil }

// String says it in words: "governed by select[0]".
func (v Verdict) String() string {
	switch {
	case v.Selected():
		return fmt.Sprintf("governed by select[%d]", v.Select)
	case v.Exclude >= 0:
		return fmt.Sprintf("left out by exclude[%d]", v.Exclude)
	case v.Owned:
		return fmt.Sprintf("left out by skipOwned of select[%d]: it has a controller owner", v.Select)
	default:
		return "no select rule matches"
	}
}

// Judge decides about one object and says why.
func (r *ResourceRules) Judge(obj metav1.Object) Verdict {
	v := Verdict{Select: -1, Exclude: -1}
	sel := firstMatch(r.sel, obj)
	if sel == nil {
		return v
	}
	v.Select = sel.index
	if excl := firstMatch(r.excl, obj); excl != nil {
		v.Exclude = excl.index
		return v
	}
	if sel.rule.SkipOwned && metav1.GetControllerOfNoCopy(obj) != nil {
		v.Owned = true
		return v
	}
	v.Rule = &sel.rule
	return v
}

// Namespaces returns the namespaces that can hold selected objects, sorted, when
// every select rule names its namespaces without globs; nil means any namespace.
// Objects of a cluster-scoped resource are never selected where it is not nil.
func (r *ResourceRules) Namespaces() []string {
	var all []string
	for _, c := range r.sel {
		if len(c.rule.Namespaces) == 0 || slices.ContainsFunc(c.rule.Namespaces, isGlob) {
			return nil
		}
		all = append(all, c.rule.Namespaces...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// LabelSelector returns the selector that may be given to the server: the one
// that every select rule of the resource has, or "".
func (r *ResourceRules) LabelSelector() string {
	shared := ""
	for i, c := range r.sel {
		if c.selector == nil || i > 0 && c.selector.String() != shared {
			return ""
		}
		shared = c.selector.String()
	}
	return shared
}

func firstMatch(rules []compiledRule, obj metav1.Object) *compiledRule {
	for i := range rules {
		if rules[i].matches(obj) {
			return &rules[i]
		}
	}
	return nil
}

func (c *compiledRule) concerns(gr schema.GroupResource, custom bool) bool {
	return slices.ContainsFunc(c.patterns, func(p pattern) bool { return p.matches(gr, custom) })
}

// unconditional tells whether the rule matches every object of its resources.
func (c *compiledRule) unconditional() bool {
	r := &c.rule
	return len(r.Namespaces) == 0 && len(r.ExcludeNamespaces) == 0 && len(r.Names) == 0 && c.selector == nil
}

// matches tells whether the object's metadata fit; its resource already does.
func (c *compiledRule) matches(obj metav1.Object) bool {
	r := &c.rule
	if ns := obj.GetNamespace(); len(r.Namespaces) > 0 && (ns == "" || !matchAny(r.Namespaces, ns)) {
		return false
	} else if ns != "" && matchAny(r.ExcludeNamespaces, ns) {
		return false
	}
	if len(r.Names) > 0 && !matchAny(r.Names, obj.GetName()) {
		return false
	}
	return c.selector == nil || c.selector.Matches(labels.Set(obj.GetLabels()))
}

func isGlob(s string) bool { return strings.ContainsAny(s, `*?[\`) }
