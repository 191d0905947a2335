package sync

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/informer"
)

// agreed returns a pair whose agent runs, with widgets that both sides agree on.
func agreed(t *testing.T, specs map[string]string) *pair {
	t.Helper()
	p := newPair(t)
	for name, spec := range specs {
		p.create("kubectl", name, spec)
	}
	p.agent()
	p.settled()
	return p
}

// of is a spec with the defaults of the kind in it.
func of(spec string) string {
	fields := map[string]string{"mode": "auto", "replicas": "1"}
	for field := range strings.SplitSeq(strings.Trim(spec, "{}"), ", ") {
		name, value, _ := strings.Cut(field, ": ")
		fields[name] = value
	}
	var parts []string
	for _, name := range []string{"color", "grade", "legacy", "mode", "note", "replicas", "size"} {
		if value, ok := fields[name]; ok {
			parts = append(parts, name+": "+value)
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// TestTwoWay: a change on either side reaches the other, and only that one.
func TestTwoWay(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1, color: red}"})
	p.want("a", of("{size: 1, color: red}"), of("{size: 1, color: red}"), of("{size: 1, color: red}"))

	p.edit("grow", map[string]string{"a": of("{size: 2, color: red}")})
	p.patch("kubectl-edit", "a", "{color: blue}")
	p.see("a")
	report := p.turn()
	both := of("{color: blue, size: 2}")
	p.want("a", both, both, both)
	p.wantConflicts(report)
	if len(report.Applied) != 1 || fmt.Sprint(report.Applied[0].Fields) != "[.spec.size]" {
		t.Errorf("applied %v, want the size of one object", report.Applied)
	}
	p.settled()
	p.want("a", both, both, both)

	p.edit("grow more", map[string]string{"a": of("{size: 3, color: blue}")})
	p.patch("kubectl-edit", "a", "{size: 4, grade: low}")
	p.see("a")
	p.wantConflicts(p.turn(), ".spec.size")
	p.want("a", of("{color: blue, grade: low, size: 4}"), of("{color: blue, grade: low, size: 3}"), of("{color: blue, grade: low, size: 2}"))
	p.wantConflicts(p.settled(), ".spec.size")

	// A conflict on one field holds up no other, and ends when both sides are equal.
	p.edit("paint", map[string]string{"a": of("{color: green, grade: low, size: 3}")})
	p.wantConflicts(p.turn(), ".spec.size")
	p.want("a", of("{color: green, grade: low, size: 4}"), of("{color: green, grade: low, size: 3}"), of("{color: green, grade: low, size: 2}"))
	p.edit("give in", map[string]string{"a": of("{color: green, grade: low, size: 4}")})
	p.wantConflicts(p.settled())
	both = of("{color: green, grade: low, size: 4}")
	p.want("a", both, both, both)
}

// TestTwoWayObjects: objects come and go on either side.
func TestTwoWayObjects(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}", "b": "{size: 1}", "c": "{size: 1}", "d": "{size: 1}"})
	p.opts.Prune = true
	p.agent()
	p.settled()

	p.edit("add one, drop one, change one", map[string]string{"new": "{size: 7}", "a": "", "c": of("{size: 3}")})
	p.delete("b")
	p.delete("c")
	p.patch("kubectl-edit", "d", "{size: 4}")
	p.edit("drop what the cluster changes", map[string]string{"d": ""})
	p.see("b", "c", "d")
	p.wantConflicts(p.settled(), "", "")
	p.want("new", of("{size: 7}"), of("{size: 7}"), of("{size: 7}")) // with its defaults, once
	p.want("a", "", "", "")
	p.want("b", "", "", "")
	p.want("c", "", of("{size: 3}"), of("{size: 1}"))
	p.want("d", of("{size: 4}"), "", of("{size: 1}"))
}

// TestPrune: without prune, and beyond the guard, objects stay.
func TestPrune(t *testing.T) {
	specs := map[string]string{}
	for i := range 6 {
		specs[fmt.Sprintf("w%d", i)] = "{size: 1}"
	}
	p := agreed(t, specs)
	p.edit("drop one", map[string]string{"w0": ""})
	report := p.settled()
	p.want("w0", of("{size: 1}"), "", of("{size: 1}"))
	if len(report.Findings) != 1 || !strings.Contains(report.Findings[0].Text, "apply.prune is off") {
		t.Errorf("findings %v, want that prune is off", report.Findings)
	}
	p.opts.Prune, p.guard.MaxDeleteObjects = true, 2
	p.agent()
	p.settled()
	p.want("w0", "", "", "")

	p.edit("drop too many", map[string]string{"w1": "", "w2": "", "w3": ""})
	report = p.turn()
	if len(report.Held) != 3 {
		t.Fatalf("held %v, want three", report.Held)
	}
	p.want("w1", of("{size: 1}"), "", of("{size: 1}"))
	p.approve(report.Held.Digest())
	report = p.settled()
	if len(report.Held) != 0 {
		t.Errorf("after the approval held %v", report.Held)
	}
	for _, name := range []string{"w1", "w2", "w3"} {
		p.want(name, "", "", "")
	}
}

// TestUnreadableFileStopsPrunes: a file that cannot be read may be any object's.
func TestUnreadableFileStopsPrunes(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}", "b": "{size: 1}", "c": "{size: 1}"})
	p.opts.Prune = true
	p.agent()
	p.person("break one, drop another, change a third", func(dir string) {
		write := func(name, text string) {
			if err := os.WriteFile(filepath.Join(dir, "clusters/lab", p.pathOf(name)), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		write("a", strings.Replace(p.text("a", "{size: 2}"), "apiVersion", "piVersion", 1))
		write("c", p.text("c", of("{size: 3}")))
		if err := os.Remove(filepath.Join(dir, "clusters/lab", p.pathOf("b"))); err != nil {
			t.Fatal(err)
		}
	})
	report := p.settled()
	p.want("b", of("{size: 1}"), "", of("{size: 1}"))
	p.want("c", of("{size: 3}"), of("{size: 3}"), of("{size: 3}"))
	if got := p.spec("a"); got != of("{size: 1}") {
		t.Errorf("the object of the broken file has %s", got)
	}
	if len(report.Findings) != 2 {
		t.Errorf("findings %v, want the file and what waits for it", report.Findings)
	}
}

// TestFirstRun: without a base, what is equal is agreed, what differs is listed, and
// nothing is overwritten.
func TestFirstRun(t *testing.T) {
	p := newPair(t)
	p.create("kubectl", "same", "{size: 1}")
	p.create("kubectl", "other", "{size: 1}")
	p.create("kubectl", "only-there", "{size: 1}")
	p.startAs(nil) // a mirror writes the marker
	p.cycle()
	p.edit("as if by hand", map[string]string{"other": of("{size: 2}"), "only-there": "", "only-here": "{size: 1}"})
	p.git("-C", p.remote, "update-ref", "-d", p.mirror.refs.Base)
	p.agent()
	p.wantConflicts(p.settled(), "", "", ".spec.size")
	p.want("same", of("{size: 1}"), of("{size: 1}"), of("{size: 1}"))
	if p.spec("only-here") != "" || p.inGit("only-there") != "" {
		t.Error("what only one side has was copied")
	}
	if p.spec("other") != of("{size: 1}") || p.inGit("other") != of("{size: 2}") {
		t.Error("what differs was overwritten")
	}
	// A new agent knows it still.
	p.agent()
	p.wantConflicts(p.settled(), "", "", ".spec.size")
	p.edit("new is no question", map[string]string{"fresh": "{size: 5}"})
	p.wantConflicts(p.settled(), "", "", ".spec.size")
	p.want("fresh", of("{size: 5}"), of("{size: 5}"), of("{size: 5}"))
}

// TestRespected: the fields of a manager that is respected are not taken.
func TestRespected(t *testing.T) {
	p := newPair(t)
	p.opts.Respect = []string{"helm-controller"}
	p.create("kubectl", "a", "{size: 1}")
	p.patch("helm-controller", "a", "{color: red}")
	p.agent()
	p.settled()
	p.edit("change both", map[string]string{"a": of("{size: 2, color: blue}")})
	report := p.settled()
	p.wantConflicts(report, ".spec.color")
	if got := report.Conflicts[0]; !strings.Contains(got.Reason, "helm-controller") || got.Git != `"blue"` || got.Cluster != `"red"` || got.Line == 0 {
		t.Errorf("the conflict says %+v", got)
	}
	p.want("a", of("{color: red, size: 2}"), of("{color: blue, size: 2}"), of("{color: red, size: 2}"))
}

// TestUnselectedByGit: a change in git takes the object out of the selection. It is
// applied, and base says so at once: an agent that starts then has nothing to ask.
func TestUnselectedByGit(t *testing.T) {
	p := newPair(t)
	p.rules.Select[0].LabelSelector = "keep!=no"
	p.create("kubectl", "a", "{size: 1}")
	p.create("kubectl", "b", "{size: 1}")
	p.agent()
	p.settled()
	p.person("grow, and let go", func(dir string) {
		text := strings.Replace(p.text("a", of("{size: 2}")), "metadata:\n", "metadata:\n  labels: {keep: \"no\"}\n", 1)
		if err := os.WriteFile(filepath.Join(dir, "clusters/lab", p.pathOf("a")), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	})
	report := p.turn()
	p.want("a", of("{size: 2}"), of("{size: 2}"), of("{size: 2}"))
	if len(report.Findings) != 1 || !strings.Contains(report.Findings[0].Text, "applied, and by that no rule selects it") {
		t.Errorf("findings %+v, want that it left the selection", report.Findings)
	}
	if got := p.announced(); strings.Contains(got, "spec") {
		t.Errorf("the announcement stands: %s", got)
	}
	p.agent()
	report = p.settled()
	p.wantConflicts(report)
	if len(report.Findings) != 0 {
		t.Errorf("findings %+v of what is settled", report.Findings)
	}
	p.want("a", of("{size: 2}"), of("{size: 2}"), of("{size: 2}"))
}

// TestFormatSurvives: a person's comments stay as long as the content is what it
// should be.
func TestFormatSurvives(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}"})
	p.person("say why", func(dir string) {
		text := "# The smallest that works.\n" + p.text("a", of("{size: 2}"))
		if err := os.WriteFile(filepath.Join(dir, "clusters/lab", p.pathOf("a")), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	})
	p.settled()
	p.want("a", of("{size: 2}"), of("{size: 2}"), of("{size: 2}"))
	for range 3 { // the object is seen again, as after a change of its status
		p.see("a")
		p.turn()
	}
	if !strings.Contains(p.file(p.pathOf("a")), "# The smallest") {
		t.Error("the comment is gone")
	}
}

// TestRemovedDefault: a removed field that has a default comes back, once.
func TestRemovedDefault(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1, color: red}"})
	p.edit("drop two fields", map[string]string{"a": "{mode: auto, size: 1}"})
	report := p.turn()
	p.settled()
	p.want("a", of("{size: 1}"), of("{size: 1}"), of("{size: 1}"))
	if len(report.Applied) != 1 || !strings.Contains(fmt.Sprint(report.Applied[0].Notes), "replicas came back at its default") {
		t.Errorf("applied %+v, want a word about the default", report.Applied)
	}
	// What landed is not remembered beyond its push.
	p.patch("autoscaler", "a", "{replicas: 5}")
	p.see("a")
	p.wantConflicts(p.turn())
	p.want("a", of("{replicas: 5, size: 1}"), of("{replicas: 5, size: 1}"), of("{replicas: 5, size: 1}"))
}

// TestRefusals: what the server refuses harms nobody else, and says why.
func TestRefusals(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}", "b": "{size: 1}"})
	p.edit("one bad, one good", map[string]string{"a": of("{size: 1, grade: middling}"), "b": of("{size: 2}")})
	report := p.settled()
	p.want("b", of("{size: 2}"), of("{size: 2}"), of("{size: 2}"))
	p.want("a", of("{size: 1}"), of("{size: 1, grade: middling}"), of("{size: 1}"))
	if len(report.Refusals) != 1 || !strings.Contains(report.Refusals[0].Text, "grade") || report.Refusals[0].Retry {
		t.Errorf("refusals %+v, want one, for good, that names the field", report.Refusals)
	}
	p.edit("mend it", map[string]string{"a": of("{size: 1, grade: high}")})
	report = p.settled()
	p.want("a", of("{size: 1, grade: high}"), of("{size: 1, grade: high}"), of("{size: 1, grade: high}"))
	if len(report.Refusals) != 0 {
		t.Errorf("refusals %v, although it was mended", report.Refusals)
	}
}

// TestRewoundBranch: nothing is applied from a branch that lost commits.
func TestRewoundBranch(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}"})
	p.edit("grow", map[string]string{"a": of("{size: 2}")})
	p.settled()
	p.git("-C", p.remote, "update-ref", "refs/heads/main", "main~1")
	r, err := p.tryTurn()
	var rewound *RewoundError
	if !errors.As(err, &rewound) {
		t.Fatalf("cycle on a rewound branch: %v", err)
	}
	if len(r.Findings) > 0 {
		t.Errorf("it is also said: %v", r.Findings)
	}
	if got := p.spec("a"); got != of("{size: 2}") {
		t.Errorf("the cluster was changed to %s", got)
	}
}

// TestMirrorInBetween: a backup in mode mirror takes the cluster's side, and two-way
// mode goes on from there.
func TestMirrorInBetween(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}", "b": "{size: 1}"})
	p.edit("grow", map[string]string{"a": of("{size: 2}")})
	p.patch("kubectl-edit", "b", "{size: 3}")
	p.startAs(nil)
	p.cycle()
	p.agent()
	p.settled()
	p.want("a", of("{size: 1}"), of("{size: 1}"), of("{size: 1}"))
	p.want("b", of("{size: 3}"), of("{size: 3}"), of("{size: 3}"))
}

var errCrash = errors.New("killed here")

// at crashes the agent at a step.
func (p *pair) at(step Step) {
	p.opts.Reached = func(s Step) error {
		if s == step {
			return errCrash
		}
		return nil
	}
}

// dies lets a new agent's first cycle end in a crash at a step.
func (p *pair) dies(step Step) {
	p.t.Helper()
	p.at(step)
	p.agent()
	if _, err := p.tryTurn(); !errors.Is(err, errCrash) {
		p.t.Fatalf("the cycle did not die at %s: %v", step, err)
	}
}

// TestCrash: an agent dies between two steps of the protocol, people go on on
// either side, and another agent takes over. No edit is lost; what cannot be told is asked.
func TestCrash(t *testing.T) {
	t.Parallel()
	type people func(p *pair)
	gitTo := func(size string) people {
		return func(p *pair) { p.edit("meanwhile", map[string]string{"a": of("{size: " + size + "}")}) }
	}
	clusterTo := func(size string) people {
		return func(p *pair) { p.patch("kubectl-edit", "a", "{size: "+size+"}") }
	}
	nobody := func(*pair) {}
	for _, tt := range []struct {
		name      string
		step      Step
		meanwhile people
		size      string // of both sides in the end; "" when it is a conflict
	}{
		{"announced, nothing landed", StepAnnounced, nobody, "2"},
		{"announced, git reverted", StepAnnounced, gitTo("1"), "1"},
		{"announced, git went on", StepAnnounced, gitTo("3"), "3"},
		{"announced, the cluster moved", StepAnnounced, clusterTo("5"), ""},
		{"announced, the cluster moved to the same", StepAnnounced, clusterTo("2"), "2"},
		{"written", StepWritten, nobody, "2"},
		{"written, git reverted", StepWritten, gitTo("1"), "1"},
		{"written, git went on", StepWritten, gitTo("3"), "3"},
		{"written, undone in the cluster", StepWritten, clusterTo("1"), ""},
		{"written, the cluster went on", StepWritten, clusterTo("5"), ""},
		{"committed, not pushed", StepCommitted, nobody, "2"},
		{"committed, git reverted", StepCommitted, gitTo("1"), "1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := agreed(t, map[string]string{"a": "{size: 1}"})
			p.edit("grow", map[string]string{"a": of("{size: 2}")})
			p.dies(tt.step)
			tt.meanwhile(p)
			p.opts.Reached = nil
			p.cache = t.TempDir() // the disk is gone, too
			p.agent()
			report := p.settled()
			if tt.size == "" {
				p.wantConflicts(report, ".spec.size")
				return
			}
			want := of("{size: " + tt.size + "}")
			p.wantConflicts(report)
			if p.spec("a") != want || p.inGit("a") != want {
				t.Errorf("the cluster has %s, git %s, want %s", p.spec("a"), p.inGit("a"), want)
			}
			// What never landed stays announced until the object moves: it may land yet.
			p.patch("kubectl-edit", "a", "{legacy: moved}")
			p.settled()
			if got := p.announced(); strings.Contains(got, "spec") {
				t.Errorf("the announcement stands: %s", got)
			}
		})
	}
}

// TestPushFails: the agent lives on, and knows what landed.
func TestPushFails(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		meanwhile func(p *pair)
		size      string
	}{
		{"nobody moves", func(*pair) {}, "2"},
		{"git is reverted", func(p *pair) { p.edit("back", map[string]string{"a": of("{size: 1}")}) }, "1"},
		{"the cluster moves", func(p *pair) { p.patch("kubectl-edit", "a", "{size: 5}") }, "5"},
		{"the cluster is put back", func(p *pair) { p.patch("kubectl-edit", "a", "{size: 1}") }, "1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := agreed(t, map[string]string{"a": "{size: 1}"})
			p.edit("grow", map[string]string{"a": of("{size: 2}")})
			p.dies(StepWritten)
			p.mirror.two.opts.Reached = nil // the same process goes on
			tt.meanwhile(p)
			report := p.settled()
			p.wantConflicts(report)
			want := of("{size: " + tt.size + "}")
			p.want("a", want, want, want)
		})
	}
}

// TestRefusedIsNotOurs (case B): a write is refused since a controller had just set
// that value; it is the controller's, not ours.
func TestRefusedIsNotOurs(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}"})
	p.edit("grow", map[string]string{"a": of("{size: 2}")})
	p.hands.beforeWrite = func(kube.Key) error {
		p.patch("controller", "a", "{size: 2}")
		p.hands.beforeRead = func() { // before it is judged again
			p.hands.beforeRead = nil
			p.patch("controller", "a", "{size: 1}")
		}
		return nil
	}
	p.wantConflicts(p.settled())
	p.want("a", of("{size: 2}"), of("{size: 2}"), of("{size: 2}"))
}

// TestAnswerLost: a write landed and nobody said so.
func TestAnswerLost(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}"})
	p.edit("a person's formatting", map[string]string{"a": of("{size: 1, color: red}")})
	p.settled()
	p.edit("grow", map[string]string{"a": of("{size: 2, color: red}")})
	p.hands.afterWrite = func(kube.Key) error {
		return apply.ErrUncertain
	}
	p.turn()
	p.edit("back", map[string]string{"a": of("{size: 1, color: red}")})
	p.wantConflicts(p.settled())
	p.want("a", of("{color: red, size: 1}"), of("{color: red, size: 1}"), of("{color: red, size: 1}"))
}

// TestTwoCrashes: an agent dies before it writes, the next one after; the third knows what
// became of both announcements.
func TestTwoCrashes(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}", "b": "{size: 1}"})
	p.edit("grow", map[string]string{"a": of("{size: 2}")})
	for _, step := range []Step{StepAnnounced, StepWritten} {
		p.dies(step)
	}
	p.edit("back, and another", map[string]string{"a": of("{size: 1}"), "b": of("{size: 3}")})
	p.opts.Reached = nil
	p.agent()
	p.wantConflicts(p.settled())
	p.want("a", of("{size: 1}"), of("{size: 1}"), of("{size: 1}"))
	p.want("b", of("{size: 3}"), of("{size: 3}"), of("{size: 3}"))
}

// TestLandedBeforeMore: what landed is in base before a new announcement takes the place
// of the one that told of it.
func TestLandedBeforeMore(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}", "b": "{size: 1}"})
	p.edit("grow", map[string]string{"a": of("{size: 2}")})
	p.dies(StepWritten)
	p.edit("and another", map[string]string{"b": of("{size: 2}")})
	p.at(StepAnnounced) // the same process goes on, and dies with the second
	p.mirror.two.opts.Reached = p.opts.Reached
	if _, err := p.tryTurn(); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	p.edit("a back", map[string]string{"a": of("{size: 1}")})
	p.opts.Reached = nil
	p.agent()
	p.wantConflicts(p.settled())
	p.want("a", of("{size: 1}"), of("{size: 1}"), of("{size: 1}"))
	p.want("b", of("{size: 2}"), of("{size: 2}"), of("{size: 2}"))
}

// TestEndsInTheCluster: a conflict ends when the cluster gets git's value, without the
// remote being asked.
func TestEndsInTheCluster(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}"})
	canonical := strings.Replace(p.file(p.pathOf("a")), "size: 1", "size: 2", 1)
	p.person("grow", func(dir string) {
		if err := os.WriteFile(filepath.Join(dir, "clusters/lab", p.pathOf("a")), []byte(canonical), 0o666); err != nil {
			t.Fatal(err)
		}
	})
	p.patch("kubectl-edit", "a", "{size: 3}")
	p.see("a")
	p.wantConflicts(p.turn(), ".spec.size")
	p.wantConflicts(p.cycle(), ".spec.size") // nothing moved
	p.patch("kubectl-edit", "a", "{size: 2}")
	p.see("a")
	p.cycle()
	p.wantConflicts(p.cycle())
	p.want("a", of("{size: 2}"), of("{size: 2}"), of("{size: 2}"))
}

// TestEmptiedBranch: everything below the path is gone from git; nothing is for it.
func TestEmptiedBranch(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}"})
	p.opts.Prune = true
	p.agent()
	p.settled()
	p.person("move it all away", func(dir string) {
		if err := os.Rename(filepath.Join(dir, "clusters/lab"), filepath.Join(dir, "elsewhere")); err != nil {
			t.Fatal(err)
		}
	})
	var emptied *EmptiedError
	if _, err := p.tryTurn(); !errors.As(err, &emptied) {
		t.Errorf("cycle on an emptied branch: %v", err)
	}
	if p.spec("a") == "" {
		t.Error("the object is gone")
	}
	p.agent()
	if done, err := p.mirror.Adopt(t.Context(), p.now); err != nil || !done.Emptied {
		t.Fatalf("adopt: %+v, %v", done, err)
	}
	p.agent()
	p.wantConflicts(p.settled())
	p.want("a", of("{size: 1}"), of("{size: 1}"), of("{size: 1}"))
}

// TestAnnouncementLosesRace: a person pushes while the agent judges; nothing is
// written for what is not there any more.
func TestAnnouncementLosesRace(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}"})
	p.edit("grow", map[string]string{"a": of("{size: 2}")})
	p.hands.writes = 0
	pushed := false
	p.hands.beforeRead = func() {
		if !pushed {
			pushed = true
			p.edit("no, grow more", map[string]string{"a": of("{size: 3}")})
		}
	}
	p.settled()
	p.want("a", of("{size: 3}"), of("{size: 3}"), of("{size: 3}"))
	if wrote := p.hands.writes; wrote != 1 {
		t.Errorf("%d writes, want the last value only", wrote)
	}
}

// TestJudgesLiveReads (case H): the informer is late; what it remembers is not pushed.
func TestJudgesLiveReads(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}"})
	old, err := p.server.Get(t.Context(), p.server.key("a"))
	if err != nil {
		t.Fatal(err)
	}
	p.edit("grow", map[string]string{"a": of("{size: 2}")})
	p.turn()
	p.inbox.Changed(t.Context(), old)
	p.turn()
	p.want("a", of("{size: 2}"), of("{size: 2}"), of("{size: 2}"))
}

// TestLateInformer: an agent starts, and its informers are behind what the agent before it
// wrote for a person. What they remember undoes nothing, and is no agreement.
func TestLateInformer(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}", "b": "{size: 1}", "c": "{size: 1}"})
	p.opts.Prune = true
	p.agent()
	p.settled()
	var old []informer.State
	for _, name := range []string{"a", "b", "c"} {
		state, err := p.server.Get(t.Context(), p.server.key(name))
		if err != nil {
			t.Fatal(err)
		}
		old = append(old, state)
	}
	p.edit("grow two, drop one", map[string]string{"a": of("{size: 2}"), "b": of("{size: 2}"), "c": ""})
	p.settled()
	p.want("a", of("{size: 2}"), of("{size: 2}"), of("{size: 2}"))
	p.want("c", "", "", "")

	p.agent()
	for _, state := range old {
		p.inbox.Changed(t.Context(), state)
	}
	p.edit("b back", map[string]string{"b": of("{size: 1}")})
	commits := p.commits()
	p.wantConflicts(p.turn())
	p.want("a", of("{size: 2}"), of("{size: 2}"), of("{size: 2}"))
	p.want("b", of("{size: 1}"), of("{size: 1}"), of("{size: 1}"))
	p.want("c", "", "", "")
	if got := p.commits(); got != commits {
		t.Errorf("%d commits of what was remembered", got-commits)
	}
}

// TestDeletedWhileAnnounced (case J): an object that is gone, or is another one, while
// a write is announced is a question, not an answer.
func TestDeletedWhileAnnounced(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprintf("made again=%v", again), func(t *testing.T) {
			p := agreed(t, map[string]string{"a": "{size: 1}"})
			p.edit("grow", map[string]string{"a": of("{size: 2}")})
			p.dies(StepWritten)
			p.delete("a")
			if again {
				p.create("kubectl", "a", "{size: 1}")
			}
			p.opts.Reached = nil
			p.agent()
			report := p.settled()
			if len(report.Conflicts) != 1 {
				t.Errorf("conflicts %+v, want one", report.Conflicts)
			}
		})
	}
}

// TestAnnouncedFieldsOnly (case A): an announcement names what it writes and nothing else.
func TestAnnouncedFieldsOnly(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1, color: red}"})
	p.edit("grow", map[string]string{"a": of("{size: 2, color: red}")})
	p.dies(StepAnnounced)
	text := p.announced()
	if !strings.Contains(text, "f:size") || strings.Contains(text, "color") || strings.Contains(text, "replicas") {
		t.Errorf("the announcement says:\n%s", text)
	}
}
