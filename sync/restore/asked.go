package restore

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/crmirror/crmirror/sync"
)

// findingsOf returns the findings about files that the options select, as far as their paths tell, and
// those about the whole.
func (s *Snapshot) findingsOf(opts *Options) ([]Finding, error) {
	rules, err := opts.rules()
	if err != nil {
		return nil, err
	}
	nameless := *opts
	nameless.Names = nil
	anyName, err := nameless.rules()
	if err != nil {
		return nil, err
	}
	var out []Finding
	for _, f := range s.Findings {
		of := rules
		if f.of.Name == "" {
			of = anyName
		}
		if f.of.Resource == "" || s.selects(of, opts, f.of) {
			out = append(out, f)
		}
	}
	return out, nil
}

// checkSelection finds selectors that nothing in the commit answers to: a typing mistake, mostly. That
// nothing at all was selected is an error.
//
// Invariant: a selection that misses is never told as a success (TestPlanSelectsNothing).
func (m *maker) checkSelection(selected int) error {
	opts := m.opts
	asked := []struct {
		flag, missed string // missed is what is told of a value that nothing answers to
		values       []string
		only         func(value string) Options
	}{
		{"--resources", "the commit has no %s; a resource is named plural.group", opts.Resources,
			func(v string) Options { return Options{Resources: []string{v}} }},
		{"--namespace", "the commit has nothing in namespace %s", opts.Namespaces, func(v string) Options { return Options{Namespaces: []string{v}} }},
		{"--names", "the commit has nothing of the name %s", opts.Names, func(v string) Options { return Options{Names: []string{v}} }},
	}
	var all []string
	for _, a := range asked {
		for _, value := range a.values {
			all = append(all, a.flag+" "+value)
			only := a.only(value)
			found, err := m.s.has(&only)
			if err != nil {
				return err
			}
			if !found {
				m.plan.Findings = append(m.plan.Findings, Finding{What: a.flag, Text: sync.Printable(fmt.Sprintf(a.missed, value), messageRunes), Fatal: true})
			}
		}
	}
	if opts.Selector != nil && !opts.Selector.Empty() {
		all = append(all, "--selector "+opts.Selector.String())
	}
	if selected == 0 && len(all) > 0 && !slices.ContainsFunc(m.plan.Findings, func(f Finding) bool { return f.Fatal && f.of.Resource != "" }) {
		return fmt.Errorf("select objects: the commit has none for %s; crmirror restore --dry-run without them lists what it has",
			sync.Printable(strings.Join(all, " "), messageRunes))
	}
	return m.checkMapped()
}

// checkMapped finds mapped namespaces that nothing which is to be restored lies in. It is an error: what was meant
// to come beside the live objects would be written over them.
//
// Invariant: nothing is planned with a mapping that maps nothing (TestPlanMapsNothing).
func (m *maker) checkMapped() error {
	selected, has := map[string]bool{}, map[string]bool{}
	for _, t := range m.targets {
		selected[spaceOf(t.item.Key)] = true
	}
	for _, f := range m.plan.Findings {
		selected[spaceOf(f.of)] = true // a file that cannot be read may hold one
	}
	for _, item := range m.s.Items {
		has[spaceOf(item.Key)] = true
	}
	var mistakes []error
	for _, name := range slices.Sorted(maps.Keys(m.opts.MapNamespaces)) {
		mapping := sync.Printable(name+"="+m.opts.MapNamespaces[name], messageRunes)
		switch {
		case selected[name]:
		case has[name]:
			mistakes = append(mistakes, fmt.Errorf("--map-namespace %s: nothing that is selected lies in it; select it too, or leave the mapping out", mapping))
		default:
			mistakes = append(mistakes, fmt.Errorf("--map-namespace %s: the commit has nothing in such a namespace; "+
				"it is mapped from what it is called in git, by its full name", mapping))
		}
	}
	return errors.Join(mistakes...)
}

// has tells whether the options select anything; a label selector is not asked.
func (s *Snapshot) has(opts *Options) (bool, error) {
	rules, err := opts.rules()
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(s.Items, func(item Item) bool { return s.selects(rules, opts, item.Key) }) ||
		slices.ContainsFunc(s.Findings, func(f Finding) bool { return f.of.Resource != "" && s.selects(rules, opts, f.of) }), nil
}
