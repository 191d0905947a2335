// Command bench measures crmirror beside what a user could take instead: the git
// command line, a plain LIST, a bare informer. Ours and the reference run in
// turns, in one process, on the same data; what counts is their ratio.
//
// Usage: go run ./cmd/internal/bench [-quick] [-only REGEXP] [-runs N] [-out FILE]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// scenario measures one or more rows that stand on the same data.
type scenario struct {
	name string
	run  func(context.Context, *bench) error
}

// scenarios are all that is measured, in the order of the table.
func scenarios() []scenario {
	return []scenario{
		{"first-commit", firstCommit},
		{"one-object", oneObject},
		{"flat-folder", flatFolder},
		{"batch-1000", batchCommit},
		{"backup", backup},
		{"latency", latency},
		{"sustained", sustained},
		{"memory", agentMemory},
		{"push", measurePush},
		{"push-history", measurePushHistory},
		{"start", measureStart},
		{"growth", growth},
		{"history", objectHistory},
		{"restore", measureRestore},
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 1 && args[0] == childFlag {
		return runChild(ctx, args[1], args[2:])
	}
	b := &bench{}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.BoolVar(&b.quick, "quick", false, "small sizes, under five minutes")
	flags.IntVar(&b.runs, "runs", 3, "how often each is measured; the median counts")
	out := flags.String("out", "", "write the rows to this file, as JSON")
	only := flags.String("only", "", "run the scenarios whose name matches")
	if err := flags.Parse(args); err != nil {
		return err
	}
	match, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if b.dir, err = os.MkdirTemp("", "crmirror-bench-"); err != nil {
		return err
	}
	fmt.Printf("%s/%s, %d CPUs, %s, %s\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), gitVersion(ctx))
	err = b.runAll(ctx, match)
	b.print(os.Stdout)
	if *out != "" {
		err = errors.Join(err, b.write(*out))
	}
	return errors.Join(err, b.close())
}
