package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// childFlag starts this program as one measured process of its own, so that its
// memory is that of what is measured and nothing else.
const childFlag = "-child"

// children are what a child can do, by name. Each gets its arguments and returns
// what it measured, to be printed as JSON.
func children() map[string]func(context.Context, []string) (map[string]float64, error) {
	return map[string]func(context.Context, []string) (map[string]float64, error){
		"first-commit": firstCommitChild,
		"list":         listChild,
		"push-cpu":     pushCPUChild,
		"informer":     informerChild,
		"start":        startChild,
		"growth":       growthChild,
	}
}

func runChild(ctx context.Context, name string, args []string) error {
	do, ok := children()[name]
	if !ok {
		return fmt.Errorf("no child %q", name)
	}
	measured, err := do(ctx, args)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(measured)
}

// child runs a child process and returns what it measured.
func child(ctx context.Context, name string, args ...string) (map[string]float64, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, append([]string{childFlag, name}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("child %s: %w", name, err)
	}
	var measured map[string]float64
	return measured, json.Unmarshal(out, &measured)
}

// memory is a process's resident memory in megabytes (10⁶ bytes): now, and at its
// highest. pid 0 is this process.
func memory(pid int) (now, peak float64, err error) {
	who := "self"
	if pid != 0 {
		who = strconv.Itoa(pid)
	}
	b, err := os.ReadFile("/proc/" + who + "/status")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kib, _ := strconv.ParseFloat(fields[1], 64)
		switch fields[0] {
		case "VmRSS:":
			now = kib * 1024 / 1e6
		case "VmHWM:":
			peak = kib * 1024 / 1e6
		}
	}
	if now == 0 {
		return 0, 0, errors.New("no resident memory in /proc/" + who + "/status")
	}
	return now, peak, nil
}
