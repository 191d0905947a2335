// Command crmirror keeps Kubernetes custom resources and a git repository in step.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// version is stamped in by the Makefile.
var version = "development"

func main() {
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		stop() // the first signal: finish what is under way
		<-signals
		os.Exit(exitInterrupted) // the second: at once
	}()
	os.Exit(run(ctx, environment{
		args: os.Args, stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ(),
	}))
}
