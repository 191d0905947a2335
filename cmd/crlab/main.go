// Command crlab is the lab: it starts a real Kubernetes API server and a git
// server on this machine, loads custom resources, and runs until it is told to
// stop.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"
)

// errUsage marks errors of the command line.
var errUsage = errors.New("wrong usage")

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit code: 0 done, 1 error, 2 wrong usage, 130 told to stop
// before the lab was ready.
func run(args []string, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// After the first signal the second one ends us at once; the servers end too,
	// see package reaper.
	context.AfterFunc(ctx, stop)

	klog.LogToStderr(false) // what client-go wants to tell is in the errors it returns
	klog.SetOutput(io.Discard)
	command := newCommand(out)
	command.SetArgs(args)
	command.SetOut(out)
	command.SetErr(errOut)
	err := command.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(errOut, "crlab: stopped before the lab was ready")
		return 130
	case errors.Is(err, errUsage):
		fmt.Fprintf(errOut, "crlab: %v\nType \"crlab --help\".\n", err)
		return 2
	}
	fmt.Fprintf(errOut, "crlab: %v\n", err)
	return 1
}
