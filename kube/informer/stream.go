package informer

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// stream carries the events of a watch to the Reflector, one at a time. It notices
// errors in the stream and initial events that do not go on.
type stream struct {
	source  *source
	from    watch.Interface
	cancel  context.CancelFunc
	initial bool // until the end of the initial events
	events  chan watch.Event
	done    chan struct{}
	stop    sync.Once
	late    *time.Timer
}

func newStream(s *source, from watch.Interface, initial bool, cancel context.CancelFunc) *stream {
	return &stream{
		source: s, from: from, cancel: cancel, initial: initial,
		events: make(chan watch.Event), done: make(chan struct{}),
		late: time.NewTimer(s.timeout),
	}
}

// ResultChan returns the events.
func (s *stream) ResultChan() <-chan watch.Event { return s.events }

// Stop ends the watch.
func (s *stream) Stop() {
	s.stop.Do(func() {
		close(s.done)
		s.cancel()
		s.from.Stop()
	})
}

// carry runs until the watch ends or is stopped.
func (s *stream) carry() {
	defer close(s.events)
	defer s.Stop()
	defer s.late.Stop()
	for {
		event, ok := s.next()
		if !ok {
			if s.initial {
				s.source.streamed(false)
			}
			return
		}
		if s.initial {
			event = s.observeInitial(event)
		}
		select {
		case s.events <- event:
		case <-s.done:
			return
		}
	}
}

// next waits for an event, among the initial ones until the timeout. The time that the
// Sink takes does not count. A watch that is silent for too long has ended, whatever the
// connection looks like: the Reflector opens another one where it stood.
func (s *stream) next() (watch.Event, bool) {
	patience := s.source.informer.options.Silence
	if s.initial {
		patience = s.source.timeout
	}
	s.late.Reset(patience)
	select {
	case event, ok := <-s.from.ResultChan():
		return event, ok
	case <-s.done:
		return watch.Event{}, false
	case <-s.late.C:
		if !s.initial {
			s.source.informer.log.WithField("resource", s.source.informer.scope.String()).Debug("watch is silent; it is opened anew")
			return watch.Event{}, false
		}
		message := fmt.Sprintf("no event within %s while listing", s.source.timeout)
		status := apierrors.NewTimeoutError(message, 0).Status()
		status.Code = http.StatusGatewayTimeout
		return watch.Event{Type: watch.Error, Object: &status}, true
	}
}

// observeInitial remembers why initial events broke off, and notices their end. It
// returns the event for the Reflector, which must not see "too many requests" here:
// it would wait, deaf to the context.
func (s *stream) observeInitial(event watch.Event) watch.Event {
	switch event.Type {
	case watch.Error:
		err := apierrors.FromObject(event.Object)
		if stale(err) {
			return event
		}
		s.source.setInitialStreamErr(err)
		event.Object = &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}
	case watch.Bookmark:
		if object, err := meta.Accessor(event.Object); err == nil &&
			object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
			s.initial = false
			s.source.streamed(true)
		}
	}
	return event
}
