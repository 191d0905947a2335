package informer

import (
	"context"

	"github.com/go-logr/logr"
	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/crmirror/crmirror/kube"
)

// failuresOnly is a Sink that hears of nothing but failures.
type failuresOnly struct{ sink Sink }

func (failuresOnly) Changed(context.Context, State)                 {}
func (failuresOnly) Refused(context.Context, kube.Key, error)       {}
func (failuresOnly) Absent(context.Context, kube.Key, Absence)      {}
func (failuresOnly) Listing(context.Context, Scope)                 {}
func (failuresOnly) Listed(context.Context, Scope, Listing)         {}
func (failuresOnly) KindGone(context.Context, schema.GroupResource) {}
func (s failuresOnly) Recovered(ctx context.Context, scope Scope)   { s.sink.Recovered(ctx, scope) }
func (s failuresOnly) Failing(ctx context.Context, scope Scope, err error) {
	s.sink.Failing(ctx, scope, err)
}

// RouteKlog sends what client-go logs for the whole process to log, at debug level,
// instead of to the standard error. Call it once, before anything that uses
// client-go runs.
func RouteKlog(log logrus.FieldLogger) {
	klog.SetLogger(quiet(log))
}

// quiet makes the logger that client-go gets. Its own view of what is an error is
// not ours: whatever matters is told to the Sink.
func quiet(log logrus.FieldLogger) logr.Logger {
	return logr.New(debugSink{log})
}

// debugSink writes what client-go logs as debug lines: the message and the error,
// and no values, among which are objects.
type debugSink struct{ log logrus.FieldLogger }

func (debugSink) Init(logr.RuntimeInfo) {}

// Enabled leaves out what client-go considers detail.
func (debugSink) Enabled(level int) bool { return level <= 2 }

func (s debugSink) Info(_ int, message string, _ ...any) { s.log.Debug(message) }

func (s debugSink) Error(err error, message string, _ ...any) { s.log.WithError(err).Debug(message) }

func (s debugSink) WithValues(...any) logr.LogSink { return s }

func (s debugSink) WithName(string) logr.LogSink { return s }
