package remote

import (
	"context"
	"io"
	"time"
)

// idle ends a context when nothing has moved for a while. A large first push
// over a thin line may take long; a server that is silent may not.
type idle struct {
	timer *time.Timer
	after time.Duration
	stop  context.CancelCauseFunc
}

func watchIdle(ctx context.Context, after time.Duration) (context.Context, *idle) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &idle{timer: time.AfterFunc(after, func() { cancel(errTimeout) }), after: after, stop: cancel}
}

func (i *idle) end() {
	i.timer.Stop()
	i.stop(context.Canceled)
}

func (i *idle) reader(r io.Reader) *idleReader { return &idleReader{idle: i, r: r} }
func (i *idle) writer(w io.Writer) *idleWriter { return &idleWriter{idle: i, w: w} }

// idleReader and idleWriter also remember whether the line failed, which tells
// its failures from those of whoever reads or writes.
type idleReader struct {
	idle   *idle
	r      io.Reader
	failed bool
}

func (r *idleReader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	if n > 0 {
		r.idle.timer.Reset(r.idle.after)
	}
	r.failed = err != nil
	return n, err
}

type idleWriter struct {
	idle   *idle
	w      io.Writer
	failed bool
}

func (w *idleWriter) Write(b []byte) (int, error) {
	n, err := w.w.Write(b)
	if n > 0 {
		w.idle.timer.Reset(w.idle.after)
	}
	w.failed = err != nil
	return n, err
}
