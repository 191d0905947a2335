package informer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Pulse says whether the API server answers at all.
type Pulse struct {
	Err   error     // why not; nil when it does, or was not asked yet
	Since time.Time // when that began
}

// Pulse returns what the last question to the server came to. A connection on which
// nothing comes any more looks to a watch like a cluster in which nothing happens: only
// a question tells.
func (f *Fleet) Pulse() Pulse {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pulse
}

// feelPulse asks the server in a steady beat until the context ends.
func (f *Fleet) feelPulse(ctx context.Context) {
	ticker := time.NewTicker(f.options.PulseEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := f.ask(ctx); ctx.Err() == nil {
			f.notePulse(err)
		}
	}
}

// ask sends the smallest request there is, which every account may make. Even a refusal
// is an answer; that a proxy has no server behind it is none.
func (f *Fleet) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.options.PulseTimeout)
	defer cancel()
	_, err := f.discovery.ServerVersionWithContext(ctx)
	var said apierrors.APIStatus
	switch {
	case errors.As(err, &said) && said.Status().Code < http.StatusInternalServerError:
		return nil
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("no answer within %s", f.options.PulseTimeout)
	case err != nil:
		return cause(err)
	}
	return nil
}

// notePulse keeps an answer, and logs when the server falls silent and when it speaks again.
func (f *Fleet) notePulse(err error) {
	f.mu.Lock()
	was := f.pulse
	if (was.Err == nil) != (err == nil) {
		f.pulse.Since = time.Now()
	}
	f.pulse.Err = err
	f.mu.Unlock()
	switch {
	case was.Err == nil && err != nil:
		f.options.Log.WithError(err).Warn("the API server does not answer; what changes there is seen when it does again")
	case was.Err != nil && err == nil:
		f.options.Log.WithField("since", was.Since.Format(time.RFC3339)).Info("the API server answers again")
	}
}
