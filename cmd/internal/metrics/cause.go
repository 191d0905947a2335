package metrics

import (
	"context"
	"errors"
	"net"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube/informer"
	"github.com/crmirror/crmirror/sync"
)

// Cause names the kind of an error in one word of a fixed list, for a label. Of errors
// that were joined the first one on the list counts.
func Cause(err error) string {
	for _, c := range []struct {
		name string
		is   func(error) bool
	}{
		{"canceled", isA(context.Canceled)},
		{"auth", isA(gitstore.ErrAuth)},
		{"host_key", isA(gitstore.ErrHostKey)},
		{"not_found", isA(gitstore.ErrNotFound)},
		{"refused", isA(gitstore.ErrRefused)},
		{"not_atomic", isA(gitstore.ErrNotAtomic)},
		{"diverged", func(err error) bool {
			return errors.Is(err, gitstore.ErrDiverged) || errors.Is(err, gitstore.ErrBehind)
		}},
		{"unreachable", isA(gitstore.ErrUnreachable)},
		{"locked", func(err error) bool {
			return errors.Is(err, gitstore.ErrLocked) || errors.Is(err, gitstore.ErrBusy) || errors.Is(err, gitstore.ErrInUse)
		}},
		{"damaged", func(err error) bool {
			return errors.Is(err, gitstore.ErrDamaged) || errors.Is(err, gitstore.ErrMissing)
		}},
		{"disk_full", isA(syscall.ENOSPC)},
		{"other_cluster", func(err error) bool {
			var other *sync.OtherClusterError
			var rewound *sync.RewoundError
			return errors.As(err, &other) || errors.As(err, &rewound)
		}},
		{"kube_forbidden", func(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }},
		{"kube_gone", isA(informer.ErrKindGone)},
		{"kube", func(err error) bool { return apierrors.ReasonForError(err) != "" }},
		{"timeout", func(err error) bool {
			var timeout net.Error
			return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout)
		}},
	} {
		if c.is(err) {
			return c.name
		}
	}
	return "other"
}

func isA(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}
