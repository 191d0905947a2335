package apply

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/kube/internal/wire"
)

// Refusal says what an error means that came of writing a whole object: *Rejected, ErrExists,
// ErrMoved or ErrUncertain. No message shows a value that one of the objects has at a
// shaped path, or the data of one that is a Secret.
func Refusal(err error, at wire.Object, shaped *fieldpath.Set, objects ...map[string]any) error {
	hide := hide(shaped, objects...)
	meaning := classify(err, at, hide)
	if !errors.Is(meaning, errTest) && !errors.Is(meaning, errUnmergeable) {
		return meaning
	}
	r := &Rejected{Verdict: Invalid}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		r.Message = hide.words(status.Status())
	}
	return r
}

// Unread says what it means that an object could not be read, or, if at has no name, that a
// listing could not: *Rejected, or the error itself if the context was canceled. It
// is ErrNotFound only if the server said so of this object.
func Unread(err error, at wire.Object) error {
	if isMissing(err, at) {
		return ErrNotFound
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code == http.StatusNotFound {
		return &Rejected{Verdict: NoKind, Message: hidden{}.words(status.Status()), Retry: true}
	}
	return unread(err)
}

// isMissing tells whether the server said that there is no such object, not only that it does not
// know the address.
func isMissing(err error, at wire.Object) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusNotFound && errors.Is(answer(status.Status(), at, nil), ErrMoved)
}

// unread is what it means that something could not be read.
func unread(err error) error {
	var status apierrors.APIStatus
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, wire.ErrAddress):
		return &Rejected{Verdict: Invalid, Message: err.Error()}
	case errors.As(err, &status) && apierrors.IsForbidden(err):
		return &Rejected{Verdict: Forbidden, Message: hidden{}.words(status.Status())}
	case errors.As(err, &status) && strings.Contains(err.Error(), conversionFailed):
		return &Rejected{Verdict: Failing, Message: hidden{}.words(status.Status()), Retry: true}
	}
	if errors.As(err, &status) {
		switch status.Status().Code {
		case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusUnprocessableEntity:
			return &Rejected{Verdict: Invalid, Message: hidden{}.words(status.Status())}
		}
	}
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return &Rejected{Verdict: Unavailable, Message: hidden{}.cut(err.Error()), Retry: true, RetryAfter: time.Duration(seconds) * time.Second}
}
