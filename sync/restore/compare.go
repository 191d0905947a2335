package restore

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/threeway"
	"github.com/crmirror/crmirror/sync"
)

// Comparison is how an object of git and the live one differ.
type Comparison struct {
	// Changes are in the order of their fields; none means that the two are equal.
	Changes []Change
	// NotCompared are fields that cannot be compared: their values were redacted with a key
	// that is not at hand.
	NotCompared []string
	// Set and Remove are what makes the live object equal: apply.Advance(live, d.Object, Set,
	// Remove) is the live object with the fields of git, and with all that the rules leave out,
	// or Options strip, as it is. Owner references in it lack the uid.
	Set, Remove *fieldpath.Set
	// Kept are fields of which git has only digests, of other values than the cluster's. They are in
	// Changes, and not in Set: an update leaves them as they are.
	Kept []string
	// Lacking are fields of which git has only digests, and the cluster nothing: the object cannot be made
	// as it was. They are in Changes, and not in Set.
	Lacking []string
	// Whole are fields that cannot be set alone: a list that is one value holds something that
	// the rules leave out. They are in Changes, and not in Set.
	Whole []string
}

// Equal tells whether the live object, read at the version that git has it at, has the very encoding
// of the item's file. It reads nothing. False means that the two have to be compared: a file that people
// formatted, redacted values, or a difference.
func (s *Snapshot) Equal(item Item, live *unstructured.Unstructured, opts *Options) bool {
	theirs := opts.unmapped(live, item.Key)
	content, err := kube.Encode(theirs, s.Shape(item.Key.GroupResource(), theirs))
	return err == nil && gitstore.BlobHash(content) == item.Blob
}

// Compare compares an object as it shall be with the live one, read at the same version. Fields
// follow the type; what the rules leave out is not compared, and neither is what Options strip.
// The error is about an object that has no encoding.
func (s *Snapshot) Compare(d *Desired, live *unstructured.Unstructured, typ typed.ParseableType, opts *Options) (Comparison, error) {
	c := comparer{s: s, git: d.Object, typ: typ}
	if err := c.encode(d, live, opts); err != nil {
		return Comparison{}, fmt.Errorf("compare %s: %w", d.To, err)
	}
	decision, err := threeway.Decide(threeway.Input{Base: c.cluster, Git: c.git, Cluster: c.cluster, Type: typ, Shaped: c.shaped})
	if err != nil {
		return Comparison{}, fmt.Errorf("compare %s: %w", d.To, err)
	}
	if c.owners, err = apply.ReadOwnership(live); err != nil {
		c.owners = apply.Ownership{} // who set what cannot be told; that it differs can
	}
	c.last = kube.NewestManager(live)
	c.out.Set, c.out.Remove = decision.Set, decision.Remove
	c.decided(&decision)
	c.status()
	slices.SortStableFunc(c.out.Changes, func(a, b Change) int { return a.path.Compare(b.path) })
	return c.out, nil
}

// comparer collects the differences of one object.
type comparer struct {
	s            *Snapshot
	git, cluster map[string]any
	typ          typed.ParseableType
	shape        *kube.Shape
	shaped       *fieldpath.Set
	owners       apply.Ownership
	last         kube.Manager
	secret       bool
	out          Comparison
}

// encode brings the live object into the form that git's has. Digests count the namespace that git
// has the object in.
func (c *comparer) encode(d *Desired, live *unstructured.Unstructured, opts *Options) error {
	theirs := opts.unmapped(live, d.Key)
	c.shape = c.s.Shape(d.Key.GroupResource(), theirs)
	encoded, err := kube.Encode(theirs, c.shape)
	if err != nil {
		return err
	}
	obj, err := kube.Decode(encoded)
	if err != nil {
		return err
	}
	c.cluster = obj.Object
	opts.strip(c.cluster)
	opts.mapObject(c.cluster, d.Key)
	c.secret = d.Key.Group == "" && d.Key.Resource == "secrets"
	c.shaped = fieldpath.NewSet()
	for _, content := range []map[string]any{c.git, live.Object, c.cluster} {
		c.shaped = c.shaped.Union(threeway.Places(c.typ, content, c.shape.Places(content)))
	}
	if !c.s.keyKnown {
		c.cluster = c.withoutDigests(nil, c.git, c.cluster).(map[string]any)
	}
	return nil
}

// withoutDigests returns the cluster's value with git's digests where both have one: without the
// key, the cluster's says nothing.
func (c *comparer) withoutDigests(path fieldpath.Path, git, cluster any) any {
	switch g := git.(type) {
	case map[string]any:
		if m, ok := cluster.(map[string]any); ok {
			for key, v := range g {
				if other, ok := m[key]; ok {
					m[key] = c.withoutDigests(append(path, fieldpath.FieldNameElement(key)), v, other)
				}
			}
		}
	case []any:
		if list, ok := cluster.([]any); ok && len(list) == len(g) {
			for i := range g {
				list[i] = c.withoutDigests(append(path, fieldpath.IndexElement(i)), g[i], list[i])
			}
		}
	case string:
		if kube.ContainsRedaction(g) && kube.ContainsRedaction(cluster) {
			c.out.NotCompared = append(c.out.NotCompared, fieldText(path))
			return g
		}
	}
	return cluster
}

// decided tells of what a decision would do to the cluster.
func (c *comparer) decided(d *threeway.Decision) {
	for _, path := range leaves(d.Set) {
		git, inGit := sync.ValueAt(c.git, path)
		cluster, inCluster := sync.ValueAt(c.cluster, path)
		if inGit && inCluster && kube.EqualValues(git, cluster) {
			continue // the key of an item in which something else is set
		}
		c.add(path, git, inGit, cluster, inCluster, "")
	}
	for _, path := range leaves(d.Remove) {
		cluster, inCluster := sync.ValueAt(c.cluster, path)
		c.add(path, nil, false, cluster, inCluster, "")
	}
	for _, x := range d.Conflicts {
		c.out.Whole = append(c.out.Whole, fieldText(x.Path))
		c.add(x.Path, x.Git.V, x.Git.Present, x.Cluster.V, x.Cluster.Present, x.Reason)
	}
	for _, f := range d.Findings {
		git, inGit := sync.ValueAt(c.git, f.Path)
		cluster, inCluster := sync.ValueAt(c.cluster, f.Path)
		switch {
		case f.Kind == threeway.EditsStatus:
		case f.Kind == threeway.EditsShaped && !c.s.keyKnown && inGit && inCluster:
			c.out.NotCompared = append(c.out.NotCompared, fieldText(f.Path))
		case f.Kind == threeway.EditsShaped && kube.ContainsRedaction(git) && kube.ContainsRedaction(cluster):
			c.out.Kept = append(c.out.Kept, fieldText(f.Path))
			c.add(f.Path, git, inGit, cluster, inCluster, "")
		case f.Kind == threeway.EditsShaped && kube.ContainsRedaction(git) && !inCluster:
			c.out.Lacking = append(c.out.Lacking, fieldText(f.Path))
			c.add(f.Path, git, inGit, cluster, inCluster, "")
		default:
			c.out.Whole = append(c.out.Whole, fieldText(f.Path))
			c.add(f.Path, git, inGit, cluster, inCluster, string(f.Kind))
		}
	}
	slices.Sort(c.out.NotCompared)
	c.out.NotCompared = slices.Compact(c.out.NotCompared)
}

// status compares the status where git keeps it. No type is asked: nobody merges a status.
func (c *comparer) status() {
	git, inGit := c.git["status"]
	cluster, inCluster := c.cluster["status"]
	if !c.shape.Status || !inGit && !inCluster {
		return
	}
	if inGit != inCluster {
		c.add(fieldpath.MakePathOrDie("status"), git, inGit, cluster, inCluster, "")
		return
	}
	c.statusBelow(fieldpath.Path{fieldpath.FieldNameElement("status")}, git, cluster)
}

func (c *comparer) statusBelow(path fieldpath.Path, git, cluster any) {
	g, isMap := git.(map[string]any)
	m, both := cluster.(map[string]any)
	if !isMap || !both {
		if !kube.EqualValues(git, cluster) {
			c.add(path, git, true, cluster, true, "")
		}
		return
	}
	for _, key := range unionKeys(g, m) {
		at := append(path.Copy(), fieldpath.FieldNameElement(key))
		x, inGit := g[key]
		y, inCluster := m[key]
		if inGit && inCluster {
			c.statusBelow(at, x, y)
		} else {
			c.add(at, x, inGit, y, inCluster, "")
		}
	}
}

// The kinds of changes.
const (
	onlyInGit     = "only in git"
	onlyInCluster = "only in the cluster"
	differs       = "differs"
)

func (c *comparer) add(path fieldpath.Path, git any, inGit bool, cluster any, inCluster bool, reason string) {
	change := Change{Field: fieldText(path), Kind: differs, path: path.Copy()}
	switch {
	case !inCluster:
		change.Kind = onlyInGit
	case !inGit:
		change.Kind = onlyInCluster
	}
	for _, o := range c.owners.Owners(path) {
		change.Owners = append(change.Owners, o.Name)
	}
	slices.Sort(change.Owners)
	change.Owners = slices.Compact(change.Owners)
	change.Cause = c.cause(path, change.Kind)
	if reason != "" {
		change.Cause = reason
	}
	if !c.hidden(path) {
		change.Git, change.Cluster = shown(git, inGit), shown(cluster, inCluster)
	}
	c.out.Changes = append(c.out.Changes, change)
}

// cause says why a field likely differs.
func (c *comparer) cause(path fieldpath.Path, kind string) string {
	var newest *apply.Owner
	owners := c.owners.Owners(path)
	for i := range owners {
		if newest == nil || !owners[i].Time.Before(newest.Time) {
			newest = &owners[i]
		}
	}
	switch {
	case newest != nil && newest.Unknown:
		return "set by somebody the server has no record of"
	case newest != nil:
		return "set by " + managerText(newest.Manager)
	case kind == onlyInCluster:
		return "defaulted by the server"
	case kind == onlyInGit && c.last.Name != "":
		return "the object was last written by " + managerText(c.last)
	}
	return ""
}

func managerText(m kube.Manager) string {
	const runes = 128 // a manager's name may be as long
	text := sync.Printable(m.Name, runes)
	if !m.Time.IsZero() {
		text += " at " + m.Time.UTC().Format(time.RFC3339)
	}
	return text
}

// hidden tells whether the values of a field are not to be shown.
//
// Invariant: a plan holds no value of a Secret or of a field that the rules redact
// (TestPlanHoldsNoSecret).
func (c *comparer) hidden(path fieldpath.Path) bool {
	if c.secret && len(path) > 0 && path[0].FieldName != nil && *path[0].FieldName != "metadata" {
		return true
	}
	at := c.shaped
	for i, step := range path {
		if at.Members.Has(step) {
			return true
		}
		below := at.WithPrefix(step)
		if i == len(path)-1 {
			return !below.Empty()
		}
		at = below
	}
	return false
}

// shownRunes bounds a value that is shown.
const shownRunes = 120

// shown writes a value for people: compact JSON, cut to a size; nothing where there is none.
func shown(v any, present bool) string {
	switch {
	case !present:
		return ""
	case kube.ContainsRedaction(v):
		return ""
	}
	text, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return sync.Printable(string(text), shownRunes)
}

// leaves returns the paths of a set that have none below them.
func leaves(set *fieldpath.Set) []fieldpath.Path {
	var paths []fieldpath.Path
	set.Leaves().Iterate(func(path fieldpath.Path) { paths = append(paths, path.Copy()) })
	return paths
}

func unionKeys(a, b map[string]any) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	return slices.Compact(keys)
}
