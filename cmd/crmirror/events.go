package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/sync"
)

// Of all events together, eventsAtOnce may go out at once, and eventsPerSecond then: a
// thousand conflicts at one stroke are told by the log and the metrics.
const (
	eventsAtOnce    = 50
	eventsPerSecond = 1
)

// events tells in Kubernetes Events what users of the cluster have to know, on the object it
// is about. client-go counts the same one up and limits how many there are of an object.
type events struct {
	client   kubernetes.Interface
	kind     func(schema.GroupResource) (schema.GroupVersionKind, bool)
	log      logrus.FieldLogger
	limit    flowcontrol.PassiveRateLimiter
	recorder record.EventRecorder
}

// newEvents prepares to send events through a connection; kind tells that of a resource.
func newEvents(conn *rest.Config, kind func(schema.GroupResource) (schema.GroupVersionKind, bool), log logrus.FieldLogger) (*events, error) {
	client, err := kubernetes.NewForConfig(conn)
	if err != nil {
		return nil, fmt.Errorf("connect for events: %w", err)
	}
	return &events{client: client, kind: kind, log: log, limit: flowcontrol.NewTokenBucketPassiveRateLimiter(eventsPerSecond, eventsAtOnce)}, nil
}

// start sends events until ctx ends.
func (e *events) start(ctx context.Context) *events {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&loudSink{EventSink: &typedcorev1.EventSinkImpl{Interface: e.client.CoreV1().Events("")}, log: e.log})
	e.recorder = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "crmirror"})
	return e
}

// Conflict implements sync.Events. The event names the field and the file, and no value.
func (e *events) Conflict(c sync.Conflict) {
	e.tell(reference(c.Object), corev1.EventTypeWarning, "GitConflict", "%s: %s, against %s; see: crmirror conflicts",
		sync.Line(cmp.Or(c.Field, "the object")), sync.Line(c.Reason), sync.Line(c.File))
}

// Settled implements sync.Events.
func (e *events) Settled(c sync.Conflict) {
	e.tell(reference(c.Object), corev1.EventTypeNormal, "GitConflictSettled", "%s: no conflict with git any more: %s",
		sync.Line(cmp.Or(c.Field, "the object")), sync.Line(c.File))
}

// Refused implements sync.Events.
func (e *events) Refused(r sync.Refusal) {
	e.tell(reference(r.Object), corev1.EventTypeWarning, "GitNotApplied", "the change in %s is not applied: %s", sync.Line(r.File), sync.Line(r.Text))
}

// Quarantined implements sync.Quarantine.
func (e *events) Quarantined(key kube.Key, uid types.UID, reason error) {
	if on, ok := e.object(key, uid); ok {
		e.tell(on, corev1.EventTypeWarning, "GitQuarantined", "not written to git: %s", sync.Line(reason.Error()))
	}
}

// Recovered implements sync.Quarantine.
func (e *events) Recovered(key kube.Key, uid types.UID) {
	if on, ok := e.object(key, uid); ok {
		e.tell(on, corev1.EventTypeNormal, "GitRecovered", "written to git again")
	}
}

// Held implements sync.Events. The objects are gone, so it is told where their users look: in
// their Namespace; of those that had none, on their CRD.
func (e *events) Held(set sync.HeldSet) {
	counts, resources := map[corev1.ObjectReference]int{}, map[corev1.ObjectReference][]string{}
	for _, h := range set {
		at := placeOfDeleted(h.Key)
		counts[at]++
		if name := h.Key.GroupResource().String(); !slices.Contains(resources[at], name) {
			resources[at] = append(resources[at], name)
		}
	}
	for at, n := range counts {
		e.tell(&at, corev1.EventTypeWarning, "GitDeletionsHeld", "held until approved: %s of %s; see the agent's log, and: crmirror approve %s",
			counted(n, "deletion"), firstOf(resources[at]), set.Digest())
	}
}

// firstOf names the first few.
func firstOf(names []string) string {
	const most = 5
	slices.Sort(names)
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more kinds", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// placeOfDeleted is where the deletion of an object is told.
func placeOfDeleted(key kube.Key) corev1.ObjectReference {
	namespace := key.Namespace
	if key.Group == "" && key.Resource == "namespaces" {
		namespace = key.Name
	}
	if namespace != "" {
		// An event lies in the namespace that it names, and people look for it in theirs.
		return corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Namespace: namespace, Name: namespace}
	}
	return corev1.ObjectReference{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition", Name: key.GroupResource().String()}
}

// tell sends an event, unless too many went out.
func (e *events) tell(on *corev1.ObjectReference, kind, reason, format string, args ...any) {
	if e.limit.TryAccept() {
		e.recorder.Eventf(on, kind, reason, format, args...)
	}
}

// object refers to a live object; of a kind that is not served any more it cannot.
func (e *events) object(key kube.Key, uid types.UID) (*corev1.ObjectReference, bool) {
	kind, ok := e.kind(key.GroupResource())
	if !ok {
		return nil, false
	}
	return &corev1.ObjectReference{
		APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Namespace: key.Namespace, Name: key.Name, UID: uid,
	}, true
}

func reference(o sync.Object) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID}
}
