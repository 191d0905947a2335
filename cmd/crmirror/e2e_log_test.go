package main_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/crmirror/crmirror/gitstore/gittest"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/sync"
)

// logKey is a widget of the history that TestLog reads.
func logKey(name string) kube.Key {
	return kube.Key{Group: "log.example.dev", Resource: "widgets", Namespace: "shop", Name: name}
}

// logCommit is a commit of that history, for git fast-import: a day of November, an author, a
// message, and the sizes that widgets get; -1 takes them away.
func logCommit(day int, author, message string, sizes map[string]int) string {
	var b strings.Builder
	seconds := 1793523600 + 86400*(day-1) // 2026-11-01 09:00 UTC
	fmt.Fprintf(&b, "commit refs/heads/main\nauthor %s <a@example.com> %d +0000\ncommitter C <c@example.com> %d +0000\ndata %d\n%s\n",
		author, seconds, seconds, len(message), message)
	for name, size := range sizes {
		file := "clusters/e2e/" + sync.PathOf(logKey(name))
		if size < 0 {
			fmt.Fprintf(&b, "D %s\n", file)
			continue
		}
		content := fmt.Sprintf("apiVersion: log.example.dev/v1\nkind: Widget\nmetadata:\n  name: %s\n  namespace: shop\nspec:\n  size: %d\n", name, size)
		fmt.Fprintf(&b, "M 644 inline %s\ndata %d\n%s\n", file, len(content), content)
	}
	return b.String() + "\n"
}

func logMessage(op sync.Op, manager, name string, fields ...string) string {
	return sync.Message(sync.MessageInput{Cluster: "e2e", Changes: []sync.Change{
		{Key: logKey(name), Op: op, Fields: fields, Manager: kube.Manager{Name: manager}},
	}})
}

var longName = strings.Repeat("a-very-long-name.", 14) + "end"

// newLogRemote serves a repository with that history.
func newLogRemote(t *testing.T) (url, dir string) {
	t.Helper()
	name, dir := newRemote(t, "main")
	stream := logCommit(1, "crmirror", logMessage(sync.Created, "ada", "web"), map[string]int{"web": 1, longName: 1, "other": 1}) +
		logCommit(2, "crmirror", logMessage(sync.Changed, "kubectl-edit", "web", "spec.size"), map[string]int{"web": 2}) +
		logCommit(3, "Jane \x1b[31mDoe", "Scale up", map[string]int{"web": 3}) +
		logCommit(4, "crmirror", logMessage(sync.Deleted, "", "web"), map[string]int{"web": -1, longName: -1}) +
		logCommit(5, "crmirror", logMessage(sync.Created, "ada", "web"), map[string]int{"web": 5}) +
		logCommit(6, "crmirror", logMessage(sync.Unselected, "", "other"), map[string]int{"other": -1})
	if _, err := gittest.RunInput(t.Context(), dir, strings.NewReader(stream), "fast-import", "--quiet"); err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, dir, "tag", "-a", "-m", "before", "snapshot", "main~3")
	return world.lab.HTTP.URL(name), dir
}

// offline returns a user without any cluster.
func offline(t *testing.T) *user {
	u := newUser(t)
	u.env = []string{"KUBECONFIG=/nowhere", "TZ=UTC"}
	return u
}

// TestLog reads the history of one object from a remote and from a bare repository.
func TestLog(t *testing.T) {
	t.Parallel()
	url, dir := newLogRemote(t)
	short := func(rev string) string { return gittest.Git(t, dir, "rev-parse", rev)[:10] }
	for name, repo := range map[string][]string{
		"remote": {"--repo", url, "--path", "clusters/e2e", "--token-file", tokenFile()},
		"bare":   {"--repo", dir, "--path", "clusters/e2e"},
	} {
		t.Run(name, func(t *testing.T) {
			u := offline(t)
			log := func(args ...string) string {
				t.Helper()
				return regexp.MustCompile(` {2,}`).ReplaceAllString(u.succeed(append(append([]string{"log"}, args...), repo...)...).stdout, "  ")
			}
			want := []string{
				"2026-11-05T09:00:00Z  " + short("main~1") + "  crmirror  restored (by ada)",
				"2026-11-04T09:00:00Z  " + short("main~2") + "  crmirror  deleted",
				"2026-11-03T09:00:00Z  " + short("main~3") + "  Jane ?[31mDoe  changed spec.size",
				"2026-11-02T09:00:00Z  " + short("main~4") + "  crmirror  changed spec.size (by kubectl-edit)",
				"2026-11-01T09:00:00Z  " + short("main~5") + "  crmirror  created (by ada)", "",
			}
			if diff := cmp.Diff(strings.Join(want, "\n"), log("widgets", "web", "-n", "shop")); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
			for _, at := range []string{"snapshot", short("main~3"), "2026-11-03", "2026-11-04 09:00 +0100"} {
				got := log("widgets.log.example.dev", "web", "-n", "shop", "--at", at)
				if diff := cmp.Diff(strings.Join(want[2:], "\n"), got); diff != "" {
					t.Errorf("log --at %s (-want +got):\n%s", at, diff)
				}
			}
			got := log("widgets", "web", "-n", "shop", "--diff", "--at", "snapshot")
			if !strings.Contains(got, "(by kubectl-edit)\n--- a/clusters/e2e/namespaces/shop/widgets.log.example.dev/web.yaml\n") ||
				!strings.Contains(got, "\n-  size: 1\n+  size: 2\n") || !strings.Contains(got, "\n--- /dev/null\n") {
				t.Errorf("log --diff:\n%s", got)
			}
			got = log("widgets.log.example.dev", longName, "-n", "shop")
			restore := "crmirror restore --at " + short("main~3") + " --resources widgets.log.example.dev -n shop --names " + longName + " --repo " + repo[1]
			if !strings.Contains(got, "commit "+short("main~3")+" has it still") || !strings.Contains(got, restore) {
				t.Errorf("log of a deleted object with a long name:\n%s\nwant %s", got, restore)
			}
		})
	}
}

// TestLogDeleted lists what was deleted, and since when.
func TestLogDeleted(t *testing.T) {
	t.Parallel()
	url, dir := newLogRemote(t)
	u := offline(t)
	type deletion struct{ Commit, Object, What, Last, Restore string }
	list := func(args ...string) (found []string) {
		t.Helper()
		args = append([]string{"log", "--deleted", "-o", "json", "--repo", url, "--path", "clusters/e2e", "--token-file", tokenFile()}, args...)
		var out struct{ Deleted []deletion }
		if err := json.Unmarshal([]byte(u.succeed(args...).stdout), &out); err != nil {
			t.Fatal(err)
		}
		for _, d := range out.Deleted {
			if want := gittest.Git(t, dir, "rev-parse", d.Commit+"^"); d.Last != want || !strings.Contains(d.Restore, "--at "+want[:10]) {
				t.Errorf("%+v: the last commit that has it is %s", d, want)
			}
			found = append(found, d.What+" "+d.Object)
		}
		return found
	}
	object := func(name string) string { return logKey(name).String() }
	all := []string{"unselected " + object("other"), "deleted " + object(longName), "deleted " + object("web")}
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{nil, all},
		{[]string{"--resources", "*.log.example.dev", "-n", "shop"}, all},
		{[]string{"--since", "2026-11-05"}, all[:1]},
		{[]string{"--since", "2026-11-04"}, all},
		{[]string{"--at", "2026-11-04"}, all[1:]},
		{[]string{"-n", "elsewhere"}, nil},
		{[]string{"--resources", "widgets.other.example.dev"}, nil},
	} {
		if diff := cmp.Diff(tt.want, list(tt.args...)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tt.args, diff)
		}
	}
	text := u.succeed("log", "--deleted", "--repo", dir, "--path", "clusters/e2e").stdout
	if !strings.Contains(text, "deleted "+object("web")+" (it is there again)\n") || strings.Count(text, "crmirror restore --at") != 2 {
		t.Errorf("log --deleted:\n%s", text)
	}
}

func TestLogIsRefused(t *testing.T) {
	t.Parallel()
	_, dir := newLogRemote(t)
	repo := []string{"--repo", dir, "--path", "clusters/e2e"}
	shallow := filepath.Join(t.TempDir(), "shallow")
	gittest.Git(t, "", "clone", "-q", "--depth=2", "file://"+dir, shallow)
	for _, tt := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"web"}, 2, []string{"give RESOURCE and NAME", "--deleted"}},
		{[]string{"--deleted", "widgets", "web"}, 2, []string{"--deleted lists objects"}},
		{[]string{"--deleted", "--diff"}, 2, []string{"--diff is for one object"}},
		{[]string{"widgets", "web", "--since", "2026-11-01"}, 2, []string{"go with --deleted"}},
		{append([]string{"widgets", "web", "-n", "shop", "--at", "nowhere"}, repo...), 2, []string{`"nowhere"`, "nor is it a date", "2h ago"}},
		{append([]string{"widgets", "web", "-n", "shop", "--at", "HEAD~2"}, repo...), 2, []string{`"HEAD~2"`, "~, ^ and @ are not taken", "hash"}},
		{append([]string{"widgets", "web", "-n", "shop", "--at", "2026-10-01"}, repo...), 1, []string{"the first one of branch main is of 2026-11-01"}},
		{append([]string{"widgets", "web"}, repo...), 1, []string{"there is one in namespace shop: add -n shop"}},
		{append([]string{"widgets", "nobody", "-n", "shop"}, repo...), 1, []string{"widgets.log.example.dev shop/nobody", "crmirror log --deleted --repo"}},
		{append([]string{"--deleted", "--since", "lately"}, repo...), 2, []string{"--since", "2026-11-30"}},
		{append([]string{"--deleted", "--resources", "Widgets!"}, repo...), 2, []string{"--resources"}},
		{[]string{"widgets", "web", "-n", "shop", "--repo", dir + "-no"}, 1, []string{"there is none"}},
	} {
		offline(t).run(append([]string{"log"}, tt.args...)...).wantFailure(t, tt.code, tt.want...)
	}
	r := offline(t).run("log", "widgets", "web", "-n", "shop", "--repo", shallow, "--path", "clusters/e2e")
	if r.code != 1 || !strings.Contains(r.stderr, "fetch --unshallow") || !strings.Contains(r.stderr, "history here is not whole") {
		t.Errorf("a shallow clone: got %v", r)
	}
}
