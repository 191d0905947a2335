package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/internal/wire"
)

// Options say how a Writer writes.
type Options struct {
	// Timeout limits each request; zero means 30 seconds.
	Timeout time.Duration
	// DryRun has the server do all but store: results and refusals are those of a real write.
	DryRun bool
}

// Writer reads objects and writes judged changes to them. It is safe for concurrent use.
type Writer struct {
	client  *wire.Client
	schemas *Schemas
}

// NewWriter writes through a connection. What the server is to be asked for at once is limited by the
// connection's QPS.
func NewWriter(config *rest.Config, schemas *Schemas, options Options) (*Writer, error) {
	if options.Timeout == 0 {
		options.Timeout = 30 * time.Second
	}
	client, err := wire.New(config, Manager, options.Timeout, options.DryRun)
	if err != nil {
		return nil, err
	}
	return &Writer{client: client, schemas: schemas}, nil
}

// Change is what one object is to become, judged on one live state of it.
type Change struct {
	Key      kube.Key
	Resource schema.GroupVersionResource // the version is that of Live and Want
	// Live is the judged state, with uid, resourceVersion and managedFields.
	Live *unstructured.Unstructured
	// Want has the values for Set, and all owner references if any is in Set or Remove.
	Want map[string]any
	// Set and Remove are the fields that change (those of threeway.Decision). A path in Set
	// without others below it is set whole.
	Set, Remove *fieldpath.Set
	// Shaped are paths of the object whose values no message may show.
	Shaped *fieldpath.Set
}

// Method says how a change was written.
type Method string

// The methods. Unneeded means that the object already was what it was to become.
const (
	Unneeded Method = ""
	Applied  Method = "apply"
	Patched  Method = "patch"
	Created  Method = "create"
)

// Result is what came of a write that landed.
type Result struct {
	Method Method
	// Object is the object as the server answered the write: what it stored.
	Object *unstructured.Unstructured
	// Displaced are the owners that lost a field to us.
	Displaced []Displaced
	// Returned are removed fields that the server put back: defaults. They are agreed at
	// the value that Object has.
	Returned []fieldpath.Path
	// Altered are set fields of which the server, or a webhook, made something else.
	Altered []fieldpath.Path
}

// Displaced is an owner that lost a field.
type Displaced struct {
	Path  fieldpath.Path
	Owner Owner
}

// Read reads an object with all the server has of it, at that version. The error is
// ErrNotFound only if the server said so of this object; a kind that is not served is
// Rejected with NoKind.
func (w *Writer) Read(ctx context.Context, key kube.Key, version string) (*unstructured.Unstructured, error) {
	at := location(key, version)
	live, err := w.client.Get(ctx, at)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, Unread(err, at))
	}
	return live, nil
}

func location(key kube.Key, version string) wire.Object {
	return wire.Object{Resource: key.GroupResource().WithVersion(version), Namespace: key.Namespace, Name: key.Name}
}

// Write writes a change. Errors are *Rejected, ErrMoved and ErrUncertain; others mean
// that the change itself makes no sense.
func (w *Writer) Write(ctx context.Context, c Change) (Result, error) {
	result, err := w.change(ctx, c)
	if err != nil {
		return Result{}, fmt.Errorf("write %s: %w", c.Key, err)
	}
	return result, nil
}

func (w *Writer) change(ctx context.Context, c Change) (Result, error) {
	judged, err := wire.Judge(c.Live)
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return Result{}, err
	}
	at := location(c.Key, c.Resource.Version)
	target, err := w.target(ctx, at, c)
	if err != nil {
		return Result{}, err
	}
	if same(target, c.Live.Object) {
		return Result{Object: c.Live}, nil
	}
	own, err := ReadOwnership(c.Live)
	if err != nil {
		return Result{}, err
	}
	method, after, err := w.send(ctx, at, judged, c, target, own)
	if err != nil {
		return Result{}, err
	}
	return c.result(method, target, after, own), nil
}

// check refuses a change that is not to be written, or none at all.
func (c *Change) check() error {
	if c.Live.GetName() != c.Key.Name || c.Live.GetNamespace() != c.Key.Namespace || c.Resource.GroupResource() != c.Key.GroupResource() ||
		c.Live.GroupVersionKind().GroupVersion() != c.Resource.GroupVersion() {
		return errors.New("the live object is another one")
	}
	if c.Live.GetDeletionTimestamp() != nil {
		return &Rejected{Verdict: Terminating, Message: "the object is being deleted", Retry: true}
	}
	c.Set, c.Remove = orNone(c.Set), orNone(c.Remove)
	for _, path := range each(c.Set.Union(c.Remove)) {
		if notOurs(path) {
			return fmt.Errorf("%s is written by the server only", path)
		}
	}
	return nil
}

func orNone(set *fieldpath.Set) *fieldpath.Set {
	if set == nil {
		return fieldpath.NewSet()
	}
	return set
}

// target returns the whole object that the change makes of the live one.
func (w *Writer) target(ctx context.Context, at wire.Object, c Change) (map[string]any, error) {
	set, remove := withoutReferences(c.Set), withoutReferences(c.Remove)
	left := without(c.Live.Object, c.Want, remove)
	target, err := overlay(left, c.Want, set, nil)
	if err != nil {
		return nil, err
	}
	obj := target.(map[string]any)
	if set.Size() == c.Set.Size() && remove.Size() == c.Remove.Size() {
		return obj, nil
	}
	live, _ := lookup(c.Live.Object, ownerReferences)
	want, _ := lookup(c.Want, ownerReferences)
	liveList, _ := live.([]any)
	wantList, _ := want.([]any)
	references, err := w.references(ctx, at, liveList, wantList)
	if err != nil {
		return nil, err
	}
	metadata := *ownerReferences[0].FieldName
	if len(references) == 0 {
		left, _ := child(obj, ownerReferences[0])
		return put(obj, nil, ownerReferences[0], take(left, ownerReferences[1])).(map[string]any), nil
	}
	inner := put(obj[metadata], nil, ownerReferences[1], references)
	return put(obj, nil, ownerReferences[0], inner).(map[string]any), nil
}

// send writes target: by apply where that makes exactly it, else by a patch.
func (w *Writer) send(ctx context.Context, at wire.Object, judged wire.Judged, c Change, target map[string]any, own Ownership) (Method, *unstructured.Unstructured, error) {
	hide := hide(c.Shaped, c.Live.Object, c.Want)
	typ, known, err := w.schemas.Type(ctx, c.Live.GroupVersionKind())
	if err != nil {
		return "", nil, unread(err)
	}
	if known {
		if body, ok := payload(typ, c.Live, target, own); ok {
			after, err := w.client.ForceApply(ctx, at, judged, body)
			// A patch needs no merge. It works where managedFields do not fit the type any more, and
			// of a body that does not, the server says more about a patch.
			if err = classify(err, at, hide); !errors.Is(err, errUnmergeable) {
				return Applied, after, err
			}
		}
	}
	after, err := w.client.Patch(ctx, at, judged, difference(c.Live.Object, target))
	err = classify(err, at, hide)
	if errors.Is(err, errTest) {
		err = w.whyNot(ctx, at, judged)
	}
	return Patched, after, err
}

// whyNot tells whether a patch did not fit because the object is not the judged one.
func (w *Writer) whyNot(ctx context.Context, at wire.Object, judged wire.Judged) error {
	if live, err := w.client.Get(ctx, at); err != nil || !judged.Is(live) {
		return ErrMoved
	}
	return &Rejected{Verdict: Invalid, Message: "the server could not carry out the patch"}
}

// result compares what was to come of a change with what came of it.
func (c *Change) result(method Method, target map[string]any, after *unstructured.Unstructured, own Ownership) Result {
	r := Result{Method: method, Object: after}
	now, err := ReadOwnership(after)
	if err != nil {
		own = Ownership{} // who lost what cannot be told; the write landed all the same
	}
	for _, path := range each(c.Set.Leaves()) {
		got, _ := lookup(after.Object, path)
		if wanted, ok := lookup(target, path); ok && !same(got, wanted) {
			r.Altered = append(r.Altered, path)
		}
		r.displaced(path, own, now.Owners(path))
	}
	for _, path := range each(c.Remove) {
		_, wanted := lookup(target, path)
		var still []Owner // of what is not there; who owns the emptied list above owns nothing of it
		_, there := lookup(after.Object, path)
		if there {
			still = now.Owners(path)
		}
		if there && !wanted {
			r.Returned = append(r.Returned, path)
		}
		r.displaced(path, own, still)
	}
	return r
}

func (r *Result) displaced(path fieldpath.Path, before Ownership, still []Owner) {
	for _, o := range before.Owners(path) {
		if o.Name != Manager && !hasOwner(still, o) {
			r.Displaced = append(r.Displaced, Displaced{Path: path, Owner: o})
		}
	}
}

func hasOwner(owners []Owner, o Owner) bool {
	for _, other := range owners {
		if other.Name == o.Name && other.Operation == o.Operation && other.Subresource == o.Subresource {
			return true
		}
	}
	return false
}
