package main_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/crmirror/crmirror/gitstore/gittest"
)

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
