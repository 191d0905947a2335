package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	gosync "sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/crmirror/crmirror/gitstore/gittest"
)

// agent is a running "crmirror run".
type agent struct {
	u   *user
	cmd *exec.Cmd
	log lockedBuffer
	end chan struct{} // closed when the process has ended
}

// lockedBuffer is written by a process and read by a test.
type lockedBuffer struct {
	mu     gosync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// start starts the agent with a configuration; the test ends it if nobody did.
func (u *user) start(config string) *agent {
	u.t.Helper()
	a := &agent{u: u, cmd: u.command("run", "--config", u.file("config.yaml", config)), end: make(chan struct{})}
	a.cmd.Stdout, a.cmd.Stderr = &a.log, &a.log
	if err := a.cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	go func() {
		_ = a.cmd.Wait() // the exit code tells
		close(a.end)
	}()
	u.t.Cleanup(func() {
		_ = a.cmd.Process.Kill() // for an agent that is still there
		<-a.end
		u.checkSecrets(a.log.String())
		if u.t.Failed() {
			u.t.Logf("log of the agent:\n%s", a.log.String())
		}
	})
	return a
}

// signal sends a signal.
func (a *agent) signal(s syscall.Signal) {
	a.u.t.Helper()
	if err := a.cmd.Process.Signal(s); err != nil {
		a.u.t.Fatal(err)
	}
}

// wait waits for the process to end, and returns its exit code.
func (a *agent) wait() int {
	a.u.t.Helper()
	select {
	case <-a.end:
	case <-time.After(patience):
		a.u.t.Fatal("the agent did not end")
	}
	return a.cmd.ProcessState.ExitCode()
}

// stop ends the agent as a supervisor would, and wants exit code 0.
func (a *agent) stop() {
	a.u.t.Helper()
	a.signal(syscall.SIGTERM)
	if code := a.wait(); code != 0 {
		a.u.t.Errorf("exit code after SIGTERM: got %d, want 0", code)
	}
}

// waitLog waits until the log matches, and returns the match.
func (a *agent) waitLog(pattern string) []string {
	a.u.t.Helper()
	var match []string
	eventually(a.u.t, "log line "+pattern, func() error {
		match = regexp.MustCompile(pattern).FindStringSubmatch(a.log.String())
		select {
		case <-a.end:
			if match == nil {
				a.u.t.Fatalf("the agent ended before it logged %s", pattern)
			}
		default:
		}
		if match == nil {
			return errors.New("not there yet")
		}
		return nil
	})
	return match
}

// configFor is an agent's configuration for the widgets of one group, in a hurry.
func configFor(url, group, more string) string {
	return fmt.Sprintf(`apiVersion: crmirror.dev/v1alpha1
kind: Config
cluster: e2e
repository:
  url: %s
  branch: main
  path: clusters/e2e
  auth: {tokenFile: %s}
select:
- resources: ["*.%s"]
batch: {quiet: 300ms, max: 3s}
apply: {poll: 1s}
%s`, url, tokenFile(), group, more)
}

// served is a git server of one test, with an empty repository; it takes the
// lab's token.
type served struct {
	*gittest.HTTP
	dir string // the bare repository
}

func (s served) url() string { return s.URL("repo.git") }

func newServer(t *testing.T) served {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "repo.git")
	if err := gittest.InitBare(t.Context(), dir, "main"); err != nil {
		t.Fatal(err)
	}
	server, err := gittest.NewHTTP(root, world.token)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return served{server, dir}
}

// subjects returns those of main, oldest first; none while there is no main.
func (s served) subjects(t *testing.T) []string {
	t.Helper()
	if gittest.Git(t, s.dir, "for-each-ref", "refs/heads/main") == "" {
		return nil
	}
	log := gittest.Log(t, s.dir, "main")
	slices.Reverse(log)
	return log
}

// waitSubjects waits until main has exactly those commits, oldest first.
func (s served) waitSubjects(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, "commits", func() error {
		if d := cmp.Diff(want, s.subjects(t)); d != "" {
			return fmt.Errorf("subjects (-want +got):\n%s", d)
		}
		return nil
	})
}

// wantEqual compares main with the cluster's widgets.
func (s served) wantEqual(t *testing.T, w *widgets) {
	t.Helper()
	if d := diff(t, s.dir, "main", "clusters/e2e", cluster(t, w.group)); d != "" {
		t.Errorf("the remote differs from the cluster (-cluster +remote):\n%s", d)
	}
	gittest.Fsck(t, s.dir)
}

// The agent's ordinary day: what happens in the cluster becomes commits that a
// reviewer understands, one per batch; a second start has nothing to say.
func TestRun(t *testing.T) {
	t.Parallel()
	w := newWidgets(t, "day.example.dev").install()
	w.create("a", 1)
	w.create("b", 1)
	server := newServer(t)
	u := newUser(t)
	config := configFor(server.url(), w.group, "")
	agent := u.start(config)
	log := []string{"Mirror cluster e2e: 4 objects of 3 resources"}
	step := func(subject string) {
		t.Helper()
		log = append(log, subject)
		server.waitSubjects(t, log...)
	}
	server.waitSubjects(t, log...)

	w.patch("a", `{"spec": {"size": 2}}`)
	step("Change spec.size of widgets.day.example.dev " + w.namespace + "/a")
	message := gittest.Git(t, server.dir, "log", "-1", "--format=%B%an", "main")
	for _, want := range []string{w.namespace + "/a: spec.size (by a-person)\n", "Crmirror-Cluster: e2e\n", "Crmirror-Objects: 1\n", "\ncrmirror"} {
		if !strings.Contains(message, want) {
			t.Errorf("message: got\n%s\nwant %q in it", message, want)
		}
	}
	w.create("c", 1)
	step("Create widgets.day.example.dev " + w.namespace + "/c")
	w.delete("b")
	step("Delete widgets.day.example.dev " + w.namespace + "/b")
	server.wantEqual(t, w)
	agent.stop()

	agent = u.start(config)
	w.patch("c", `{"metadata": {"labels": {"tier": "gold"}}, "spec": {"color": "red"}}`)
	step("Change labels, color of widgets.day.example.dev " + w.namespace + "/c")
	agent.stop()
	server.wantEqual(t, w)
	checkBase(t, server.dir, "main", "clusters/e2e")
}

// Changes that come together are one commit.
func TestRunCommitsOncePerBatch(t *testing.T) {
	t.Parallel()
	w := newWidgets(t, "batch.example.dev").install()
	w.create("first", 1)
	server := newServer(t)
	agent := newUser(t).start(strings.Replace(configFor(server.url(), w.group, ""), "quiet: 300ms", "quiet: 3s", 1))
	initial := "Mirror cluster e2e: 3 objects of 3 resources"
	server.waitSubjects(t, initial)
	for i := range 5 {
		w.create(fmt.Sprintf("widget-%d", i), 1)
	}
	w.patch("first", `{"spec": {"size": 2}}`)
	server.waitSubjects(t, initial, "Create 5, change 1 widgets.batch.example.dev in "+w.namespace)
	server.wantEqual(t, w)
	agent.stop()
}

// A kind that is installed while the agent runs is mirrored at once.
func TestRunMirrorsACRDInstalledLater(t *testing.T) {
	t.Parallel()
	w := newWidgets(t, "later.example.dev")
	server := newServer(t)
	agent := newUser(t).start(configFor(server.url(), w.group, ""))
	agent.waitLog("starting")
	w.install().create("a", 1)
	eventually(t, "the later kind in git", func() error {
		if len(server.subjects(t)) == 0 {
			return errors.New("no commit yet")
		}
		if d := diff(t, server.dir, "main", "clusters/e2e", cluster(t, w.group)); d != "" {
			return errors.New(d)
		}
		return nil
	})
	agent.stop()
}

// What changes while the remote is away arrives when it is back, without being
// asked, and nothing is lost when the agent is told to stop meanwhile.
func TestRunSurvivesTheRemoteGoingAway(t *testing.T) {
	t.Parallel()
	w := newWidgets(t, "away.example.dev").install()
	w.create("a", 1)
	server := newServer(t)
	agent := newUser(t).start(configFor(server.url(), w.group, ""))
	agent.waitLog("in sync")

	server.Off()
	w.patch("a", `{"spec": {"size": 2}}`)
	w.create("b", 1)
	agent.waitLog(`level=error .*remote unreachable`)
	if err := server.On(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the changes to arrive", func() error {
		if d := diff(t, server.dir, "main", "clusters/e2e", cluster(t, w.group)); d != "" {
			return errors.New(d)
		}
		return nil
	})
	agent.waitLog("cycles finish again")

	// Pushes fail until the wait for the next try is longer than the last flush takes.
	var tries atomic.Int64
	server.Intercept(func(answer http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("service") != "git-receive-pack" && r.Method == http.MethodGet {
			return false
		}
		tries.Add(1)
		http.Error(answer, "out of order", http.StatusServiceUnavailable)
		return true
	})
	w.create("c", 1)
	eventually(t, "three tries", func() error {
		if n := tries.Load(); n < 3 {
			return fmt.Errorf("%d so far", n)
		}
		return nil
	})
	server.Intercept(nil)
	agent.stop()
	server.wantEqual(t, w)
}

// A second signal ends the agent at once, whatever it waits for.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWidgets(t, "signal.example.dev").install()
	w.create("a", 1)
	server := newServer(t)
	agent := newUser(t).start(configFor(server.url(), w.group, ""))
	agent.waitLog("in sync")
	reached, hang := make(chan struct{}), make(chan struct{})
	var once gosync.Once
	server.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			once.Do(func() { close(reached) })
			<-hang
		}
		return false
	})
	defer close(hang)
	w.patch("a", `{"spec": {"size": 2}}`)
	select {
	case <-reached:
	case <-time.After(patience):
		t.Fatal("no push came")
	}
	agent.signal(syscall.SIGTERM)
	agent.waitLog("last flush")
	start := time.Now()
	agent.signal(syscall.SIGTERM)
	if code := agent.wait(); code != 130 {
		t.Errorf("exit code after two signals: got %d, want 130", code)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("end after the second signal: got %v, want at once", took)
	}
}

// Another writer on the branch: their files stay, what they did to ours is put
// back, and the message says whose change that undoes.
func TestRunBesideAnotherWriter(t *testing.T) {
	t.Parallel()
	w := newWidgets(t, "writer.example.dev").install()
	w.create("a", 1)
	w.create("b", 1)
	server := newServer(t)
	agent := newUser(t).start(configFor(server.url(), w.group, ""))
	server.waitSubjects(t, "Mirror cluster e2e: 4 objects of 3 resources")

	clone := gittest.Clone(t, server.URLWithToken("repo.git"))
	gittest.WriteFile(t, clone, "README.md", "ours\n")
	file := "clusters/e2e/" + w.file("b")
	content := gittest.ShowFile(t, clone, "main", file)
	gittest.CommitFile(t, clone, file, strings.Replace(content, "size: 1", "size: 7", 1), "Enlarge b")
	gittest.Git(t, clone, "push", "--quiet", "origin", "main")
	theirs := gittest.Git(t, clone, "rev-parse", "HEAD")

	w.patch("a", `{"spec": {"size": 2}}`)
	server.waitSubjects(t, "Mirror cluster e2e: 4 objects of 3 resources", "Enlarge b",
		"Change 2 widgets.writer.example.dev in "+w.namespace)
	agent.stop()
	server.wantEqual(t, w)
	if got := gittest.ShowFile(t, server.dir, "main", "README.md"); got != "ours\n" {
		t.Errorf("README: got %q, want it kept", got)
	}
	message := gittest.Git(t, server.dir, "log", "-1", "--format=%B", "main")
	if want := fmt.Sprintf("%s/b: spec.size (by a-person); undoes %.7s by A Person", w.namespace, theirs); !strings.Contains(message, want) {
		t.Errorf("message: got\n%s\nwant %q in it", message, want)
	}
	checkBase(t, server.dir, "main", "clusters/e2e")
}

// Deletions beyond the guard's limits wait for a person, who reads the digest in
// the log and approves it beside the running agent.
func TestApprove(t *testing.T) {
	t.Parallel()
	w := newWidgets(t, "held.example.dev").install()
	w.create("a", 1)
	w.create("b", 1)
	w.create("c", 1)
	server := newServer(t)
	u := newUser(t)
	agent := u.start(configFor(server.url(), w.group, "guard: {maxDeleteObjects: 0}\n"))
	initial := "Mirror cluster e2e: 5 objects of 3 resources"
	server.waitSubjects(t, initial)
	w.delete("a")
	w.delete("b")
	eventually(t, "two deletions to be held", func() error {
		return listsHeld(t, server.dir, w.namespace+"/a", w.namespace+"/b")
	})
	w.patch("c", `{"spec": {"size": 2}}`)
	server.waitSubjects(t, initial, "Change spec.size of widgets.held.example.dev "+w.namespace+"/c")

	r := u.run("approve", "000000000000", "--config", "config.yaml")
	r.wantFailure(t, 1, "approve 000000000000: what is held now are 2 deletions", "crmirror approve ")
	digest := regexp.MustCompile(`crmirror approve ([0-9a-f]{12})`).FindStringSubmatch(r.stderr)
	if digest == nil || !strings.Contains(agent.log.String(), "crmirror approve "+digest[1]) {
		t.Fatalf("got %v\nwant the digest that the agent logged", r)
	}
	r = u.succeed("approve", digest[1], "--config", "config.yaml")
	if !strings.Contains(r.stdout, w.namespace+"/a") || !strings.Contains(r.stdout, "2 deletions of e2e approved.") {
		t.Errorf("got %v\nwant the two deletions on stdout", r)
	}
	server.waitSubjects(t, initial, "Change spec.size of widgets.held.example.dev "+w.namespace+"/c",
		"Delete 2 widgets.held.example.dev in "+w.namespace)
	agent.stop()
	server.wantEqual(t, w)
	checkBase(t, server.dir, "main", "clusters/e2e")
	u.run("approve", digest[1], "--config", "config.yaml").wantFailure(t, 1, "nothing is held")
}

// listsHeld reads the ref that lists the held deletions.
func listsHeld(t *testing.T, dir string, want ...string) error {
	t.Helper()
	ref := gittest.Git(t, dir, "for-each-ref", "--format=%(refname)", "refs/crmirror/*/held")
	if ref == "" {
		return errors.New("nothing is held yet")
	}
	held := gittest.ShowFile(t, dir, ref, "held")
	for _, text := range want {
		if !strings.Contains(held, text) {
			return fmt.Errorf("held: got %q, want %s in it", held, text)
		}
	}
	return nil
}

// After a disaster the cluster is another one: nothing is written until a person
// adopts the path, and then nothing is deleted until a person approves.
func TestAdopt(t *testing.T) {
	t.Parallel()
	name, dir := newRemote(t, "main")
	u := newUser(t)
	u.file("config.yaml", configFor(world.lab.HTTP.URL(name), "certs.example.dev", ""))
	backup := []string{"backup", "--config", "config.yaml"}
	u.succeed(backup...)
	head := gittest.Git(t, dir, "rev-parse", "main")

	other := u.onCluster(1)
	other.run(backup...).wantFailure(t, 1, `clusters/e2e/.crmirror.yaml belongs to cluster "e2e"`, "nothing is written", "crmirror adopt")
	if got := gittest.Git(t, dir, "rev-parse", "main"); got != head {
		t.Fatalf("main after the refusal: got %s, want %s", got, head)
	}
	if code := other.start(configFor(world.lab.HTTP.URL(name), "certs.example.dev", "")).wait(); code != 1 {
		t.Errorf("exit code of run on another cluster's path: got %d, want 1", code)
	}

	r := other.succeed("adopt", "--config", "config.yaml")
	if !strings.Contains(r.stdout, "Adopted ") || !strings.Contains(r.stdout, "held until you approve") {
		t.Errorf("got %v\nwant that it is adopted", r)
	}
	held := other.run(backup...)
	digest := regexp.MustCompile(`crmirror approve ([0-9a-f]{12})`).FindStringSubmatch(held.stdout)
	if held.code != 3 || digest == nil {
		t.Fatalf("got %v\nwant exit code 3 and a digest to approve", held)
	}
	if d := diff(t, dir, "main", "clusters/e2e", cluster(t, "certs.example.dev")); d != "" {
		t.Errorf("files after the adoption (-before +after):\n%s", d)
	}
	other.succeed("approve", digest[1], "--config", "config.yaml")
	if r := other.succeed(backup...); !strings.Contains(r.stdout, "Committed") {
		t.Errorf("got %v\nwant the approved deletions committed", r)
	}
	if got := gittest.Files(t, dir, "main"); !cmp.Equal(got, []string{"clusters/e2e/.crmirror.yaml"}) {
		t.Errorf("files after the approval: got %q, want only .crmirror.yaml", got)
	}
}
