package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/crmirror/crmirror/gitstore/gittest"
)

// moved are widgets of the lab's first cluster, in a backup, and as they are in its second.
type moved struct {
	*disaster
	from, to *widgets
}

// newMoved makes a kind of its own with some widgets: w-0 …, a child of the first, and one whose name a server made.
func newMoved(t *testing.T, group string, n int) (m moved, generated string) {
	t.Helper()
	from := newWidgets(t, group).install()
	to := *from
	to.client = client(t, 1)
	u := newUser(t)
	m = moved{&disaster{t: t, u: u, repo: u.path("backup"), cluster: world.lab.Clusters[1], client: to.client}, from, &to}
	for i := range n {
		from.create(fmt.Sprintf("w-%d", i), int64(i))
	}
	first, err := from.in().Get(t.Context(), "w-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1", "kind": "Widget", "metadata": map[string]any{"generateName": "made-"}, "spec": map[string]any{"size": int64(1)},
	}}
	obj.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: group + "/v1", Kind: "Widget", Name: "w-0", UID: first.GetUID()}})
	made, err := from.in().Create(t.Context(), obj, metav1.CreateOptions{FieldManager: "a-person"})
	if err != nil {
		t.Fatal(err)
	}
	m.backup()
	m.u = u.onCluster(1)
	return m, made.GetName()
}

// backup takes a backup of the first cluster.
func (m moved) backup() {
	m.t.Helper()
	newUser(m.t).succeed("backup", "--repo", m.repo, "--resources", "*."+m.from.group)
}

// state is what a cluster has of the widgets in a namespace: names and specs.
func (w *widgets) state() map[string]string {
	w.t.Helper()
	found, err := w.in().List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	state := map[string]string{}
	for _, obj := range found.Items {
		state[obj.GetName()] = fmt.Sprint(obj.Object["spec"])
	}
	return state
}

// A third of the objects is there as git has it, a third is there and was changed, a third is gone.
func TestRestoreThirds(t *testing.T) {
	t.Parallel()
	const third = 3
	m, generated := newMoved(t, "thirds.example.dev", 3*third)
	all := 3*third + 3 // with the child, the CRD and the Namespace
	m.restore(0).wantTotals(t, map[string]int{"created": all})
	want := m.to.state()
	owner, err := m.to.in().Get(t.Context(), "w-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	child, err := m.to.in().Get(t.Context(), generated, metav1.GetOptions{})
	if err != nil || len(child.GetOwnerReferences()) != 1 || child.GetOwnerReferences()[0].UID != owner.GetUID() {
		t.Fatalf("the child under the name that the server made: got %v (%v), want the owner %s", child, err, owner.GetUID())
	}

	change := func() {
		for i := range third {
			m.to.patch(fmt.Sprintf("w-%d", third+i), `{"spec": {"size": 100, "more": true}}`)
			m.to.delete(fmt.Sprintf("w-%d", 2*third+i))
		}
	}
	change()
	m.restore(3, "--dry-run").wantTotals(t, map[string]int{"create": third, "skip": third, "unchanged": all - 2*third})
	report := m.restore(3)
	report.wantTotals(t, map[string]int{"created": third, "skipped": third, "unchanged": all - 2*third})
	if report.Verification == nil || report.Verification.Equal != all-third {
		t.Errorf("verification: got %+v, want %d equal", report.Verification, all-third)
	}
	m.to.wantSpec("w-3", "size", 100)

	for i := range third {
		m.to.delete(fmt.Sprintf("w-%d", 2*third+i))
	}
	m.restore(0, "--existing", "update", "--save-existing", "saved.yaml").
		wantTotals(t, map[string]int{"created": third, "configured": third, "unchanged": all - 2*third})
	if got := m.to.state(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("widgets in the end: got %v, want %v", got, want)
	}
	saved, err := os.ReadFile(m.u.path("saved.yaml"))
	if n := strings.Count(string(saved), "more: true"); err != nil || n != third {
		t.Errorf("saved: got %d objects (%v), want the %d that were changed:\n%s", n, err, third, saved)
	}
}

// dated gives the commits of a branch dates, a day apart.
func (m moved) dated(first time.Time) {
	m.t.Helper()
	parent := ""
	for i, commit := range strings.Fields(gittest.Git(m.t, m.repo, "rev-list", "--reverse", "main")) {
		date := first.AddDate(0, 0, i).Format(time.RFC3339)
		args := []string{"commit-tree", commit + "^{tree}", "-m", fmt.Sprintf("Day %d", i+1)}
		if parent != "" {
			args = append(args, "-p", parent)
		}
		out, err := gittest.RunEnv(m.t.Context(), m.repo, []string{"GIT_COMMITTER_DATE=" + date, "GIT_AUTHOR_DATE=" + date}, args...)
		if err != nil {
			m.t.Fatal(err)
		}
		parent = strings.TrimSpace(out)
	}
	gittest.Git(m.t, m.repo, "update-ref", "refs/heads/main", parent)
}

// Of a history of edits, each day's state comes back: what was made later is not there, what was deleted later is.
func TestRestoreDays(t *testing.T) {
	t.Parallel()
	m, _ := newMoved(t, "days.example.dev", 2)
	days := []map[string]string{m.from.state()}
	for _, edit := range []func(){
		func() { m.from.patch("w-0", `{"spec": {"size": 7}}`); m.from.create("later", 1) },
		func() { m.from.delete("w-1"); m.from.patch("later", `{"spec": {"color": null}}`) },
		func() { m.from.create("w-1", 9); m.from.delete("later") },
	} {
		edit()
		m.backup()
		days = append(days, m.from.state())
	}
	m.dated(time.Date(2026, 11, 1, 9, 0, 0, 0, time.UTC))
	for i := range days {
		day := m
		day.to = &widgets{t: t, client: m.client, group: m.from.group, namespace: fmt.Sprintf("day-%d", i+1)}
		r := m.u.succeed("restore", "--repo", m.repo, "--at", fmt.Sprintf("2026-11-%02d 12:00 +00:00", i+1),
			"--map-namespace", m.from.namespace+"="+day.to.namespace)
		wantTold(t, r.stdout, fmt.Sprintf(": Day %d\n", i+1))
		if got := day.to.state(); fmt.Sprint(got) != fmt.Sprint(days[i]) {
			t.Errorf("day %d: got %v, want %v", i+1, got, days[i])
		}
	}
}

// The agent of both ways goes on with a restored cluster: its first cycle applies nothing and commits no object.
func TestRestoreTwoWay(t *testing.T) {
	t.Parallel()
	m, _ := newMoved(t, "goeson.example.dev", 2)
	server := newServer(t)
	file := m.u.file("config.yaml", configFor(server.url(), m.from.group, "mode: two-way\n"))
	old := m.u.onCluster(0)
	old.succeed("apply", "--config", file)

	m.u.succeed("restore", "--config", file)
	m.u.run("apply", "--config", file).wantFailure(t, 1, "crmirror adopt")
	m.u.succeed("adopt", "--config", file)
	adopted := gittest.Git(t, server.dir, "rev-parse", "main")
	for range 2 {
		r := m.u.succeed("apply", "--config", file, "-o", "json")
		var report struct{ Applied, Conflicts []any }
		if err := json.Unmarshal([]byte(r.stdout), &report); err != nil || len(report.Applied)+len(report.Conflicts) > 0 {
			t.Errorf("got %v (%v)\nwant nothing applied, and no conflict", r, err)
		}
		if got := gittest.Git(t, server.dir, "diff", "--name-only", adopted, "main"); got != "" && got != "clusters/e2e/.crmirror.yaml" {
			t.Errorf("files committed after a complete restore: got %q, want at most the note of the adoption gone", got)
		}
	}
	server.commitChange(t, m.to, "w-1", "size: 1", "size: 5")
	m.u.succeed("apply", "--config", file)
	m.to.wantSpec("w-1", "size", 5)
	m.from.wantSpec("w-1", "size", 1)
}
