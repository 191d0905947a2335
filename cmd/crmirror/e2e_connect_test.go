package main_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crmirror/crmirror/gitstore/gittest"
)

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
		{"API server that does not answer", func(t *testing.T, u *user) []string {
			u.env = append(u.env, "CRMIRROR_TIMEOUTS_KUBERNETES=1s")
			return backup("--server", "https://"+silentServer(t))
		}, 1, []string{"127.0.0.1:", "kubectl get namespaces"}},
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
		}, 1, []string{"nobody", "cannot get", "kube-system", "crmirror rbac"}},
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
		{"git server that does not answer", func(t *testing.T, u *user) []string {
			u.env = append(u.env, "CRMIRROR_TIMEOUTS_GIT=1s")
			return []string{"backup", "--repo", "http://" + silentServer(t) + "/x.git"}
		}, 1, []string{"remote unreachable: silent for 1s", "repository.url"}},
		{"ssh server that does not answer", func(t *testing.T, u *user) []string {
			u.env = append(u.env, "CRMIRROR_TIMEOUTS_GIT=1s")
			return []string{"backup", "--repo", "ssh://git@" + silentServer(t) + "/x.git", "--ssh-key-file", world.lab.SSH.KeyFile}
		}, 1, []string{"remote unreachable: silent for 1s", "repository.url"}},
		{"token over plain http to another machine", func(t *testing.T, u *user) []string {
			name, _ := newRemote(t, "main")
			return []string{"backup", "--repo", elsewhere(world.lab.HTTP.URL(name)), "--token-file", tokenFile()}
		}, 1, []string{"in the clear", "use https", "insecureHTTP"}},
		{"certificate that nobody trusts", func(t *testing.T, u *user) []string {
			return []string{"backup", "--repo", newHTTPS(t).URL("repo.git"), "--token-file", tokenFile()}
		}, 1, []string{"certificate signed by unknown authority", "caFile"}},
		{"run with a wrong token", func(_ *testing.T, u *user) []string {
			name, _ := newRemote(t, "main")
			u.file("wrong", "not-the-token")
			u.file("config.yaml", soundHead+"repository: {url: '"+world.lab.HTTP.URL(name)+"', auth: {tokenFile: wrong}}\n")
			return []string{"run", "--config", "config.yaml", "--log-level", "error"}
		}, 1, []string{"not authorized", "repository.auth"}},
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

// silentServer takes connections and says nothing. It returns host and port.
func silentServer(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() }) // nobody is to hear from it
	return listener.Addr().String()
}

// elsewhere names this machine by an address that is not the loopback's.
func elsewhere(url string) string { return strings.Replace(url, "127.0.0.1", "0.0.0.0", 1) }

// newHTTPS serves an empty repository repo.git, for the lab's token.
func newHTTPS(t *testing.T) *gittest.HTTP {
	t.Helper()
	root := t.TempDir()
	if err := gittest.InitBare(t.Context(), filepath.Join(root, "repo.git"), "main"); err != nil {
		t.Fatal(err)
	}
	server, err := gittest.NewHTTPS(root, world.token)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return server
}

// What the last two refusals ask for works.
func TestTrustedRemotes(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	args := []string{"backup", "--resources", "locations.backup.example.dev", "--token-file", tokenFile(), "--repo"}
	server := newHTTPS(t)
	u.succeed(append(args, server.URL("repo.git"), "--ca-file", u.file("ca.pem", string(server.CA())))...)

	name, _ := newRemote(t, "main")
	u.env = append(u.env, "CRMIRROR_REPOSITORY_AUTH_INSECURE_HTTP=true")
	u.succeed(append(args, elsewhere(world.lab.HTTP.URL(name)))...)
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
