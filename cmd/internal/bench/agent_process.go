package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// agentOptions say what a measured agent does.
type agentOptions struct {
	kubeconfig  string
	remote      string
	worktree    bool
	quiet, max  time.Duration
	resources   []string // "" for every custom resource
	maintenance string   // cron expression
}

// agent is "crmirror run" as a process of its own.
type agent struct {
	cmd    *exec.Cmd
	health string // URL
	log    string // file
	done   chan error
}

// agent starts one. The caller stops it.
func (b *bench) agent(ctx context.Context, o agentOptions) (*agent, error) {
	binary, err := b.binary(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := b.folder("agent")
	if err != nil {
		return nil, err
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	if o.resources == nil {
		o.resources = []string{"*"}
	}
	config := filepath.Join(dir, "config.yaml")
	// JSON is YAML.
	content, err := json.MarshalIndent(map[string]any{
		"apiVersion": "crmirror.dev/v1alpha1", "kind": "Config", "cluster": "bench", "kubeconfig": o.kubeconfig,
		"cacheDir":   filepath.Join(dir, "cache"),
		"repository": map[string]any{"url": o.remote, "branch": "main", "worktree": o.worktree},
		"select":     []any{map[string]any{"resources": o.resources}},
		"batch":      map[string]any{"quiet": o.quiet.String(), "max": o.max.String()},
		"schedule":   map[string]any{"maintenance": o.maintenance},
		"health":     map[string]any{"listen": address},
	}, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(config, content, 0o600); err != nil {
		return nil, err
	}
	a := &agent{health: "http://" + address, log: filepath.Join(dir, "log"), done: make(chan error, 1)}
	log, err := os.Create(a.log)
	if err != nil {
		return nil, err
	}
	a.cmd = exec.Command(binary, "run", "--config", config)
	a.cmd.Stdout, a.cmd.Stderr = log, log
	if err := a.cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	go func() { a.done <- errors.Join(a.cmd.Wait(), log.Close()) }()
	return a, nil
}

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// synced waits until the agent has finished its first sync.
func (a *agent) synced(ctx context.Context) error {
	err := poll(ctx, 10*time.Minute, func() error {
		select {
		case err := <-a.done:
			a.done <- err
			return fmt.Errorf("the agent has ended: %w", err)
		default:
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.health+"/readyz", nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New("not ready: " + response.Status)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("wait for the first sync: %w\n%s", err, a.tail())
	}
	return nil
}

// logged waits until the agent has logged something.
func (a *agent) logged(ctx context.Context, text string) error {
	err := poll(ctx, 5*time.Minute, func() error {
		content, err := os.ReadFile(a.log)
		if err == nil && !bytes.Contains(content, []byte(text)) {
			err = errors.New("not logged")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for %q in the agent's log: %w\n%s", text, err, a.tail())
	}
	return nil
}

// tail is the end of the agent's log.
func (a *agent) tail() string {
	content, _ := os.ReadFile(a.log)
	return string(content[max(0, len(content)-2000):])
}

// stop ends the agent as an operator would, and fails if it does.
func (a *agent) stop() error {
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return errors.Join(err, <-a.done)
	}
	if err := <-a.done; err != nil {
		return fmt.Errorf("stop the agent: %w\n%s", err, a.tail())
	}
	return nil
}

// clockTicks is how many ticks of /proc/PID/stat are a second: so on every Linux
// that Go runs on.
const clockTicks = 100

// cpu is the CPU time that a process has used so far, in seconds.
func cpu(pid int) (float64, error) {
	content, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may hold blanks.
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
	const user, system = 11, 12
	if len(fields) <= system {
		return 0, errors.New("no CPU time in /proc/PID/stat")
	}
	u, err := strconv.ParseFloat(fields[user], 64)
	if err != nil {
		return 0, err
	}
	s, err := strconv.ParseFloat(fields[system], 64)
	return (u + s) / clockTicks, err
}
