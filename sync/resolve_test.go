package sync

import (
	"errors"
	"strings"
	"testing"

	"github.com/crmirror/crmirror/kube"
)

// resolve settles conflicts as a command of its own does, beside the agent.
func (p *pair) resolve(r Resolution) []Conflict {
	p.t.Helper()
	settled, err := p.tryResolve(r)
	if err != nil {
		p.t.Fatal(err)
	}
	return settled
}

func (p *pair) tryResolve(r Resolution) ([]Conflict, error) {
	p.t.Helper()
	agentCache := p.cache
	p.cache = p.t.TempDir()
	p.startAs(&TwoWay{DryRun: true, Prune: p.opts.Prune, Respect: p.opts.Respect})
	p.cycle()
	settled, left, err := p.mirror.Resolve(p.t.Context(), r, p.now)
	p.cache, p.unsettled = agentCache, left
	p.agent()
	return settled, err
}

// TestResolve: a person decides, for a field or an object, for one side or the other.
func TestResolve(t *testing.T) {
	t.Parallel()
	for _, take := range []Side{TakeGit, TakeCluster} {
		t.Run(string(take), func(t *testing.T) {
			p := agreed(t, map[string]string{"a": "{size: 1, color: red}", "b": "{size: 1}", "c": "{size: 1}"})
			p.edit("change all", map[string]string{"a": of("{size: 2, color: green}"), "b": of("{size: 2}"), "c": ""})
			p.patch("kubectl-edit", "a", "{size: 3, color: blue}")
			p.patch("kubectl-edit", "c", "{size: 3}")
			p.delete("b")
			p.wantConflicts(p.settled(), ".spec.color", ".spec.size", "", "")

			if got := p.resolve(Resolution{Take: take, Name: "a", Field: ".spec.size"}); len(got) != 1 {
				t.Fatalf("settled %v, want one", got)
			}
			p.wantConflicts(p.settled(), ".spec.color", "", "")
			size := map[Side]string{TakeGit: "2", TakeCluster: "3"}[take]
			p.want("a", of("{color: blue, size: "+size+"}"), of("{color: green, size: "+size+"}"), of("{color: red, size: "+size+"}"))

			p.opts.Prune = true
			if got := p.resolve(Resolution{Take: take}); len(got) != 3 {
				t.Fatalf("settled %v, want three", got)
			}
			p.wantConflicts(p.settled())
			if take == TakeGit {
				p.want("a", of("{color: green, size: 2}"), of("{color: green, size: 2}"), of("{color: green, size: 2}"))
				p.want("b", of("{size: 2}"), of("{size: 2}"), of("{size: 2}"))
				p.want("c", "", "", "")
				return
			}
			p.want("a", of("{color: blue, size: 3}"), of("{color: blue, size: 3}"), of("{color: blue, size: 3}"))
			p.want("b", "", "", "")
			p.want("c", of("{size: 3}"), of("{size: 3}"), of("{size: 3}"))
		})
	}
}

// TestResolveBesideMoves: what the cluster moved besides, and nobody mirrored yet, is not
// overwritten for a field that a person settles.
func TestResolveBesideMoves(t *testing.T) {
	t.Parallel()
	for _, take := range []Side{TakeGit, TakeCluster} {
		t.Run(string(take), func(t *testing.T) {
			p := agreed(t, map[string]string{"a": "{size: 1, color: red}"})
			p.edit("grow", map[string]string{"a": of("{size: 2, color: red}")})
			p.patch("kubectl-edit", "a", "{size: 3}")
			p.wantConflicts(p.settled(), ".spec.size")
			p.stop()
			p.patch("kubectl-edit", "a", "{color: blue}")
			p.resolve(Resolution{Take: take, Field: ".spec.size"})
			p.wantConflicts(p.settled())
			want := of("{color: blue, size: " + map[Side]string{TakeGit: "2", TakeCluster: "3"}[take] + "}")
			p.want("a", want, want, want)
		})
	}
}

// TestAdoptRewound: a person takes the branch as it is after it was rewound; what was
// agreed stays, and what the branch has now is a change of git's.
func TestAdoptRewound(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}"})
	p.edit("grow", map[string]string{"a": of("{size: 2}")})
	p.settled()
	p.git("-C", p.remote, "update-ref", "refs/heads/main", "main~1")
	p.agent()
	done, err := p.mirror.Adopt(t.Context(), p.now)
	if err != nil || !done.Rewound {
		t.Fatalf("adopt: %+v, %v", done, err)
	}
	p.wantConflicts(p.settled())
	p.want("a", of("{size: 1}"), of("{size: 1}"), of("{size: 1}"))
}

// TestReshapeTwoWay: a change of the shaping rules is nobody's edit, on either side.
func TestReshapeTwoWay(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1, color: red}", "b": "{size: 1, color: red}"})
	p.edit("grow, and paint", map[string]string{"b": of("{size: 2, color: red}")})
	p.rules.Select[0].Shape.Drop = fieldPathsOf(t, ".spec.color")
	p.agent()
	p.wantConflicts(p.settled())
	p.want("a", of("{color: red, size: 1}"), of("{size: 1}"), of("{size: 1}"))
	p.want("b", of("{color: red, size: 2}"), of("{size: 2}"), of("{size: 2}"))
	// Base has the marker of the new rules, too: it is no difference to be looked at.
	names := p.git("-C", p.remote, "diff", "--name-only", p.mirror.refs.Base, "main", "--", "clusters/lab")
	if names != "" {
		t.Errorf("base and branch differ in %s", names)
	}
}

// TestResolveWhatCannotBeApplied: git's value is not offered where it cannot be applied, and asking
// for it is refused with what to do instead.
func TestResolveWhatCannotBeApplied(t *testing.T) {
	p := newPair(t)
	p.opts.Respect = []string{"argocd-controller"}
	p.create("kubectl", "gone", "{size: 1}")
	p.create("kubectl", "owned", "{size: 1}")
	p.patch("argocd-controller", "owned", "{color: red}")
	p.agent()
	p.settled()
	p.edit("change what is not ours", map[string]string{"gone": "", "owned": of("{size: 1, color: blue}")})
	p.patch("kubectl-edit", "gone", "{size: 2}")
	report := p.settled()
	p.wantConflicts(report, "", ".spec.color")
	instead := map[string]string{"gone": "apply.prune: true", "owned": "apply.respectManagers"}
	for _, c := range report.Conflicts {
		if settle := c.Settle(); len(settle) != 1 || !strings.HasSuffix(settle[0], "--take cluster") || !strings.Contains(c.Instead, instead[c.Key.Name]) {
			t.Errorf("%s: shown are %q and %q", c.Key, settle, c.Instead)
		}
		_, err := p.tryResolve(Resolution{Take: TakeGit, Name: c.Key.Name})
		if !errors.Is(err, errStays) || !strings.Contains(err.Error(), instead[c.Key.Name]) || strings.Contains(err.Error(), ": : ") {
			t.Errorf("%s: %v; want what to do instead", c.Key, err)
		}
	}
	p.wantConflicts(p.settled(), "", ".spec.color")
	// With pruning, and no owner to respect, git's value is taken.
	p.opts.Prune, p.opts.Respect = true, nil
	p.agent()
	if got := p.resolve(Resolution{Take: TakeGit, Name: "gone"}); len(got) != 1 {
		t.Errorf("settled %v, want one", got)
	}
	p.settled()
	p.want("gone", "", "", "")
	p.want("owned", of("{size: 1, color: blue}"), of("{size: 1, color: blue}"), of("{size: 1, color: blue}"))
}

// TestResolveAllButOne: one object that cannot be settled keeps no other from it, nor does a field
// another one of the same object. Named, it is an error.
func TestResolveAllButOne(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}", "b": "{size: 1, color: red}"})
	p.opts.Respect = []string{"hpa"}
	p.patch("hpa", "b", "{size: 4}")
	p.agent()
	p.settled()
	p.edit("both", map[string]string{"a": of("{size: 2}"), "b": of("{color: green, size: 2}")})
	p.patch("kubectl-edit", "a", "{size: 3}")
	p.patch("kubectl-edit", "b", "{color: blue}")
	p.wantConflicts(p.settled(), ".spec.size", ".spec.color", ".spec.size")
	if _, err := p.tryResolve(Resolution{Take: TakeGit, Name: "b"}); !errors.Is(err, errStays) {
		t.Errorf("resolve b: %v, want that git's value cannot be applied", err)
	}
	if got := p.resolve(Resolution{Take: TakeGit}); len(got) != 2 {
		t.Errorf("settled %v, want a and b's color", got)
	}
	if len(p.unsettled) != 1 || p.unsettled[0].Key.Name != "b" || p.unsettled[0].Field != ".spec.size" || !errors.Is(p.unsettled[0].Err, errStays) {
		t.Errorf("left %v, want b's size", p.unsettled)
	}
	p.wantConflicts(p.settled(), ".spec.size")
	p.want("a", of("{size: 2}"), of("{size: 2}"), of("{size: 2}"))
	p.want("b", of("{color: green, size: 4}"), of("{color: green, size: 2}"), of("{color: green, size: 4}"))
}

// TestResolveOneObject: a name without a namespace does not stand for all objects of that name, and a
// field may be named without the leading dot.
func TestResolveOneObject(t *testing.T) {
	r := Resolution{Resource: "widgets.example.com", Name: "web", Field: "spec.size"}
	in := func(namespace string) kube.Key {
		return kube.Key{Group: "example.com", Resource: "widgets", Namespace: namespace, Name: "web"}
	}
	if !r.matches(&Conflict{Key: in("one"), Field: ".spec.size"}) {
		t.Error("a field without the leading dot is not found")
	}
	if err := r.oneObject([]kube.Key{in("one")}); err != nil {
		t.Errorf("one object: %v", err)
	}
	err := r.oneObject([]kube.Key{in("one"), in("two")})
	if err == nil || !strings.Contains(err.Error(), in("one").String()+", "+in("two").String()) || !strings.Contains(err.Error(), "-n NAMESPACE") {
		t.Errorf("two objects: %v, want an error that names both", err)
	}
	if err := (&Resolution{}).oneObject([]kube.Key{in("one"), in("two")}); err != nil {
		t.Errorf("all: %v", err)
	}
}

// TestResolveTellsWhom: a commit that settles a conflict with the cluster's side says that it does, and
// whose commits it undoes; a file that comes back is no new object.
func TestResolveTellsWhom(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}", "c": "{size: 1}"})
	p.edit("grow", map[string]string{"a": of("{size: 2}")})
	grow := p.git("-C", p.remote, "rev-parse", "--short=7", "refs/heads/main")
	p.edit("drop", map[string]string{"c": ""})
	drop := p.git("-C", p.remote, "rev-parse", "--short=7", "refs/heads/main")
	p.edit("unrelated", map[string]string{"z": "{size: 9}"})
	p.patch("kubectl-edit", "a", "{size: 3}")
	p.patch("kubectl-edit", "c", "{size: 3}")
	p.wantConflicts(p.settled(), ".spec.size", "")
	for name, commit := range map[string]string{"a": grow, "c": drop} {
		p.resolve(Resolution{Take: TakeCluster, Name: name})
		message := p.lastMessage()
		for _, want := range []string{"Put back ", "Changed:\n", "; undoes " + strings.TrimSpace(commit) + " by ", "Settled by crmirror resolve --take cluster."} {
			if !strings.Contains(message, want) {
				t.Errorf("no %q in\n%s", want, message)
			}
		}
	}
}
