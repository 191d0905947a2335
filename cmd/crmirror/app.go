package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/crmirror/crmirror/cmd/internal/config"
	"github.com/crmirror/crmirror/cmd/internal/metrics"
	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube/informer"
	"github.com/crmirror/crmirror/kube/lease"
	"github.com/crmirror/crmirror/sync"
)

// app is what all commands share.
type app struct {
	env      environment
	kube     kubeFlags
	measured *metrics.Metrics // of the agent; nil for all other commands
	again    string           // see configFlags.again; known when the configuration is loaded
}

// kubeFlags are kubectl's connection flags.
type kubeFlags struct {
	kubeconfig string
	overrides  clientcmd.ConfigOverrides
}

func (k *kubeFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&k.kubeconfig, "kubeconfig", "", "kubeconfig `FILE`; default: as kubectl finds it, or the pod's service account")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	// What is mirrored is said by the selection, not by a namespace.
	names.ContextOverrideFlags.Namespace = clientcmd.FlagInfo{}
	clientcmd.BindOverrideFlags(&k.overrides, flags, names)
}

func (k *kubeFlags) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = k.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &k.overrides)
}

// configFlags are the flags that lay values over the configuration.
type configFlags struct {
	file      string
	values    map[string]*string // by the configuration's path
	resources []string
}

// addConfigFlags lets a command take a configuration file and the most used of
// its keys as flags.
func (a *app) addConfigFlags(cmd *cobra.Command) *configFlags {
	f := &configFlags{values: map[string]*string{}}
	cmd.Flags().StringVar(&f.file, "config", "", "configuration `FILE`; see the README")
	for _, flag := range flagPaths() {
		f.values[flag.path] = cmd.Flags().String(flag.name, "", flag.usage)
	}
	a.kube.add(cmd.Flags())
	return f
}

// again is what to add to another command line so that it means the same
// repository and cluster.
func (f *configFlags) again(cfg *config.Config) string {
	var b strings.Builder
	add := func(name, value string) {
		if value == "" {
			return
		}
		b.WriteString(" --" + name + " " + shellWord(value))
	}
	add("config", f.file)
	for _, flag := range flagPaths() {
		switch value := *f.values[flag.path]; {
		case flag.path == "cluster" && f.file == "":
			add(flag.name, cfg.Cluster) // else it would come from the kubeconfig of that moment
		case flag.path != "log.level":
			add(flag.name, value)
		}
	}
	return b.String()
}

// shellWord quotes a text, where it has to be, so that a shell takes it for one word.
func shellWord(text string) string {
	if !strings.ContainsAny(text, " \t'\"\\$*?&;|<>()") {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

type flagPath struct{ name, path, usage string }

func flagPaths() []flagPath {
	return []flagPath{
		{"repo", "repository.url", "repository: a `URL` (ssh, https, http, file), or the path of one of your own"},
		{"branch", "repository.branch", "`BRANCH`; default: the repository's own default branch"},
		{"path", "repository.path", "`PATH` in the repository that everything lies below; default: the whole tree"},
		{"cluster-name", "cluster", "`NAME` of the cluster in commits and refs; default: from the kubeconfig"},
		{"cache-dir", "cacheDir", "`FOLDER` for the clone of a remote repository"},
		{"token-file", "repository.auth.tokenFile", "`FILE` with a token, for https and http"},
		{"ssh-key-file", "repository.auth.sshKeyFile", "`FILE` with a private key, for ssh"},
		{"known-hosts-file", "repository.auth.knownHostsFile", "`FILE` with the ssh servers' keys; default: ~/.ssh/known_hosts"},
		{"ca-file", "repository.auth.caFile", "`FILE` with certificates to trust besides the system's"},
		{"log-level", "log.level", "`LEVEL`: error, warn, info or debug"},
	}
}

// load reads the configuration. Below file, variables and flags lie the command's
// own defaults and, without a file, a name for the cluster from the kubeconfig.
func (a *app) load(f *configFlags, defaults ...config.Override) (*config.Config, error) {
	return a.loadBy(config.Load, f, defaults)
}

// loadElsewhere is load for what is asked about an agent on another machine.
func (a *app) loadElsewhere(f *configFlags) (*config.Config, error) {
	return a.loadBy(config.LoadElsewhere, f, nil)
}

func (a *app) loadBy(load func(string, []string, []config.Override) (*config.Config, error), f *configFlags, defaults []config.Override) (*config.Config, error) {
	file := f.file
	if file == "" {
		file = a.lookup("CRMIRROR_CONFIG")
	}
	overrides := defaults
	if file == "" {
		overrides = append(overrides, config.Override{Path: "cluster", Value: a.clusterName(), Source: "the kubeconfig", Default: true})
	}
	for _, flag := range flagPaths() {
		if v := *f.values[flag.path]; v != "" {
			overrides = append(overrides, config.Override{Path: flag.path, Value: v, Source: "--" + flag.name})
		}
	}
	if len(f.resources) > 0 {
		overrides = append(overrides, config.Override{Path: "select", Value: strings.Join(f.resources, ","), Source: "--resources"})
	}
	cfg, err := load(file, a.env.environ, overrides)
	if err == nil {
		a.again = f.again(cfg)
	}
	return cfg, err
}

func (a *app) lookup(name string) string {
	for _, v := range a.env.environ {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// clusterName makes a name out of what the kubeconfig calls the cluster.
func (a *app) clusterName() string {
	const fallback = "cluster"
	raw, err := a.kube.loader().RawConfig()
	if err != nil {
		return fallback
	}
	name := raw.CurrentContext
	if context := a.kube.overrides.CurrentContext; context != "" {
		name = context
	}
	if c := raw.Contexts[name]; c != nil && c.Cluster != "" {
		name = c.Cluster
	}
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	clean = strings.Trim(clean[:min(len(clean), 63)], "-")
	if clean == "" {
		return fallback
	}
	return clean
}

// session is one command's connection to a cluster and a repository.
type session struct {
	cfg    *config.Config
	log    *logrus.Logger
	store  *gitstore.Store
	refs   sync.RefNames
	fleet  *informer.Fleet
	inbox  *sync.Inbox
	batch  *sync.Batch
	mirror *sync.Mirror
	events *events // of mode two-way
	dry    dryness // of mode two-way
	shared bool    // only refs are set, beside an agent that may be running
	whole  bool    // all of history is asked for

	lease    *lease.Lease // nil where no other agent stands by
	identity string       // of this agent, in the lease
}

// open connects to the cluster and opens the repository's local side. It does
// not speak to the remote. hold bounds how long listings keep a batch open; 0 is
// for ever.
func (a *app) open(ctx context.Context, cfg *config.Config, hold time.Duration) (*session, error) {
	return a.openAs(ctx, cfg, hold, writes)
}

// dryness is whether mode two-way writes.
type dryness int

const (
	writes    dryness = iota
	onlyAsks          // nothing is written, and the server asked what it would say to the writes
	onlyLooks         // nothing is written
)

// openAs is open; a dry run writes nothing in mode two-way.
func (a *app) openAs(ctx context.Context, cfg *config.Config, hold time.Duration, dry dryness) (*session, error) {
	s := &session{cfg: cfg, log: newLogger(cfg.Log, a.env.stderr), dry: dry}
	informer.RouteKlog(s.log)
	conn, err := a.connection(cfg)
	if err != nil {
		return nil, err
	}
	selection := cfg.Selection()
	rules, err := selection.Compile()
	if err != nil {
		return nil, err
	}
	if cfg.Mode == config.ModeTwoWay { // mode mirror only reads the cluster
		if s.events, err = newEvents(conn, s.kind, s.log); err != nil {
			return nil, err
		}
	}
	twoWay, err := s.twoWay(conn)
	if err != nil {
		return nil, err
	}
	if err := a.newLease(s, conn); err != nil {
		return nil, err
	}
	if err := a.openStore(ctx, s); err != nil {
		return nil, err
	}
	s.batch = sync.NewBatch(sync.BatchOptions{Quiet: cfg.Batch.Quiet, Max: cfg.Batch.Max, MaxObjects: cfg.Batch.MaxObjects, MaxHold: hold})
	s.inbox = sync.NewInbox(s.batch, s.log)
	var observer sync.Observer
	if a.measured != nil {
		observer = a.measured
		s.inbox.Observe(observer)
	}
	s.fleet, err = informer.New(informer.Options{
		Config: conn, Rules: rules, Sink: s.inbox, Log: s.log,
		IncludeCRDs: cfg.Include.CRDs, IncludeNamespaces: cfg.Include.Namespaces,
		RequestTimeout: cfg.Timeouts.Kubernetes,
	})
	if err != nil {
		return nil, errors.Join(err, s.store.Close())
	}
	s.mirror = sync.NewMirror(sync.Options{
		ClusterName: cfg.Cluster, Rules: rules, Tree: sync.NewTree(cfg.Cluster, selection),
		Namespaces: cfg.Include.Namespaces, CRDs: cfg.Include.CRDs,
		Guard:  sync.Limits{MaxDeleteObjects: cfg.Guard.MaxDeleteObjects, MaxDeletePercent: cfg.Guard.MaxDeletePercent},
		TwoWay: twoWay, Observer: observer, Again: a.again, Log: s.log,
		Lease: s.leaseOf(), Identity: s.identity,
	}, s.inbox, s.fleet, s.store, s.refs)
	return s, nil
}

// kind is the kind and version at which a resource is read; false while none is known.
func (s *session) kind(gr schema.GroupResource) (schema.GroupVersionKind, bool) {
	kind, _, ok := s.fleet.Kind(gr)
	version, known := s.fleet.Version(gr)
	return schema.GroupVersionKind{Group: gr.Group, Version: version, Kind: kind}, ok && known
}

// connection is how to reach the cluster: kubectl's flags, then the
// configuration, then what kubectl would take, then the pod's own account.
func (a *app) connection(cfg *config.Config) (*rest.Config, error) {
	if a.kube.kubeconfig == "" {
		a.kube.kubeconfig = cfg.Kubeconfig
	}
	if a.kube.overrides.CurrentContext == "" {
		a.kube.overrides.CurrentContext = cfg.Context
	}
	conn, err := a.kube.loader().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w; name it with --kubeconfig or --context", err)
	}
	conn.UserAgent = "crmirror/" + version
	conn.DisableCompression = near(conn.Host)
	if a.measured != nil {
		conn.Wrap(a.measured.Transport)
	}
	return conn, nil
}

// near tells whether an API server is on this machine or in its network, as it is for a
// pod: compressing what it sends would cost both sides more than it saves.
func near(host string) bool {
	if u, err := url.Parse(host); err == nil && u.Host != "" {
		host = u.Host
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsPrivate())
}

// openStore opens the repository and names our refs in it.
func (a *app) openStore(ctx context.Context, s *session) error {
	repo := s.cfg.Repository
	opts := gitstore.Options{
		Branch: repo.Branch, Path: repo.Path, Worktree: repo.Worktree,
		Auth: gitstore.Auth{
			SSHKeyFile: repo.Auth.SSHKeyFile, SSHKeyPassphraseFile: repo.Auth.SSHKeyPassphraseFile,
			SSHAgentSocket: a.lookup("SSH_AUTH_SOCK"), KnownHostsFile: repo.Auth.KnownHostsFile,
			Username: repo.Auth.Username, PasswordFile: repo.Auth.PasswordFile,
			TokenFile: repo.Auth.TokenFile, BearerTokenFile: repo.Auth.BearerTokenFile, CAFile: repo.Auth.CAFile,
			InsecureHTTP: repo.Auth.InsecureHTTP,
		},
		Author:  gitstore.Identity{Name: repo.Author.Name, Email: repo.Author.Email},
		Timeout: s.cfg.Timeouts.Git, Log: s.log,
		History: s.whole || s.cfg.Mode == config.ModeTwoWay,
	}
	if repo.IsPath() {
		opts.Dir, opts.Shared = repo.URL, s.shared
	} else {
		dir, err := cacheDir(s.cfg)
		if err != nil {
			return err
		}
		opts.URL, opts.Dir = repo.URL, dir
	}
	store, err := gitstore.Open(ctx, opts)
	if err != nil {
		return err
	}
	s.store = store
	if repo.Branch == "" && store.Head().IsZero() {
		// Our refs are named after the branch, so the remote has to say which is its default.
		if err := store.Fetch(ctx); err != nil {
			return errors.Join(err, store.Close())
		}
	}
	s.refs = sync.Refs(s.cfg.Cluster, store.Branch(), repo.Path).Below(repo.Refs)
	if err := store.KeepRefs(s.refs.All()...); err != nil {
		return errors.Join(err, store.Close())
	}
	return nil
}

// cacheDir is where the clone of a remote lies: one folder for each remote,
// branch, path and cluster, so that two agents on one machine do not share it.
func cacheDir(cfg *config.Config) (string, error) {
	if cfg.CacheDir != "" {
		return cfg.CacheDir, nil
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a folder for the clone: %w; name one with --cache-dir", err)
	}
	return filepath.Join(base, "crmirror", cfg.Cluster+"-"+repositoryDigest(cfg)), nil
}

// repositoryDigest tells remote, branch and path from others, in a few characters.
func repositoryDigest(cfg *config.Config) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{cfg.Repository.URL, cfg.Repository.Branch, cfg.Repository.Path}, "\x00")))
	return hex.EncodeToString(sum[:6])
}

// repository names the repository for people, without credentials.
func (s *session) repository() string { return s.cfg.Repository.URL }

// place names repository and path for people.
func (s *session) place() string { return placeOf(s.repository(), s.cfg.Repository.Path) }

func placeOf(repository, path string) string {
	if path == "" {
		return repository
	}
	return repository + ", below " + path
}
