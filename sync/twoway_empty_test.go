package sync

import (
	"strings"
	"testing"
)

// full has content in each sort of map and list; emptied has it in none.
const (
	full = "{mode: auto, replicas: 1, size: 1, args: [aa, bb], limits: {k: v}, options: {k: v}, tags: [t], " +
		"ports: [{port: 80, protocol: TCP}], extra: {list: [one], map: {k: v}}}"
	emptied = "{mode: auto, replicas: 1, size: 1, args: [], limits: {}, options: {}, tags: [], ports: [], extra: {list: [], map: {}}}"
)

// TestEmptied: a map or list that one side empties is empty on the other, atomic or not,
// and with that they agree.
func TestEmptied(t *testing.T) {
	t.Parallel()
	for _, side := range []string{"git", "cluster"} {
		t.Run(side, func(t *testing.T) {
			p := agreed(t, map[string]string{"a": full})
			if side == "git" {
				p.edit("empty", map[string]string{"a": emptied})
			} else {
				p.patch("kubectl-edit", "a", "{args: [], limits: {k: null}, options: {k: null}, tags: [], ports: [], extra: {list: [], map: {k: null}}}")
			}
			p.relist()
			p.wantConflicts(p.turn())
			want := p.flow(p.decode(p.text("a", emptied)).Object["spec"])
			p.want("a", want, want, want)
			announced := p.announced()
			p.relist()
			if r := p.turn(); len(r.Applied) > 0 || p.announced() != announced {
				t.Errorf("applied again: %v", r.Applied)
			}
			p.want("a", want, want, want)
		})
	}
}

// TestResolveEmpty: a conflict about a value that one side emptied is settled by either value.
func TestResolveEmpty(t *testing.T) {
	t.Parallel()
	for _, take := range []Side{TakeGit, TakeCluster} {
		t.Run(string(take), func(t *testing.T) {
			p := agreed(t, map[string]string{"a": "{args: [aa], extra: {list: [a]}, limits: {k: a}, selfSigned: {url: a}}"})
			p.edit("change", map[string]string{"a": "{mode: auto, replicas: 1, args: [bb], extra: {list: [b]}, limits: {k: b}}"})
			p.patch("kubectl-edit", "a", "{args: [], extra: {list: []}, limits: {k: null}, selfSigned: {url: null}}")
			p.wantConflicts(p.settled(), ".spec.args", ".spec.extra.list", ".spec.limits", ".spec.selfSigned")
			want := map[Side]string{TakeGit: p.inGit("a"), TakeCluster: p.spec("a")}[take]
			p.resolve(Resolution{Take: take})
			p.wantConflicts(p.settled())
			p.want("a", want, want, want)
		})
	}
}

// TestCrashBesideEmptyMap: a map that we created empty shows after a crash that it is there,
// not that what somebody has put into it since was agreed.
func TestCrashBesideEmptyMap(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}"})
	p.edit("add a map", map[string]string{"a": "{mode: auto, replicas: 1, size: 1, options: {}}"})
	p.dies(StepWritten)
	p.opts.Reached = nil
	p.patch("kubectl-edit", "a", "{options: {k: v}}")
	p.agent()
	p.settled()
	if got := p.spec("a"); !strings.Contains(got, "k:v") {
		t.Errorf("the cluster has %s: a change in it is gone", got)
	}
}
