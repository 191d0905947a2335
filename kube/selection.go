package kube

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Rule matches objects and, as a select rule, says how they are shaped. Every
// matcher that is set must match; an empty one matches everything, but Resources,
// which must not be empty.
type Rule struct {
	// Resources are "*" (every custom resource), "*.group" (every custom resource
	// of exactly that group), or one resource by its full name: "plural.group", and
	// "plural" in the core group. Built-in resources match by full name only.
	Resources []string
	// Namespaces are names or globs. A rule with namespaces matches no
	// cluster-scoped object.
	Namespaces []string
	// ExcludeNamespaces are names or globs; they win over Namespaces.
	ExcludeNamespaces []string
	// Names are names or globs of objects.
	Names []string
	// LabelSelector is written as kubectl's -l.
	LabelSelector string
	// SkipOwned leaves out an object that this rule governs and that has a
	// controller owner. It is no matcher: no later rule picks the object up.
	// In an exclude rule it is a mistake.
	SkipOwned bool
	// Shape is what is stored of the objects this rule governs. Exclude rules have none.
	Shape Shape
}

// Selection is the rules of a configuration: the first Select rule that matches
// an object governs it, unless an Exclude rule matches it. Globs are those of
// path.Match; no name or namespace holds the slash that it treats apart.
type Selection struct {
	Select  []Rule
	Exclude []Rule
}

// RuleError is one mistake in a rule.
type RuleError struct {
	List  string // "select" or "exclude"
	Index int    // position in that list, from 0
	Field string // as the configuration writes it: "labelSelector"
	Item  int    // position within the field's list, -1 when it is no list
	Msg   string
}

// Error writes the place as the configuration does, counting from 0.
func (e *RuleError) Error() string {
	field := e.Field
	if e.Item >= 0 {
		field = fmt.Sprintf("%s[%d]", e.Field, e.Item)
	}
	return fmt.Sprintf("%s[%d].%s: %s", e.List, e.Index, field, e.Msg)
}

// Compile checks the rules and prepares them for matching. The error joins a
// *RuleError for every mistake.
func (s *Selection) Compile() (*Rules, error) {
	var errs []error
	compile := func(list string, rules []Rule) []compiledRule {
		out := make([]compiledRule, len(rules))
		for i := range rules {
			report := func(field string, item int, msg string) {
				errs = append(errs, &RuleError{List: list, Index: i, Field: field, Item: item, Msg: msg})
			}
			out[i] = compileRule(rules[i], i, report)
			if list == "select" {
				checkShape(&out[i], report)
			} else if rules[i].SkipOwned {
				report("skipOwned", -1, "belongs to select rules")
			}
		}
		return out
	}
	rules := &Rules{sel: compile("select", s.Select), excl: compile("exclude", s.Exclude)}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return rules, nil
}

// pattern is one entry of Rule.Resources.
type pattern struct {
	all      bool // "*"
	allGroup bool // "*.group"
	gr       schema.GroupResource
}

func (p pattern) matches(gr schema.GroupResource, custom bool) bool {
	switch {
	case p.all:
		return custom
	case p.allGroup:
		return custom && gr.Group == p.gr.Group
	default:
		return gr == p.gr
	}
}

type compiledRule struct {
	rule     Rule
	index    int
	patterns []pattern
	selector labels.Selector // nil when there is none
}

func compileRule(r Rule, index int, report func(field string, item int, msg string)) compiledRule {
	c := compiledRule{rule: r, index: index}
	if len(r.Resources) == 0 {
		report("resources", -1, `names no resource; "*" means every custom resource`)
	}
	for i, s := range r.Resources {
		p, err := parsePattern(s)
		if err != nil {
			report("resources", i, err.Error())
			continue
		}
		c.patterns = append(c.patterns, p)
	}
	globs := func(field string, list []string) {
		for i, g := range list {
			if g == "" {
				report(field, i, "is empty")
			} else if _, err := path.Match(g, ""); err != nil {
				report(field, i, fmt.Sprintf("%q is no glob: %v", g, err))
			}
		}
	}
	globs("namespaces", r.Namespaces)
	globs("excludeNamespaces", r.ExcludeNamespaces)
	globs("names", r.Names)
	if r.LabelSelector != "" {
		sel, err := labels.Parse(r.LabelSelector)
		if err != nil {
			report("labelSelector", -1, err.Error())
		} else if !sel.Empty() {
			c.selector = sel
		}
	}
	return c
}

// checkShape finds shapes that Encode would refuse for every object.
func checkShape(c *compiledRule, report func(field string, item int, msg string)) {
	shape := &c.rule.Shape
	if len(shape.Redact) > 0 && len(shape.RedactKey) == 0 {
		report("redact", -1, "needs a key: set redaction.keyFile")
	}
	for i, p := range c.patterns {
		secrets := p.gr == schema.GroupResource{Resource: "secrets"} && !p.allGroup
		if secrets && !shape.covers("data") {
			report("resources", i, `secrets are stored only by a rule that redacts or drops all of ".data"`)
		}
	}
}

func parsePattern(s string) (pattern, error) {
	if s == "*" {
		return pattern{all: true}, nil
	}
	if s == "" {
		return pattern{}, errors.New("is empty")
	}
	if strings.Contains(s, "/") {
		return pattern{}, fmt.Errorf("%q: a resource is named plural.group, without version or subresource", s)
	}
	plural, group, hasGroup := strings.Cut(s, ".")
	if hasGroup {
		if msgs := validation.IsDNS1123Subdomain(group); len(msgs) > 0 {
			return pattern{}, fmt.Errorf("%q: the group is no lower-case DNS name", s)
		}
	}
	if plural == "*" && hasGroup {
		return pattern{allGroup: true, gr: schema.GroupResource{Group: group}}, nil
	}
	if strings.Contains(plural, "*") {
		return pattern{}, fmt.Errorf(`%q: the only wildcards are "*" and "*.group"`, s)
	}
	if msgs := validation.IsDNS1035Label(plural); len(msgs) > 0 {
		return pattern{}, fmt.Errorf("%q: the plural is no lower-case name", s)
	}
	return pattern{gr: schema.GroupResource{Group: group, Resource: plural}}, nil
}

func matchAny(globs []string, s string) bool {
	return slices.ContainsFunc(globs, func(g string) bool {
		ok, err := path.Match(g, s)
		return ok && err == nil
	})
}
