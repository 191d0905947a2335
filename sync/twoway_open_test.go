package sync

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/crmirror/crmirror/kube/threeway"
)

// announcedOnly lets an agent announce the writes that git asks for, and die before it makes them.
// Another one starts.
func (p *pair) announcedOnly() {
	p.t.Helper()
	p.dies(StepAnnounced)
	p.opts.Reached = nil
	p.cache = p.t.TempDir()
}

// TestReshapeBesideOpenWrite: new shaping rules re-encode the tree, but for an object that a write
// is announced of and not answered; that one's file follows when it is.
func TestReshapeBesideOpenWrite(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1, color: red}", "b": "{size: 1, color: red}"})
	p.edit("grow", map[string]string{"b": of("{size: 2, color: red}")})
	p.announcedOnly()
	p.edit("back", map[string]string{"b": of("{size: 1, color: red}")})
	p.rules.Select[0].Shape.Drop = fieldPathsOf(t, ".spec.color")
	p.agent()
	r := p.settled()
	if !strings.Contains(p.file(".crmirror.yaml"), ".spec.color") {
		t.Error(".crmirror.yaml has not the new rules")
	}
	p.want("a", of("{size: 1, color: red}"), of("{size: 1}"), of("{size: 1}"))
	p.want("b", of("{size: 1, color: red}"), of("{size: 1, color: red}"), of("{size: 1, color: red}"))
	if !strings.Contains(p.announced(), "/b") {
		t.Errorf("the announcement is gone:\n%s", p.announced())
	}
	if len(r.Findings) != 1 || r.Findings[0].Key.Name != "b" || !strings.Contains(r.Findings[0].Text, "a change of it was announced and not made") {
		t.Errorf("findings %v, want one of b's open write", r.Findings)
	}
	p.patch("kubectl-edit", "b", "{note: x}") // from here on it cannot land
	r = p.settled()
	p.want("b", of("{size: 1, color: red, note: x}"), of("{size: 1, note: x}"), of("{size: 1, note: x}"))
	if len(r.Findings)+len(r.Conflicts) != 0 {
		t.Errorf("findings %v, conflicts %v", r.Findings, r.Conflicts)
	}
}

// TestUnmadeCreate: a creation that was announced, and that git took back, is told of as long as it
// may be made yet.
func TestUnmadeCreate(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{"{size: 5}", "{grade: medium, size: 5}"} { // the server refuses the other
		t.Run(spec, func(t *testing.T) {
			p := agreed(t, map[string]string{"a": "{size: 1}"})
			p.edit("new", map[string]string{"new": of(spec)})
			p.announcedOnly()
			p.edit("gone again", map[string]string{"new": ""})
			p.agent()
			for range 2 {
				r := p.settled()
				if len(r.Findings) != 1 || !strings.Contains(r.Findings[0].Text, "its creation was announced and not made") {
					t.Fatalf("findings %v, want one of its creation", r.Findings)
				}
			}
			p.now = p.now.Add(lateAfter)
			if r := p.settled(); !r.Clean() {
				t.Errorf("findings %v, conflicts %v, refusals %v", r.Findings, r.Conflicts, r.Refusals)
			}
			if strings.Contains(p.announced(), "/new") {
				t.Errorf("the announcement stands:\n%s", p.announced())
			}
			p.want("new", "", "", "")
		})
	}
}

// TestUnmadeCreateAgain: a creation that git took back is made when its file is back.
func TestUnmadeCreateAgain(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}"})
	p.edit("new", map[string]string{"new": "{size: 5}"})
	p.announcedOnly()
	p.edit("gone again", map[string]string{"new": ""})
	p.agent()
	p.settled()
	p.edit("there again", map[string]string{"new": of("{size: 5}")})
	if r := p.settled(); !r.Clean() {
		t.Errorf("findings %v, conflicts %v, refusals %v", r.Findings, r.Conflicts, r.Refusals)
	}
	p.want("new", of("{size: 5}"), of("{size: 5}"), of("{size: 5}"))
}

// TestCreatesInTime: nothing is created when its announcement may count as withdrawn.
func TestCreatesInTime(t *testing.T) {
	j := &judgement{decision: threeway.Decision{Object: threeway.CreateObject}}
	if _, err := newTwoWay(TwoWay{}).makeWrite(t.Context(), j, time.Now()); !errors.Is(err, errLate) {
		t.Errorf("got %v, want %v", err, errLate)
	}
}
