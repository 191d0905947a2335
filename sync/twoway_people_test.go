package sync

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// lastMessage is the message of the branch's newest commit.
func (p *pair) lastMessage() string {
	p.t.Helper()
	return p.git("-C", p.remote, "log", "-1", "--format=%B", "main")
}

// TestStatusInGitIsUndone: a status in a file is put right, and the commit says whose edit of it
// that undoes, not that somebody changed the object.
func TestStatusInGitIsUndone(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}"})
	p.person("ready, says a person", func(dir string) {
		file := filepath.Join(dir, "clusters/lab", p.pathOf("a"))
		text := p.text("a", of("{size: 1}")) + "status: {ready: true}\n"
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	})
	person := strings.TrimSpace(p.git("-C", p.remote, "rev-parse", "--short=7", "main"))
	report := p.turn()
	if len(report.Findings) != 1 || !report.Findings[0].Undone || !strings.HasSuffix(report.Findings[0].Text, "it is put back") {
		t.Errorf("findings %+v, want one that is put back", report.Findings)
	}
	message := p.lastMessage()
	if !strings.HasPrefix(message, "Put back status") || !strings.Contains(message, "; undoes "+person+" by Ada\n") || strings.Contains(message, "(by ") {
		t.Errorf("the commit says:\n%s", message)
	}
	if got := p.file(p.pathOf("a")); strings.Contains(got, "status:") {
		t.Errorf("git has a status:\n%s", got)
	}
}

// TestSinceNamesThePerson: a conflict names the commit that gave its field git's value, not a
// newer one that changed something else of the file.
func TestSinceNamesThePerson(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}"})
	p.edit("grow", map[string]string{"a": of("{size: 3}")})
	person := strings.TrimSpace(p.git("-C", p.remote, "rev-parse", "--short=10", "main"))
	p.patch("kubectl-edit", "a", "{size: 4, note: moved}")
	p.see("a")
	p.turn()
	p.patch("kubectl-edit", "a", "{note: again}")
	p.see("a")
	report := p.turn()
	p.wantConflicts(report, ".spec.size")
	if message := p.lastMessage(); !strings.Contains(message, "Crmirror-Cluster") {
		t.Fatalf("the newest commit of the file is none of crmirror:\n%s", message)
	}
	if c := report.Conflicts[0]; c.Commit != person || c.Author != "Ada" {
		t.Errorf("in git since %s by %s, want %s by Ada", c.Commit, c.Author, person)
	}
	// A deleted file's conflict names the deletion.
	p.edit("delete it", map[string]string{"a": ""})
	person = strings.TrimSpace(p.git("-C", p.remote, "rev-parse", "--short=10", "main"))
	report = p.turn()
	p.wantConflicts(report, "")
	if c := report.Conflicts[0]; c.Commit != person {
		t.Errorf("in git since %s, want %s", c.Commit, person)
	}
}

// TestCommitNamesTheChanger: what the cluster changed is told of who changed it, though crmirror
// wrote another field of the object since.
func TestCommitNamesTheChanger(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1, color: red}"})
	p.edit("grow", map[string]string{"a": of("{size: 2, color: red}")})
	p.patch("kubectl-patch", "a", "{color: blue}")
	p.turn()
	p.want("a", of("{size: 2, color: blue}"), of("{size: 2, color: blue}"), of("{size: 2, color: blue}"))
	if message := p.lastMessage(); !strings.Contains(message, "spec.color (by kubectl-patch)") {
		t.Errorf("the commit says:\n%s", message)
	}
}

// TestDryRunAsks: a dry run tells what the server would refuse, and does nothing.
func TestDryRunAsks(t *testing.T) {
	p := agreed(t, map[string]string{"a": "{size: 1}", "b": "{size: 1}"})
	p.edit("change all", map[string]string{"a": of("{size: 1, grade: medium}"), "b": of("{size: 2}"), "c": "{size: 3}"})
	before := p.git("-C", p.remote, "for-each-ref")
	p.startAs(&TwoWay{DryRun: true, Trial: true})
	report := p.cycle()
	var told []string
	for _, a := range report.Applied {
		told = append(told, a.Action+" "+a.Key.Name)
	}
	if got := strings.Join(told, ", "); got != "configured b, created c" {
		t.Errorf("would be %s; want b configured and c created", got)
	}
	if len(report.Refusals) != 1 || report.Refusals[0].Key.Name != "a" || !strings.HasPrefix(report.Refusals[0].Text, "invalid: ") {
		t.Errorf("refusals %+v, want the grade's", report.Refusals)
	}
	p.want("a", of("{size: 1}"), of("{size: 1, grade: medium}"), of("{size: 1}"))
	p.want("b", of("{size: 1}"), of("{size: 2}"), of("{size: 1}"))
	p.want("c", "", "{size: 3}", "")
	if after := p.git("-C", p.remote, "for-each-ref"); after != before {
		t.Errorf("a dry run moved refs:\n%s\nbefore:\n%s", after, before)
	}
}
