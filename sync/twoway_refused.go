package sync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/threeway"
)

// How long a change that was refused is not tried: at first a moment, then longer each time.
const (
	refusedFirst = 2 * time.Second
	// refusedMost holds for what somebody may mend at any time without touching the object.
	refusedMost = time.Minute
	// judgeAgain holds for what the object's kind does not allow, and for findings.
	judgeAgain = 5 * time.Minute
)

// refusal is what is known of an object's change that the server refused. Until next it is
// neither announced nor made, so that it costs no push, unless git or the object moves.
type refusal struct {
	of    *apply.Rejected
	state gitstore.Hash // of the object
	tries int           // that were refused in a row, in that state
	next  time.Time
}

// after is the refusal that follows another one of the same change of the same state, or the first.
func (r refusal) after(was refusal, now time.Time) refusal {
	r.tries = 1
	if was.of != nil && was.state == r.state {
		r.tries = was.tries + 1
	}
	wait := max(min(refusedFirst<<min(r.tries-1, 16), refusedMost), r.of.RetryAfter)
	if !mayPass(r.of) {
		wait = judgeAgain
	}
	r.next = now.Add(wait)
	return r
}

// mayPass tells whether a refusal may end though nobody touches the object: a permission, a policy
// or a quota changes, a namespace or a kind comes.
func mayPass(r *apply.Rejected) bool {
	return r.Retry || r.Verdict == apply.Forbidden || r.Verdict == apply.Denied
}

// state tells states of the live object apart by what is judged of them: a status that moves all
// the time is none.
func (j *judgement) state() gitstore.Hash {
	var uid types.UID
	if j.live != nil {
		uid = j.live.GetUID()
	}
	content, err := json.Marshal([]any{uid, j.cluster})
	if err != nil {
		return gitstore.Hash{}
	}
	return gitstore.BlobHash(content)
}

// refusedBefore tells whether the server has refused the same change of the same state, and it
// is not time yet to try again: then it is not announced.
//
// Invariant: what backs off costs no push. Test: TestRefusedBacksOff.
func (t *twoWay) refusedBefore(j *judgement) bool {
	was, ok := t.left[j.key]
	if !ok || was.refusal.of == nil || was.gitBlob != j.gitBlob || was.baseBlob != j.baseBlob ||
		!t.now.Before(was.refusal.next) || was.refusal.state != j.state() {
		return false
	}
	j.refused, j.since = was.refusal.of, was.judged
	return true
}

// tellRefused notes a refusal.
func (t *twoWay) tellRefused(j *judgement, left *leftOpen, file string) {
	was := t.left[j.key]
	if left.refusal = was.refusal; j.since.IsZero() { // it was tried
		if was.gitBlob != j.gitBlob {
			was.refusal = refusal{}
		}
		left.refusal = refusal{of: j.refused, state: j.state()}.after(was.refusal, t.now)
	} else {
		left.judged = j.since
	}
	left.refusals = append(left.refusals, Refusal{
		Key: j.key, Object: j.object(), File: file, Line: j.lineOfWrite(), Text: j.refused.Error(),
		Retry: mayPass(j.refused), Next: left.refusal.next,
	})
}

// lineOfWrite is the line of the first field that was to be set; 0 when the file has none.
func (j *judgement) lineOfWrite() int {
	if j.git == nil || j.decision.Object == threeway.CreateObject || j.decision.Set == nil {
		return 0
	}
	first := 0
	for path := range j.decision.Set.Leaves().All() {
		if line := kube.Line(j.file, stepsOf(j.git, path)); line > 0 && (first == 0 || line < first) {
			first = line
		}
	}
	return first
}

// refuseHomeless refuses the creation of objects whose namespace is not there: a read tells, and
// neither an announcement nor a request that fails is needed. A namespace that cannot be read
// may be there.
func (m *Mirror) refuseHomeless(ctx context.Context, judged []*judgement) {
	known := map[string]error{}
	for _, j := range judged {
		if !j.toWrite() || j.decision.Object != threeway.CreateObject || j.key.Namespace == "" || m.two.refusedBefore(j) {
			continue
		}
		ns := j.key.Namespace
		if _, asked := known[ns]; !asked {
			_, known[ns] = m.two.opts.Hands.Read(ctx, kube.Key{Resource: namespaceResource.Resource, Name: ns}, "v1")
		}
		if errors.Is(known[ns], apply.ErrNotFound) {
			j.refused = &apply.Rejected{Verdict: apply.NoNamespace, Message: fmt.Sprintf("namespaces %q not found", ns), Retry: true}
		}
	}
}

// again tells when what was refused is tried again.
func (r *Refusal) again(now time.Time) string {
	if r.Next.IsZero() {
		return ""
	}
	if !r.Next.After(now) { // the cycle took longer than the first wait
		return "; tried again at once, then " + r.Every()
	}
	by := r.Next.Add(time.Second).Truncate(time.Second) // a clock that is read a moment later shows it too
	return fmt.Sprintf("; tried again by %s, then %s", by.Local().Format(time.TimeOnly), r.Every())
}

// Every tells how often an agent tries again what was refused.
func (r *Refusal) Every() string {
	if r.Retry {
		return "at least every " + inMinutes(refusedMost)
	}
	return "every " + inMinutes(judgeAgain)
}

// inMinutes writes a whole number of minutes.
func inMinutes(d time.Duration) string {
	if d == time.Minute {
		return "minute"
	}
	return count(int(d/time.Minute), "minute")
}
