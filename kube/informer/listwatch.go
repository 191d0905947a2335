package informer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// watchGrace is what a watch may outlive the deadline that the server was asked
// to keep, before it is cut from our side.
const watchGrace = 30 * time.Second

// A page is to hold about pageBytes of encoded objects, which decoded take ten
// times that, whatever their size; the first one is small, to learn it. minPage
// keeps a kind of huge objects going.
const (
	firstPage, minPage = 50, 5
	pageBytes          = 8 << 20
)

// maxBroken is how many initial streams in a row may end early, without an error,
// before the objects are read in pages: the Sink may be too slow for the server's
// patience with a stream.
const maxBroken = 3

var errStreamsBreak = errors.New("the server ends its streams of initial events early")

// source lists and watches one scope for the Reflector. It sees every error of
// the server first: some of them the Reflector retries without a word.
type source struct {
	informer *informer
	client   dynamic.ResourceInterface
	feed     *feed
	pageSize int64
	timeout  time.Duration

	// listing is held while a LIST is read. When the context ends the Reflector
	// leaves one running in the background.
	listing sync.Mutex
	// streams counts the goroutines that carry watch events.
	streams sync.WaitGroup

	mu sync.Mutex
	// streamErr is why the last initial stream ended, nil while it is fine.
	streamErr error
	// broken counts the initial streams in a row that ended early without an error.
	broken int
}

// wait returns when nothing that the source started is running any more. The
// context must have ended.
func (s *source) wait() {
	s.listing.Lock()
	s.listing.Unlock() //nolint:staticcheck // only waiting for the holder
	s.streams.Wait()
}

// List is required by the Reflector's interface; it calls ListWithContext.
func (s *source) List(options metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), options)
}

// Watch is required by the Reflector's interface; it calls WatchWithContext.
func (s *source) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), options)
}

// ListWithContext reads the scope page by page and returns entries. It always
// asks for the newest state: only that can be read in pages, and only that never
// goes back in time. Nothing is told of a list that an error ended but the objects
// that it showed, which do exist.
func (s *source) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	s.listing.Lock()
	defer s.listing.Unlock()
	if err := s.informer.admit(ctx); err != nil {
		return nil, err
	}
	if err := s.initialStreamErr(); err != nil && !listInstead(err) {
		return nil, err // a list would meet the same
	}
	options := metav1.ListOptions{Limit: min(s.pageSize, firstPage), LabelSelector: s.informer.selector}
	list := &internalversion.List{}
	for {
		page, err := s.page(ctx, options)
		if err != nil {
			return nil, err
		}
		if options.Continue == "" {
			s.informer.listing(ctx, false)
			list.ResourceVersion = page.GetResourceVersion()
		}
		options.Continue = page.GetContinue()
		bytes := int64(1)
		for n := range page.Items {
			if e := s.feed.read(&page.Items[n]); e.selected {
				list.Items = append(list.Items, e)
				bytes += int64(e.size)
			}
			page.Items[n].Object = nil
		}
		options.Limit = min(s.pageSize, max(minPage, pageBytes*int64(len(page.Items))/bytes))
		if options.Continue == "" {
			return list, ctx.Err()
		}
	}
}

// WatchWithContext opens a watch, or the stream of initial events that goes over
// into one.
func (s *source) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	initial := options.SendInitialEvents != nil && *options.SendInitialEvents
	options.LabelSelector = s.informer.selector
	if initial && s.gaveUp() {
		return nil, opaque{errStreamsBreak}
	}
	if initial {
		if err := s.informer.admit(ctx); err != nil {
			return nil, opaque{err}
		}
	}
	opened, cancel, err := s.open(ctx, options)
	if initial {
		s.setInitialStreamErr(err)
	}
	switch {
	case err == nil && initial:
		s.informer.listing(ctx, true)
	case err == nil:
		s.informer.healthy(ctx)
	case initial && listInstead(err):
		return nil, opaque{err}
	case stale(err):
		return nil, err // the Reflector lists again
	default:
		s.informer.failing(ctx, cause(err))
		if initial {
			err = opaque{err}
		}
		return nil, err
	}
	out := newStream(s, opened, initial, cancel)
	s.streams.Go(out.carry)
	return out, nil
}

// open starts a watch that must answer within the timeout. The caller calls
// cancel when it is done with the watch.
func (s *source) open(ctx context.Context, options metav1.ListOptions) (watch.Interface, context.CancelFunc, error) {
	ctx, cancel := context.WithTimeout(ctx, watchDeadline(options))
	unanswered := time.AfterFunc(s.timeout, cancel)
	opened, err := s.client.Watch(ctx, options)
	if !unanswered.Stop() {
		if err == nil {
			opened.Stop()
		}
		err = fmt.Errorf("no answer within %s", s.timeout)
	}
	if err != nil {
		cancel()
		return nil, nil, err
	}
	return opened, cancel, nil
}

// page reads one page.
func (s *source) page(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.client.List(ctx, options)
}

func (s *source) initialStreamErr() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streamErr
}

func (s *source) setInitialStreamErr(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streamErr = err
}

// streamed notes whether an initial stream was complete.
func (s *source) streamed(complete bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken++
	if complete {
		s.broken = 0
	}
}

// gaveUp says, once, that streams have broken off too often.
func (s *source) gaveUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken < maxBroken {
		return false
	}
	s.broken, s.streamErr = 0, errStreamsBreak
	return true
}

// watchDeadline is when a watch is cut although the server keeps it open.
func watchDeadline(options metav1.ListOptions) time.Duration {
	if options.TimeoutSeconds == nil {
		return time.Hour
	}
	return time.Duration(*options.TimeoutSeconds)*time.Second + watchGrace
}

// listInstead says whether a LIST may do what the initial stream did not: the
// server does not know such streams, allows lists and no watches, or breaks off.
func listInstead(err error) bool {
	return errors.Is(err, errStreamsBreak) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err) ||
		apierrors.IsForbidden(err) || apierrors.IsNotAcceptable(err)
}

// stale says that the server cannot start at the resource version asked for: it is
// too old or, after a restored etcd, was never reached. The Reflector knows what to
// do then, so it is no failure.
func stale(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// opaque hides what kind of error ended an initial stream from the Reflector, which
// waits and retries on some, deaf to the context. Our loop does that.
type opaque struct{ err error }

// Error returns the text of the error.
func (o opaque) Error() string { return o.err.Error() }
