package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/sirupsen/logrus"
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
	client   kubernetes.Interface
	log      logrus.FieldLogger
	recorder record.EventRecorder
}

// newEvents prepares to send events through a connection.
func newEvents(conn *rest.Config, log logrus.FieldLogger) (*events, error) {
	client, err := kubernetes.NewForConfig(conn)
	if err != nil {
		return nil, fmt.Errorf("connect for events: %w", err)
	}
	return &events{client: client, log: log}, nil
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
	e.recorder.Eventf(reference(c.Object), corev1.EventTypeWarning, "GitConflict", "%s: %s, against %s; see: crmirror conflicts",
		sync.Line(cmp.Or(c.Field, "the object")), sync.Line(c.Reason), sync.Line(c.File))
}

// Refused implements sync.Events.
func (e *events) Refused(r sync.Refusal) {
	e.recorder.Eventf(reference(r.Object), corev1.EventTypeWarning, "GitNotApplied", "the change in %s is not applied: %s", sync.Line(r.File), sync.Line(r.Text))
}

func reference(o sync.Object) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID}
}
