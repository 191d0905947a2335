package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/crmirror/crmirror/cmd/internal/config"
	"github.com/crmirror/crmirror/sync"
)

func (a *app) approveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "approve DIGEST",
		Short: "Let held deletions through",
		Long: `Let exactly those deletions through whose list has this digest. The agent's log and the report of backup name the
digest; the list itself stands in the repository, in refs/crmirror/<id>/held.

The agent carries them out at its next look at the remote, backup when it runs next. An object that is there again
by then keeps its file.`,
		Example: `  crmirror approve 3f2a9c0d1e4b --config crmirror.yaml`,
		Args:    cobra.ExactArgs(1),
	}
	flags := a.addConfigFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := a.load(flags)
		if err != nil {
			return err
		}
		return a.approve(cmd.Context(), cfg, args[0])
	}
	return cmd
}

func (a *app) approve(ctx context.Context, cfg *config.Config, digest string) (err error) {
	s := &session{cfg: withOwnCache(cfg, "approve"), log: newLogger(cfg.Log, a.env.stderr), shared: true}
	if err := a.openStore(ctx, s); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.store.Close()) }()
	set, err := sync.Approve(ctx, s.store, s.refs, digest)
	if err != nil {
		return err
	}
	for i, h := range set {
		if i == listed {
			fmt.Fprint(a.env.stdout, clean("and %d more\n", len(set)-i))
			break
		}
		fmt.Fprint(a.env.stdout, clean("%s\n", h.Key))
	}
	_, err = fmt.Fprint(a.env.stdout, clean("%d deletions of %s approved.\n", len(set), cfg.Cluster))
	return err
}

// withOwnCache gives a command that is run beside the agent a clone of its own:
// the agent's is locked.
func withOwnCache(cfg *config.Config, command string) *config.Config {
	own := *cfg
	if dir, err := cacheDir(cfg); err == nil && !cfg.Repository.IsPath() {
		if cfg.CacheDir != "" { // another time it may be named for another repository
			command += "-" + repositoryDigest(cfg)
		}
		own.CacheDir = filepath.Join(dir, command)
	}
	own.Repository.Worktree = false
	return &own
}

func (a *app) adoptCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "adopt",
		Short: "Let this cluster take over a path that belongs to another one",
		Long: `Let this cluster take over a path in git that belongs to another one: after a disaster, say, when the cluster is a new
one of the same name. Nothing is deleted for it: what git has and this cluster lacks is held until it is approved; the
next backup, or the agent, lists it.

In mode two-way it also takes the branch as it is, after it was rewound or rewritten, or after all files below the path
went from it. What a rewound branch has otherwise than the cluster then counts as changed in git; to an emptied one the
agent, or crmirror apply, commits what the cluster has.`,
		Example: `  crmirror adopt --config crmirror.yaml`,
		Args:    cobra.NoArgs,
	}
	flags := a.addConfigFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := a.load(flags, config.Override{Path: "log.level", Value: "warn", Source: "the default of adopt", Default: true})
		if err != nil {
			return err
		}
		return a.adopt(cmd.Context(), cfg)
	}
	return cmd
}

func (a *app) adopt(ctx context.Context, cfg *config.Config) (err error) {
	s, err := a.open(ctx, withOwnCache(cfg, "adopt"), 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.store.Close()) }()
	done, err := s.mirror.Adopt(ctx, time.Now())
	switch {
	case err != nil:
		return err
	case done.Rewound:
		_, err = fmt.Fprint(a.env.stdout, clean("Took the branch as it is now. What it has otherwise than the cluster counts as changed in git.\n"))
	case done.Emptied:
		_, err = fmt.Fprint(a.env.stdout, clean("Took the branch as it is now, without files. The agent, or crmirror apply, commits what the cluster has.\n"))
	case done.Already:
		_, err = fmt.Fprint(a.env.stdout, clean("Nothing to adopt: the path is this cluster's.\n"))
	default:
		_, err = fmt.Fprint(a.env.stdout, clean("Adopted %d files in commit %.12s; before, they were of cluster %q.\n"+
			"What this cluster lacks of them is held until you approve it.\n", done.Files, done.Commit, done.Name))
	}
	return err
}

func (a *app) configCommand() *cobra.Command {
	check := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration file: all mistakes at once",
		Args:  usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := config.Load(args[0], a.env.environ, nil); err != nil {
				return err
			}
			_, err := fmt.Fprint(cmd.OutOrStdout(), clean("%s is fine.\n", args[0]))
			return err
		},
	}
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check a configuration file",
		Args:  onlyCommands,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(check)
	return cmd
}
