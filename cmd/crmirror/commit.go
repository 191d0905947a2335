package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/crmirror/crmirror/cmd/internal/config"
	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/bulk"
	"github.com/crmirror/crmirror/kube/informer"
	"github.com/crmirror/crmirror/sync/restore"
)

// commitFlags are those of the commands that hold a commit against a cluster: which commit, which of its
// objects, and how they are called there.
type commitFlags struct {
	*configFlags
	at         string
	resources  []string
	namespaces []string
	names      []string
	selector   string
	maps       []string
	finalizers bool
	tracking   bool
	runsFile   string
	keyFile    string
	output     string
}

func (a *app) addCommitFlags(cmd *cobra.Command) *commitFlags {
	f := &commitFlags{configFlags: a.addConfigFlags(cmd)}
	flags := cmd.Flags()
	flags.StringVar(&f.at, "at", "", "the state at `REV`: a commit, tag, branch or date; default: the branch's newest commit")
	flags.StringSliceVar(&f.resources, "resources", nil, "only these `RESOURCES`: names as plural.group, or *.GROUP")
	flags.StringSliceVarP(&f.namespaces, "namespace", "n", nil, "only what lies in these `NAMESPACES` in git: names or globs")
	flags.StringSliceVar(&f.names, "names", nil, "only objects of these `NAMES`: names or globs")
	flags.StringVarP(&f.selector, "selector", "l", "", "only objects whose labels in git match this `SELECTOR`")
	flags.StringArrayVar(&f.maps, "map-namespace", nil, "`A=B`: what lies in namespace A in git is in B in the cluster; may be repeated")
	flags.BoolVar(&f.finalizers, "strip-finalizers", false, "leave finalizers out")
	flags.BoolVar(&f.tracking, "strip-tracking", false, "leave out labels and annotations by which other tools claim objects")
	flags.StringVar(&f.runsFile, "runs-file", "", "`FILE` with the resources that run when created, instead of the built-in list")
	flags.StringVar(&f.keyFile, "redaction-key-file", "", "`FILE` with the key of redacted values, to compare them")
	flags.StringVarP(&f.output, "output", "o", "", "report as `FORMAT`: json")
	return f
}

// options are what the flags say of a restore; the mistakes in them are added to those given.
func (f *commitFlags) options(mistakes []error) (*restore.Options, []error) {
	opts := &restore.Options{
		Resources: f.resources, Namespaces: f.namespaces, Names: f.names,
		StripFinalizers: f.finalizers, StripTracking: f.tracking,
	}
	fail := func(format string, args ...any) { mistakes = append(mistakes, fmt.Errorf(format, args...)) }
	if f.selector != "" {
		selector, err := labels.Parse(f.selector)
		if err != nil {
			fail("--selector: %w", err)
		}
		opts.Selector = selector
	}
	for _, m := range f.maps {
		from, to, ok := strings.Cut(m, "=")
		switch _, again := opts.MapNamespaces[from]; {
		case !ok || from == "" || to == "":
			fail("--map-namespace: %q is not of the form A=B", m)
			continue
		case again:
			fail("--map-namespace: %s is mapped twice", from)
			continue
		}
		if opts.MapNamespaces == nil {
			opts.MapNamespaces = map[string]string{}
		}
		opts.MapNamespaces[from] = to
	}
	if f.runsFile != "" {
		runs, err := readRuns(f.runsFile)
		if err != nil {
			fail("--runs-file: %w", err)
		}
		opts.Runs = runs
	}
	if err := opts.Check(); err != nil {
		for text := range strings.Lines(err.Error()) {
			fail("--%s", strings.TrimSpace(text))
		}
	}
	return opts, mistakes
}

func readRuns(path string) (_ []string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	runs, err := restore.ReadRuns(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return runs, nil
}

// loadFor reads the configuration of a command that takes commitFlags, and puts what it says into
// the options. Mistakes in the flags are told with its own, all at once.
func (a *app) loadFor(f *commitFlags, command string, opts *restore.Options, mistakes []error) (*config.Config, error) {
	defaults := []config.Override{{Path: "log.level", Value: "warn", Source: "the default of " + command, Default: true}}
	if f.keyFile != "" {
		defaults = append(defaults, config.Override{Path: "redaction.keyFile", Value: f.keyFile, Source: "--redaction-key-file"})
	}
	cfg, err := a.load(f.configFlags, defaults...)
	if err != nil {
		return nil, errors.Join(append(mistakes, err)...)
	}
	if len(mistakes) > 0 {
		return nil, usagef("%w\nsee crmirror %s --help", errors.Join(mistakes...), command)
	}
	opts.Respect = cfg.Apply.RespectManagers
	for _, rule := range cfg.Selection().Select {
		opts.RedactKey = rule.Shape.RedactKey
	}
	return withOwnCache(cfg, command), nil
}

// comparison is a commit, and the cluster that it is held against.
type comparison struct {
	*session
	at       string // as it was asked for
	info     gitstore.CommitInfo
	snapshot *restore.Snapshot
	opts     *restore.Options
	target   target
	server   string // the API server's address
}

// target is everything that restoring and verifying ask of a cluster.
type target struct {
	*bulk.Client
	*apply.Schemas
}

// openCommit opens the repository, reads what the commit has and connects to the cluster. A remote is
// cloned with all its history only if a commit is asked for. The caller closes the store.
func (a *app) openCommit(ctx context.Context, cfg *config.Config, at string, opts *restore.Options) (*comparison, error) {
	c := &comparison{
		session: &session{cfg: cfg, log: newLogger(cfg.Log, a.env.stderr), shared: true, whole: at != ""},
		at:      at, opts: opts,
	}
	informer.RouteKlog(c.log)
	conn, err := a.connection(cfg)
	if err != nil {
		return nil, err
	}
	c.server = conn.Host
	if err := a.openStore(ctx, c.session); err != nil {
		return nil, err
	}
	err = c.read(ctx)
	if err == nil {
		c.target.Client, err = bulk.New(conn, bulk.Options{Timeout: cfg.Timeouts.Kubernetes, Shaped: c.snapshot.Shaped(opts)})
	}
	if err == nil {
		c.target.Schemas, err = apply.NewSchemas(conn, cfg.Timeouts.Kubernetes)
	}
	if err != nil {
		return nil, errors.Join(err, c.store.Close())
	}
	return c, nil
}

// read finds the commit and reads what it has.
func (c *comparison) read(ctx context.Context) error {
	commit, info, err := c.commitAt(ctx, c.at)
	if err != nil {
		return err
	}
	c.info = info
	if c.snapshot, err = restore.ReadSnapshot(ctx, c.store, commit, c.opts.RedactKey); err != nil {
		return err
	}
	if len(c.snapshot.Items) == 0 && len(c.snapshot.Findings) <= 1 && c.snapshot.Tree == nil {
		return fmt.Errorf("read %s: commit %.10s has no files of crmirror there; name the path with --path", c.place(), commit)
	}
	return nil
}

// source says which commit it is: its time, and the first line of its message.
func (c *comparison) source() string {
	subject, _, _ := strings.Cut(c.info.Message, "\n")
	return fmt.Sprintf("commit %.10s of %s: %s", c.snapshot.Commit, c.info.When.Local().Format("2006-01-02 15:04:05 -0700"), subject)
}
