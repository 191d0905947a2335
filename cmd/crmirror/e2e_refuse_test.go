package main_test

import (
	"os"
	"strings"
	"testing"
	"time"
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

// kubectl runs crmirror as a plugin when it is linked under such a name, and it
// says then what to type.
func TestKubectlPlugin(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	plugin := u.path("kubectl-crmirror")
	if err := os.Symlink(world.binary, plugin); err != nil {
		t.Fatal(err)
	}
	u.binary = plugin
	u.run("bakcup").wantFailure(t, 2, `unknown command "kubectl crmirror bakcup" (did you mean "backup"?); see kubectl crmirror --help`)
	if r := u.succeed("backup", "--help"); !strings.Contains(r.stdout, "kubectl crmirror backup [flags]") {
		t.Errorf("got %v\nwant the plugin's usage", r)
	}
}
