package apply

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/crmirror/crmirror/kube/internal/wire"
)

// Errors besides *Rejected, found with errors.Is.
var (
	// ErrMoved means that the object is no longer the judged one: it changed, was deleted,
	// was made again, or there is one where none was. Nothing was written; judge again.
	ErrMoved = errors.New("the object is not what was judged any more")
	// ErrExists is the ErrMoved of a create: there is an object of that name.
	ErrExists = fmt.Errorf("it exists: %w", ErrMoved)
	// ErrUncertain means that no answer came: the write may have landed, or may still.
	// Treat it as after a crash.
	ErrUncertain = errors.New("not known whether it was written")
	// ErrNotFound means that the object does not exist, as the server said of it by name.
	ErrNotFound = errors.New("no such object")
)

// Verdict says why a write was refused.
type Verdict string

// The verdicts. Whether a retry can help is in Rejected.Retry.
const (
	Forbidden    Verdict = "forbidden"          // no permission
	Denied       Verdict = "denied"             // by admission: a webhook, a policy, a quota
	Failing      Verdict = "webhook is failing" // it did not answer, or wrongly
	Invalid      Verdict = "invalid"            // a value that the kind does not allow
	UnknownField Verdict = "unknown field"      // a field that the kind has not
	TooLarge     Verdict = "too large"
	Terminating  Verdict = "terminating"  // the object, or its namespace, is being deleted
	NoKind       Verdict = "no such kind" // the kind, or this version, is not served
	NoNamespace  Verdict = "no such namespace"
	NoOwner      Verdict = "no such owner" // an owner reference leads nowhere
	Redacted     Verdict = "holds a redacted value"
	Unavailable  Verdict = "server is not available" // nothing was sent, or it was turned away
)

// Rejected means that a change was refused and nothing was written.
type Rejected struct {
	Verdict Verdict
	// Message has the server's words, cut to a size, without the bodies of objects and
	// without the values that the change says are not to be shown.
	Message string
	// Retry tells whether the same request can succeed later. Else somebody has to
	// change the object, in git or in the cluster, or the permissions.
	Retry bool
	// RetryAfter is how long the server asked to wait before that; zero if it did not.
	RetryAfter time.Duration
}

// Error writes verdict and message.
func (e *Rejected) Error() string {
	if e.Message == "" {
		return string(e.Verdict)
	}
	return string(e.Verdict) + ": " + e.Message
}

// conversionFailed begins what the server says when a CRD's conversion webhook does not answer.
const conversionFailed = "conversion webhook for"

var (
	// errTest is the answer to a JSON patch whose test failed, and to one that does
	// not fit the object: the server does not tell which.
	errTest = errors.New("the patch does not fit the object")
	// errUnmergeable is an apply that the server's merge cannot do: the body does not fit
	// the type, or managedFields do not fit it any more.
	errUnmergeable = errors.New("the server cannot merge the object")
)

// classify says what an error of a write means. The result is one of this file's errors
// (or errTest, errUnmergeable); only wire.ErrUnjudged, a mistake of the caller, passes.
func classify(err error, at wire.Object, hide hidden) error {
	var status apierrors.APIStatus
	switch {
	case err == nil || errors.Is(err, wire.ErrUnjudged):
		return err
	case errors.Is(err, wire.ErrRedacted):
		return &Rejected{Verdict: Redacted, Message: "a body with the marker of a redacted value is never sent"}
	case errors.Is(err, wire.ErrAddress):
		return &Rejected{Verdict: Invalid, Message: err.Error()}
	case errors.As(err, &status):
		return answer(status.Status(), at, hide)
	}
	var operation *net.OpError
	if errors.As(err, &operation) && operation.Op == "dial" {
		return &Rejected{Verdict: Unavailable, Message: hide.cut(operation.Error()), Retry: true}
	}
	return errors.Join(ErrUncertain, err)
}

// answer says what an answer of the server means.
//
// Invariant: what is not known to have been refused is ErrUncertain (TestAnswer).
func answer(s metav1.Status, at wire.Object, hide hidden) error {
	reject := func(verdict Verdict, retry bool) error {
		r := &Rejected{Verdict: verdict, Message: hide.words(s), Retry: retry}
		if retry && s.Details != nil {
			r.RetryAfter = time.Duration(s.Details.RetryAfterSeconds) * time.Second
		}
		return r
	}
	if err := admission(s, reject); err != nil {
		return err
	}
	switch s.Code {
	case http.StatusConflict:
		return conflict(s, reject)
	case http.StatusUnauthorized, http.StatusTooManyRequests:
		return reject(Unavailable, true)
	case http.StatusForbidden:
		return reject(Forbidden, false)
	case http.StatusNotFound:
		return missing(s, at, reject)
	case http.StatusRequestEntityTooLarge:
		return reject(TooLarge, false)
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType:
		return unfit(s, reject)
	case http.StatusInternalServerError:
		return internal(s, hide, reject)
	}
	return errors.Join(ErrUncertain, errors.New(hide.words(s)))
}

// admission recognizes what admission said. Webhooks choose the code of their answer, so
// the words tell; they are those of the server, about them.
func admission(s metav1.Status, reject func(Verdict, bool) error) error {
	says := func(words string) bool { return strings.Contains(s.Message, words) }
	switch {
	case says("failed calling webhook"), says(conversionFailed):
		return reject(Failing, true)
	case says("admission webhook") && says("denied the request"):
		return reject(Denied, false)
	case says("ValidatingAdmissionPolicy") && says("denied request"):
		return reject(Denied, false)
	case s.Code != http.StatusForbidden:
		return nil
	case hasCause(s, corev1.NamespaceTerminatingCause):
		return reject(Terminating, true)
	case says("exceeded quota"):
		return reject(Denied, true)
	}
	return nil
}

// conflict tells what stands in the way. Of a quota that many writes count against at once,
// the server says it too.
func conflict(s metav1.Status, reject func(Verdict, bool) error) error {
	switch {
	case s.Details != nil && s.Details.Kind == "resourcequotas":
		return reject(Denied, true)
	case s.Reason != metav1.StatusReasonAlreadyExists:
		return ErrMoved
	case strings.HasPrefix(s.Message, "object is being deleted"):
		return reject(Terminating, true)
	}
	return ErrExists
}

// missing tells what it is that was not found.
func missing(s metav1.Status, at wire.Object, reject func(Verdict, bool) error) error {
	d := s.Details
	switch {
	case d == nil || hasCause(s, metav1.CauseTypeUnexpectedServerResponse):
		return reject(NoKind, true)
	case at.Name != "" && d.Name == at.Name && d.Kind == at.Resource.Resource && d.Group == at.Resource.Group:
		return ErrMoved
	case d.Kind == "namespaces" && d.Group == "" && d.Name == at.Namespace:
		return reject(NoNamespace, true)
	}
	return reject(NoKind, true)
}

// unfit tells what of a body the server does not take.
func unfit(s metav1.Status, reject func(Verdict, bool) error) error {
	switch {
	case s.Code == http.StatusUnprocessableEntity && (s.Details == nil || s.Details.Name == "" && len(s.Details.Causes) == 0):
		return errTest
	case s.Details != nil && hasField(s, "metadata.uid"):
		return ErrMoved
	case strings.Contains(s.Message, "unknown field"):
		return reject(UnknownField, false)
	}
	return reject(Invalid, false)
}

// internal tells apart what the server calls its own errors.
func internal(s metav1.Status, hide hidden, reject func(Verdict, bool) error) error {
	says := func(words string) bool { return strings.Contains(s.Message, words) }
	switch {
	case says("request is too large"), says("trying to send message larger than max"):
		return reject(TooLarge, false)
	case says("field not declared in schema"), strings.HasPrefix(s.Message, "failed to create typed"),
		strings.HasPrefix(s.Message, "failed to convert"):
		return errUnmergeable
	}
	return errors.Join(ErrUncertain, errors.New(hide.words(s)))
}

func hasCause(s metav1.Status, cause metav1.CauseType) bool {
	if s.Details == nil {
		return false
	}
	for _, c := range s.Details.Causes {
		if c.Type == cause {
			return true
		}
	}
	return false
}

func hasField(s metav1.Status, field string) bool {
	for _, c := range s.Details.Causes {
		if c.Field == field {
			return true
		}
	}
	return false
}
