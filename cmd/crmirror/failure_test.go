package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crmirror/crmirror/cmd/internal/config"
	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/sync/restore"
)

// called runs a command line, without a cluster.
func called(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, err strings.Builder
	code = run(ctx, environment{args: append([]string{"crmirror"}, args...), stdout: &out, stderr: &err, environ: []string{"KUBECONFIG=/nowhere"}})
	return code, out.String(), err.String()
}

// A value that a script lost is no wish for the default.
func TestEmptyFlags(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"restore", "--at", ""}, []string{"--at"}},
		{[]string{"verify", "--at="}, []string{"--at"}},
		{[]string{"diff", "-n", ""}, []string{"--namespace"}},
		{[]string{"log", "widgets", "web", "--at", ""}, []string{"--at"}},
		{[]string{"log", "--deleted", "--since", ""}, []string{"--since"}},
		{[]string{"restore", "-n", "shop,"}, []string{"--namespace"}},
		{[]string{"restore", "-n", " "}, []string{"--namespace"}},
		{[]string{"restore", "--resources", "", "--names", "", "-l", "", "--map-namespace", ""}, []string{"--resources", "--names", "--selector", "--map-namespace"}},
		{[]string{"restore", "--context", "", "--kubeconfig", ""}, []string{"--context", "--kubeconfig"}},
		{[]string{"backup", "--path", ""}, []string{"--path"}},
	} {
		code, stdout, stderr := called(t.Context(), append(tt.args, "--repo", t.TempDir())...)
		if code != exitUsage || stdout != "" {
			t.Errorf("%q: got exit code %d and %q, want %d and nothing", tt.args, code, stdout, exitUsage)
		}
		for _, flag := range tt.want {
			if !strings.Contains(stderr, flag+": is empty") {
				t.Errorf("%q: got %q, want that %s is empty", tt.args, stderr, flag)
			}
		}
	}
}

// Whoever reads a command's report as JSON is told of a failure there, too.
func TestFailureIsReported(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	for _, tt := range []struct {
		args     []string
		want     map[string]any
		report   bool
		canceled bool
	}{
		{args: []string{"restore", "--repo", nowhere}, want: map[string]any{"complete": false}, report: true},
		{args: []string{"restore", "--repo", nowhere, "--at", ""}, want: map[string]any{"complete": false}},
		{args: []string{"restore", "--no-such-flag"}, want: map[string]any{"complete": false}},
		{args: []string{"verify", "--repo", nowhere}, want: map[string]any{"same": false}},
		{args: []string{"diff", "--repo", nowhere}, want: map[string]any{}},
		{args: []string{"log", "--deleted", "--repo", nowhere}, want: map[string]any{}},
		{args: []string{"log", "--deleted", "--repo", "http://127.0.0.1:1/x", "--cache-dir", t.TempDir()}, want: map[string]any{"interrupted": true}, canceled: true},
	} {
		args := append([]string{tt.args[0], "-o", "json"}, tt.args[1:]...)
		report := filepath.Join(t.TempDir(), "report.json")
		if tt.report {
			args = append(args, "--report", report)
		}
		ctx := t.Context()
		if tt.canceled {
			ctx = canceled
		}
		_, stdout, stderr := called(ctx, args...)
		texts := []string{stdout}
		if tt.report {
			content, err := os.ReadFile(report)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(content))
		}
		for _, text := range texts {
			var got map[string]any
			if err := json.Unmarshal([]byte(text), &got); err != nil {
				t.Errorf("%q: got %q (%v), want a report; stderr: %s", args, text, err, stderr)
				continue
			}
			if told, _ := got["error"].(string); told == "" {
				t.Errorf("%q: got %v, want the error", args, got)
			}
			delete(got, "error")
			for key, want := range tt.want {
				if got[key] != want {
					t.Errorf("%q: %s is %v, want %v", args, key, got[key], want)
				}
			}
			if len(got) != len(tt.want) {
				t.Errorf("%q: got %v, want %v", args, got, tt.want)
			}
		}
	}
	if _, stdout, _ := called(t.Context(), "restore", "--repo", nowhere); stdout != "" {
		t.Errorf("for people: got %q, want nothing", stdout)
	}
}

// What was not compared is told by diff as by verify.
func TestDiffTellsWhatItLacks(t *testing.T) {
	v := &restore.Verification{
		NotCompared: []restore.NotCompared{{Fields: []string{"spec.password"}}},
		Beside:      []restore.Difference{{State: restore.Differs, Reason: "older"}},
	}
	result := newDiffResult(v)
	if text := result.aside(); !strings.Contains(text, "Not compared: 1 field of 1 object,") || !strings.Contains(text, "differs: older") {
		t.Errorf("got %q, want what was not compared, and what lies beside", text)
	}
	if len(result.NotCompared) != 1 || len(result.Beside) != 1 {
		t.Errorf("got %+v, want both", result)
	}
	if text := newDiffResult(&restore.Verification{}).aside(); text != "" {
		t.Errorf("everything compared: got %q", text)
	}
}

// The next step after credentials that do not do is one of the command that was called.
func TestNextStepOfCredentials(t *testing.T) {
	missing := &gitstore.CredentialError{What: "token", Err: fs.ErrNotExist}
	for _, tt := range []struct {
		err   error
		reads bool
		want  string
	}{
		{fmt.Errorf("fetch: %w", gitstore.ErrAuth), readsOnly("restore"), "allow reading"},
		{fmt.Errorf("fetch: %w", gitstore.ErrAuth), readsOnly("backup"), "allow pushing"},
		{fmt.Errorf("fetch: %w", missing), true, "--token-file"},
	} {
		text := explain(tt.err, tt.reads)
		if !strings.Contains(text, tt.want) || strings.Contains(text, "allow") != strings.HasPrefix(tt.want, "allow") {
			t.Errorf("got %q, want %q in it", text, tt.want)
		}
	}
	if !errors.Is(missing, gitstore.ErrAuth) || strings.Contains(missing.Error(), "not authorized") {
		t.Errorf("got %v, want an ErrAuth that says nothing of a server", missing)
	}
}

// Two remotes have two caches in one folder.
func TestOwnCaches(t *testing.T) {
	cfg := func(url string) *config.Config {
		c := &config.Config{CacheDir: "x"}
		c.Repository.URL = url
		return withOwnCache(c, "restore")
	}
	a, b := cfg("https://a.example.com/x"), cfg("https://b.example.com/x")
	if a.CacheDir == b.CacheDir || filepath.Dir(a.CacheDir) != "x" || a.CacheDir != cfg(a.Repository.URL).CacheDir {
		t.Errorf("got %s and %s, want two folders, always the same, in x", a.CacheDir, b.CacheDir)
	}
}

// What is wrong with a plan's file is said alone.
func TestRefusedInputs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := called(t.Context(), "restore", "--plan", file)
	if code != exitUsage || !strings.Contains(stderr, "plan.json") || strings.Contains(stderr, "repository.url") {
		t.Errorf("got %d, %q, want the plan alone", code, stderr)
	}
}
