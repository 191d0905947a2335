package sync

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crmirror/crmirror/kube"
)

// report is a controller that writes an object's status.
func (p *pair) report(name string, n int) {
	p.t.Helper()
	status := fmt.Appendf(nil, `{"status":{"ready":%t}}`, n%2 == 1)
	_, err := p.server.widgets().Patch(p.t.Context(), name, types.MergePatchType, status, metav1.PatchOptions{FieldManager: "controller"}, "status")
	if err != nil {
		p.t.Error(err)
	}
}

// moving lets something happen right before each of the next writes of an object.
func (p *pair) moving(name string, times int, happen func(n int)) {
	n := 0
	p.hands.eachWrite = func(key kube.Key) {
		if key.Name == name && n < times {
			n++
			happen(n)
		}
	}
}

// TestMovesBeforeWrite: an object that moves between its judgement and its write is judged and
// announced again in the same cycle; what moved is not written over.
func TestMovesBeforeWrite(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name               string
		happen             func(p *pair, n int)
		cluster, git, base string
		conflicts          []string
	}{
		{"its status", func(p *pair, n int) { p.report("a", n) },
			of("{size: 2}"), of("{size: 2}"), of("{size: 2}"), nil},
		{"another field", func(p *pair, n int) { p.patch("controller", "a", fmt.Sprintf("{note: n%d}", n)) },
			of("{size: 2, note: n3}"), of("{size: 2, note: n3}"), of("{size: 2, note: n3}"), nil},
		{"the same field", func(p *pair, n int) { p.patch("controller", "a", "{size: 7}") },
			of("{size: 7}"), of("{size: 2}"), of("{size: 1}"), []string{".spec.size"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := agreed(t, map[string]string{"a": "{size: 1}"})
			p.edit("grow", map[string]string{"a": of("{size: 2}")})
			p.moving("a", 3, func(n int) {
				tt.happen(p, n)
				live, err := p.server.widgets().Get(t.Context(), "a", metav1.GetOptions{})
				if err != nil {
					t.Error(err)
				} else if strings.Contains(p.announced(), `"resourceVersion": "`+live.GetResourceVersion()+`"`) {
					t.Error("a state is announced that was not judged")
				}
			})
			report := p.turn()
			p.hands.eachWrite = nil
			p.want("a", tt.cluster, tt.git, tt.base)
			p.wantConflicts(report, tt.conflicts...)
			if len(report.Refusals) != 0 {
				t.Errorf("refusals %v", report.Refusals)
			}
		})
	}
}

// TestMovesAlways: an object that is never at rest is said to be tried again, and is; it
// holds up no other.
func TestMovesAlways(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}", "b": "{size: 1}"})
	p.edit("grow", map[string]string{"a": of("{size: 2}"), "b": of("{size: 2}")})
	tries := 0
	p.moving("a", 1000, func(n int) {
		tries = n
		p.report("a", n)
	})
	report := p.turn()
	p.want("a", of("{size: 1}"), of("{size: 2}"), of("{size: 1}"))
	p.want("b", of("{size: 2}"), of("{size: 2}"), of("{size: 2}"))
	if tries != writeRounds {
		t.Errorf("%d tries in a cycle, want %d", tries, writeRounds)
	}
	if len(report.Refusals) != 1 || !report.Refusals[0].Retry || !report.Again || !strings.Contains(report.Refusals[0].Text, "tried again") {
		t.Errorf("refusals %v, again %v; want one that is tried again", report.Refusals, report.Again)
	}
	p.hands.eachWrite = nil
	if report := p.turn(); len(report.Refusals) != 0 {
		t.Errorf("refusals %v of an object at rest", report.Refusals)
	}
	p.want("a", of("{size: 2}"), of("{size: 2}"), of("{size: 2}"))
}

// TestSecondRoundDies: what landed in the first round is not forgotten by the announcement of
// the second: a person's undoing of it is no change that git's is written over.
func TestSecondRoundDies(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}", "b": "{size: 1}"})
	p.edit("grow", map[string]string{"a": of("{size: 2}"), "b": of("{size: 2}")})
	p.moving("b", 1, func(n int) { p.report("b", n) })
	announcements := 0
	p.opts.Reached = func(step Step) error {
		if step == StepAnnounced {
			if announcements++; announcements == 2 {
				return errCrash
			}
		}
		return nil
	}
	p.agent()
	if _, err := p.tryTurn(); !errors.Is(err, errCrash) {
		t.Fatalf("the cycle did not die in its second round: %v", err)
	}
	if got := p.spec("a"); got != of("{size: 2}") {
		t.Fatalf("the first round wrote %s", got)
	}
	p.patch("kubectl-edit", "a", "{size: 1}")
	p.opts.Reached, p.cache = nil, t.TempDir()
	p.agent()
	p.wantConflicts(p.settled(), ".spec.size")
	if got := p.spec("a"); got != of("{size: 1}") {
		t.Errorf("a person's edit was overwritten: %s", got)
	}
	p.want("b", of("{size: 2}"), of("{size: 2}"), of("{size: 2}"))
}

// TestDryRunMoves: a dry run judges an object again that moves while the server is asked, as the real
// run does.
func TestDryRunMoves(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}"})
	p.edit("grow", map[string]string{"a": of("{size: 2}")})
	p.startAs(&TwoWay{DryRun: true, Trial: true})
	tries := 0
	p.dry.eachWrite = func(kube.Key) {
		if tries++; tries <= 3 {
			p.report("a", tries)
		}
	}
	report := p.cycle()
	if tries != 4 {
		t.Errorf("the server was asked %d times, want 4", tries)
	}
	if len(report.Refusals)+len(report.Findings) != 0 || len(report.Applied) != 1 || report.Applied[0].Action != "configured" {
		t.Errorf("refusals %v, findings %v, applied %v; want a configured", report.Refusals, report.Findings, report.Applied)
	}
	p.want("a", of("{size: 1}"), of("{size: 2}"), of("{size: 1}"))
}
