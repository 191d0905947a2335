package main

import (
	gosync "sync"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
)

// loudSink says once that events are not taken, and once that they are again:
// client-go drops one that the server refuses, and only says so at debug level.
type loudSink struct {
	record.EventSink
	log logrus.FieldLogger

	mu      gosync.Mutex
	failing bool
}

// Create implements record.EventSink.
func (s *loudSink) Create(event *corev1.Event) (*corev1.Event, error) {
	out, err := s.EventSink.Create(event)
	s.tell(err)
	return out, err
}

// Patch implements record.EventSink.
func (s *loudSink) Patch(event *corev1.Event, data []byte) (*corev1.Event, error) {
	out, err := s.EventSink.Patch(event, data)
	s.tell(err)
	return out, err
}

func (s *loudSink) tell(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil && !s.failing:
		s.log.WithError(err).WithField("next", nextStep(err, false)).Warn("no events are written on objects; everything else goes on")
	case err == nil && s.failing:
		s.log.Info("events are written on objects again")
	}
	s.failing = err != nil
}
