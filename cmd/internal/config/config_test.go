package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const head = "apiVersion: crmirror.dev/v1alpha1\nkind: Config\ncluster: prod-eu1\nrepository: {url: ./backup}\n"

// parse is Load of a content.
func parse(file string, content []byte, environ []string, flags []Override) (*Config, error) {
	return parseInto(&places{file: file}, content, environ, flags)
}

func write(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestFullConfig(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join("testdata", "full.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := Load(write(t, string(content)), []string{"CRMIRROR_REDACTION_KEY_FILE=" + key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		APIVersion: APIVersion, Kind: Kind, Cluster: "prod-eu1", Mode: "mirror",
		Kubeconfig: "/etc/kube/config", Context: "prod", CacheDir: "/var/cache/crmirror",
		Repository: Repository{
			URL: "ssh://git@git.example.com/ops/clusters.git", Branch: "main", Path: "clusters/prod-eu1", Refs: "refs/heads/crmirror",
			Auth:   Auth{SSHKeyFile: "/etc/ssh/key", SSHKeyPassphraseFile: "/etc/ssh/passphrase", KnownHostsFile: "/etc/ssh/known_hosts"},
			Author: Author{Name: "mirror", Email: "mirror@example.com"},
		},
		Select: []Rule{
			{
				Matcher: Matcher{Resources: []string{"certificates.cert-manager.io"}, Namespaces: []string{"shop", "web-*"},
					ExcludeNamespaces: []string{"web-test"}, LabelSelector: "tier in (a, b)", Names: []string{"front*"}},
				SkipOwned: true, Status: true,
				Drop:   []string{".spec.replicas", `.metadata.annotations["x.io/seen"]`},
				Redact: []string{".spec.token"},
			},
			{Matcher: Matcher{Resources: []string{"*", "configmaps"}}},
		},
		Exclude:   []Matcher{{Resources: []string{"policyreports.wgpolicyk8s.io"}}},
		Include:   Include{CRDs: false, Namespaces: true},
		Redaction: Redaction{KeyFile: key},
		Batch:     Batch{Quiet: time.Second, Max: time.Minute, MaxObjects: 500},
		Apply:     Apply{Poll: time.Minute, Prune: true, RemoveFinalizers: true, RespectManagers: []string{"kluctl"}},
		Guard:     Guard{MaxDeleteObjects: 20, MaxDeletePercent: 10},
		Schedule:  Schedule{Resync: "@every 1h", SnapshotTag: "0 3 * * *"},
		Log:       Log{Level: "debug", Format: "json"},
		Health:    Health{Listen: ":8080", Pprof: true},
		LeaderElection: LeaderElection{Enabled: true, Namespace: "ops", Name: "crmirror",
			LeaseDuration: 30 * time.Second, RenewDeadline: 20 * time.Second, RetryPeriod: 4 * time.Second},
		Timeouts: Timeouts{Git: time.Minute, Kubernetes: 10 * time.Second, Grace: 5 * time.Second},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Config{})); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	s := got.Selection()
	if len(s.Select) != 2 || string(s.Select[0].Shape.RedactKey) != "0123456789abcdef" || s.Select[0].Shape.Drop[0].String() != ".spec.replicas" ||
		!s.Select[0].SkipOwned || !s.Select[0].Shape.Status || s.Select[0].LabelSelector == "" || len(s.Exclude) != 1 {
		t.Errorf("Selection = %+v", s)
	}
	if _, err := s.Compile(); err != nil {
		t.Errorf("Compile: %v", err)
	}
}

// TestFullConfigSetsEveryKey keeps full.yaml, which the reference shows, whole.
func TestFullConfigSetsEveryKey(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("testdata", "full.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range Paths() {
		key := path[strings.LastIndexByte(path, '.')+1:]
		web := []string{"username", "passwordFile", "tokenFile", "bearerTokenFile", "caFile", "insecureHTTP"}
		if !strings.Contains(string(content), key+":") && !cmp.Equal(append(web, key), web) && !strings.Contains(strings.Join(web, " "), key) {
			t.Errorf("testdata/full.yaml does not show %s", path)
		}
	}
}

func TestMinimalConfig(t *testing.T) {
	got, err := Load(write(t, head), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := defaults()
	want.Cluster, want.Repository.URL = "prod-eu1", "./backup"
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Config{})); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	if !got.Repository.IsPath() {
		t.Error("./backup is not taken for a path")
	}
}

func TestLayers(t *testing.T) {
	file := write(t, head+"batch: {quiet: 5s, maxObjects: 7}\napply:\n  respectManagers: [a]\nhealth:\n")
	env := []string{
		"HOME=/root", "CRMIRROR_CONFIG=x", "CRMIRROR_BATCH_QUIET=6s", "CRMIRROR_INCLUDE_CRDS=FALSE", "CRMIRROR_LOG_LEVEL=",
		"CRMIRROR_APPLY_RESPECT_MANAGERS=b, c,", "CRMIRROR_BATCH_MAX=9s", "CRMIRROR_REPOSITORY_AUTH_SSH_KEY_FILE=",
		"CRMIRROR_SERVICE_HOST=10.0.0.1", "CRMIRROR_SERVICE_PORT=80", "CRMIRROR_SERVICE_PORT_HTTP=80", "CRMIRROR_PORT=tcp://10.0.0.1:80",
		"CRMIRROR_PORT_80_TCP=tcp://10.0.0.1:80", "CRMIRROR_PORT_80_TCP_ADDR=10.0.0.1", "CRMIRROR_METRICS_SERVICE_HOST=10.0.0.1",
	}
	flags := []Override{
		{Path: "batch.max", Value: "10s", Source: "--max"},
		{Path: "select", Value: "issuers.cert-manager.io,*", Source: "--resources"},
		{Path: "batch.quiet", Value: "1s", Source: "a default", Default: true},
		{Path: "batch.maxObjects", Value: "1", Source: "a default", Default: true},
		{Path: "log.format", Value: "json", Source: "a default", Default: true},
	}
	got, err := Load(file, env, flags)
	if err != nil {
		t.Fatal(err)
	}
	if got.Batch != (Batch{Quiet: 6 * time.Second, Max: 10 * time.Second, MaxObjects: 7}) {
		t.Errorf("batch = %+v", got.Batch)
	}
	if got.Include.CRDs || got.Log != (Log{Level: "info", Format: "json"}) {
		t.Errorf("include = %+v, log = %+v", got.Include, got.Log)
	}
	if diff := cmp.Diff([]string{"b", "c"}, got.Apply.RespectManagers); diff != "" {
		t.Errorf("respectManagers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"issuers.cert-manager.io", "*"}, got.Select[0].Resources); diff != "" || len(got.Select) != 1 {
		t.Errorf("select (-want +got):\n%s", diff)
	}

	got, err = Load("", []string{"CRMIRROR_CLUSTER=a", "CRMIRROR_REPOSITORY_URL=git@example.com:a/b.git"}, nil)
	if err != nil || got.Repository.Scheme() != "ssh" {
		t.Errorf("without a file: %+v, %v", got, err)
	}
}

// TestMistakes has one mistake each; %s stands for the file.
func TestMistakes(t *testing.T) {
	tests := []struct{ name, content, want string }{
		{"no YAML", "a: [", `%s:1: is no YAML: `},
		{"a tab", head + "batch:\n\tquiet: 1s\n", `%s:6: is no YAML: `},
		{"empty", "# nothing\n", `%s: is empty; it starts with apiVersion: crmirror.dev/v1alpha1, kind: Config`},
		{"two documents", head + "---\nkind: Config\n", `%s:5: holds a second document; it must be one`},
		{"a list", "- a\n", "%s:1: is a list, want keys and values"},
		{"unknown key", head + "Mode: mirror\n", `%s:5: unknown key "Mode" (did you mean "mode"?)`},
		{"unknown key without a near one", head + "colour: red\n", `%s:5: unknown key "colour"`},
		{"unknown key within", head + "batch:\n  quiet: 1s\n  maxObject: 3\n", `%s:7: batch: unknown key "maxObject" (did you mean "maxObjects"?)`},
		{"unknown key in a rule", head + "select:\n- resources: ['*']\n  namespace: [a]\n", `%s:7: select[0]: unknown key "namespace" (did you mean "namespaces"?)`},
		{"shape in exclude", head + "exclude: [{resources: [a.b], drop: [.a]}]\n", `%s:5: exclude[0]: unknown key "drop"`},
		{"duplicate key", head + "mode: mirror\nlog: {}\nmode: mirror\n", `%s:7: mode: stands here twice, first on line 5`},
		{"odd key", head + "? [a]\n: b\n", `%s:5: holds a key that is a list`},
		{"merge key", head + "<<: {mode: mirror}\n", `%s:5: unknown key "<<"`},
		{"list for text", head + "mode: [mirror]\n", `%s:5: mode: is a list, want text`},
		{"number for text", head + "context: 12\n", `%s:5: context: 12 is not text to YAML; put it in quotes`},
		{"text for list", head + "select:\n- resources: '*'\n", `%s:6: select[0].resources: is a single value, want a list`},
		{"map in a list of texts", head + "select:\n- resources:\n  - a: b\n", `%s:7: select[0].resources[0]: is a map, want text`},
		{"text for number", head + "batch: {maxObjects: many}\n", `%s:5: batch.maxObjects: is text, want a whole number`},
		{"float for number", head + "batch: {maxObjects: 1.5}\n", `%s:5: batch.maxObjects: "1.5" is no whole number`},
		{"text for bool", head + "include: {crds: yes}\n", `%s:5: include.crds: is text, want true or false`},
		{"duration without unit", head + "batch: {quiet: 2}\n", `%s:5: batch.quiet: "2" is no duration; write it like 30s, 5m or 1h30m`},
		{"map for a duration", head + "batch: {quiet: {}}\n", `%s:5: batch.quiet: is a map, want a duration like 30s`},
		{"version", strings.Replace(head, "v1alpha1", "v1", 1), `%s:1: apiVersion: is "crmirror.dev/v1", want crmirror.dev/v1alpha1`},
		{"no kind", strings.Replace(head, "kind: Config\n", "", 1), `%s: kind: is "", want Config`},
		{"no cluster", strings.Replace(head, "cluster: prod-eu1\n", "", 1), `%s: cluster: is missing: a name for the cluster, for commits, refs and reports`},
		{"cluster", strings.Replace(head, "prod-eu1", "Prod", 1), `%s:3: cluster: "Prod" is no name: a-z, 0-9 and -, at most 63 characters, a letter or digit at both ends`},
		{"two-way in a repository of one's own", head + "mode: two-way\n", `%s:4: repository.url: mode two-way moves branch and refs together`},
		{"mode", head + "mode: miror\n", `%s:5: mode: is "miror", want mirror, two-way (did you mean "mirror"?)`},
		{"refs", strings.Replace(head, "./backup", "./b, refs: heads/x", 1), `%s:4: repository.refs: "heads/x" is no beginning of a ref's name; write refs/crmirror`},
		{"no url", strings.Replace(head, "url: ./backup", "branch: main", 1), `%s:4: repository.url: is missing: `},
		{"scheme", strings.Replace(head, "./backup", "git://a/b", 1), `%s:4: repository.url: git:// is not supported; use ssh, https, http or file, or a plain path`},
		{"no host", strings.Replace(head, "./backup", "https:///b", 1), `%s:4: repository.url: names no host`},
		{"invalid url", strings.Replace(head, "./backup", "'https://a b/%zz'", 1), `%s:4: repository.url: is no valid URL`},
		{"line break in url", strings.Replace(head, "./backup", `"a\nb"`, 1), `%s:4: repository.url: holds a control character`},
		{"branch", strings.Replace(head, "./backup", "./b, branch: 'a..b'", 1), `%s:4: repository.branch: "a..b" is no name of a branch`},
		{"full branch", strings.Replace(head, "./backup", "./b, branch: refs/heads/main", 1), `%s:4: repository.branch: "refs/heads/main" is no name of a branch; write it as "main"`},
		{"path", strings.Replace(head, "./backup", "./b, path: /a", 1), `%s:4: repository.path: "/a" is no path within a repository; `},
		{"path upwards", strings.Replace(head, "./backup", "./b, path: ../a", 1), `%s:4: repository.path: "../a" is no path`},
		{"path into .git", strings.Replace(head, "./backup", "./b, path: a/.GIT", 1), `%s:4: repository.path: "a/.GIT" is no path`},
		{"author", strings.Replace(head, "./backup", "./b, author: {name: 'a<b'}", 1), `%s:4: repository.author.name: "a<b" cannot stand in a commit`},
		{"key for a path", strings.Replace(head, "./backup", "./b, auth: {sshKeyFile: a}", 1), `%s:4: repository.auth.sshKeyFile: is for ssh, but repository.url is a plain path`},
		{"key for https", strings.Replace(head, "./backup", "'https://h/b', auth: {sshKeyFile: a}", 1), `%s:4: repository.auth.sshKeyFile: is for ssh, but repository.url is https`},
		{"insecure https", strings.Replace(head, "./backup", "'https://h/b', auth: {insecureHTTP: true}", 1), `%s:4: repository.auth.insecureHTTP: is for http, but repository.url is https`},
		{"two credentials", strings.Replace(head, "./backup", "'https://h/b', auth: {tokenFile: a, bearerTokenFile: b}", 1), `%s:4: repository.auth.bearerTokenFile: is set besides tokenFile; keep one of them`},
		{"password without user", strings.Replace(head, "./backup", "'https://h/b', auth: {passwordFile: a}", 1), `%s:4: repository.auth.passwordFile: needs username too`},
		{"no rules", head + "select: []\n", `%s:5: select: selects nothing; `},
		{"rule without resources", head + "select:\n- names: [a]\n", `%s:6: select[0].resources: names no resource; `},
		{"resource", head + "select:\n- resources:\n  - a.b\n  - Certificates\n", `%s:8: select[0].resources[1]: "Certificates": `},
		{"glob", head + "exclude:\n- resources: [a.b]\n  namespaces: ['[']\n", `%s:7: exclude[0].namespaces[0]: "[" is no glob: `},
		{"label selector", head + "select:\n- resources: ['*']\n  labelSelector: 'a in'\n", `%s:7: select[0].labelSelector: `},
		{"field path", head + "select:\n- resources: ['*']\n  drop:\n  - .a\n  - .a[\n", `%s:9: select[0].drop[1]: field path ".a["`},
		{"redact without a key", head + "select:\n- resources: ['*']\n  redact: [.a]\n", `%s:7: select[0].redact: needs a key: set redaction.keyFile`},
		{"key that is missing", head + "select:\n- resources: ['*']\n  redact: [.a]\nredaction: {keyFile: /nonexistent}\n", `%s:8: redaction.keyFile: /nonexistent: cannot be read: no such file or directory`},
		{"short key", head + "redaction: {keyFile: /dev/null}\n", `%s:5: redaction.keyFile: /dev/null: holds 0 bytes, want at least 16; `},
		{"max below quiet", head + "batch: {quiet: 1m}\n", `%s:5: batch.max: is 30s, want at least 1m0s`},
		{"negative duration", head + "batch: {quiet: -1s}\n", `%s:5: batch.quiet: is -1s, want at least 0s`},
		{"no objects", head + "batch: {maxObjects: 0}\n", `%s:5: batch.maxObjects: is 0, want at least 1`},
		{"negative guard", head + "guard: {maxDeleteObjects: -1}\n", `%s:5: guard.maxDeleteObjects: is -1, want 0 or more`},
		{"percent", head + "guard: {maxDeletePercent: 101}\n", `%s:5: guard.maxDeletePercent: is 101, want 0 to 100`},
		{"cron", head + "schedule:\n  resync: daily\n", `%s:6: schedule.resync: "daily" is no schedule: `},
		{"cron time zone", head + "schedule: {resync: 'TZ=x'}\n", `%s:5: schedule.resync: "TZ=x" is no schedule: a time zone cannot be set here; `},
		{"log level", head + "log: {level: warning}\n", `%s:5: log.level: is "warning", want error, warn, info, debug`},
		{"leader election in a repository of one's own", head + "leaderElection: {enabled: true}\n", `%s:5: leaderElection.enabled: a repository of your own is locked by the agent that has it open`},
		{"name of the lease", head + "leaderElection: {name: a_b}\n", `%s:5: leaderElection.name: "a_b" is no name: `},
		{"fractions of a second", head + "leaderElection: {leaseDuration: 1500ms}\n", `%s:5: leaderElection.leaseDuration: is 1.5s, want whole seconds, at least 1s`},
		{"deadline beyond the lease", head + "leaderElection: {renewDeadline: 15s}\n", `%s:5: leaderElection.renewDeadline: is 15s, want less than leaseDuration (15s)`},
		{"one try only", head + "leaderElection: {retryPeriod: 6s}\n", `%s:5: leaderElection.retryPeriod: is 6s, want at most half of renewDeadline (10s)`},
		{"listen", head + "health: {listen: '8080'}\n", `%s:5: health.listen: "8080" is no address; write it like :8080 or 127.0.0.1:8080`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parse("config.yaml", []byte(tt.content), nil, nil)
			var errs Errors
			if !errors.As(err, &errs) || len(errs) != 1 {
				t.Fatalf("got %d mistakes, want one:\n%v", len(errs), err)
			}
			if want := strings.Replace(tt.want, "%s", "config.yaml", 1); !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got  %s\nwant %s", err, want)
			}
		})
	}
}

func TestAllMistakesAtOnce(t *testing.T) {
	content := "apiVersion: v1\ncluster: A\nmode: both\nrepositry: {}\nbatch:\n  quiet: soon\n  maxObjects: 0\nselect:\n- resources: [a/b]\n"
	_, err := parse("c.yaml", []byte(content), []string{"CRMIRROR_GUARD_MAX_DELETE_PERCENT=all", "CRMIRROR_MODES=x"}, []Override{{Path: "log.level", Value: "loud", Source: "--log-level"}})
	var got []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		parts := strings.SplitN(line, ": ", 3)
		got = append(got, parts[0]+" "+parts[1])
	}
	want := []string{
		"c.yaml kind", "c.yaml repository.url", "c.yaml:1 apiVersion", "c.yaml:2 cluster", "c.yaml:3 mode", `c.yaml:4 unknown key "repositry" (did you mean "repository"?)`,
		"c.yaml:6 batch.quiet", "c.yaml:7 batch.maxObjects", "c.yaml:9 select[0].resources[0]",
		`CRMIRROR_MODES sets no key of the configuration (did you mean "CRMIRROR_MODE"?)`, "CRMIRROR_GUARD_MAX_DELETE_PERCENT guard.maxDeletePercent", "--log-level log.level",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mistakes (-want +got):\n%s\n%v", diff, err)
	}
}

func TestOverridesThatCannotBe(t *testing.T) {
	for _, o := range []Override{{Path: "modes", Value: "x"}, {Path: "batch", Value: "x"}, {Path: "exclude", Value: "x"}, {Path: "batch.quiet.x", Value: "1s"}} {
		o.Source = "--x"
		_, err := Load(write(t, head), nil, []Override{o})
		if err == nil || !strings.HasPrefix(err.Error(), "--x: "+o.Path+": ") {
			t.Errorf("override of %s: %v", o.Path, err)
		}
	}
	if _, err := Load("/nonexistent.yaml", nil, nil); err == nil || err.Error() != "/nonexistent.yaml: cannot be read: no such file or directory" {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestURLWithCredentialIsRefusedUnseen(t *testing.T) {
	for _, url := range []string{"https://me:s3cret@h/b", "https://s3cret@h/b", "http://:s3cret@h/b", "ssh://git:s3cret@h/b"} {
		_, err := parse("c.yaml", []byte(strings.Replace(head, "./backup", "'"+url+"'", 1)), nil, nil)
		if err == nil || !strings.Contains(err.Error(), "repository.url: holds a credential") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, url := range []string{"ssh://git@h/b", "git@h:b", "https://h/b", "file:///b", "/b", "b", "C:/b", "a:b@c"} {
		if _, err := parse("c.yaml", []byte(strings.Replace(head, "./backup", "'"+url+"'", 1)), nil, nil); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestEnvName(t *testing.T) {
	for path, want := range map[string]string{
		"cluster":                      "CRMIRROR_CLUSTER",
		"repository.auth.sshKeyFile":   "CRMIRROR_REPOSITORY_AUTH_SSH_KEY_FILE",
		"repository.auth.insecureHTTP": "CRMIRROR_REPOSITORY_AUTH_INSECURE_HTTP",
		"guard.maxDeleteObjects":       "CRMIRROR_GUARD_MAX_DELETE_OBJECTS",
	} {
		if got := EnvName(path); got != want {
			t.Errorf("EnvName(%q) = %q, want %q", path, got, want)
		}
	}
	seen := map[string]bool{}
	for _, path := range Paths() {
		if name := EnvName(path); seen[name] || serviceLink.MatchString(name) {
			t.Errorf("%s: %s is taken", path, name)
		} else {
			seen[name] = true
		}
	}
}

func TestAliases(t *testing.T) {
	got, err := parse("c.yaml", []byte(head+"select:\n- resources: &r [a.b]\n- resources: *r\n"), nil, nil)
	if err != nil || got.Select[1].Resources[0] != "a.b" {
		t.Errorf("an alias: %+v, %v", got, err)
	}
	bomb := head + "select:\n- resources: &r [" + strings.Repeat("a.b,", 5000) + "]\n" + strings.Repeat("- resources: *r\n", 5000)
	if _, err := parse("c.yaml", []byte(bomb), nil, nil); err == nil || !strings.Contains(err.Error(), "the configuration is too large") {
		t.Errorf("a bomb of aliases: %.200v", err)
	}
}

func FuzzConfig(f *testing.F) {
	full, err := os.ReadFile(filepath.Join("testdata", "full.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(full), "10s")
	f.Add(head, "CRON_TZ=")
	f.Add(head+"select: &a [*a]\n", "")
	f.Add("a: [", "[")
	f.Fuzz(func(t *testing.T, content, value string) {
		if strings.Contains(content, "keyFile") {
			return // it would read files
		}
		var flags []Override
		for _, path := range append(Paths(), "select") {
			if path != "redaction.keyFile" {
				flags = append(flags, Override{Path: path, Value: value, Source: "--flag"})
			}
		}
		for _, overrides := range [][]Override{nil, flags} {
			c, err := parse("c.yaml", []byte(content), nil, overrides)
			var errs Errors
			_ = errors.As(err, &errs)
			if (c == nil) != (len(errs) > 0) || (err == nil) != (c != nil) {
				t.Fatalf("config %v with error %v", c, err)
			}
			lines := strings.Count(content, "\n") + strings.Count(content, "\r") + 2
			for _, e := range errs {
				if e.Line < 0 || e.Line > lines {
					t.Errorf("%v: the content has %d lines", e, lines)
				}
			}
		}
	})
}

// TestRespectedByDefault: the managers of the tools that the README names.
func TestRespectedByDefault(t *testing.T) {
	cfg, err := Load(write(t, head), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"argocd-controller", "kustomize-controller", "helm", "helm-controller", "kluctl"}
	if diff := cmp.Diff(want, cfg.Apply.RespectManagers); diff != "" {
		t.Errorf("respectManagers (-want +got):\n%s", diff)
	}
}

// On another machine than the agent's the redaction key may be missing, and nothing else.
func TestLoadElsewhere(t *testing.T) {
	file := write(t, head+"redaction: {keyFile: /elsewhere/key}\nselect: [{resources: [a.b.dev], redact: [.spec.token]}]\n")
	if _, err := Load(file, nil, nil); err == nil {
		t.Error("Load: got no error, want one about the key")
	}
	c, err := LoadElsewhere(file, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	selection := c.Selection()
	if _, err := selection.Compile(); err != nil {
		t.Error(err)
	}
	if _, err := LoadElsewhere(write(t, head+"mode: both\n"), nil, nil); err == nil {
		t.Error("LoadElsewhere: got no error for a mode that is none")
	}
}
