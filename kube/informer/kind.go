package informer

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crmirror/crmirror/kube"
)

// kind is one resource and what runs for it.
type kind struct {
	definition
	// fixed kinds run whatever the CRDs and the rules are.
	fixed bool
	// gone says that the CRD with that uid is terminating, deleted or replaced;
	// told, that the Sink knows. The kind may be reborn once it does.
	gone, told bool
	// reborn says that another CRD with the same name was seen before.
	reborn bool
	// since is when the kind was lost, or looked for in vain.
	since time.Time
	// unserved is why nothing runs for a resource that a rule names.
	unserved error

	informers map[string]*informer // by namespace
	known     map[string]*known    // by namespace; outlives the informers
}

// namespacesResource is the resource of the namespaces themselves.
func namespacesResource() schema.GroupResource { return schema.GroupResource{Resource: "namespaces"} }

// startFixed starts the informers that run whatever CRDs there are.
func (f *Fleet) startFixed(ctx context.Context) {
	sink := f.options.Sink
	_, named := f.options.Rules.Resource(crdResource(), false)
	if !f.options.IncludeCRDs && !named {
		sink = failuresOnly{sink}
	}
	crds := &kind{fixed: true, definition: definition{
		resource: crdResource(), kind: "CustomResourceDefinition", version: "v1", established: true,
	}}
	everywhere := []string{""}
	f.launch(ctx, crds, everywhere, func(i *informer) {
		i.sink = sink
		i.governs = f.governsCRD
		i.seen, i.vanished = f.crdSeen, f.crdVanished
	})
	if f.options.IncludeNamespaces {
		f.launch(ctx, &kind{fixed: true, definition: definition{
			resource: namespacesResource(), kind: "Namespace", version: "v1", established: true,
		}}, everywhere, func(i *informer) { i.governs = f.governsNamespace })
	}
}

// start runs the informers of a selected kind.
func (f *Fleet) start(ctx context.Context, k *kind) {
	rules, _ := f.options.Rules.Resource(k.resource, k.uid != "")
	scopes := []string{""}
	if namespaces := rules.Namespaces(); namespaces != nil && k.namespaced {
		scopes = namespaces
	} else if namespaces != nil {
		scopes = nil // rules that name namespaces select nothing outside of them
	}
	f.launch(ctx, k, scopes, func(i *informer) {
		i.selector = rules.LabelSelector()
		i.governs = func(obj *unstructured.Unstructured) (*kube.Shape, bool) { return shapeBy(rules, obj) }
	})
}

// launch starts one informer for each namespace scope of the kind, prepared by
// the given function.
func (f *Fleet) launch(ctx context.Context, k *kind, scopes []string, prepare func(*informer)) {
	if k.known == nil {
		k.known = map[string]*known{}
	}
	resource := k.resource.WithVersion(k.version)
	informers := map[string]*informer{}
	for _, namespace := range scopes {
		if k.known[namespace] == nil {
			k.known[namespace] = newKnown()
		}
		i := &informer{
			scope: Scope{Resource: k.resource, Namespace: namespace}, resource: resource, reborn: k.reborn,
			known: k.known[namespace], client: f.client.Resource(resource),
			sink: f.options.Sink, log: f.options.Log, options: &f.options, changed: f.notify,
			health: f.inherited(k.resource, namespace),
		}
		if !k.fixed {
			i.slots = f.slots
		}
		prepare(i)
		i.start(ctx)
		informers[namespace] = i
	}
	f.mu.Lock()
	k.informers = informers
	f.kinds[k.resource] = k
	f.mu.Unlock()
}

// inherited is the health with which an informer starts: one that replaces a
// failing one is failing until it has listed, so that Recovered is told.
func (f *Fleet) inherited(resource schema.GroupResource, namespace string) health {
	f.mu.Lock()
	defer f.mu.Unlock()
	if k := f.kinds[resource]; k != nil {
		if old := k.informers[namespace]; old != nil {
			if h := old.current(); h.phase == PhaseFailing {
				return health{phase: PhaseFailing, err: h.err, told: h.told, since: h.since}
			}
		}
	}
	return health{phase: PhaseListing, since: time.Now()}
}

// governsCRD judges a CustomResourceDefinition: it goes with its objects.
func (f *Fleet) governsCRD(obj *unstructured.Unstructured) (*kube.Shape, bool) {
	if rules, ok := f.options.Rules.Resource(crdResource(), false); ok {
		if shape, ok := shapeBy(rules, obj); ok {
			return shape, true
		}
	}
	_, selected := f.options.Rules.Resource(defined(obj).resource, true)
	return &kube.Shape{}, selected
}

// governsNamespace judges a Namespace: every one is told.
func (f *Fleet) governsNamespace(obj *unstructured.Unstructured) (*kube.Shape, bool) {
	if rules, ok := f.options.Rules.Resource(namespacesResource(), false); ok {
		if shape, ok := shapeBy(rules, obj); ok {
			return shape, true
		}
	}
	return &kube.Shape{}, true
}

// shapeBy returns the shape of the rule that governs an object.
func shapeBy(rules *kube.ResourceRules, obj *unstructured.Unstructured) (*kube.Shape, bool) {
	rule, ok := rules.Governs(obj)
	if !ok {
		return nil, false
	}
	return &rule.Shape, true
}

// crdSeen notes a definition as it is now.
func (f *Fleet) crdSeen(ctx context.Context, obj *unstructured.Unstructured) {
	d := defined(obj)
	f.mu.Lock()
	if f.definitions[d.resource] != d {
		f.definitions[d.resource] = d
		f.changes++
	}
	k := f.kinds[d.resource]
	if k == nil && d.terminating {
		if _, selected := f.options.Rules.Resource(d.resource, true); selected {
			k = &kind{definition: d}
			f.kinds[d.resource] = k
		}
	}
	lost := k != nil && !k.gone && (d.terminating || k.uid != "" && k.uid != d.uid)
	if lost {
		k.gone, k.since = true, time.Now()
	}
	f.mu.Unlock()
	if lost {
		f.lose(ctx, k)
	}
	f.notify()
}

// crdVanished notes that a definition does not exist any more. The uid is empty
// when a listing lacks it.
func (f *Fleet) crdVanished(ctx context.Context, name string, uid types.UID) {
	resource := schema.ParseGroupResource(name)
	f.mu.Lock()
	if d, ok := f.definitions[resource]; ok && (uid == "" || uid == d.uid) {
		delete(f.definitions, resource)
		f.changes++
	}
	k := f.kinds[resource]
	lost := k != nil && !k.gone && k.uid != "" && (uid == "" || uid == k.uid)
	if lost {
		k.gone, k.since = true, time.Now()
	}
	f.mu.Unlock()
	if lost {
		f.lose(ctx, k)
	}
	f.notify()
}

// lose ends the informers of a kind that is marked as gone, and tells that it is.
//
// Invariant: this happens in the CRD informer's own call, before anything else, and
// KindGone is the last that is told of the kind: deletions that the server sends
// for the objects of a terminating CRD come before it, or never. Those before it
// are what Proven is for (TestCRDDeletedWithObjects).
func (f *Fleet) lose(ctx context.Context, k *kind) {
	f.mu.Lock()
	informers := k.informers
	f.mu.Unlock()
	stopInformers(informers)
	f.options.Sink.KindGone(ctx, k.resource)
	f.mu.Lock()
	k.told, k.informers = true, nil
	f.mu.Unlock()
}
