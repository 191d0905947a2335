package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/crmirror/crmirror/gitstore/gittest"
)

// The first thing that anybody types: a backup with nothing but a kubeconfig.
// Not parallel, since it takes every custom resource that the cluster has.
func TestBackupNeedsOnlyAKubeconfig(t *testing.T) {
	u := newUser(t)
	dir := u.path("backup")
	first := u.succeed("backup", "--repo", "backup")
	for _, want := range []string{"issuers.certs.example.dev ", "schedules.backup.example.dev ", "total ", "to branch main of backup."} {
		if !strings.Contains(first.stdout, want) {
			t.Errorf("got %v\nwant %q on stdout", first, want)
		}
	}
	if first.stderr != "" {
		t.Errorf("got %v\nwant nothing on stderr", first)
	}
	checkClean(t, dir)
	if d := diff(t, dir, "main", "", cluster(t, corpusGroups...)); d != "" {
		t.Errorf("git differs from the cluster (-cluster +git):\n%s", d)
	}

	again := u.succeed("backup", "--repo", "backup")
	if !strings.Contains(again.stdout, "Nothing changed: branch main of backup equals the cluster.") {
		t.Errorf("got %v\nwant that nothing changed", again)
	}
	if log := gittest.Log(t, dir, "main"); len(log) != 1 {
		t.Errorf("commits after a second backup: got %q, want one", log)
	}

	patch(t, "team-north", "issuer-1", `{"spec": {"acme": {"server": "https://moved.example.dev"}}}`)
	checkReport(t, u.succeed("backup", "--repo", dir, "-o", "json"), dir)
	want := []string{"Change spec.acme of issuers.certs.example.dev team-north/issuer-1"}
	if got := gittest.Log(t, dir, "main~1..main"); !cmp.Equal(got, want) {
		t.Errorf("subjects after a change: got %q, want %q", got, want)
	}
	if got := gittest.Git(t, dir, "diff", "--name-only", "main~1", "main"); got != "namespaces/team-north/issuers.certs.example.dev/issuer-1.yaml" {
		t.Errorf("changed files: got %q, want only the object's", got)
	}
	checkClean(t, dir)
	if d := diff(t, dir, "main", "", cluster(t, corpusGroups...)); d != "" {
		t.Errorf("git differs from the cluster (-cluster +git):\n%s", d)
	}
}

// checkClean looks at a repository as a careful person would.
func checkClean(t *testing.T, dir string) {
	t.Helper()
	if status := gittest.Git(t, dir, "status", "--porcelain"); status != "" {
		t.Errorf("git status: got %q, want it clean", status)
	}
	gittest.Fsck(t, dir)
}

// checkReport reads the JSON report of a backup with one change.
func checkReport(t *testing.T, r result, dir string) {
	t.Helper()
	var report struct {
		Repository, Branch, Path, Commit string
		Pushed                           bool
		Resources                        []struct {
			Resource                  string
			Objects, Created, Changed int
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		t.Fatalf("report: %v\n%v", err, r)
	}
	if head := gittest.Git(t, dir, "rev-parse", "main"); report.Repository != dir || report.Branch != "main" || report.Commit != head || report.Pushed {
		t.Errorf("report: got %+v, want commit %s, not pushed", report, head)
	}
	changed := 0
	for _, resource := range report.Resources {
		changed += resource.Changed
		if resource.Resource == "issuers.certs.example.dev" && (resource.Changed != 1 || resource.Objects == 0) {
			t.Errorf("report of issuers: got %+v, want one change", resource)
		}
	}
	if changed != 1 {
		t.Errorf("changed objects: got %d, want 1", changed)
	}
}

// Every kind of remote gets what the cluster has, in one commit, and nothing the
// second time.
func TestBackupToRemotes(t *testing.T) {
	overHTTP := func(name string) []string {
		return []string{"--repo", world.lab.HTTP.URL(name), "--token-file", tokenFile()}
	}
	for _, test := range []struct {
		name   string
		head   string // of the remote
		branch string // that must hold the files
		args   func(u *user, name, dir string) []string
	}{
		{"HTTP with a token", "main", "main", func(_ *user, name, _ string) []string { return overHTTP(name) }},
		{"a default branch of another name", "trunk", "trunk", func(u *user, name, dir string) []string {
			own := gittest.Clone(t, dir)
			gittest.CommitFile(t, own, "README.md", "ours\n", "Add a README")
			gittest.Git(t, own, "push", "--quiet", "origin", "HEAD:trunk")
			return overHTTP(name)
		}},
		{"a branch that does not exist yet", "main", "backups/eu1", func(_ *user, name, _ string) []string {
			return append(overHTTP(name), "--branch", "backups/eu1")
		}},
		{"ssh with a key", "main", "main", func(_ *user, name, _ string) []string {
			return []string{"--repo", world.lab.SSH.URL(name), "--ssh-key-file", world.lab.SSH.KeyFile, "--known-hosts-file", world.lab.SSH.KnownHostsFile}
		}},
		{"file URL", "main", "main", func(_ *user, _, dir string) []string { return []string{"--repo", "file://" + dir} }},
		{"plain path of a bare repository", "main", "main", func(_ *user, _, dir string) []string { return []string{"--repo", dir} }},
		{"own repository with a remote", "main", "main", func(u *user, _, dir string) []string {
			own := u.path("own")
			gittest.Git(t, "", "init", "--quiet", "--initial-branch=main", own)
			gittest.Git(t, own, "remote", "add", "origin", dir)
			return []string{"--repo", own}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			name, dir := newRemote(t, test.head)
			args := append(test.args(u, name, dir), "--path", "clusters/eu1", "--resources", "*.backup.example.dev")
			first := u.succeed(append([]string{"backup"}, args...)...)
			if !strings.Contains(first.stdout, "branch "+test.branch+" of ") || !strings.Contains(first.stdout, "below clusters/eu1.") {
				t.Errorf("got %v\nwant branch and path on stdout", first)
			}
			if d := diff(t, dir, test.branch, "clusters/eu1", cluster(t, "backup.example.dev")); d != "" {
				t.Errorf("the remote differs from the cluster (-cluster +remote):\n%s", d)
			}
			second := u.succeed(append([]string{"backup"}, args...)...)
			log := strings.Split(gittest.Git(t, dir, "log", "--format=%s", test.branch, "--", "clusters"), "\n")
			if want := []string{"Mirror cluster envtest: 33 objects of 4 resources"}; !cmp.Equal(log, want) {
				t.Errorf("commits after a second backup: got %q, want %q\n%v", log, want, second)
			}
			gittest.Fsck(t, dir)
			checkBase(t, dir, test.branch, "clusters/eu1")
		})
	}
}

// checkBase compares the base ref with the branch: below the path they are equal.
func checkBase(t *testing.T, dir, branch, path string) {
	t.Helper()
	refs := strings.Fields(gittest.Git(t, dir, "for-each-ref", "--format=%(refname)", "refs/crmirror/"))
	if len(refs) != 1 || !strings.HasSuffix(refs[0], "/base") {
		t.Fatalf("refs of crmirror: got %q, want only a base", refs)
	}
	if d := gittest.Git(t, dir, "diff", "--stat", refs[0], branch, "--", path); d != "" {
		t.Errorf("base and branch differ below %s:\n%s", path, d)
	}
	if got, want := gittest.Git(t, dir, "rev-parse", refs[0]+"^"), gittest.Git(t, dir, "rev-parse", branch); got != want {
		t.Errorf("parent of base: got %s, want the branch's head %s", got, want)
	}
}

// People's own files in the repository, and what they committed, stay.
func TestBackupIntoARepositoryWithHistory(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	dir := u.path("ops")
	gittest.Git(t, "", "init", "--quiet", "--initial-branch=main", dir)
	gittest.CommitFile(t, dir, "README.md", "ours\n", "Add a README")
	gittest.CommitFile(t, dir, "clusters/eu1/kustomization.yaml", "resources: []\n", "Add a kustomization")

	u.succeed("backup", "--repo", dir, "--path", "clusters/eu1", "--resources", "*.backup.example.dev")
	want := cluster(t, "backup.example.dev")
	want["kustomization.yaml"] = "resources: []\n"
	if d := diff(t, dir, "main", "clusters/eu1", want); d != "" {
		t.Errorf("git differs from the cluster (-cluster +git):\n%s", d)
	}
	if content, err := os.ReadFile(filepath.Join(dir, "README.md")); err != nil || string(content) != "ours\n" {
		t.Errorf("README: got %q, %v, want it untouched", content, err)
	}
	if log := gittest.Log(t, dir, "main"); len(log) != 3 || log[1] != "Add a kustomization" {
		t.Errorf("history: got %q, want ours on top of theirs", log)
	}
	checkClean(t, dir)
}
