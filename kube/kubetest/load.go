package kubetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/crmirror/crmirror/kube"
)

const (
	// loadWorkers create objects side by side: the server spends its time waiting
	// for etcd.
	loadWorkers = 8
	// servedTimeout is how long a resource may take from "established" to served.
	servedTimeout = 3 * time.Minute
	// fieldManager is the owner of what is loaded: not crmirror.
	fieldManager = "crlab"
)

// Report tells what Load did.
type Report struct {
	CRDs    int       // created, or there already
	Objects []Loaded  // in the order of the files
	Refused []Refusal // what the server, or we, did not take, with the reason

	// StatusRefused are objects that were created, but without the status of the
	// file, which the server did not take.
	StatusRefused []Refusal
}

// Loaded is one object that was created.
type Loaded struct {
	Key   kube.Key // its identity in the cluster, which may not be the file's
	File  string
	Index int // which object of the file, from 1
}

// Refusal is an object, or a status, that was not taken.
type Refusal struct {
	File   string
	Index  int    // which object of the file, from 1
	Object string // kind and name, empty if the document could not be read
	Err    error
}

// String says file, object and reason in one line.
func (r Refusal) String() string {
	return fmt.Sprintf("%s #%d %s: %v", r.File, r.Index, r.Object, r.Err)
}

// Load creates the objects of all YAML and JSON files below the given folders:
// first CRDs, which it waits for, then namespaces, then the others, owners
// before what they own. Every object gets in: one whose identity is taken goes
// into a namespace of its own (a cluster-scoped one gets another name), one with
// a generateName gets a fixed name, one without a namespace goes to "default",
// and missing namespaces are created. A status in the file is written through
// the status subresource where there is one. An owner reference without a uid
// gets the live owner's. What the server refuses is in the Report and is no error.
func Load(ctx context.Context, config *rest.Config, dirs ...string) (*Report, error) {
	documents, refused, err := readManifests(dirs)
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS = -1 // no limit on our side
	config.WarningHandlerWithContext = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to kube-apiserver: %w", err)
	}
	l := &loader{
		client:    client,
		placement: placement{taken: make(map[kube.Key]bool)},
		report:    Report{Refused: refused},
	}
	return &l.report, l.load(ctx, config, documents)
}

// loader is one call of Load.
type loader struct {
	client    dynamic.Interface
	resources *resources
	placement placement

	mu     sync.Mutex // guards report
	report Report
}

// object is a document on its way into the cluster.
type object struct {
	document
	resource resource
	key      kube.Key
	created  bool
}

func (l *loader) load(ctx context.Context, config *rest.Config, documents []document) error {
	var crds []document
	var others []document
	for _, doc := range documents {
		if doc.GetKind() == crdKind {
			crds = append(crds, doc)
		} else {
			others = append(others, doc)
		}
	}
	if err := l.loadCRDs(ctx, crds); err != nil {
		return err
	}
	var err error
	if l.resources, err = newResources(ctx, l.client, config); err != nil {
		return err
	}
	var objects []*object
	for _, doc := range others {
		resource, err := l.resources.of(doc.GroupVersionKind())
		if err != nil {
			l.refuse(doc, err)
			continue
		}
		if doc.GetName() == "" && doc.GetGenerateName() == "" {
			l.refuse(doc, fmt.Errorf("neither metadata.name nor generateName"))
			continue
		}
		objects = append(objects, &object{document: doc, resource: resource, key: l.placement.place(doc, resource)})
	}
	if err := l.createInWaves(ctx, objects); err != nil {
		return err
	}
	for _, o := range objects {
		if o.created {
			l.report.Objects = append(l.report.Objects, Loaded{Key: o.key, File: o.File, Index: o.Index})
		}
	}
	return nil
}

// createInWaves creates Namespaces first and owners before what they own.
func (l *loader) createInWaves(ctx context.Context, objects []*object) error {
	namespaces, rest := partition(objects, func(o *object) bool { return o.key.GroupResource() == namespaceResource.GroupResource() })
	if err := l.createAll(ctx, namespaces); err != nil {
		return err
	}
	if err := l.createNamespaces(ctx, rest); err != nil {
		return err
	}
	for len(rest) > 0 {
		pending := make(map[string]bool)
		for _, o := range rest {
			pending[o.ownName()] = true
		}
		ready, later := partition(rest, func(o *object) bool {
			for _, owner := range o.unresolvedOwners() {
				if pending[o.key.Namespace+"/"+owner] || pending["/"+owner] {
					return false
				}
			}
			return true
		})
		if len(ready) == 0 {
			ready, later = rest, nil // a circle: the server refuses them, each by itself
		}
		if err := l.createAll(ctx, ready); err != nil {
			return err
		}
		rest = later
	}
	return nil
}

// createAll creates the objects with several workers; it fails only when ctx ends.
func (l *loader) createAll(ctx context.Context, objects []*object) error {
	return parallel(ctx, objects, func(o *object) {
		if err := l.create(ctx, o); err != nil {
			l.refuse(o.document, err)
			return
		}
		o.created = true
	})
}

// create creates one object and then writes its status.
func (l *loader) create(ctx context.Context, o *object) error {
	if err := l.resolveOwners(ctx, o); err != nil {
		return err
	}
	created, err := l.createServed(ctx, o)
	for apierrors.IsAlreadyExists(err) {
		// The cluster was not empty.
		o.key = l.placement.next(o.Unstructured, o.key)
		if err := l.createNamespaces(ctx, []*object{o}); err != nil {
			return err
		}
		created, err = l.createServed(ctx, o)
	}
	if err != nil {
		return err
	}
	status, found := o.Object["status"]
	if !found || !o.resource.statusSubresource {
		return nil
	}
	created.Object["status"] = status
	client := l.client.Resource(o.resource.GVR).Namespace(o.key.Namespace)
	if _, err := client.UpdateStatus(ctx, created, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil {
		refusal := newRefusal(o.document, fmt.Errorf("write status: %w", err))
		l.mu.Lock()
		defer l.mu.Unlock()
		l.report.StatusRefused = append(l.report.StatusRefused, refusal)
	}
	return nil
}

// createServed creates the object as soon as its resource is served: a CRD is
// established a moment before.
func (l *loader) createServed(ctx context.Context, o *object) (*unstructured.Unstructured, error) {
	client := l.client.Resource(o.resource.GVR).Namespace(o.key.Namespace)
	deadline, cancel := context.WithTimeout(ctx, servedTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		created, err := client.Create(ctx, o.Unstructured, metav1.CreateOptions{FieldManager: fieldManager})
		if err == nil || !apierrors.IsNotFound(err) && !apierrors.IsTooManyRequests(err) && !apierrors.IsServerTimeout(err) {
			return created, err
		}
		select {
		case <-tick.C:
		case <-deadline.Done():
			return nil, err
		}
	}
}

// createNamespaces creates the namespaces that the objects need.
func (l *loader) createNamespaces(ctx context.Context, objects []*object) error {
	names := make(map[string]bool)
	for _, o := range objects {
		if o.key.Namespace != "" {
			names[o.key.Namespace] = true
		}
	}
	var namespaces []*unstructured.Unstructured
	for name := range names {
		namespace := &unstructured.Unstructured{}
		namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
		namespace.SetName(name)
		namespaces = append(namespaces, namespace)
	}
	var mu sync.Mutex
	var failed error
	err := parallel(ctx, namespaces, func(namespace *unstructured.Unstructured) {
		_, err := l.client.Resource(namespaceResource).Create(ctx, namespace, metav1.CreateOptions{FieldManager: fieldManager})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			mu.Lock()
			defer mu.Unlock()
			failed = fmt.Errorf("create namespace %s: %w", namespace.GetName(), err)
		}
	})
	if err != nil {
		return err
	}
	return failed
}

func (l *loader) refuse(doc document, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report.Refused = append(l.report.Refused, newRefusal(doc, err))
}

func newRefusal(doc document, err error) Refusal {
	name := doc.GetName()
	if name == "" {
		name = doc.GetGenerateName()
	}
	return Refusal{File: doc.File, Index: doc.Index, Object: doc.GetKind() + " " + name, Err: err}
}

// parallel calls do for each item with several workers and waits. It fails only
// when ctx ends before all were taken.
func parallel[T any](ctx context.Context, items []T, do func(T)) error {
	queue := make(chan T)
	var workers sync.WaitGroup
	for range min(loadWorkers, len(items)) {
		workers.Go(func() {
			for item := range queue {
				do(item)
			}
		})
	}
	defer workers.Wait()
	defer close(queue)
	for _, item := range items {
		select {
		case queue <- item:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// partition splits items by a predicate and keeps their order.
func partition[T any](items []T, belongs func(T) bool) (in, out []T) {
	for _, item := range items {
		if belongs(item) {
			in = append(in, item)
		} else {
			out = append(out, item)
		}
	}
	return in, out
}
