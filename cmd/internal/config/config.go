// Package config reads crmirror's configuration: defaults, then the file, then
// CRMIRROR_* variables, then flags, strictly and with all mistakes at once.
// It knows what a configuration means, not what is done with it.
package config

import (
	"strconv"
	"time"

	"github.com/crmirror/crmirror/kube"
)

// What apiVersion and kind of the file must be.
const (
	APIVersion = "crmirror.dev/v1alpha1"
	Kind       = "Config"
)

// Config is the whole configuration. The yaml tags are the keys of the file;
// Paths lists them, EnvName says which variable sets one.
type Config struct {
	APIVersion     string         `yaml:"apiVersion"`
	Kind           string         `yaml:"kind"`
	Cluster        string         `yaml:"cluster"`    // [a-z0-9-]; names the cluster in commits, refs and reports; required
	Mode           string         `yaml:"mode"`       // "mirror" (default) or "two-way"
	Kubeconfig     string         `yaml:"kubeconfig"` // "" = as kubectl finds it, or in-cluster
	Context        string         `yaml:"context"`    // of the kubeconfig; "" = its current one
	CacheDir       string         `yaml:"cacheDir"`   // holds the clone of a remote; "" = the user's cache folder
	Repository     Repository     `yaml:"repository"`
	Select         []Rule         `yaml:"select"` // the first that matches an object governs it; default: every custom resource
	Exclude        []Matcher      `yaml:"exclude"`
	Include        Include        `yaml:"include"`
	Redaction      Redaction      `yaml:"redaction"`
	Batch          Batch          `yaml:"batch"`
	Apply          Apply          `yaml:"apply"`
	Guard          Guard          `yaml:"guard"`
	Schedule       Schedule       `yaml:"schedule"`
	Log            Log            `yaml:"log"`
	Health         Health         `yaml:"health"`
	LeaderElection LeaderElection `yaml:"leaderElection"`
	Timeouts       Timeouts       `yaml:"timeouts"`

	selection kube.Selection
	places    *places
}

// Repository is where the files go.
type Repository struct {
	URL      string `yaml:"url"`      // ssh, https, http or file URL, or a plain path; required
	Branch   string `yaml:"branch"`   // "" = the remote's default branch, main in an empty one
	Path     string `yaml:"path"`     // slash path; everything crmirror owns lies below it; "" = the whole tree
	Refs     string `yaml:"refs"`     // what the names of our own refs begin with; default refs/crmirror
	Worktree bool   `yaml:"worktree"` // of a URL: keep the files on disk for people and sidecars; default true
	Auth     Auth   `yaml:"auth"`
	Author   Author `yaml:"author"`
}

// Auth names the files that hold credentials; they are read at each connection,
// so that a rotated one is taken up. No credential stands in the configuration.
type Auth struct {
	SSHKeyFile           string `yaml:"sshKeyFile"`
	SSHKeyPassphraseFile string `yaml:"sshKeyPassphraseFile"`
	KnownHostsFile       string `yaml:"knownHostsFile"` // "" = the user's known_hosts
	Username             string `yaml:"username"`
	PasswordFile         string `yaml:"passwordFile"`
	TokenFile            string `yaml:"tokenFile"`       // sent as the password; username as given, or one that the forges accept
	BearerTokenFile      string `yaml:"bearerTokenFile"` // sent as "Authorization: Bearer"
	CAFile               string `yaml:"caFile"`          // PEM, besides the system's
	InsecureHTTP         bool   `yaml:"insecureHTTP"`    // send credentials over plain http to other machines too
}

// Author is who commits.
type Author struct {
	Name  string `yaml:"name"`
	Email string `yaml:"email"`
}

// Matcher matches objects: every field that is set must match.
type Matcher struct {
	Resources         []string `yaml:"resources"` // required
	Namespaces        []string `yaml:"namespaces"`
	ExcludeNamespaces []string `yaml:"excludeNamespaces"`
	LabelSelector     string   `yaml:"labelSelector"`
	Names             []string `yaml:"names"`
}

// Rule matches objects and says what of them is stored.
type Rule struct {
	Matcher   `yaml:",inline"`
	SkipOwned bool     `yaml:"skipOwned"`
	Status    bool     `yaml:"status"`
	Drop      []string `yaml:"drop"`
	Redact    []string `yaml:"redact"`
}

// Include says what is mirrored for the sake of the selected objects.
type Include struct {
	CRDs       bool `yaml:"crds"`       // the CRDs of mirrored resources; default true
	Namespaces bool `yaml:"namespaces"` // the Namespaces that hold mirrored objects; default true
}

// Redaction holds the key of redacted values.
type Redaction struct {
	KeyFile string `yaml:"keyFile"` // at least 16 bytes; required by redact
}

// Batch says when a commit is made.
type Batch struct {
	Quiet      time.Duration `yaml:"quiet"`      // when nothing changed for so long; default 2s
	Max        time.Duration `yaml:"max"`        // so long after the first change at the latest; default 30s
	MaxObjects int           `yaml:"maxObjects"` // or when so many objects changed; default 1000
}

// Apply is for mode two-way.
type Apply struct {
	Poll             time.Duration `yaml:"poll"`             // how often the remote is asked; default 30s
	Prune            bool          `yaml:"prune"`            // a file deleted in git deletes its object
	RemoveFinalizers bool          `yaml:"removeFinalizers"` // a finalizer removed in git is removed from the object
	RespectManagers  []string      `yaml:"respectManagers"`  // field managers whose fields are never taken
}

// Guard limits what is deleted within ten minutes without approval.
type Guard struct {
	MaxDeleteObjects int `yaml:"maxDeleteObjects"` // per resource and in all; default 50; 0: none
	MaxDeletePercent int `yaml:"maxDeletePercent"` // of the files, from ten deletions on; default 30; 100: any
}

// Schedule holds cron expressions, or "@every 6h"; "" switches one off.
type Schedule struct {
	Resync      string `yaml:"resync"`      // default "@every 6h"
	SnapshotTag string `yaml:"snapshotTag"` // default ""
	Maintenance string `yaml:"maintenance"` // default "@daily"
}

// Log says how the agent logs.
type Log struct {
	Level  string `yaml:"level"`  // error, warn, info (default) or debug
	Format string `yaml:"format"` // text (default) or json
}

// Health is the agent's HTTP endpoint for probes.
type Health struct {
	Listen string `yaml:"listen"` // ":8080"; "" (default) = none
	Pprof  bool   `yaml:"pprof"`  // serve Go's profiles there too; default false
}

// LeaderElection lets one of several agents of the same path work, and the others stand by.
type LeaderElection struct {
	Enabled       bool          `yaml:"enabled"`       // default false
	Namespace     string        `yaml:"namespace"`     // of the Lease; "" = the pod's own, or the kubeconfig's
	Name          string        `yaml:"name"`          // of the Lease; "" = LeaseName's
	LeaseDuration time.Duration `yaml:"leaseDuration"` // others take over so long after the last renewal; whole seconds, default 15s
	RenewDeadline time.Duration `yaml:"renewDeadline"` // the leader gives up so long after it; default 10s
	RetryPeriod   time.Duration `yaml:"retryPeriod"`   // between renewals, and tries; default 2s
}

// Timeouts bound what can hang.
type Timeouts struct {
	Git        time.Duration `yaml:"git"`        // one network operation; default 2m
	Kubernetes time.Duration `yaml:"kubernetes"` // one request that is no watch; default 30s
	Grace      time.Duration `yaml:"grace"`      // the last flush after a signal; default 20s
}

// defaults returns the configuration that everything else is laid over.
func defaults() *Config {
	return &Config{
		APIVersion: APIVersion,
		Kind:       Kind,
		Mode:       ModeMirror,
		Repository: Repository{Refs: "refs/crmirror", Worktree: true, Author: Author{Name: "crmirror", Email: "crmirror@localhost"}},
		Select:     []Rule{{Matcher: Matcher{Resources: []string{"*"}}}},
		Include:    Include{CRDs: true, Namespaces: true},
		Batch:      Batch{Quiet: 2 * time.Second, Max: 30 * time.Second, MaxObjects: 1000},
		Apply: Apply{
			Poll:            30 * time.Second,
			RespectManagers: []string{"argocd-controller", "kustomize-controller", "helm", "helm-controller", "kluctl"},
		},
		Guard:          Guard{MaxDeleteObjects: 50, MaxDeletePercent: 30},
		Schedule:       Schedule{Resync: "@every 6h", Maintenance: "@daily"},
		LeaderElection: LeaderElection{LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second},
		Log:            Log{Level: "info", Format: "text"},
		Timeouts:       Timeouts{Git: 2 * time.Minute, Kubernetes: 30 * time.Second, Grace: 20 * time.Second},
	}
}

// Modes of a configuration.
const (
	ModeMirror = "mirror"
	ModeTwoWay = "two-way"
)

// Selection returns the rules for the cluster side, with the redaction key that
// was read when the configuration was loaded.
func (c *Config) Selection() kube.Selection { return c.selection }

// Place returns where a key was set, for people: "crmirror.yaml:12", "--resources", or "the defaults".
// path is as in Error; a key that nothing set is where its parent was.
func (c *Config) Place(path string) string {
	at := c.places.at(path)
	switch {
	case at.line > 0:
		return at.source + ":" + strconv.Itoa(at.line)
	case at.source == "" || at.source == c.places.file:
		return "the defaults"
	}
	return at.source
}
