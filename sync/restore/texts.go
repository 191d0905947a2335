package restore

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/bulk"
	"github.com/crmirror/crmirror/kube/threeway"
)

// Differ writes objects that differ as text, git's and the cluster's.
type Differ struct {
	snapshot *Snapshot
	cluster  Cluster
	opts     *Options
	served   *bulk.Served
}

// NewDiffer asks the cluster what it serves. Options are those that the differences were found with.
func NewDiffer(ctx context.Context, snapshot *Snapshot, cluster Cluster, opts *Options) (*Differ, error) {
	served, err := cluster.Discover(ctx)
	if err != nil {
		return nil, err
	}
	return &Differ{snapshot: snapshot, cluster: cluster, opts: opts, served: served}, nil
}

// Texts returns an object as git has it and as the cluster does, in one form: as it lies in git, but
// under its names in the cluster, and without what Options strip. nil is an object that is not there.
// The error is about the one object (*FileError, kube.ErrSecret), or about cluster or repository.
//
// Invariant: a value that the rules redact is in neither text, and where the key is not known it does
// not make a difference (TestTextsHideRedacted).
func (d *Differ) Texts(ctx context.Context, difference *Difference) (git, cluster []byte, err error) {
	item, ok := d.snapshot.Item(difference.From)
	if !ok {
		return nil, nil, fmt.Errorf("show %s: git does not have it", difference.From)
	}
	desired, err := d.snapshot.Wanted(ctx, item, "", d.opts)
	if err != nil {
		return nil, nil, err
	}
	if git, err = kube.EncodeStored(desired.Object); err != nil {
		return nil, nil, fmt.Errorf("show %s as git has it: %w", desired.To, err)
	}
	resource, served := d.readAt(desired)
	if !served {
		return git, nil, nil
	}
	live, err := d.cluster.Get(ctx, resource, desired.To.Namespace, desired.To.Name)
	if errors.Is(err, apply.ErrNotFound) {
		return git, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	typ, _, err := d.cluster.Type(ctx, live.GroupVersionKind())
	if err != nil {
		return nil, nil, err
	}
	c := comparer{s: d.snapshot, git: desired.Object, typ: typ}
	if err := c.encode(desired, live, d.opts); err != nil {
		return nil, nil, fmt.Errorf("show %s as the cluster has it: %w", desired.To, err)
	}
	if cluster, err = kube.EncodeStored(c.cluster); err != nil {
		return nil, nil, fmt.Errorf("show %s as the cluster has it: %w", desired.To, err)
	}
	return git, cluster, nil
}

// readAt is where the live object is read: at the version of git's, if that is served.
func (d *Differ) readAt(desired *Desired) (schema.GroupVersionResource, bool) {
	gr := desired.Key.GroupResource()
	kind, ok := d.served.Resource(gr)
	if !ok {
		return schema.GroupVersionResource{}, false
	}
	if version := versionOf(desired.Object); version != "" {
		if _, ok := kind.Version(version); ok {
			return gr.WithVersion(version), true
		}
	}
	return kind.Preferred(), true
}

// Shaped returns the paths of an object, as it is sent to the cluster, whose values no message may show.
func (s *Snapshot) Shaped(opts *Options) func(schema.GroupResource, map[string]any) *fieldpath.Set {
	return func(gr schema.GroupResource, obj map[string]any) *fieldpath.Set {
		live := &unstructured.Unstructured{Object: obj}
		key := keyOf(gr.Resource, live)
		key.Group = gr.Group
		shape := s.Shape(gr, opts.unmapped(live, opts.unmapKey(key)))
		return threeway.Places(typed.DeducedParseableType, obj, shape.Places(obj))
	}
}
