package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes, as the README promises them.
const (
	exitDone        = 0
	exitError       = 1
	exitUsage       = 2 // wrong usage or config
	exitDifferences = 3 // done, but something is held, refused or cannot be read
	exitInterrupted = 130
)

// environment is what a run gets from its process.
type environment struct {
	args           []string
	stdout, stderr io.Writer
	environ        []string
}

// usageError is a mistake in how crmirror was called.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// errDifferences ends a command that did its work and told what is not clean.
var errDifferences = errors.New("done, but with differences")

// run executes one command line and returns the exit code.
func run(ctx context.Context, env environment) int {
	out := &watched{Writer: env.stdout}
	env.stdout = out
	root := rootCommand(env)
	root.SetArgs(env.args[1:])
	root.SetOut(env.stdout)
	root.SetErr(env.stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !out.wrote && wantsJSON(cmd) {
		err = errors.Join(err, writeJSON(out, newFailure(ctx, cmd.Name(), err)))
	}
	var usage *usageError
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errDifferences):
		return exitDifferences
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(env.stderr, "crmirror: interrupted; run it again to go on")
		return exitInterrupted
	}
	fmt.Fprintln(env.stderr, "crmirror: "+explain(err, readsOnly(cmd.Name())))
	if errors.As(err, &usage) || isConfigError(err) {
		return exitUsage
	}
	return exitError
}

func rootCommand(env environment) *cobra.Command {
	root := &cobra.Command{
		Use:         "crmirror",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: commandName(env.args[0])},
		Short:       "Keep Kubernetes custom resources and a git repository in step",
		Long: `crmirror keeps Kubernetes custom resources and a git repository in step.

  crmirror backup --repo ./backup       one backup of every custom resource, into a repository
  crmirror run --config crmirror.yaml   the agent: every change becomes a pushed commit
  crmirror restore --repo ./backup      the cluster is lost: everything back, and proven

It finds the cluster as kubectl does.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          usageArgs(onlyCommands),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		// Not in the commands, so that none can be without it.
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return emptyFlags(cmd.Flags()) },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w; see %s --help", err, cmd.CommandPath())
	})
	app := &app{env: env}
	for _, cmd := range []*cobra.Command{
		app.runCommand(), app.backupCommand(), app.applyCommand(), app.restoreCommand(), app.verifyCommand(), app.diffCommand(), app.logCommand(), app.explainCommand(), app.conflictsCommand(), app.resolveCommand(), app.approveCommand(), app.adoptCommand(), app.rbacCommand(), app.configCommand(), app.versionCommand(),
	} {
		cmd.Args = usageArgs(cmd.Args)
		root.AddCommand(cmd)
	}
	return root
}

// commandName is how the user called us: also as a kubectl plugin.
func commandName(arg0 string) string {
	if strings.HasPrefix(filepath.Base(arg0), "kubectl-") {
		return "kubectl crmirror"
	}
	return "crmirror"
}

// onlyCommands refuses an argument where a command was to come, and names those
// that may have been meant.
func onlyCommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q", cmd.CommandPath()+" "+args[0])
	cmd.SuggestionsMinimumDistance = 2 // letters that may be wrong
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += fmt.Sprintf(" (did you mean %q?)", strings.Join(near, ", "))
	}
	return errors.New(text)
}

// usageArgs lets a wrong number of arguments end with the exit code for usage.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if check == nil {
			return nil
		}
		if err := check(cmd, args); err != nil {
			return usagef("%w; see %s --help", err, cmd.CommandPath())
		}
		return nil
	}
}

// emptyFlags finds flags that were given without a value, all at once: mostly a variable of a script that is not set.
//
// Invariant: an empty value never stands for a default, such as the newest commit, every namespace or another
// cluster (TestEmptyFlags).
func emptyFlags(flags *pflag.FlagSet) error {
	var mistakes []error
	flags.Visit(func(f *pflag.Flag) { // those that were given
		empty := f.Value.String() == ""
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values := list.GetSlice()
			empty = len(values) == 0 || slices.ContainsFunc(values, func(v string) bool { return strings.TrimSpace(v) == "" })
		}
		if empty {
			mistakes = append(mistakes, fmt.Errorf("--%s: is empty; give a value, or leave it out", f.Name))
		}
	})
	if len(mistakes) == 0 {
		return nil
	}
	return usagef("%w", errors.Join(mistakes...))
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "crmirror "+version)
			return err
		},
	}
}
