package sync

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/informer"
)

// noted writes down what the users of the cluster are told.
type noted struct{ lines []string }

func (n *noted) Conflict(c Conflict) { n.lines = append(n.lines, "conflict "+c.Field) }
func (n *noted) Settled(c Conflict)  { n.lines = append(n.lines, "settled "+c.Field) }
func (n *noted) Refused(r Refusal)   { n.lines = append(n.lines, "refused "+r.File) }
func (n *noted) Held(set HeldSet)    { n.lines = append(n.lines, "held "+set[0].Key.Name) }
func (n *noted) Quarantined(key kube.Key, uid types.UID, err error) {
	n.lines = append(n.lines, "quarantined "+key.Name+" "+string(uid)+": "+err.Error())
}
func (n *noted) Recovered(key kube.Key, uid types.UID) {
	n.lines = append(n.lines, "recovered "+key.Name+" "+string(uid))
}

func (n *noted) take() []string {
	lines := n.lines
	n.lines = nil
	return lines
}

func nullLogger() *logrus.Logger {
	log, _ := logtest.NewNullLogger()
	return log
}

// Of conflicts and held deletions each is told once, also that it is over; a cycle that
// failed has not seen everything and ends nothing.
func TestEventsOfTheLoop(t *testing.T) {
	l := NewLoop(nil, nil, &Health{}, Pace{}, nullLogger())
	var told noted
	l.Tell(&told)
	found := func(line int, held ...string) *Report {
		r := newReport()
		r.Conflicts = []Conflict{{Object: Object{UID: "1"}, Line: line, Field: ".spec.size", Reason: "both changed"}, {Field: ".gone"}}
		for _, name := range held {
			r.Held = append(r.Held, Held{Key: certificate("shop", name)})
		}
		return r
	}
	for _, step := range []struct {
		what   string
		report *Report
		err    error
		want   []string
	}{
		{"first", found(3, "a"), nil, []string{"conflict .spec.size", "held a"}},
		{"again, on another line", found(4, "a"), nil, nil},
		{"more is held", found(4, "a", "b"), nil, []string{"held a"}},
		{"a cycle that failed", newReport(), errors.New("remote away"), nil},
		{"after it", found(4, "a", "b"), nil, nil},
		{"over", newReport(), nil, []string{"settled .spec.size"}},
		{"anew", found(3, "a"), nil, []string{"conflict .spec.size", "held a"}},
	} {
		l.done(step.report, step.err)
		if d := cmp.Diff(step.want, told.take()); d != "" {
			t.Errorf("%s (-want +got):\n%s", step.what, d)
		}
	}
}

// A quarantined object is told with each new reason, and when it is back; not when it is gone.
func TestEventsOfTheInbox(t *testing.T) {
	in := NewInbox(NewBatch(BatchOptions{}), nullLogger())
	var told noted
	in.Tell(&told)
	ctx, key := t.Context(), certificate("shop", "a")
	refuse := func(reason string) {
		in.Refused(ctx, key, &informer.RefusedError{UID: "7", Err: errors.New(reason)})
	}
	refuse("too large")
	refuse("too large")
	refuse("too deep")
	in.Changed(ctx, informer.State{Key: key, UID: "7"})
	in.Changed(ctx, informer.State{Key: key, UID: "7"})
	refuse("too large")
	in.Absent(ctx, key, informer.Deleted)
	in.Changed(ctx, informer.State{Key: key, UID: "8"})
	want := []string{"quarantined a 7: too large", "quarantined a 7: too deep", "recovered a 7", "quarantined a 7: too large"}
	if d := cmp.Diff(want, told.take()); d != "" {
		t.Errorf("told (-want +got):\n%s", d)
	}
}

// measured counts what an Observer is told.
type measured struct {
	unobserved
	seen map[string]int
}

func (m *measured) Seen(gr schema.GroupResource, sight Sight) {
	m.seen[gr.Resource+" "+string(sight)]++
}

// What a listing shows is no event, and its changes are older than we know.
func TestSeenByWatches(t *testing.T) {
	batch := NewBatch(BatchOptions{})
	in := NewInbox(batch, nullLogger())
	m := &measured{seen: map[string]int{}}
	in.Observe(m)
	ctx := t.Context()
	scope := informer.Scope{Resource: certificate("", "").GroupResource()}
	in.Listing(ctx, scope)
	in.Changed(ctx, informer.State{Key: certificate("shop", "listed")})
	in.Listed(ctx, scope, informer.Listing{})
	in.Changed(ctx, informer.State{Key: certificate("shop", "watched")})
	in.Changed(ctx, informer.State{Key: certificate("shop", "listed")})
	in.Absent(ctx, certificate("shop", "gone"), informer.Deleted)
	in.Absent(ctx, certificate("shop", "other"), informer.Unselected)
	in.Refused(ctx, certificate("shop", "bad"), errors.New("no"))
	want := map[string]int{"certificates changed": 2, "certificates deleted": 1, "certificates unselected": 1, "certificates quarantined": 1}
	if d := cmp.Diff(want, m.seen); d != "" {
		t.Errorf("seen (-want +got):\n%s", d)
	}
	for _, e := range batch.Take() {
		if listed := e.Key.Name == "listed"; e.Listed != listed || e.Since.IsZero() {
			t.Errorf("%s: listed %t since %v", e.Key.Name, e.Listed, e.Since)
		}
	}
}
