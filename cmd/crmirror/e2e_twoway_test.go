package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/gitstore/gittest"
	"github.com/crmirror/crmirror/sync"
)

// commitChange lets a person replace text in a widget's file, and push.
func (s served) commitChange(t *testing.T, w *widgets, name, old, new string) {
	t.Helper()
	s.commitChangeIn(t, "clusters/e2e", w, name, old, new)
}

// commitChangeIn is commitChange below a path of the repository.
func (s served) commitChangeIn(t *testing.T, path string, w *widgets, name, old, new string) {
	t.Helper()
	clone := gittest.Clone(t, "file://"+s.dir)
	file := filepath.Join(clone, path, w.file(name))
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), old) {
		t.Fatalf("%s has no %q:\n%s", w.file(name), old, content)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(content), old, new, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, clone, "commit", "--quiet", "--all", "--message", "Change "+name)
	gittest.Git(t, clone, "push", "--quiet", "origin", "HEAD:main")
}

// wantSpec waits until a field of a widget's spec has that value in the cluster.
func (w *widgets) wantSpec(name, field string, want any) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%s of %s to be %v", field, name, want), func() error {
		obj, err := w.in().Get(w.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got, _, _ := unstructured.NestedFieldNoCopy(obj.Object, "spec", field); fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("it is %v", got)
		}
		return nil
	})
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// watchedConfig is an agent's configuration with its health address; more is the rest of it.
func watchedConfig(t *testing.T, s served, group, more string) (config, address string) {
	t.Helper()
	address = freeAddress(t)
	return configFor(s.url(), group, more+"health: {listen: '"+address+"'}\n"), address
}

// Both ways: what a person pushes reaches the cluster, what both change is a conflict
// that is shown everywhere, and goes when it is settled.
func TestTwoWay(t *testing.T) {
	t.Parallel()
	w := newWidgets(t, "both.example.dev").install()
	w.create("a", 1)
	server := newServer(t)
	u := newUser(t)
	config, address := watchedConfig(t, server, w.group, "mode: two-way\n")
	agent := u.start(config)
	agent.waitLog("in sync")

	server.commitChange(t, w, "a", "size: 1", "size: 2")
	w.wantSpec("a", "size", 2)
	agent.waitLog("configured as git says")
	agent.stop()

	// While no agent runs both sides change one field, and each another one.
	server.commitChange(t, w, "a", "size: 2", "size: 3")
	w.patch("a", `{"spec": {"size": 4, "weight": 7}}`)
	agent = u.start(config)
	agent.waitLog(`conflict of .*\.spec\.size`)
	eventually(t, "an event on the object", func() error { return w.event("a", "GitConflict") })
	eventually(t, "the metric", func() error {
		return metric("http://"+address+"/metrics", `crmirror_conflicts{resource="widgets.both.example.dev"} 1`)
	})
	file := u.path("config.yaml")
	listed := u.run("conflicts", "--config", file, "-o", "json")
	if listed.code != 3 {
		t.Fatalf("got %v\nwant exit code 3", listed)
	}
	var conflicts []struct {
		Object, Field, Git, Cluster, Base string
		Line                              int
		Settle                            []string
	}
	if err := json.Unmarshal([]byte(listed.stdout), &conflicts); err != nil {
		t.Fatalf("%v: %v", err, listed)
	}
	if len(conflicts) != 1 || conflicts[0].Field != ".spec.size" || conflicts[0].Git != "3" || conflicts[0].Cluster != "4" ||
		conflicts[0].Base != "2" || conflicts[0].Line == 0 {
		t.Fatalf("conflicts: %+v", conflicts)
	}
	// The command that it names, as a shell would run it.
	command := strings.ReplaceAll(strings.TrimPrefix(conflicts[0].Settle[0], "crmirror "), "'", "")
	u.succeed(strings.Fields(command)...)
	w.wantSpec("a", "size", 3)
	eventually(t, "git to have the other change", func() error {
		content, err := gittest.Run(t.Context(), server.dir, "show", "main:clusters/e2e/"+w.file("a"))
		if err == nil && !strings.Contains(content, "weight: 7") {
			err = errors.New(content)
		}
		return err
	})
	eventually(t, "no conflict to be left", func() error {
		if r := u.run("conflicts", "--config", file); r.code != 0 {
			return errors.New(r.String())
		}
		return nil
	})
	agent.stop()
	server.wantEqual(t, w)
}

// Once: apply --dry-run tells and changes nothing; apply does it, and says what it did.
func TestApply(t *testing.T) {
	t.Parallel()
	w := newWidgets(t, "once.example.dev").install()
	w.create("a", 1)
	server := newServer(t)
	u := newUser(t)
	file := u.file("config.yaml", configFor(server.url(), w.group, "mode: two-way\n"))
	u.succeed("apply", "--config", file)
	server.wantEqual(t, w)
	server.commitChange(t, w, "a", "size: 1", "size: 2")
	before := gittest.Git(t, server.dir, "for-each-ref")

	told := "configured widgets.once.example.dev " + w.namespace + "/a: .spec.size"
	if r := u.run("apply", "--config", file, "--dry-run"); r.code != 3 || !strings.Contains(r.stdout, "Would be "+told) {
		t.Errorf("got %v\nwant exit code 3, and what would be done", r)
	}
	w.wantSpec("a", "size", 1)
	if after := gittest.Git(t, server.dir, "for-each-ref"); after != before {
		t.Errorf("a dry run moved refs:\n%s\nbefore:\n%s", after, before)
	}
	if r := u.succeed("apply", "--config", file); !strings.Contains(r.stdout, told) {
		t.Errorf("apply does not say what it did: %v", r)
	}
	w.wantSpec("a", "size", 2)
	u.run("resolve", "--config", file, "--all").wantFailure(t, 2, "--take git or --take cluster")
	u.run("conflicts", "--repo", u.path("x")).wantFailure(t, 2, "mode: two-way")
}

// Two agents, of the same cluster and under the same name, have a path each: neither moves
// anything of the other's, and what people change in either path reaches the cluster.
func TestTwoPaths(t *testing.T) {
	t.Parallel()
	w := newWidgets(t, "paths.example.dev").install()
	w.create("a", 1)
	server := newServer(t)
	u := newUser(t)
	apply := func(path string) {
		t.Helper()
		other := map[string]string{"clusters/one": "clusters/two", "clusters/two": "clusters/one"}[path]
		config := strings.Replace(configFor(server.url(), w.group, "mode: two-way\n"), "clusters/e2e", path, 1)
		before := server.stateOf(t, other)
		u.succeed("apply", "--config", u.file(filepath.Base(path)+".yaml", config))
		if after := server.stateOf(t, other); after != before {
			t.Errorf("the agent of %s moved something of %s:\n%s\nbefore:\n%s", path, other, after, before)
		}
	}
	wantBoth := func(want ...string) {
		t.Helper()
		for _, path := range []string{"clusters/one", "clusters/two"} {
			content := gittest.Git(t, server.dir, "show", "main:"+path+"/"+w.file("a"))
			for _, line := range want {
				if !strings.Contains(content, line) {
					t.Errorf("%s has no %q:\n%s", path, line, content)
				}
			}
		}
	}
	apply("clusters/one")
	apply("clusters/two")
	wantBoth("size: 1", "color: green")

	server.commitChangeIn(t, "clusters/one", w, "a", "size: 1", "size: 2")
	apply("clusters/two")
	w.wantSpec("a", "size", 1) // it is the other's to apply
	apply("clusters/one")
	w.wantSpec("a", "size", 2)
	apply("clusters/two")
	wantBoth("size: 2", "color: green")

	server.commitChangeIn(t, "clusters/one", w, "a", "size: 2", "size: 3")
	server.commitChangeIn(t, "clusters/two", w, "a", "color: green", "color: red")
	apply("clusters/one")
	apply("clusters/two")
	apply("clusters/one")
	w.wantSpec("a", "size", 3)
	w.wantSpec("a", "color", "red")
	wantBoth("size: 3", "color: red")
}

// stateOf is where the files below a path and the refs of its agent are.
func (s served) stateOf(t *testing.T, path string) string {
	t.Helper()
	tree, err := gittest.Run(t.Context(), s.dir, "rev-parse", "--verify", "--quiet", "main:"+path)
	if err != nil {
		tree = "none yet"
	}
	refs := append([]string{"for-each-ref"}, sync.Refs("e2e", "main", path).All()...)
	return tree + "\n" + gittest.Git(t, s.dir, refs...)
}

// event tells whether there is an event with that reason on a widget.
func (w *widgets) event(name, reason string) error {
	events, err := w.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "events"}).Namespace(w.namespace).
		List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, e := range events.Items {
		on, _, _ := unstructured.NestedString(e.Object, "involvedObject", "name")
		if why, _, _ := unstructured.NestedString(e.Object, "reason"); on == name && why == reason {
			return nil
		}
	}
	return fmt.Errorf("none of %d events", len(events.Items))
}

// metric looks for a line at a metrics endpoint.
func metric(url, want string) error {
	answer, err := http.Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && !strings.Contains(string(body), want) {
		err = errors.New(string(body))
	}
	return err
}
