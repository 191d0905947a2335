package sync

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/canon"
)

const (
	treeVersion = "crmirror.dev/v1alpha1"
	treeKind    = "Tree"
	// treeFormat counts changes of the layout or of the encoding that an older
	// crmirror would misread.
	treeFormat = 1

	treeComment = "# Written by crmirror: which cluster the files beside this one belong to, and what was left out of them.\n"
)

// Tree is what .crmirror.yaml says of the files beside it: whose they are and
// the shaping rules under which they were written, so that restore, verify and
// diff need no configuration.
type Tree struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Format     int           `json:"format"`
	Cluster    string        `json:"cluster"`             // its name
	ClusterUID string        `json:"clusterUID"`          // uid of its namespace kube-system
	Adopted    *TreeAdoption `json:"adopted,omitempty"`   // until everything it held is settled
	RedactKey  string        `json:"redactKey,omitempty"` // names the key of redacted values, does not tell it
	Rules      []TreeRule    `json:"rules,omitempty"`     // empty: every object in the default shape
}

// TreeAdoption says that the tree was another cluster's before.
type TreeAdoption struct {
	From   string `json:"from,omitempty"` // uid of that cluster; "" when that could not be told
	Commit string `json:"commit"`         // the branch's head when it was adopted
}

// TreeRule is one select rule as far as it shapes: whom it governs (the first
// that matches does) and what it drops, redacts or keeps.
type TreeRule struct {
	Resources         []string `json:"resources"`
	Namespaces        []string `json:"namespaces,omitempty"`
	ExcludeNamespaces []string `json:"excludeNamespaces,omitempty"`
	Names             []string `json:"names,omitempty"`
	LabelSelector     string   `json:"labelSelector,omitempty"`
	Status            bool     `json:"status,omitempty"`
	Drop              []string `json:"drop,omitempty"`
	Redact            []string `json:"redact,omitempty"`
}

// NewTree returns what .crmirror.yaml shall say of a cluster's tree written
// under a selection; the cluster's uid is still missing. Where no rule shapes
// anything there are no rules to remember.
func NewTree(cluster string, selection kube.Selection) Tree {
	t := Tree{APIVersion: treeVersion, Kind: treeKind, Format: treeFormat, Cluster: cluster}
	shapes := false
	for _, r := range selection.Select {
		rule := TreeRule{
			Resources:         slices.Clone(r.Resources),
			Namespaces:        slices.Clone(r.Namespaces),
			ExcludeNamespaces: slices.Clone(r.ExcludeNamespaces),
			Names:             slices.Clone(r.Names),
			LabelSelector:     r.LabelSelector,
			Status:            r.Shape.Status,
			Drop:              fieldStrings(r.Shape.Drop),
			Redact:            fieldStrings(r.Shape.Redact),
		}
		shapes = shapes || rule.Status || len(rule.Drop)+len(rule.Redact) > 0
		if len(rule.Redact) > 0 {
			t.RedactKey = redactKeyName(r.Shape.RedactKey)
		}
		t.Rules = append(t.Rules, rule)
	}
	if !shapes {
		t.Rules = nil
	}
	return t
}

func fieldStrings(paths []kube.FieldPath) []string {
	var out []string
	for _, p := range paths {
		out = append(out, p.String())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// redactKeyName names a key so that a change of it is seen.
func redactKeyName(key []byte) string {
	sum := sha256.Sum256(append([]byte("crmirror redaction key\x00"), key...))
	return hex.EncodeToString(sum[:6])
}

// HasKey tells whether a key is the one that the tree's values are redacted with.
func (t *Tree) HasKey(key []byte) bool {
	return len(key) > 0 && t.RedactKey == redactKeyName(key)
}

// Marshal writes the tree as its file holds it, the same bytes for the same tree.
func (t *Tree) Marshal() ([]byte, error) {
	fields := map[string]any{
		"apiVersion": treeVersion, "kind": treeKind, "format": int64(treeFormat),
		"cluster": t.Cluster, "clusterUID": t.ClusterUID,
	}
	if a := t.Adopted; a != nil {
		adopted := map[string]any{"commit": a.Commit}
		putString(adopted, "from", a.From)
		fields["adopted"] = adopted
	}
	putString(fields, "redactKey", t.RedactKey)
	var rules []any
	for _, r := range t.Rules {
		rules = append(rules, r.fields())
	}
	if len(rules) > 0 {
		fields["rules"] = rules
	}
	return canon.Append([]byte(treeComment), fields)
}

func (r *TreeRule) fields() map[string]any {
	fields := map[string]any{}
	putList(fields, "resources", r.Resources)
	putList(fields, "namespaces", r.Namespaces)
	putList(fields, "excludeNamespaces", r.ExcludeNamespaces)
	putList(fields, "names", r.Names)
	putString(fields, "labelSelector", r.LabelSelector)
	if r.Status {
		fields["status"] = true
	}
	putList(fields, "drop", r.Drop)
	putList(fields, "redact", r.Redact)
	return fields
}

func putString(fields map[string]any, name, value string) {
	if value != "" {
		fields[name] = value
	}
}

func putList(fields map[string]any, name string, values []string) {
	if len(values) == 0 {
		return
	}
	list := make([]any, len(values))
	for i, v := range values {
		list[i] = v
	}
	fields[name] = list
}

// ParseTree reads .crmirror.yaml. It is strict: a file that this version does
// not understand whole is an error, since guessing at whose tree it is could
// empty a backup.
func ParseTree(content []byte) (*Tree, error) {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Format     int    `json:"format"`
	}
	if err := yaml.Unmarshal(content, &head); err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	switch {
	case head.Kind != treeKind:
		return nil, fmt.Errorf("kind is %q, want %s", head.Kind, treeKind)
	case head.Format > treeFormat, head.Format >= 1 && head.APIVersion != treeVersion:
		return nil, fmt.Errorf("written by a newer crmirror (%s, format %d); this one reads %s, format %d: upgrade it",
			head.APIVersion, head.Format, treeVersion, treeFormat)
	case head.Format < 1:
		return nil, errors.New("format is missing")
	}
	t := &Tree{}
	if err := yaml.UnmarshalStrict(content, t); err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	if t.Cluster == "" || t.ClusterUID == "" {
		return nil, errors.New("cluster or clusterUID is missing")
	}
	if _, err := t.Selection(nil); err != nil {
		return nil, err
	}
	return t, nil
}

// Selection returns the rules that the tree was written under, for encoding
// objects as the tree has them. Redacting needs the key that redactKey names.
// Without any rule, every custom resource has the default shape.
func (t *Tree) Selection(redactKey []byte) (kube.Selection, error) {
	if len(t.Rules) == 0 {
		return kube.Selection{Select: []kube.Rule{{Resources: []string{"*"}}}}, nil
	}
	var s kube.Selection
	for i, r := range t.Rules {
		drop, err := parseFields(r.Drop)
		if err != nil {
			return kube.Selection{}, fmt.Errorf("rules[%d].drop: %w", i, err)
		}
		redact, err := parseFields(r.Redact)
		if err != nil {
			return kube.Selection{}, fmt.Errorf("rules[%d].redact: %w", i, err)
		}
		s.Select = append(s.Select, kube.Rule{
			Resources: r.Resources, Namespaces: r.Namespaces, ExcludeNamespaces: r.ExcludeNamespaces,
			Names: r.Names, LabelSelector: r.LabelSelector,
			Shape: kube.Shape{Status: r.Status, Drop: drop, Redact: redact, RedactKey: redactKey},
		})
	}
	return s, nil
}

func parseFields(list []string) ([]kube.FieldPath, error) {
	var out []kube.FieldPath
	for _, s := range list {
		p, err := kube.ParseFieldPath(s)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// SameCluster tells whether both trees are one cluster's; its name does not count.
func (t *Tree) SameCluster(o *Tree) bool { return t.ClusterUID == o.ClusterUID }

// SameShaping tells whether both trees were written under the same rules, so
// that an object has the same encoding in both.
func (t *Tree) SameShaping(o *Tree) bool {
	return t.RedactKey == o.RedactKey && slices.EqualFunc(t.Rules, o.Rules, func(a, b TreeRule) bool {
		return slices.Equal(a.Resources, b.Resources) &&
			slices.Equal(a.Namespaces, b.Namespaces) &&
			slices.Equal(a.ExcludeNamespaces, b.ExcludeNamespaces) &&
			slices.Equal(a.Names, b.Names) &&
			a.LabelSelector == b.LabelSelector && a.Status == b.Status &&
			slices.Equal(a.Drop, b.Drop) && slices.Equal(a.Redact, b.Redact)
	})
}

// Equal tells whether both trees say the same, however their files are formatted.
func (t *Tree) Equal(o *Tree) bool {
	if (t.Adopted == nil) != (o.Adopted == nil) || t.Adopted != nil && *t.Adopted != *o.Adopted {
		return false
	}
	return t.Cluster == o.Cluster && t.SameCluster(o) && t.SameShaping(o)
}
