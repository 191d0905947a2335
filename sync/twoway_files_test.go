package sync

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBadFiles: whatever people commit, each bad file is named with what is wrong, no
// object is harmed or deleted, and the good change beside them is applied.
func TestBadFiles(t *testing.T) {
	type bad struct {
		name    string
		content func(p *pair, name string) string // of the object's file
		want    string                            // in what is reported
	}
	replace := func(old, new string) func(*pair, string) string {
		return func(p *pair, name string) string {
			return strings.Replace(p.text(name, of("{size: 1}")), old, new, 1)
		}
	}
	text := func(content string) func(*pair, string) string {
		return func(*pair, string) string { return content }
	}
	cases := []bad{
		{"two-documents", func(p *pair, name string) string {
			return p.text(name, of("{size: 2}")) + "---\n" + p.text(name, of("{size: 3}"))
		}, "document"},
		{"another-object", func(p *pair, _ string) string { return p.text("good", of("{size: 9}")) }, "it holds Widget"},
		{"server-metadata", replace("metadata:\n", "metadata:\n  uid: 6a1f2b7e-0000-0000-0000-000000000000\n"), "server"},
		{"unknown-field", replace("size: 1", "size: 1, sise: 2"), "schema"},
		{"bad-type", replace("size: 1", "size: large"), "schema"},
		{"duplicate-key", replace("kind: Widget\n", "kind: Widget\nkind: Widget\n"), ".yaml:3: key"},
		{"tab", replace("  name:", "\tname:"), ".yaml:4: "},
		{"alias-bomb", text("a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n" +
			"d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n"), ".yaml:2: aliases"},
		{"conflict-marker", replace("spec:", "<<<<<<< HEAD\nspec:"), ".yaml:6: a conflict marker"},
		{"no-utf8", replace("size: 1", "size: 1, color: \xff"), ".yaml:6: bytes that are no UTF-8"},
		{"huge", text("data: " + strings.Repeat("x", 40<<20)), "large"},
		{"lfs-pointer", text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"), "LFS"},
		{"redaction-marker", replace("size: 1", `size: 1, color: "crmirror-redacted:v1:`+strings.Repeat("0", 64)+`"`), ""},
		{"no-yaml", text("{"), ""},
		{"empty", text(""), ""},
	}
	specs := map[string]string{"good": "{size: 1}", "linked": "{size: 1}", "status": "{size: 1}"}
	for _, c := range cases {
		specs[c.name] = "{size: 1}"
	}
	p := agreed(t, specs)
	p.opts.Prune = true
	p.agent()
	p.settled()
	p.person("break things", func(dir string) {
		top := filepath.Join(dir, "clusters/lab")
		write := func(path, content string) {
			file := filepath.Join(top, path)
			if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(content), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range cases {
			write(p.pathOf(c.name), c.content(p, c.name))
		}
		write(p.pathOf("good"), p.text("good", of("{size: 2}")))
		write(p.pathOf("status"), strings.Replace(p.text("status", of("{size: 2}")), "spec:", "status: {ready: true}\nspec:", 1))
		write("stray.yaml", p.text("stray", "{size: 1}"))
		write("namespaces/"+p.server.namespace+"/secrets/s.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: "+p.server.namespace+"}\n")
		write("namespaces/nowhere/widgets."+p.server.group+"/lost.yaml",
			strings.Replace(p.text("lost", "{size: 1}"), "namespace: "+p.server.namespace, "namespace: nowhere", 1))
		write("namespaces/"+p.server.namespace+"/gadgets.elsewhere.dev/g.yaml",
			"apiVersion: elsewhere.dev/v1\nkind: Gadget\nmetadata: {name: g, namespace: "+p.server.namespace+"}\n")
		write("cluster/widgets."+p.server.group+"/flat.yaml", p.text("flat", "{size: 1}"))
		write(p.pathOf("UPPER"), p.text("UPPER", "{size: 1}"))
		write(strings.Replace(p.pathOf("upper"), "upper", "Upper", 1), p.text("Upper", "{size: 1}"))
		write("README.md", "a note of people's own\n")
		linked := filepath.Join(top, p.pathOf("linked"))
		if err := os.Remove(linked); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/etc/passwd", linked); err != nil {
			t.Fatal(err)
		}
	})
	report := p.settled()
	p.want("good", of("{size: 2}"), of("{size: 2}"), of("{size: 2}"))
	// A status in git is put right, and the rest of the change is applied.
	p.want("status", of("{size: 2}"), of("{size: 2}"), of("{size: 2}"))
	if got := p.file(p.pathOf("status")); strings.Contains(got, "ready") {
		t.Errorf("git has a status:\n%s", got)
	}
	told := map[string]string{}
	for _, f := range report.Findings {
		told[f.Path] += f.At() + ": " + f.Text + "\n"
		if !strings.HasPrefix(f.At(), "clusters/lab/"+f.Path) {
			t.Errorf("a finding is at %s", f.At())
		}
	}
	for _, r := range report.Refusals {
		told[strings.TrimPrefix(r.File, "clusters/lab/")] += At(r.File, r.Line) + ": " + r.Text + "\n"
	}
	for _, c := range report.Conflicts {
		told[strings.TrimPrefix(c.File, "clusters/lab/")] += c.Reason + "\n"
	}
	expect := func(path, want string) {
		if got, ok := told[path]; !ok || !strings.Contains(got, want) {
			t.Errorf("of %s it is said %q, want something with %q", path, got, want)
		}
		delete(told, path)
	}
	for _, c := range cases {
		expect(p.pathOf(c.name), c.want)
		if got := p.spec(c.name); got != of("{size: 1}") {
			t.Errorf("%s: its object is %s now", c.name, got)
		}
	}
	expect(p.pathOf("linked"), ": a symlink, not a file")
	expect("cluster/widgets."+p.server.group+"/flat.yaml", "widgets."+p.server.group+" are namespaced: they are applied from namespaces/")
	expect(p.pathOf("UPPER"), `"UPPER" is no name that an object can have`)
	expect(strings.Replace(p.pathOf("upper"), "upper", "Upper", 1), `"Upper" is no name that an object can have`)
	expect("stray.yaml", "would be applied at clusters/lab/"+p.pathOf("stray"))
	expect("namespaces/"+p.server.namespace+"/secrets/s.yaml", "no rule selects it")
	expect("namespaces/nowhere/widgets."+p.server.group+"/lost.yaml", "namespace")
	expect("namespaces/"+p.server.namespace+"/gadgets.elsewhere.dev/g.yaml", "does not serve")
	if len(told) > 0 {
		t.Errorf("also told: %v", told)
	}
	if got := p.spec("linked"); got != of("{size: 1}") {
		t.Errorf("the object behind the symlink is %s", got)
	}
}

// TestCreateWaits: an object whose namespace comes later is created then, and nobody
// waits for it meanwhile.
func TestCreateWaits(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}"})
	later := p.server.namespace + "-later"
	path := "namespaces/" + later + "/widgets." + p.server.group + "/w.yaml"
	p.person("add one in a namespace that is not there", func(dir string) {
		file := filepath.Join(dir, "clusters/lab", path)
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		content := strings.Replace(p.text("w", "{size: 1}"), "namespace: "+p.server.namespace, "namespace: "+later, 1)
		if err := os.WriteFile(file, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	})
	p.edit("and change another", map[string]string{"a": of("{size: 2}")})
	report := p.settled()
	p.want("a", of("{size: 2}"), of("{size: 2}"), of("{size: 2}"))
	if len(report.Refusals) != 1 || !report.Refusals[0].Retry || report.Next.IsZero() || !strings.Contains(report.Refusals[0].Text, "no such namespace") {
		t.Fatalf("refusals %+v, want one that is tried again", report.Refusals)
	}
	refs := p.git("-C", p.remote, "for-each-ref")
	if p.turn(); p.git("-C", p.remote, "for-each-ref") != refs {
		t.Error("a push was made for what a read tells")
	}
	p.namespace(later)
	report = p.settled()
	if len(report.Refusals) != 0 {
		t.Errorf("refusals %+v, although the namespace is there", report.Refusals)
	}
}

// TestExecutableFile: that a file may be executed is no change of its object: it is judged
// once, for its content.
func TestExecutableFile(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}"})
	p.person("grow, in a script", func(dir string) {
		file := filepath.Join(dir, "clusters/lab", p.pathOf("a"))
		if err := os.WriteFile(file, []byte(p.text("a", of("{size: 2}"))), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, 0o777); err != nil {
			t.Fatal(err)
		}
	})
	p.settled()
	p.want("a", of("{size: 2}"), of("{size: 2}"), of("{size: 2}"))
	if got := p.git("-C", p.remote, "ls-tree", "-r", "main", "--", "clusters/lab/"+p.pathOf("a")); !strings.HasPrefix(got, "100755") {
		t.Fatalf("the file lost its mode: %s", got)
	}
	reads := 0
	p.hands.beforeRead = func() { reads++ }
	p.turn()
	if reads != 0 {
		t.Errorf("the object was judged again, with %d reads", reads)
	}
}
