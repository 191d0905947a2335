package main_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/crmirror/crmirror/gitstore/gittest"
)

// refusalTime is how long a mistake may take to be told. It is far more than
// that takes on a machine that has nothing else to do.
const refusalTime = 30 * time.Second

// refusal is a mistake and what crmirror says of it.
type refusal struct {
	name string
	args func(t *testing.T, u *user) []string
	code int
	want []string // on stderr
}

func (r refusal) check(t *testing.T) {
	t.Run(r.name, func(t *testing.T) {
		t.Parallel()
		u := newUser(t)
		args := r.args(t, u)
		start := time.Now()
		u.run(args...).wantFailure(t, r.code, r.want...)
		if took := time.Since(start); took > refusalTime {
			t.Errorf("crmirror %s: took %v, want at most %v", strings.Join(args, " "), took, refusalTime)
		}
	})
}

func words(args ...string) func(*testing.T, *user) []string {
	return func(*testing.T, *user) []string { return args }
}

func TestWrongUsageIsRefused(t *testing.T) {
	for _, r := range []refusal{
		{"unknown command", words("mirror"), 2, []string{`unknown command "crmirror mirror"; see crmirror --help`}},
		{"mistyped command", words("bakcup"), 2, []string{`unknown command "crmirror bakcup" (did you mean "backup"?)`}},
		{"unknown command of config", words("config", "chekc", "x"), 2, []string{`unknown command "crmirror config chekc" (did you mean "check"?)`}},
		{"unknown flag", words("backup", "--repository", "x"), 2, []string{"unknown flag: --repository", "crmirror backup --help"}},
		{"an argument too many", words("backup", "x"), 2, []string{`unknown command "x"`, "crmirror backup --help"}},
		{"an argument missing", words("approve"), 2, []string{"accepts 1 arg(s), received 0", "crmirror approve --help"}},
		{"unknown output format", words("backup", "--repo", "x", "-o", "yaml"), 2, []string{`unknown output format "yaml"`, "json"}},
		{"no repository", words("backup"), 2, []string{"repository.url: is missing"}},
		{"run without a configuration", words("run", "--repo", "x"), 2, []string{"run needs a configuration", "run --config FILE"}},
		{"a configuration that is not there", words("run", "--config", "no.yaml"), 2, []string{"no.yaml: cannot be read: no such file"}},
	} {
		r.check(t)
	}
}

// configured returns a run with that configuration, in a file config.yaml.
func configured(content string) func(*testing.T, *user) []string {
	return func(_ *testing.T, u *user) []string {
		u.file("config.yaml", content)
		return []string{"run", "--config", "config.yaml"}
	}
}

const soundHead = "apiVersion: crmirror.dev/v1alpha1\nkind: Config\ncluster: e2e\n"

func TestWrongConfigurationIsRefused(t *testing.T) {
	for _, r := range []refusal{
		{"unknown key", configured(soundHead + "repository:\n  url: backup\n  brnach: main\n"), 2,
			[]string{`config.yaml:6: repository: unknown key "brnach"`, `did you mean "branch"?`}},
		{"several mistakes at once", configured(soundHead + "mode: mirrored\nrepository:\n  url: backup\n  branch: a..b\nbatch: {quiet: soon}\n"), 2,
			[]string{"config.yaml:4: mode:", "config.yaml:7: repository.branch:", "config.yaml:8: batch.quiet:"}},
		{"a key twice", configured(soundHead + "cluster: again\nrepository: {url: backup}\n"), 2, []string{"config.yaml:4: cluster"}},
		{"no YAML", configured(soundHead + "repository: {url: backup\n"), 2, []string{"config.yaml:"}},
		{"wrong name of a branch", words("backup", "--repo", "backup", "--branch", "refs/heads/main"), 2,
			[]string{"--branch: repository.branch:", `write it as "main"`}},
		{"path out of the repository", words("backup", "--repo", "backup", "--path", "../x"), 2,
			[]string{"--path: repository.path:", "clusters/prod-eu1"}},
		{"no name of a resource", words("backup", "--repo", "backup", "--resources", "Issuers!"), 2, []string{"--resources: select[0].resources[0]:"}},
		{"unknown scheme", words("backup", "--repo", "ftp://example.com/x"), 2, []string{"ftp:// is not supported", "ssh, https, http or file"}},
		{"variable that sets nothing", func(_ *testing.T, u *user) []string {
			u.env = append(u.env, "CRMIRROR_REPOSITRY_URL=x")
			return []string{"backup", "--repo", "backup"}
		}, 2, []string{"CRMIRROR_REPOSITRY_URL: sets no key", "CRMIRROR_REPOSITORY_URL"}},
	} {
		r.check(t)
	}
}

func TestConfigCheck(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.file("sound.yaml", soundHead+"repository: {url: backup}\n")
	if r := u.succeed("config", "check", "sound.yaml"); r.stdout != "sound.yaml is fine.\n" {
		t.Errorf("got %v\nwant that it is fine", r)
	}
	u.file("wrong.yaml", soundHead+"repository: {url: backup}\nguards: {}\n")
	u.run("config", "check", "wrong.yaml").wantFailure(t, 2, `wrong.yaml:5: unknown key "guards"`, `did you mean "guard"?`)
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if r := newUser(t).succeed("version"); r.stdout != "crmirror v1.2.3-e2e\n" {
		t.Errorf("got %v\nwant the stamped version", r)
	}
}

// A password in a URL would be in every shell history and process list; it is
// refused and not repeated.
func TestPasswordInURLIsNotPrinted(t *testing.T) {
	t.Parallel()
	const password = "hunter2-in-the-url"
	u := newUser(t)
	for _, url := range []string{
		"https://git:" + password + "@git.example.com/ops.git",
		"https://" + password + "@git.example.com/ops.git",
		"ssh://git:" + password + "@git.example.com/ops.git",
		"https://git:" + password + "@git.example.com:port/ops.git",
		"https://git:" + password + "%zz@git.example.com/ops.git",
	} {
		r := u.run("backup", "--repo", url)
		r.wantFailure(t, 2, "--repo: repository.url:")
		if strings.Contains(r.stdout+r.stderr, password) {
			t.Errorf("got %v\nwant the password nowhere in the output", r.stderr)
		}
		u.file("config.yaml", soundHead+"repository: {url: '"+url+"'}\n")
		if r := u.run("run", "--config", "config.yaml"); r.code != 2 || strings.Contains(r.stdout+r.stderr, password) {
			t.Errorf("run with the URL in the file: got exit code %d and\n%s\nwant 2, and the password nowhere", r.code, r.stderr)
		}
	}
}

func TestWrongClusterIsRefused(t *testing.T) {
	backup := func(args ...string) []string { return append([]string{"backup", "--repo", "backup"}, args...) }
	for _, r := range []refusal{
		{"kubeconfig that is not there", words(backup("--kubeconfig", "no-such-file")...), 1,
			[]string{"no-such-file", "--kubeconfig"}},
		{"broken kubeconfig", func(_ *testing.T, u *user) []string {
			u.file("broken", "clusters: [}\n")
			return backup("--kubeconfig", "broken")
		}, 1, []string{"broken", "find the cluster"}},
		{"kubeconfig that is something else", func(_ *testing.T, u *user) []string {
			u.file("other", "a: b\n")
			return backup("--kubeconfig", "other")
		}, 1, []string{"find the cluster", "--kubeconfig"}},
		{"no kubeconfig at all", func(_ *testing.T, u *user) []string {
			u.env = nil
			return backup()
		}, 1, []string{"find the cluster", "--kubeconfig"}},
		{"unknown context", words(backup("--context", "prod-eu9")...), 1, []string{"prod-eu9", "--context"}},
		{"API server that is not there", words(backup("--server", "https://127.0.0.1:1")...), 1,
			[]string{"127.0.0.1:1", "connection refused", "kubectl get namespaces"}},
		{"API server that is something else", func(_ *testing.T, u *user) []string {
			return backup("--server", strings.TrimSuffix(world.lab.HTTP.URL(""), "/"))
		}, 1, []string{"kube-system"}},
		{"credentials that are not accepted", func(_ *testing.T, u *user) []string {
			u.env = []string{"KUBECONFIG=" + withoutCertificate(u)}
			return backup("--token", "no-such-token")
		}, 1, []string{"Unauthorized", "kubectl get namespaces"}},
		{"an account that may nothing", func(t *testing.T, u *user) []string {
			_, kubeconfig, err := world.lab.Clusters[0].User("nobody")
			if err != nil {
				t.Fatal(err)
			}
			return backup("--kubeconfig", kubeconfig)
		}, 1, []string{"nobody", "cannot get", "kube-system", "deploy/"}},
	} {
		r.check(t)
	}
}

// withoutCertificate writes a kubeconfig of the first cluster without a user's
// credentials.
func withoutCertificate(u *user) string {
	content, err := os.ReadFile(world.lab.Kubeconfig(0))
	if err != nil {
		u.t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(content)) {
		if !strings.Contains(line, "client-certificate-data") && !strings.Contains(line, "client-key-data") {
			lines = append(lines, line)
		}
	}
	return u.file("kubeconfig", strings.Join(lines, ""))
}

func TestUnreachableRemotesAreRefused(t *testing.T) {
	overHTTP := func(token func(u *user) string) func(*testing.T, *user) []string {
		return func(t *testing.T, u *user) []string {
			name, _ := newRemote(t, "main")
			return []string{"backup", "--repo", world.lab.HTTP.URL(name), "--token-file", token(u)}
		}
	}
	overSSH := func(knownHosts func(t *testing.T, u *user) string) func(*testing.T, *user) []string {
		return func(t *testing.T, u *user) []string {
			name, _ := newRemote(t, "main")
			return []string{"backup", "--repo", world.lab.SSH.URL(name), "--ssh-key-file", world.lab.SSH.KeyFile,
				"--known-hosts-file", knownHosts(t, u)}
		}
	}
	for _, r := range []refusal{
		{"wrong token", overHTTP(func(u *user) string { return u.file("wrong", "not-the-token\n") }), 1,
			[]string{"not authorized", "repository.auth"}},
		{"no token", func(t *testing.T, _ *user) []string {
			name, _ := newRemote(t, "main")
			return []string{"backup", "--repo", world.lab.HTTP.URL(name)}
		}, 1, []string{"not authorized", "repository.auth"}},
		{"empty token file", overHTTP(func(u *user) string { return u.file("empty", "\n") }), 1, []string{"empty", "token"}},
		{"token file that is not there", overHTTP(func(*user) string { return "no-such-token-file" }), 1,
			[]string{"no-such-token-file", "no such file"}},
		{"no such repository", func(*testing.T, *user) []string {
			return []string{"backup", "--repo", world.lab.HTTP.URL("no-such.git"), "--token-file", tokenFile()}
		}, 1, []string{"no-such.git", "not found", "repository.url"}},
		{"no such repository over ssh", func(*testing.T, *user) []string {
			return []string{"backup", "--repo", world.lab.SSH.URL("no-such.git"), "--ssh-key-file", world.lab.SSH.KeyFile,
				"--known-hosts-file", world.lab.SSH.KnownHostsFile}
		}, 1, []string{"no-such.git", "not found", "repository.url"}},
		{"no git server", words("backup", "--repo", "http://127.0.0.1:1/x.git"), 1,
			[]string{"http://127.0.0.1:1/x.git", "remote unreachable", "connection refused", "repository.url"}},
		{"no ssh server", func(*testing.T, *user) []string {
			return []string{"backup", "--repo", "ssh://git@127.0.0.1:1/x.git", "--ssh-key-file", world.lab.SSH.KeyFile}
		}, 1, []string{"127.0.0.1:1", "remote unreachable", "connection refused"}},
		{"unknown host", overSSH(func(_ *testing.T, u *user) string { return u.file("known_hosts", "") }), 1,
			[]string{"is not in", "known_hosts", "ssh-ed25519", "SHA256:", "add the line: "}},
		{"no known_hosts", overSSH(func(*testing.T, *user) string { return "no-known-hosts" }), 1,
			[]string{"no-known-hosts", "SHA256:", "add the line: "}},
		{"host key mismatch", overSSH(otherHostKey), 1,
			[]string{"which is not the one in", "SHA256:", "somebody may be intercepting", "replace its lines"}},
		{"ssh key that is not accepted", func(t *testing.T, u *user) []string {
			name, _ := newRemote(t, "main")
			return []string{"backup", "--repo", world.lab.SSH.URL(name), "--ssh-key-file", newSSHKey(t, u),
				"--known-hosts-file", world.lab.SSH.KnownHostsFile}
		}, 1, []string{"not authorized", "accepts none of our keys"}},
		{"ssh key that is not there", func(t *testing.T, _ *user) []string {
			return []string{"backup", "--repo", world.lab.SSH.URL("x.git"), "--ssh-key-file", "no-such-key",
				"--known-hosts-file", world.lab.SSH.KnownHostsFile}
		}, 1, []string{"no-such-key", "no such file"}},
	} {
		r.check(t)
	}
}

// newSSHKey makes a key that no server knows.
func newSSHKey(t *testing.T, u *user) string {
	t.Helper()
	file := u.path("id_new")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file).CombinedOutput(); err != nil {
		t.Fatalf("make a key: %v\n%s", err, out)
	}
	return file
}

// otherHostKey returns a known_hosts file with another key for the lab's host.
func otherHostKey(t *testing.T, u *user) string {
	t.Helper()
	public, err := os.ReadFile(newSSHKey(t, u) + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	line, err := os.ReadFile(world.lab.SSH.KnownHostsFile)
	if err != nil {
		t.Fatal(err)
	}
	return u.file("known_hosts", strings.Fields(string(line))[0]+" "+string(public))
}

// A branch that may not be pushed to: the message has the way that works, and the
// way works.
func TestProtectedBranch(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	name, dir := newRemote(t, "main")
	if err := gittest.ProtectBranch(dir, "main"); err != nil {
		t.Fatal(err)
	}
	args := []string{"backup", "--repo", world.lab.HTTP.URL(name), "--token-file", tokenFile(), "--resources", "*.backup.example.dev"}
	u.run(args...).wantFailure(t, 1, "refused", "refs/heads/main", "Protected branch update failed", "repository.branch: crmirror", "pull requests")
	u.succeed(append(args, "--branch", "crmirror")...)
	if d := diff(t, dir, "crmirror", "", cluster(t, "backup.example.dev")); d != "" {
		t.Errorf("the mirror branch differs from the cluster (-cluster +remote):\n%s", d)
	}
}

// A resource that nobody serves is named in the report; what is served is backed up.
func TestResourceThatNoServerServes(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	r := u.run("backup", "--repo", "backup", "--resources", "gadgets.nowhere.example.dev,locations.backup.example.dev")
	if r.code != 3 || !strings.Contains(r.stdout, "gadgets.nowhere.example.dev: cannot be read") ||
		!strings.Contains(r.stdout, "no server serves this resource") {
		t.Errorf("got %v\nwant exit code 3 and the resource named on stdout", r)
	}
	if files := gittest.Files(t, u.path("backup"), "main"); !strings.Contains(strings.Join(files, "\n"), "cluster/locations.backup.example.dev/location-0.yaml") {
		t.Errorf("files: got %q, want the served resource among them", files)
	}
}
