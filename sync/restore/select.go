package restore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/crmirror/crmirror/kube"
)

// Check finds the mistakes in options that a person may have typed, all at once.
func (o *Options) Check() error {
	_, err := o.rules()
	if o.Existing != "" && o.Existing != ExistingSkip && o.Existing != ExistingUpdate {
		err = errors.Join(err, fmt.Errorf("existing: %q is neither %s nor %s", o.Existing, ExistingSkip, ExistingUpdate))
	}
	for _, from := range slices.Sorted(maps.Keys(o.MapNamespaces)) {
		for _, msg := range validation.IsDNS1123Label(o.MapNamespaces[from]) {
			err = errors.Join(err, fmt.Errorf("map-namespace: %q is no name of a namespace: %s", o.MapNamespaces[from], msg))
		}
	}
	return err
}

// rules are the selectors as kube has them.
func (o *Options) rules() (*kube.Rules, error) {
	rule := kube.Rule{Resources: o.Resources, Namespaces: o.Namespaces, Names: o.Names}
	if len(rule.Resources) == 0 {
		rule.Resources = []string{"*"}
	}
	rules, err := (&kube.Selection{Select: []kube.Rule{rule}}).Compile()
	if err == nil {
		return rules, nil
	}
	var mistakes []error
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil, err
	}
	for _, e := range joined.Unwrap() {
		var mistake *kube.RuleError
		if errors.As(e, &mistake) {
			e = fmt.Errorf("%s: %s", mistake.Field, mistake.Msg)
		}
		mistakes = append(mistakes, e)
	}
	return nil, errors.Join(mistakes...)
}

// named tells whether a resource is named in full.
func (o *Options) named(gr schema.GroupResource) bool {
	return slices.Contains(o.Resources, gr.String())
}

// selected are the items that options select, and those that they stand on.
type selected struct {
	items []Item
	// support are the CRDs and Namespaces of items that are not selected themselves. They are created
	// where they are missing, and otherwise left alone.
	support []Item
}

// Select returns the items that the options select, in their order. Only a label selector needs
// their contents; a file that cannot be read then is taken along, so that it is told of.
func (s *Snapshot) Select(ctx context.Context, opts *Options) ([]Item, error) {
	sel, err := s.choose(ctx, opts)
	return sel.items, err
}

func (s *Snapshot) choose(ctx context.Context, opts *Options) (selected, error) {
	rules, err := opts.rules()
	if err != nil {
		return selected{}, err
	}
	var sel selected
	for _, item := range s.Items {
		ok, err := s.matches(ctx, item, rules, opts)
		if err != nil {
			return selected{}, err
		}
		if ok {
			sel.items = append(sel.items, item)
		}
	}
	taken := map[kube.Key]bool{}
	for _, item := range sel.items {
		taken[item.Key] = true
	}
	for _, item := range sel.items {
		for _, key := range []kube.Key{crdKey(item.Key.GroupResource()), namespaceKey(item.Key.Namespace)} {
			if stands, ok := s.Item(key); ok && !taken[key] {
				taken[key] = true
				sel.support = append(sel.support, stands)
			}
		}
	}
	return sel, nil
}

// matches tells whether the options select an item.
func (s *Snapshot) matches(ctx context.Context, item Item, rules *kube.Rules, opts *Options) (bool, error) {
	if !s.selects(rules, opts, item.Key) {
		return false, nil
	}
	if opts.Selector == nil || opts.Selector.Empty() {
		return true, nil
	}
	obj, err := s.Object(ctx, item)
	var unreadable *FileError
	if errors.As(err, &unreadable) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return opts.Selector.Matches(labels.Set(obj.GetLabels())), nil
}

// selects tells whether all but a label selector selects an object. Without resources, all are: they pass
// for one custom resource.
func (s *Snapshot) selects(rules *kube.Rules, opts *Options, key kube.Key) bool {
	gr := key.GroupResource()
	meta := &metav1.ObjectMeta{Name: key.Name, Namespace: key.Namespace}
	if len(opts.Resources) > 0 && !s.hasCRD(gr) {
		_, ok := rules.Governs(meta, gr)
		return ok
	}
	of, ok := rules.Resource(gr, true)
	if ok {
		_, ok = of.Governs(meta)
	}
	return ok
}
