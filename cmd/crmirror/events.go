package main

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/crmirror/crmirror/sync"
)

// events tells of conflicts in Kubernetes Events on the objects. client-go counts the
// same one up and limits how many there are.
type events struct {
	recorder record.EventRecorder
}

// newEvents sends events through a connection until ctx ends.
func newEvents(ctx context.Context, conn *rest.Config) (*events, error) {
	client, err := kubernetes.NewForConfig(conn)
	if err != nil {
		return nil, fmt.Errorf("connect for events: %w", err)
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return &events{recorder: broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "crmirror"})}, nil
}

// Conflict implements sync.Events. The event names the field and the file, and no value.
func (e *events) Conflict(c sync.Conflict) {
	e.recorder.Eventf(reference(c.Object), corev1.EventTypeWarning, "GitConflict", "%s: %s, against %s; see: crmirror conflicts",
		cmp.Or(c.Field, "the object"), c.Reason, c.File)
}

// Refused implements sync.Events.
func (e *events) Refused(r sync.Refusal) {
	e.recorder.Eventf(reference(r.Object), corev1.EventTypeWarning, "GitNotApplied", "the change in %s is not applied: %s", r.File, r.Text)
}

func reference(o sync.Object) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID}
}
