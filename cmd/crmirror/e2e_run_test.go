package main_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	gosync "sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/crmirror/crmirror/gitstore/gittest"
)

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
	step("Change tier, color of widgets.day.example.dev " + w.namespace + "/c")
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

// An agent whose branch is protected says what works, goes on trying, and arrives
// once somebody lets it.
func TestRunAgainstAProtectedBranch(t *testing.T) {
	t.Parallel()
	w := newWidgets(t, "protected.example.dev").install()
	w.create("a", 1)
	server := newServer(t)
	if err := gittest.ProtectBranch(server.dir, "main"); err != nil {
		t.Fatal(err)
	}
	agent := newUser(t).start(configFor(server.url(), w.group, ""))
	agent.waitLog(`level=error .*Protected branch update failed.* next="If the branch is protected, .*repository.branch: crmirror.* pull requests`)
	if err := gittest.Hook(server.dir, "pre-receive", ""); err != nil {
		t.Fatal(err)
	}
	server.waitSubjects(t, "Mirror cluster e2e: 3 objects of 3 resources")
	agent.stop()
	server.wantEqual(t, w)
}

// An agent that commits into a person's repository leaves the person's work
// alone, says so, and catches up when it can.
func TestRunInAPersonsRepository(t *testing.T) {
	t.Parallel()
	w := newWidgets(t, "own.example.dev").install()
	w.create("a", 1)
	u := newUser(t)
	dir := u.own("ops")
	config := strings.Replace(configFor(dir, w.group, ""), "  auth: {tokenFile: "+tokenFile()+"}\n", "", 1)
	agent := u.start(config)
	agent.waitLog("in sync")
	checkClean(t, dir)

	edit(t, dir, "clusters/e2e/"+w.file("a"))
	w.patch("a", `{"spec": {"size": 2}}`)
	agent.waitLog(`level=warning .*changes that are not committed.*` + w.file("a"))
	gittest.Git(t, dir, "checkout", "--", ".")
	agent.stop()
	checkClean(t, dir)
	if d := diff(t, dir, "main", "clusters/e2e", cluster(t, w.group)); d != "" {
		t.Errorf("the branch differs from the cluster (-cluster +branch):\n%s", d)
	}
}
