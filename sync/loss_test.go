package sync

import (
	"testing"

	"github.com/crmirror/crmirror/kube/threeway"
)

// TestTakenBack: an owner that takes a field back is no fight, and no silence.
func TestTakenBack(t *testing.T) {
	p := newPair(t)
	p.create("autoscaler", "a", "{size: 1}")
	p.agent()
	p.settled()
	p.edit("grow", map[string]string{"a": of("{size: 2}")})
	p.settled()
	p.patch("autoscaler", "a", "{size: 1}")
	p.see("a")
	p.wantConflicts(p.turn(), ".spec.size")
	p.want("a", of("{size: 1}"), of("{size: 2}"), of("{size: 2}"))
	p.agent() // it does not forget
	p.wantConflicts(p.settled(), ".spec.size")
}

// TestTakenBackEnds: it is over when both sides are equal, when git changes the field
// again, or when a person settles it. What the owner does from then on is a change like any.
func TestTakenBackEnds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		restarts bool
		end      func(p *pair)
		size     string // of both sides in the end; "" when they differ, for another reason
	}{
		{"git gives in", false, func(p *pair) { p.edit("give in", map[string]string{"a": of("{size: 1}")}) }, "1"},
		{"the owner gives in", false, func(p *pair) { p.patch("autoscaler", "a", "{size: 2}") }, "2"},
		{"git goes on", false, func(p *pair) { p.edit("grow more", map[string]string{"a": of("{size: 3}")}) }, ""},
		{"git goes on, and an agent starts", true, func(p *pair) { p.edit("grow more", map[string]string{"a": of("{size: 3}")}) }, ""},
		{"resolved with the cluster's", false, func(p *pair) { p.resolve(Resolution{Take: TakeCluster}) }, "1"},
		{"resolved with git's", false, func(p *pair) { p.resolve(Resolution{Take: TakeGit}) }, "2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPair(t)
			p.create("autoscaler", "a", "{size: 1}")
			p.agent()
			p.settled()
			p.edit("grow", map[string]string{"a": of("{size: 2}")})
			p.settled()
			p.patch("autoscaler", "a", "{size: 1}")
			p.see("a")
			report := p.turn()
			p.wantConflicts(report, ".spec.size")
			if got := report.Conflicts[0].Reason; got != takenBack+"autoscaler" {
				t.Errorf("the conflict says %q", got)
			}
			if tt.restarts {
				p.agent()
				if got := p.settled().Conflicts; len(got) != 1 || got[0].Reason != takenBack+"autoscaler" {
					t.Errorf("after a restart: %+v", got)
				}
			}
			tt.end(p)
			report = p.settled()
			if tt.size == "" {
				p.wantConflicts(report, ".spec.size")
				if c := report.Conflicts[0]; c.Reason != threeway.ReasonChanged || c.Base != "2" || c.Git != "3" || c.Cluster != "1" {
					t.Errorf("the conflict is %+v, want one of three values", c)
				}
				p.edit("give in", map[string]string{"a": of("{size: 1}")})
				report = p.settled()
			}
			p.wantConflicts(report)
			for _, size := range []string{"5", "1"} { // the owner's from now on, and its old value is no news
				if tt.name == "resolved with git's" {
					break
				}
				p.patch("autoscaler", "a", "{size: "+size+"}")
				p.see("a")
				p.wantConflicts(p.settled())
				p.want("a", of("{size: "+size+"}"), of("{size: "+size+"}"), of("{size: "+size+"}"))
			}
			if tt.name == "resolved with git's" { // written once more, and lost once more: it is asked again
				p.want("a", of("{size: 2}"), of("{size: 2}"), of("{size: 2}"))
				p.patch("autoscaler", "a", "{size: 1}")
				p.see("a")
				p.wantConflicts(p.settled(), ".spec.size")
			}
		})
	}
}

// TestTakenBackLater: a person insists before the owner moves; that it then sets what it
// had is a conflict still. That it sets something else first ends it.
func TestTakenBackLater(t *testing.T) {
	p := newPair(t)
	p.create("autoscaler", "a", "{size: 1}")
	p.create("autoscaler", "b", "{size: 1}")
	p.agent()
	p.settled()
	for _, size := range []string{"2", "3"} {
		p.edit("grow", map[string]string{"a": of("{size: " + size + "}"), "b": of("{size: " + size + "}")})
		p.settled()
	}
	p.patch("autoscaler", "b", "{size: 9}")
	p.settled()
	p.want("b", of("{size: 9}"), of("{size: 9}"), of("{size: 9}"))
	p.patch("autoscaler", "a", "{size: 1}")
	p.patch("autoscaler", "b", "{size: 1}")
	p.wantConflicts(p.settled(), ".spec.size")
	p.want("a", of("{size: 1}"), of("{size: 3}"), of("{size: 3}"))
	p.want("b", of("{size: 1}"), of("{size: 1}"), of("{size: 1}"))
}
