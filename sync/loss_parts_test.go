package sync

import (
	"context"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestTakenBackParts: what git removed and its owner sets again is taken back, also where a map or
// a list item went as one, and where an emptied list or map is still the owner's.
func TestTakenBackParts(t *testing.T) {
	t.Parallel()
	for field, x := range map[string]struct{ had, left, conflict string }{
		"options":    {"{k: v, z: w}", "", ".spec.options.k|.spec.options.z"},
		"limits":     {"{k: v}", "", ".spec.limits"},
		"selfSigned": {"{url: u}", "", ".spec.selfSigned"},
		"ports":      {"[{port: 1, protocol: TCP, note: q}]", "[]", `.spec.ports[port=1,protocol="TCP"]`},
		"tags":       {"[t]", "[]", `.spec.tags[="t"]`},
		"extra":      {"{map: {k: v}}", "{map: {}}", ".spec.extra.map.k"},
	} {
		t.Run(field, func(t *testing.T) {
			p := agreed(t, map[string]string{"a": "{size: 1}"})
			p.patch("controller", "a", "{"+field+": "+x.had+"}")
			p.settled()
			left := "{mode: auto, replicas: 1, size: 1}"
			if x.left != "" {
				left = "{mode: auto, replicas: 1, size: 1, " + field + ": " + x.left + "}"
			}
			p.edit("drop", map[string]string{"a": left})
			p.wantConflicts(p.settled())
			git := p.inGit("a")
			p.want("a", git, git, git)
			p.patch("controller", "a", "{"+field+": "+x.had+"}")
			for range 2 { // the second time it stands in base
				r := p.settled()
				p.wantConflicts(r, strings.Split(x.conflict, "|")...)
				for _, c := range r.Conflicts {
					if c.Field != "" && c.Reason != takenBack+"controller" {
						t.Errorf("%s: %s", c.Field, c.Reason)
					}
				}
				p.agent()
			}
			if got := p.inGit("a"); got != git {
				t.Errorf("git has %s, want %s", got, git)
			}
		})
	}
}

// TestFinalizerRemovedInGit: a finalizer goes only where the configuration lets it.
func TestFinalizerRemovedInGit(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}"})
	patch := []byte(`{"metadata":{"finalizers":["test.dev/keep"]}}`)
	if _, err := p.server.widgets().Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "controller"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		patch := []byte(`{"metadata":{"finalizers":null}}`)
		if _, err := p.server.widgets().Patch(context.WithoutCancel(t.Context()), "a", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
	})
	has := func() bool {
		live, err := p.server.widgets().Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return slices.Contains(live.GetFinalizers(), "test.dev/keep")
	}
	p.settled()
	p.edit("drop it, and grow", map[string]string{"a": of("{size: 2}")})
	r := p.settled()
	if !has() {
		t.Fatal("the finalizer is gone")
	}
	if len(r.Findings) != 1 || !strings.Contains(r.Findings[0].Text, "apply.removeFinalizers") {
		t.Errorf("findings %v, want one that names the switch", r.Findings)
	}
	p.want("a", of("{size: 2}"), of("{size: 2}"), of("{size: 2}"))
	p.opts.RemoveFinalizers = true
	p.agent()
	if r := p.settled(); has() || len(r.Findings) > 0 {
		t.Errorf("the finalizer stays though it may go; findings %v", r.Findings)
	}
}
