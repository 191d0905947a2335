package sync

import "testing"

// TestTwoWay: a change on either side reaches the other, and only that one.
func TestTwoWay(t *testing.T) {
	p := newPair(t)
	p.create("kubectl", "a", "{size: 1, color: red}")
	p.agent()
	p.cycle()
	p.want("a", "{color: red, mode: auto, replicas: 1, size: 1}", "{color: red, mode: auto, replicas: 1, size: 1}", "{color: red, mode: auto, replicas: 1, size: 1}")

	p.edit("grow", map[string]string{"a": "{size: 2, color: red, mode: auto, replicas: 1}"})
	p.patch("kubectl-edit", "a", "{color: blue}")
	p.see("a")
	report := p.turn()
	const both = "{color: blue, mode: auto, replicas: 1, size: 2}"
	p.want("a", both, both, both)
	p.wantConflicts(report)
	if len(report.Applied) != 1 {
		t.Errorf("applied %v, want one object", report.Applied)
	}
	p.settled()
	p.want("a", both, both, both)

	p.edit("grow more", map[string]string{"a": "{size: 3, color: blue, mode: auto, replicas: 1}"})
	p.patch("kubectl-edit", "a", "{size: 4, grade: low}")
	p.see("a")
	p.wantConflicts(p.turn(), ".spec.size")
	p.want("a", "{color: blue, grade: low, mode: auto, replicas: 1, size: 4}",
		"{color: blue, grade: low, mode: auto, replicas: 1, size: 3}", "{color: blue, grade: low, mode: auto, replicas: 1, size: 2}")
	p.wantConflicts(p.settled(), ".spec.size")
}
