package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/crmirror/crmirror/gitstore/gittest"
	"github.com/crmirror/crmirror/kube/kubetest"
)

// disaster is a backup of the lab's first cluster, and a new, empty cluster that it is restored into.
type disaster struct {
	t       *testing.T
	u       *user // whose kubectl speaks to the new cluster
	repo    string
	cluster *kubetest.Cluster
	client  dynamic.Interface
}

func newDisaster(t *testing.T) *disaster {
	t.Helper()
	old := newUser(t)
	d := &disaster{t: t, repo: old.path("backup"), cluster: kubetest.New(t, kubetest.Options{})}
	old.succeed("backup", "--repo", d.repo, "--resources", "*.certs.example.dev,*.backup.example.dev")
	other := *old
	other.env = []string{"KUBECONFIG=" + d.cluster.Kubeconfig}
	d.u = &other
	var err error
	if d.client, err = dynamic.NewForConfig(d.cluster.Config); err != nil {
		t.Fatal(err)
	}
	return d
}

// at returns the same disaster for another test.
func (d *disaster) at(t *testing.T) *disaster {
	other, u := *d, *d.u
	u.t, other.t, other.u = t, t, &u
	return &other
}

// restored is what restore, or verify, reports as JSON.
type restored struct {
	Complete     bool
	Same         bool
	Objects      json.RawMessage
	Equal        int
	Totals       map[string]int
	Saved        string
	Verification *restored
	Findings     []struct {
		What, Text string
		Fatal      bool
	}
}

// restore runs restore and returns what it reports.
func (d *disaster) restore(code int, args ...string) restored {
	d.t.Helper()
	return d.report(code, append([]string{"restore", "--repo", d.repo, "-o", "json"}, args...)...)
}

func (d *disaster) report(code int, args ...string) restored {
	d.t.Helper()
	return d.parse(d.u.run(args...), code)
}

// wantTotals compares the totals of a report with "created 3, skipped 1".
func (r restored) wantTotals(t *testing.T, want map[string]int) {
	t.Helper()
	if fmt.Sprint(r.Totals) != fmt.Sprint(want) {
		t.Errorf("totals: got %v, want %v\n%s", r.Totals, want, r.Objects)
	}
}

// count is how many objects the backup has.
func (d *disaster) count() int {
	n := 0
	for _, file := range gittest.Files(d.t, d.repo, "HEAD") {
		if strings.HasPrefix(file, "cluster/") || strings.HasPrefix(file, "namespaces/") {
			n++
		}
	}
	return n
}

// somebody changes an object of the new cluster.
func (d *disaster) patch(namespace, name, body string) {
	d.t.Helper()
	_, err := d.client.Resource(issuers).Namespace(namespace).
		Patch(d.t.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{FieldManager: "a-person"})
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *disaster) delete(namespace, name string) {
	d.t.Helper()
	if err := d.client.Resource(issuers).Namespace(namespace).Delete(d.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		d.t.Fatal(err)
	}
}

// issuers returns the namespaces and names of the issuers in the backup.
func (d *disaster) issuers() (all [][2]string) {
	for _, file := range gittest.Files(d.t, d.repo, "HEAD") {
		parts := strings.Split(file, "/")
		if len(parts) == 4 && parts[2] == "issuers.certs.example.dev" {
			all = append(all, [2]string{parts[1], strings.TrimSuffix(parts[3], ".yaml")})
		}
	}
	if len(all) < 2 {
		d.t.Fatalf("the backup has %d issuers, the tests need two", len(all))
	}
	return all
}

// A lost cluster comes back, is proven equal, and the agent goes on with it. The parts follow each other: each
// finds the cluster as the one before left it.
func TestRestore(t *testing.T) {
	d := newDisaster(t)
	for _, part := range []struct {
		name string
		test func(*testing.T, *disaster)
	}{
		{"plan", testRestorePlan},
		{"everything", testRestoreEverything},
		{"existing", testRestoreExisting},
		{"saved plan", testRestoreSavedPlan},
		{"adopt", testRestoreAdopt},
		{"date", testRestoreDate},
		{"interrupted", testRestoreInterrupted},
		{"killed", testRestoreKilled},
		{"findings", testRestoreFindings},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.test(t, d.at(t)) }) {
			return
		}
	}
}

func testRestorePlan(t *testing.T, d *disaster) {
	if r := d.u.run("verify", "--repo", d.repo); r.code != 3 || !strings.Contains(r.stdout, "missing") {
		t.Errorf("got %v\nwant exit code 3: all is missing", r)
	}
	d.u.run("restore", "--repo", d.repo, "--report", "no-folder/report.json").wantFailure(t, 2, "--report", "no-folder/report.json")
	d.u.run("restore", "--repo", d.repo, "-n", "nowhere").wantFailure(t, 1, "--namespace nowhere")
	r := d.u.succeed("restore", "--repo", d.repo, "--dry-run")
	for _, want := range []string{"From commit ", "create:", "would be written. Nothing was.", "controllers"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("got %v\nwant %q", r, want)
		}
	}
	if _, err := d.client.Resource(issuers).List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("after a dry run the cluster serves issuers")
	}
}

func testRestoreEverything(t *testing.T, d *disaster) {
	n := d.count()
	before := snapshot(t, d.repo)
	r := d.u.succeed("restore", "--repo", d.repo, "--report", "report.json")
	if want := fmt.Sprintf("%d objects equal commit %.10s.", n, gittest.Git(t, d.repo, "rev-parse", "HEAD")); !strings.Contains(r.stdout, want) {
		t.Errorf("got %v\nwant %q", r, want)
	}
	content, err := os.ReadFile(d.u.path("report.json"))
	var report restored
	if err = errors.Join(err, json.Unmarshal(content, &report)); err != nil || !report.Complete || report.Verification == nil {
		t.Errorf("--report: got %s (%v)", content, err)
	}
	if fmt.Sprint(snapshot(t, d.repo)) != fmt.Sprint(before) {
		t.Error("restore changed the repository")
	}
	// The independent proof: a backup of the new cluster is the old one.
	d.u.succeed("backup", "--repo", "again", "--resources", "*.certs.example.dev,*.backup.example.dev")
	trees := func(dir string) string {
		return gittest.Git(t, dir, "ls-tree", "-r", "HEAD", "cluster", "namespaces")
	}
	if was, is := trees(d.repo), trees(d.u.path("again")); was != is {
		t.Errorf("the backup of the restored cluster is another one:\n%s\nwant\n%s", is, was)
	}
	second := d.u.succeed("restore", "--repo", d.repo)
	if want := fmt.Sprintf("Nothing was to be done: %d objects equal commit", n); !strings.Contains(second.stdout, want) {
		t.Errorf("got %v\nwant %q", second, want)
	}
	if v := d.report(0, "verify", "--repo", d.repo, "-o", "json"); !v.Same || v.Equal != n {
		t.Errorf("verify: got %+v, want %d equal", v, n)
	}
	if r := d.u.succeed("diff", "--repo", d.repo); r.stdout != "" {
		t.Errorf("got %v\nwant no diff", r)
	}
	if r := d.u.run("diff", "--repo", d.repo, "--names", "*,nobody"); r.code != 3 || !strings.Contains(r.stderr, "nobody") {
		t.Errorf("got %v\nwant exit code 3 and the name that nothing has", r)
	}
}

// What is there and differs is left alone, unless it is to be updated; then it is saved before.
func testRestoreExisting(t *testing.T, d *disaster) {
	n := d.count()
	all := d.issuers()
	gone, changed := all[0], all[1]
	d.delete(gone[0], gone[1])
	d.patch(changed[0], changed[1], `{"metadata":{"labels":{"who":"a-person"}}}`)

	r := d.u.run("diff", "--repo", d.repo)
	for _, want := range []string{"+++ /dev/null", "+    who: a-person"} {
		if r.code != 3 || !strings.Contains(r.stdout, want) {
			t.Errorf("got %v\nwant exit code 3 and %q", r, want)
		}
	}
	d.restore(0, "--dry-run", "--existing", "update").wantTotals(t, map[string]int{"create": 1, "update": 1, "unchanged": n - 2})
	report := d.restore(3)
	report.wantTotals(t, map[string]int{"created": 1, "skipped": 1, "unchanged": n - 2})
	if report.Verification == nil || report.Verification.Equal != n-1 {
		t.Errorf("verification: got %+v, want %d equal", report.Verification, n-1)
	}
	text := d.u.run("restore", "--repo", d.repo)
	for _, want := range []string{"--existing update makes it", `metadata.labels.who: "a-person" only in the cluster (set by a-person`} {
		if text.code != 3 || !strings.Contains(text.stdout, want) {
			t.Errorf("got %v\nwant exit code 3 and %q", text, want)
		}
	}
	report = d.restore(0, "--existing", "update", "--save-existing", "saved.yaml")
	report.wantTotals(t, map[string]int{"configured": 1, "unchanged": n - 1})
	saved, err := os.ReadFile(d.u.path("saved.yaml"))
	if err != nil || !strings.Contains(string(saved), "who: a-person") {
		t.Errorf("the live object was not saved: %s (%v)", saved, err)
	}
}

// A plan is carried out as it was saved: what moved since is left alone.
func testRestoreSavedPlan(t *testing.T, d *disaster) {
	n := d.count()
	all := d.issuers()
	d.patch(all[0][0], all[0][1], `{"metadata":{"labels":{"who":"a-person"}}}`)
	d.patch(all[1][0], all[1][1], `{"metadata":{"labels":{"who":"a-person"}}}`)
	r := d.u.succeed("restore", "--repo", d.repo, "--existing", "update", "--plan-out", "plan.json")
	if !strings.Contains(r.stdout, "crmirror restore --plan plan.json") {
		t.Errorf("got %v\nwant how to carry it out", r)
	}
	d.u.run("restore", "--plan", "plan.json", "--force").wantFailure(t, 2, "--force: the plan says that already")
	d.patch(all[0][0], all[0][1], `{"metadata":{"labels":{"who":"another"}}}`)
	report := d.report(3, "restore", "--plan", "plan.json", "-o", "json")
	report.wantTotals(t, map[string]int{"blocked": 1, "configured": 1, "unchanged": n - 2})
	if !strings.Contains(string(report.Objects), "moved since the plan") {
		t.Errorf("got %s\nwant what moved", report.Objects)
	}
	d.restore(0, "--existing", "update").wantTotals(t, map[string]int{"configured": 1, "unchanged": n - 1})
}

// After a restore the agent's cluster is another one: it is adopted, and goes on. What is missing is held.
func testRestoreAdopt(t *testing.T, d *disaster) {
	remote, dir := newRemote(t, "main")
	gittest.Git(t, d.repo, "push", "--quiet", dir, "HEAD:main")
	d.u.file("agent.yaml", fmt.Sprintf("apiVersion: crmirror.dev/v1alpha1\nkind: Config\ncluster: envtest\nrepository:\n  url: %s\n"+
		"  auth: {tokenFile: %s}\nselect:\n- resources: [\"*.certs.example.dev\", \"*.backup.example.dev\"]\n", world.lab.HTTP.URL(remote), tokenFile()))
	url := []string{"--config", "agent.yaml"}
	backup := append([]string{"backup"}, url...)
	d.u.run(backup...).wantFailure(t, 1, "crmirror adopt")
	d.u.succeed(append([]string{"adopt"}, url...)...)
	adopted := gittest.Git(t, dir, "rev-parse", "main")
	d.u.succeed(backup...)
	if got := gittest.Git(t, dir, "diff", "--name-only", adopted, "main"); got != ".crmirror.yaml" {
		t.Errorf("files committed after a complete restore: got %q, want only the note that the adoption is settled", got)
	}
	if r := d.u.succeed(backup...); !strings.Contains(r.stdout, "Nothing changed") {
		t.Errorf("got %v\nwant no further commit after a complete restore", r)
	}
	if r := d.u.succeed(append([]string{"verify"}, url...)...); !strings.Contains(r.stdout, "equal commit") {
		t.Errorf("got %v\nwant the remote's commit verified", r)
	}
	gone := d.issuers()[0]
	d.delete(gone[0], gone[1])
	gittest.Git(t, d.repo, "push", "--quiet", "--force", dir, "HEAD:main") // as before the adoption
	d.u.succeed(append([]string{"adopt"}, url...)...)
	if r := d.u.run(backup...); r.code != 3 || !strings.Contains(r.stdout, "held") || !strings.Contains(r.stdout, gone[1]) {
		t.Errorf("got %v\nwant what is missing held", r)
	}
	d.restore(0)
}

// The state of a date is restored, in the middle of a history of edits.
func testRestoreDate(t *testing.T, d *disaster) {
	first := gittest.Git(t, d.repo, "rev-parse", "HEAD")
	at := d.issuers()[0]
	file := "namespaces/" + at[0] + "/issuers.certs.example.dev/" + at[1] + ".yaml"
	clone := gittest.Clone(t, "file://"+d.repo)
	now := time.Now()
	for i := 1; i <= 3; i++ {
		content := gittest.ShowFile(t, clone, "HEAD", file)
		content = strings.Replace(content, "metadata:\n", fmt.Sprintf("metadata:\n  annotations:\n    edit: \"%d\"\n", i), 1)
		if i > 1 {
			content = strings.Replace(gittest.ShowFile(t, clone, "HEAD", file), fmt.Sprintf("edit: \"%d\"", i-1), fmt.Sprintf("edit: \"%d\"", i), 1)
		}
		gittest.WriteFile(t, clone, file, content)
		date := now.Add(time.Duration(i) * time.Hour).Format(time.RFC3339)
		if _, err := gittest.RunEnv(t.Context(), clone, []string{"GIT_COMMITTER_DATE=" + date}, "commit", "--quiet", "--all", "--message", "Edit"); err != nil {
			t.Fatal(err)
		}
	}
	edited := d
	edited.repo = clone
	args := []string{"--existing", "update"}
	edited.restore(0, append(args, "--at", now.Add(150*time.Minute).UTC().Format(time.RFC3339))...)
	obj, err := d.client.Resource(issuers).Namespace(at[0]).Get(t.Context(), at[1], metav1.GetOptions{})
	if err != nil || obj.GetAnnotations()["edit"] != "2" {
		t.Errorf("got %v (%v), want the annotation of the second edit", obj.GetAnnotations(), err)
	}
	d.u.run("restore", "--repo", clone, "--at", "2001-01-01").wantFailure(t, 1, "the first one of branch main is of")
	d.u.run("verify", "--repo", clone, "--at", "nowhere").wantFailure(t, 2, "no such commit, tag or branch", "nor is it a date")
	edited.restore(0, append(args, "--at", first[:8])...)
}

// target maps a namespace of the backup to a new one, so that there is something to create.
func (d *disaster) target(name string) (args []string, namespace string) {
	most, counts := "", map[string]int{}
	for _, file := range gittest.Files(d.t, d.repo, "HEAD") {
		if parts := strings.Split(file, "/"); len(parts) == 4 {
			if counts[parts[1]]++; counts[parts[1]] > counts[most] {
				most = parts[1]
			}
		}
	}
	return []string{"restore", "--repo", d.repo, "-n", most, "--map-namespace", most + "=" + name}, name
}

// The first signal ends it between two writes, with a report; the next run does what is left.
func testRestoreInterrupted(t *testing.T, d *disaster) {
	args, namespace := d.target("interrupted")
	cmd := d.u.command(append(args, "--concurrency", "1")...)
	var out, errOut lockedBuffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	watched, err := d.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).
		Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + namespace})
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()
	select {
	case <-watched.ResultChan():
	case <-time.After(patience):
		t.Fatalf("nothing was created:\n%s%s", out.String(), errOut.String())
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the exit code tells
	if code := cmd.ProcessState.ExitCode(); code != 130 || !strings.Contains(out.String(), "Interrupted: ") || !strings.Contains(errOut.String(), "run it again") {
		t.Errorf("exit code %d, want 130 and a report of what is left:\n%s%s", code, out.String(), errOut.String())
	}
	if r := d.u.succeed(args...); !strings.Contains(r.stdout, "equal commit") {
		t.Errorf("got %v\nwant the rest done", r)
	}
	if r := d.u.succeed(args...); !strings.Contains(r.stdout, "Nothing was to be done") {
		t.Errorf("got %v\nwant nothing left", r)
	}
}

// Killed at any moment and run again, it gets there.
func testRestoreKilled(t *testing.T, d *disaster) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range 3 {
		args, _ := d.target(fmt.Sprintf("killed-%d", i))
		for range 4 {
			cmd := d.u.command(args...)
			cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			kill := time.AfterFunc(time.Duration(random.IntN(1500))*time.Millisecond, func() { _ = cmd.Process.Kill() })
			_ = cmd.Wait() // killed, or done before
			kill.Stop()
		}
		d.u.succeed(args...)
		if r := d.u.succeed(args...); !strings.Contains(r.stdout, "Nothing was to be done") {
			t.Errorf("got %v\nwant nothing left", r)
		}
	}
}

// findingsRepo is a repository in which everything is wrong that a plan finds.
func findingsRepo(t *testing.T, d *disaster) string {
	dir := filepath.Join(d.u.home, "findings")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, dir, "init", "--quiet", "--initial-branch", "main")
	issuer := func(namespace, name, more string) {
		gittest.WriteFile(t, dir, "namespaces/"+namespace+"/issuers.certs.example.dev/"+name+".yaml",
			"apiVersion: certs.example.dev/v1\nkind: Issuer\nmetadata:\n  name: "+name+"\n  namespace: "+namespace+"\n"+more)
	}
	issuer("nowhere", "a", "spec: {}\n")
	issuer("default", "redacted", "spec:\n  secret: crmirror-redacted:v1:00ff\n")
	issuer("default", "orphan", "  ownerReferences:\n  - {apiVersion: certs.example.dev/v1, kind: Issuer, name: lost}\nspec: {}\n")
	gittest.WriteFile(t, dir, "namespaces/default/issuers.certs.example.dev/broken.yaml", "a: [\n")
	gittest.WriteFile(t, dir, "namespaces/default/gadgets.unknown.example.dev/b.yaml",
		"apiVersion: unknown.example.dev/v1\nkind: Gadget\nmetadata:\n  name: b\n  namespace: default\n")
	gittest.WriteFile(t, dir, "namespaces/default/workflows.argoproj.io/run.yaml",
		"apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata:\n  name: run\n  namespace: default\n")
	gittest.WriteFile(t, dir, "namespaces/going/issuers.certs.example.dev/c.yaml",
		"apiVersion: certs.example.dev/v1\nkind: Issuer\nmetadata:\n  name: c\n  namespace: going\nspec: {}\n")
	gittest.Git(t, dir, "add", ".")
	gittest.Git(t, dir, "commit", "--quiet", "--message", "Everything wrong")
	return dir
}

// All that stands in the way is told at once, with what to do, and nothing of it is written.
func testRestoreFindings(t *testing.T, d *disaster) {
	spaces := d.client.Resource(namespaces)
	args, going := d.target("going")
	d.u.succeed(args...)
	if err := spaces.Delete(t.Context(), going, metav1.DeleteOptions{}); err != nil { // nobody finishes it here
		t.Fatal(err)
	}
	repo := findingsRepo(t, d)
	r := d.u.run("restore", "--repo", repo, "--dry-run")
	for _, want := range []string{
		"kubectl create namespace nowhere", "only digests of spec.secret", "is neither in git nor in the cluster", "broken.yaml",
		"gadgets.unknown.example.dev", "would run again; to restore it, name workflows.argoproj.io", "namespace going is being deleted",
	} {
		if r.code != 3 || !strings.Contains(r.stdout, want) {
			t.Errorf("got %v\nwant exit code 3 and %q", r, want)
		}
	}
	_, kubeconfig, err := d.cluster.User("nobody")
	if err != nil {
		t.Fatal(err)
	}
	d.u.run("restore", "--repo", d.repo, "--kubeconfig", kubeconfig).wantFailure(t, 1, "forbidden")
	d.u.run("restore", "--repo", d.repo, "--server", "https://127.0.0.1:1").wantFailure(t, 1, "The API server cannot be reached")
	d.u.run("restore", "--repo", d.repo, "--path", "elsewhere").wantFailure(t, 1, "has no files of crmirror", "--path")
	d.u.run("restore", "--repo", "nowhere").wantFailure(t, 1, "there is none")
	d.u.run("restore", "--repo", d.repo, "--existing", "all", "--map-namespace", "x", "-l", "a=(", "--concurrency", "-1", "-o", "yaml").
		wantFailure(t, 2, "existing", "map-namespace", "selector", "concurrency", "output format", "restore --help")
	if err := d.cluster.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	d.u.run("verify", "--repo", d.repo).wantFailure(t, 1, "The API server cannot be reached")
}
