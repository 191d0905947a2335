package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/crmirror/crmirror/cmd/internal/lab"
)

const help = `crlab starts a real kube-apiserver with etcd and a git server (smart HTTP with
a token, ssh with a key) with an empty repository, loads CRDs and custom
resources from folders, and runs until Ctrl-C or SIGTERM. Then it removes what
it made, unless --keep is given.

Once everything answers it writes DIR/env, which a shell can source:

  KUBECONFIG         kubeconfig of the cluster, as its administrator
  REMOTE_HTTP        the repository over HTTP; any user, the token as password
  REMOTE_TOKEN_FILE  file with that token
  REMOTE_SSH         the repository over ssh
  SSH_KEY            file with the private key for it
  KNOWN_HOSTS        known_hosts file with the server's key
  REMOTE_DIR         the bare repository itself
  KUBECONFIG_2       with --clusters 2: a second, empty cluster

kube-apiserver and etcd come from "make controlplane", or from the folder that
KUBEBUILDER_ASSETS names.`

const example = `  crlab --dir /tmp/lab --load testdata/corpus
  crlab --dir /tmp/lab --load shop/crds --load shop/objects --clusters 2`

func newCommand(out io.Writer) *cobra.Command {
	var options lab.Options
	command := &cobra.Command{
		Use:           "crlab [flags]",
		Short:         "A Kubernetes API server and a git server to try crmirror with",
		Long:          help,
		Example:       example,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("%w: unexpected argument %q", errUsage, args[0])
			}
			return nil
		},
		RunE: func(command *cobra.Command, _ []string) error {
			if options.Clusters != 1 && options.Clusters != 2 {
				return fmt.Errorf("%w: --clusters %d: must be 1 or 2", errUsage, options.Clusters)
			}
			return serve(command.Context(), options, out)
		},
	}
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return fmt.Errorf("%w: %w", errUsage, err)
	})
	flags := command.Flags()
	flags.StringVar(&options.Dir, "dir", "", "folder for everything, env included (default: a new temporary folder)")
	flags.StringArrayVar(&options.Load, "load", nil, "load all manifests below this folder; may be repeated")
	flags.IntVar(&options.Clusters, "clusters", 1, "number of API servers, 1 or 2; the second stays empty")
	flags.BoolVar(&options.Keep, "keep", false, "keep the files at the end: repository, logs, data")
	command.AddCommand(demoCommand(out))
	command.CompletionOptions.DisableDefaultCmd = true
	return command
}

// serve runs a lab until ctx ends.
func serve(ctx context.Context, options lab.Options, out io.Writer) error {
	begin := time.Now()
	options.Progress = func(line string) { fmt.Fprintln(out, line) }
	l, err := lab.Start(ctx, options)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, readyText, time.Since(begin).Round(time.Second), l.EnvFile())
	<-ctx.Done()
	fmt.Fprintln(out, "stopping")
	if err := l.Stop(); err != nil {
		return err
	}
	if options.Keep {
		fmt.Fprintf(out, "stopped; the files are in %s\n", l.Dir)
	} else {
		fmt.Fprintln(out, "stopped; nothing is left")
	}
	return nil
}

const readyText = `ready after %s. In another terminal type:

  . %s
  kubectl get crds
  crmirror backup --repo ./backup
  git -C ./backup log --stat

Ctrl-C stops the lab.
`
