package sync

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
)

// after is a turn that comes so long after the last.
func (p *pair) after(d time.Duration) *Report {
	p.t.Helper()
	p.now = p.now.Add(d - time.Minute)
	return p.turn()
}

// refuseWrites lets the server refuse every write, and returns how often it did.
func (p *pair) refuseWrites(verdict apply.Verdict) *int {
	tries := 0
	p.hands.eachWrite = func(kube.Key) {
		tries++
		p.hands.beforeWrite = func(kube.Key) error { return &apply.Rejected{Verdict: verdict, Message: "no"} }
	}
	return &tries
}

// TestRefusedBacksOff: a change that is refused is tried after a moment, and then ever more rarely, but
// within a minute, for nobody has to touch the object for a permission to be there. In between it
// costs no push; a change of the object on either side ends the wait, its status does not.
func TestRefusedBacksOff(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}"})
	p.edit("grow", map[string]string{"a": of("{size: 2}")})
	tries := p.refuseWrites(apply.Forbidden)
	step := func(what string, d time.Duration, want int) *Report {
		t.Helper()
		before := p.git("-C", p.remote, "for-each-ref")
		was := *tries
		r := p.after(d)
		if *tries != want {
			t.Fatalf("%s: %d tries, want %d", what, *tries, want)
		}
		if moved := p.git("-C", p.remote, "for-each-ref") != before; moved && *tries == was {
			t.Errorf("%s: something was pushed, and nothing tried", what)
		}
		if len(r.Refusals) != 1 || !r.Refusals[0].Next.Equal(r.Next) || !r.Next.After(p.now) {
			t.Fatalf("%s: refusals %+v, next %v", what, r.Refusals, r.Next)
		}
		return r
	}
	step("first", time.Second, 1)
	step("a second later", time.Second, 1)
	step("when it is due", time.Second, 2)
	p.report("a", 1)
	p.see("a")
	step("its status moves", time.Second, 2)
	p.patch("kubectl-edit", "a", "{color: red}")
	p.see("a")
	step("the cluster moves", time.Second, 3)
	p.edit("grow more", map[string]string{"a": of("{color: red, size: 3}")})
	step("git moves", time.Second, 4)
	for n := 5; n < 12; n++ {
		r := step("once more", refusedMost, n)
		if wait := r.Next.Sub(p.now); wait > time.Minute || n == 11 && wait != time.Minute {
			t.Errorf("the next try comes in %v", wait)
		}
	}
	p.hands.eachWrite = nil
	if r := p.after(time.Minute); len(r.Refusals) != 0 || !r.Next.IsZero() {
		t.Errorf("refusals %v", r.Refusals)
	}
	p.want("a", of("{color: red, size: 3}"), of("{color: red, size: 3}"), of("{color: red, size: 3}"))
}

// TestRefusedForGood: what the kind does not allow is not tried every minute.
func TestRefusedForGood(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}"})
	p.edit("grow", map[string]string{"a": of("{size: 2}")})
	tries := p.refuseWrites(apply.Invalid)
	for range 5 {
		p.after(time.Minute)
	}
	if *tries != 1 {
		t.Errorf("tried %d times in five minutes", *tries)
	}
	if r := p.after(time.Minute); *tries != 2 || len(r.Refusals) != 1 || r.Refusals[0].Retry || !strings.Contains(r.Refusals[0].again(time.Now()), "every 5 minutes") {
		t.Errorf("tried %d times, refusals %+v", *tries, r.Refusals)
	}
}

// TestJudgedFilesComeAtOnce: a clone without contents asks for those that are judged together, not
// for each by itself.
func TestJudgedFilesComeAtOnce(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}", "b": "{size: 1}"})
	for _, what := range []string{"allowFilter", "allowReachableSHA1InWant", "allowAnySHA1InWant"} {
		p.git("-C", p.remote, "config", "uploadpack."+what, "true")
	}
	p.edit("grow", map[string]string{"a": of("{size: 2}"), "b": of("{size: 2}")})
	p.cache = t.TempDir()
	p.agent()
	m := p.mirror
	if err := m.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.readUnknown(t.Context()); err != nil {
		t.Fatal(err)
	}
	here := func() (n int) {
		for _, name := range []string{"a", "b"} {
			head, _ := p.store.Lookup(p.pathOf(name))
			base, _, err := p.store.LookupIn(m.refs.Base, p.pathOf(name))
			if err != nil || head == base {
				t.Fatalf("%s: head %v, base %v, %v", name, head, base, err)
			}
			if p.store.Has(head) {
				n++
			}
			if p.store.Has(base) {
				n++
			}
		}
		return n
	}
	if n := here(); n != 0 {
		t.Fatalf("%d contents are here already", n)
	}
	if keys, err := m.toJudge(t.Context()); err != nil || len(keys) != 2 {
		t.Fatalf("to judge: %v, %v", keys, err)
	}
	if n := here(); n != 4 {
		t.Errorf("%d contents are here, want 4", n)
	}
}

// TestOrphanRemoved: a file that no rule selects any more, and that a person then removes, is nobody's
// business from then on; its object stays.
func TestOrphanRemoved(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}", "b": "{size: 1}"})
	p.opts.Prune = true
	p.rules.Select[0].Names = []string{"a"}
	p.agent()
	p.settled()
	p.edit("tidy up", map[string]string{"b": ""})
	if r := p.settled(); len(r.Findings)+len(r.Refusals)+len(r.Conflicts) != 0 {
		t.Errorf("findings %v, refusals %v, conflicts %v", r.Findings, r.Refusals, r.Conflicts)
	}
	p.want("b", of("{size: 1}"), "", "")
	p.want("a", of("{size: 1}"), of("{size: 1}"), of("{size: 1}"))
}

// TestBranchGone: without a branch there is nothing to apply and nothing to adopt; the error says how
// to have it back, and that works.
func TestBranchGone(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}"})
	p.git("-C", p.remote, "update-ref", "-d", "refs/heads/main")
	base := p.git("-C", p.remote, "rev-parse", p.mirror.refs.Base)
	for range 2 { // the agent that saw it go, and one that starts
		if r, err := p.tryTurn(); !isGone(err) || len(r.Findings) > 0 {
			t.Fatalf("cycle without a branch: %v, findings %v", err, r.Findings)
		}
		p.agent()
	}
	_, err := p.mirror.Adopt(t.Context(), p.now)
	if !isGone(err) {
		t.Fatalf("adopt without a branch: %v", err)
	}
	if got := p.git("-C", p.remote, "rev-parse", p.mirror.refs.Base); got != base {
		t.Error("base moved")
	}
	_, command, _ := strings.Cut(err.Error(), "To have it back: ")
	command, _, _ = strings.Cut(command, ";")
	dir := t.TempDir()
	p.git("init", "--quiet", dir)
	for line := range strings.SplitSeq(strings.ReplaceAll(command, "REMOTE", p.url), " && ") {
		p.git(append([]string{"-C", dir}, strings.Fields(line)[1:]...)...)
	}
	p.agent()
	if r := p.settled(); !r.Clean() {
		t.Errorf("findings %v", r.Findings)
	}
	p.want("a", of("{size: 1}"), of("{size: 1}"), of("{size: 1}"))
}

func isGone(err error) bool {
	var gone *BranchGoneError
	return errors.As(err, &gone)
}

// TestCrashBesideRemoval: what was set by the same patch as a removal is known to have landed as long as
// nobody changed it: after a crash git may go on. What somebody changed is asked about.
func TestCrashBesideRemoval(t *testing.T) {
	t.Parallel()
	for _, changed := range []bool{false, true} {
		t.Run(fmt.Sprintf("changed=%v", changed), func(t *testing.T) {
			p := agreed(t, map[string]string{"a": "{size: 1, color: red}"})
			p.edit("grow, and drop", map[string]string{"a": of("{size: 2}")})
			p.dies(StepWritten)
			if got := p.spec("a"); got != of("{size: 2}") {
				t.Fatalf("the cluster has %s", got)
			}
			p.edit("grow more", map[string]string{"a": of("{size: 3}")})
			if changed {
				p.patch("controller", "a", "{size: 7}")
			}
			p.opts.Reached, p.cache = nil, t.TempDir()
			p.agent()
			if changed {
				p.wantConflicts(p.settled(), ".spec.size")
				return
			}
			p.wantConflicts(p.settled())
			p.want("a", of("{size: 3}"), of("{size: 3}"), of("{size: 3}"))
		})
	}
}
