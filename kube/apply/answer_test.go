package apply

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/kube/internal/wire"
)

// TestAnswer has the answers that a test cannot make a real server give.
func TestAnswer(t *testing.T) {
	at := wire.Object{Resource: schema.GroupVersionResource{Group: "g", Version: "v1", Resource: "widgets"}, Namespace: "n", Name: "a"}
	details := func(group, kind, name string, causes ...metav1.StatusCause) *metav1.StatusDetails {
		return &metav1.StatusDetails{Group: group, Kind: kind, Name: name, Causes: causes}
	}
	verdict := func(v Verdict, retry bool) *Rejected { return &Rejected{Verdict: v, Retry: retry} }
	for _, test := range []struct {
		name   string
		status metav1.Status
		want   error
	}{
		{"moved", metav1.Status{Code: 409}, ErrMoved},
		{"exists", metav1.Status{Code: 409, Reason: metav1.StatusReasonAlreadyExists, Details: details("g", "widgets", "a")}, ErrExists},
		{"exists and terminates", metav1.Status{Code: 409, Reason: metav1.StatusReasonAlreadyExists, Message: `object is being deleted: widgets.g "a" already exists`}, verdict(Terminating, true)},
		{"a quota is busy", metav1.Status{Code: 409, Reason: metav1.StatusReasonConflict, Details: details("", "resourcequotas", "q")}, verdict(Denied, true)},
		{"immutable uid", metav1.Status{Code: 422, Details: details("g", "Widget", "a", metav1.StatusCause{Field: "metadata.uid"})}, ErrMoved},
		{"gone", metav1.Status{Code: 404, Details: details("g", "widgets", "a")}, ErrMoved},
		{"another object is gone", metav1.Status{Code: 404, Details: details("g", "widgets", "b")}, verdict(NoKind, true)},
		{"namespace gone", metav1.Status{Code: 404, Details: details("", "namespaces", "n")}, verdict(NoNamespace, true)},
		{"a proxy's 404", metav1.Status{Code: 404, Details: details("g", "widgets", "a", metav1.StatusCause{Type: metav1.CauseTypeUnexpectedServerResponse})}, verdict(NoKind, true)},
		{"namespace is terminating", metav1.Status{Code: 403, Details: details("g", "widgets", "a", metav1.StatusCause{Type: "NamespaceTerminating"})}, verdict(Terminating, true)},
		{"quota", metav1.Status{Code: 403, Message: "exceeded quota: q"}, verdict(Denied, true)},
		{"forbidden", metav1.Status{Code: 403, Message: "user cannot patch"}, verdict(Forbidden, false)},
		{"logged out", metav1.Status{Code: 401}, verdict(Unavailable, true)},
		{"too many requests", metav1.Status{Code: 429}, verdict(Unavailable, true)},
		{"conversion", metav1.Status{Code: 500, Message: "conversion webhook for g/v1, Kind=Widget failed: x"}, verdict(Failing, true)},
		{"no such method", metav1.Status{Code: 405}, verdict(Invalid, false)},
		{"etcd", metav1.Status{Code: 500, Message: "etcdserver: leader changed"}, ErrUncertain},
		{"unknown 500", metav1.Status{Code: 500, Message: "x"}, ErrUncertain},
		{"timeout", metav1.Status{Code: 504}, ErrUncertain},
		{"unavailable", metav1.Status{Code: 503}, ErrUncertain},
		{"odd", metav1.Status{Code: 302}, ErrUncertain},
		{"no code", metav1.Status{}, ErrUncertain},
		{"patch", metav1.Status{Code: http.StatusUnprocessableEntity, Details: details("", "", "")}, errTest},
		{"merge", metav1.Status{Code: 500, Message: "failed to create typed patch object (n/a): errors:\n .a: expected string"}, errUnmergeable},
		{"managedFields", metav1.Status{Code: 500, Message: ".spec.a: field not declared in schema"}, errUnmergeable},
	} {
		got := answer(test.status, at, nil)
		var want, rejected *Rejected
		switch {
		case !errors.As(test.want, &want):
			if !errors.Is(got, test.want) {
				t.Errorf("%s: got %v, want %v", test.name, got, test.want)
			}
		case !errors.As(got, &rejected) || rejected.Verdict != want.Verdict || rejected.Retry != want.Retry:
			t.Errorf("%s: got %#v, want %#v", test.name, got, want)
		}
	}
}

// TestRefusal has what comes of writing a whole object: nothing of patches and merges is left, the server's words are.
func TestRefusal(t *testing.T) {
	at := wire.Object{Resource: schema.GroupVersionResource{Group: "g", Version: "v1", Resource: "widgets"}, Name: "a"}
	status := func(s metav1.Status) error { return &apierrors.StatusError{ErrStatus: s} }
	obj := map[string]any{"spec": map[string]any{"password": "s3cr3t"}}
	for _, test := range []struct {
		err  error
		want Rejected
	}{
		{status(metav1.Status{Code: 422, Message: "it has s3cr3t"}), Rejected{Verdict: Invalid, Message: "it has [hidden]"}},
		{status(metav1.Status{Code: 500, Message: "failed to convert new object: s3cr3t"}), Rejected{Verdict: Invalid, Message: "failed to convert new object: [hidden]"}},
		{status(metav1.Status{Code: 429, Message: "wait", Details: &metav1.StatusDetails{RetryAfterSeconds: 3}}), Rejected{Verdict: Unavailable, Message: "wait", Retry: true, RetryAfter: 3 * time.Second}},
		{status(metav1.Status{Code: 403, Message: "no", Details: &metav1.StatusDetails{RetryAfterSeconds: 3}}), Rejected{Verdict: Forbidden, Message: "no"}},
		{fmt.Errorf("name: %w", wire.ErrAddress), Rejected{Verdict: Invalid, Message: "name: names no object"}},
	} {
		var got *Rejected
		err := Refusal(test.err, at, fieldpath.NewSet(fieldpath.MakePathOrDie("spec", "password")), obj)
		if !errors.As(err, &got) || *got != test.want {
			t.Errorf("%v: got %#v, want %#v", test.err, err, test.want)
		}
	}
}

func TestMessages(t *testing.T) {
	h := hidden{}
	h.add(map[string]any{"a": "s3cr3t", "b": []any{int64(424242), "line\nbreak", "czNjcjN0"}, "c": nil, "d": true, "e": ""})
	for _, test := range []struct{ say, want string }{
		{"spec.a: Invalid value: \"abc\": must be short", "spec.a: Invalid value: \"abc\": must be short"},
		{`a: Invalid value: "{\"spec\":{\"x\":1}}": no`, `a: Invalid value: …: no`},
		{`a: Invalid value: {"spec":{"x":"y: z"}}: no`, `a: Invalid value: …: no`},
		{`a: Duplicate value: [1,2]: b: Invalid value: [3]: no`, `a: Duplicate value: …: b: Invalid value: …: no`},
		{`a: Invalid value: map[x:1]: no`, `a: Invalid value: …`},
		{`a: Invalid value: {broken: no`, `a: Invalid value: …`},
		{`a: Invalid value: "broken: no`, `a: Invalid value: …`},
		{`a: Invalid value: "` + strings.Repeat("x", 101) + `": no`, `a: Invalid value: …: no`},
		{`with s3cr3t and 424242 and "line\nbreak" and line` + "\nbreak", `with [hidden] and [hidden] and "[hidden]" and [hidden]`},
		{strings.Repeat("é", 2*maxMessage), strings.Repeat("é", maxMessage/2) + "…"},
		{strings.Repeat("x", maxMessage-3) + "s3cr3t", strings.Repeat("x", maxMessage-3) + "[hi…"},
	} {
		if got := h.cut(test.say); got != test.want {
			t.Errorf("%q\n got %q\nwant %q", test.say, got, test.want)
		}
	}
}
