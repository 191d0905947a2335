package restore

import (
	"errors"

	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/sync"
)

// refusedFor returns why the server refuses what was asked for, in its words. Any other error, such as that of a
// context that ended or of a server that does not answer, is returned as it is: it ends the plan.
//
// Invariant: what may not be read or asked is told of, and ends no plan (TestPlanRefused).
func refusedFor(err error) (reason string, other error) {
	var refused *apply.Rejected
	if !errors.As(err, &refused) || refused.Verdict == apply.Unavailable {
		return "", err
	}
	return sync.Printable(refused.Error(), messageRunes), nil
}
