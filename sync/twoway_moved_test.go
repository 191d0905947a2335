package sync

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/kube/apply"
)

// TestMovedFile: a file that cannot be found where it belongs is no deletion as long as it, or
// what may hide it, is there.
func TestMovedFile(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}", "b": "{size: 1}"})
	p.opts.Prune = true
	p.agent()
	p.settled()
	top := func(dir, name string) string { return filepath.Join(dir, "clusters/lab", name) }
	folder := filepath.Dir(p.pathOf("a"))
	away := func(dir string) {
		if err := os.Rename(top(dir, folder), filepath.Join(dir, "shared")); err != nil {
			t.Fatal(err)
		}
	}
	back := func(dir string) {
		err := os.Remove(top(dir, folder))
		if err == nil {
			err = os.Rename(filepath.Join(dir, "shared"), top(dir, folder))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	move := func(from, to string) func(string) {
		return func(dir string) {
			if err := os.MkdirAll(filepath.Dir(top(dir, to)), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(top(dir, from), top(dir, to)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, x := range []struct {
		name       string
		do, undo   func(dir string)
		findingHas string
	}{
		{"a symlink in the folder's place", func(dir string) {
			away(dir)
			if err := os.Symlink("../../../../shared", top(dir, folder)); err != nil {
				t.Fatal(err)
			}
		}, back, "stands where the folder"},
		{"a file in the folder's place", func(dir string) {
			away(dir)
			if err := os.WriteFile(top(dir, folder), []byte("../../../../shared"), 0o666); err != nil {
				t.Fatal(err)
			}
		}, back, "stands where the folder"},
		{"a file at a wrong path", move(p.pathOf("a"), "team/a.yaml"), move("team/a.yaml", p.pathOf("a")), "was moved to clusters/lab/team/a.yaml"},
	} {
		p.person(x.name, x.do)
		r := p.settled()
		if p.spec("a") == "" || p.spec("b") == "" {
			t.Fatalf("%s: an object was deleted", x.name)
		}
		var texts []string
		for _, f := range r.Findings {
			texts = append(texts, f.Text)
		}
		if !strings.Contains(strings.Join(texts, "\n"), x.findingHas) {
			t.Errorf("%s: findings %q, want one with %q", x.name, texts, x.findingHas)
		}
		p.person("undo it", x.undo)
		if r := p.settled(); len(r.Findings) > 0 {
			t.Errorf("%s: findings %v are left", x.name, r.Findings)
		}
	}
	p.edit("delete", map[string]string{"a": ""})
	p.settled()
	p.want("a", "", "", "")
}

// TestAgreedUnreadableFileStopsPrunes: a file that cannot be read stops deletions even where
// base has the same, from a mirror before.
func TestAgreedUnreadableFileStopsPrunes(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}", "b": "{size: 1}", "c": "{size: 1}"})
	write := func(name, text string) {
		p.person("write "+name, func(dir string) {
			if err := os.WriteFile(filepath.Join(dir, "clusters/lab", p.pathOf(name)), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		})
	}
	write("broken", "apiVersion: {\n")
	p.patch("kubectl-edit", "c", "{size: 3}")
	p.startAs(nil)
	p.cycle()
	p.opts.Prune = true
	p.agent()
	p.settled()
	p.edit("drop b", map[string]string{"b": ""})
	r := p.settled()
	if p.spec("b") == "" {
		t.Fatal("b was deleted")
	}
	if len(r.Findings) == 0 || !strings.Contains(r.Findings[0].Text, "until this file is mended or removed: clusters/lab/"+p.pathOf("broken")) {
		t.Errorf("findings %v, want one that names the file", r.Findings)
	}
	// A file that can be read, but holds what cannot be applied from there, is named beside it.
	misplaced := "cluster/" + filepath.Base(filepath.Dir(p.pathOf("broken"))) + "/misplaced.yaml"
	p.person("put one where its kind has none", func(dir string) {
		file := filepath.Join(dir, "clusters/lab", misplaced)
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(p.text("misplaced", "{size: 1}")), 0o666); err != nil {
			t.Fatal(err)
		}
	})
	r = p.settled()
	want := "until these 2 files are mended or removed: clusters/lab/" + misplaced + ", clusters/lab/" + p.pathOf("broken")
	if !slices.ContainsFunc(r.Findings, func(f Finding) bool { return strings.Contains(f.Text, want) }) {
		t.Errorf("findings %v, want %q", r.Findings, want)
	}
	p.person("remove the bad ones", func(dir string) {
		for _, path := range []string{p.pathOf("broken"), misplaced} {
			if err := os.Remove(filepath.Join(dir, "clusters/lab", path)); err != nil {
				t.Fatal(err)
			}
		}
	})
	p.settled()
	p.want("b", "", "", "")
}

// TestResolveBeforeFirstRun: a person's answer about one object says nothing of the others; base
// begins with a whole cycle.
func TestResolveBeforeFirstRun(t *testing.T) {
	p := newPair(t)
	p.create("kubectl", "x", "{size: 1}")
	p.startAs(nil)
	p.cycle()
	p.git("-C", p.remote, "update-ref", "-d", p.mirror.refs.Base)
	p.edit("x and gone", map[string]string{"x": of("{size: 2}"), "gone": of("{size: 7}")})
	p.cache = t.TempDir()
	p.startAs(&TwoWay{DryRun: true})
	p.cycle()
	if _, _, err := p.mirror.Resolve(t.Context(), Resolution{Take: TakeGit, Name: "x"}, p.now); !errors.Is(err, errNothingAgreed) {
		t.Fatalf("resolve: %v, want %v", err, errNothingAgreed)
	}
	p.agent()
	p.wantConflicts(p.settled(), "", ".spec.size")
	p.resolve(Resolution{Take: TakeGit, Name: "x"})
	p.wantConflicts(p.settled(), "")
	p.want("x", of("{size: 2}"), of("{size: 2}"), of("{size: 2}"))
	if got := p.spec("gone"); got != "" {
		t.Errorf("an object that base does not know was created: %s", got)
	}
}

// TestOpenKeepsBase: while an announced write may land yet, the mirror moves no base under it. If
// it lands after a person took the change back, its value is no edit of the cluster's.
func TestOpenKeepsBase(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1, color: red}"})
	before := p.file(p.pathOf("a"))
	p.edit("grow", map[string]string{"a": of("{size: 2, color: red}")})
	p.patch("kubectl-edit", "a", "{color: blue}")
	p.dies(StepAnnounced)
	live, err := p.hands.Writer.Read(t.Context(), p.server.key("a"), "v1")
	if err != nil {
		t.Fatal(err)
	}
	p.person("revert", func(dir string) {
		if err := os.WriteFile(filepath.Join(dir, "clusters/lab", p.pathOf("a")), []byte(before), 0o666); err != nil {
			t.Fatal(err)
		}
	})
	p.opts.Reached = nil
	p.cache = t.TempDir()
	p.agent()
	p.turn()
	if got, want := p.inBase("a"), of("{color: red, size: 1}"); got != want {
		t.Errorf("base has %s under an open announcement, want %s", got, want)
	}
	// The write of the agent that died arrives.
	want := live.DeepCopy().Object
	want["spec"].(map[string]any)["size"] = int64(2)
	_, err = p.hands.Writer.Write(t.Context(), apply.Change{
		Key: p.server.key("a"), Resource: p.server.resource().WithVersion("v1"), Live: live, Want: want,
		Set: fieldpath.NewSet(fieldpath.MakePathOrDie("spec", "size")),
	})
	if err != nil {
		t.Fatal(err)
	}
	p.wantConflicts(p.settled())
	p.want("a", of("{color: blue, size: 1}"), of("{color: blue, size: 1}"), of("{color: blue, size: 1}"))
}
