package sync

import (
	"errors"
	"testing"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
)

// TestAnnouncedBefore: a write that is announced already, by a try whose push of the outcome was
// lost, is made only if the remote still is what was judged.
func TestAnnouncedBefore(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}"})
	p.edit("grow", map[string]string{"a": of("{size: 2}")})
	p.at(StepWritten)
	p.agent()
	p.hands.beforeWrite = func(kube.Key) error { return &apply.Rejected{Verdict: apply.Unavailable, Retry: true} }
	if _, err := p.tryTurn(); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	p.mirror.two.opts.Reached = nil
	p.hands.beforeRead = func() {
		p.hands.beforeRead = nil
		p.edit("back", map[string]string{"a": of("{size: 1}")})
	}
	p.hands.eachWrite = func(kube.Key) { t.Errorf("written, though git's head has %s", p.inGit("a")) }
	p.turn()
	p.want("a", of("{size: 1}"), of("{size: 1}"), of("{size: 1}"))
}
