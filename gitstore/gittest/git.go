package gittest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// environment returns the process's environment changed so that git sees no
// settings but a repository's own, asks nobody anything and speaks English.
// GIT_SSH_COMMAND stays: a test sets it to SSH.Command.
func environment() []string {
	own := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "GIT_") && !strings.HasPrefix(variable, "GIT_SSH_COMMAND=")
	})
	return append(own,
		"GIT_CONFIG_GLOBAL="+os.DevNull,
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=A Person", "GIT_AUTHOR_EMAIL=person@example.com",
		"GIT_COMMITTER_NAME=A Person", "GIT_COMMITTER_EMAIL=person@example.com",
		"LC_ALL=C",
	)
}

// Run runs git in the folder dir ("" for the working directory), isolated from
// the user's settings, and returns its standard output.
func Run(ctx context.Context, dir string, args ...string) (string, error) {
	return RunEnv(ctx, dir, nil, args...)
}

// RunEnv is Run with further environment variables, "NAME=value".
func RunEnv(ctx context.Context, dir string, env []string, args ...string) (string, error) {
	return run(ctx, dir, env, nil, args)
}

// RunInput is Run with a standard input.
func RunInput(ctx context.Context, dir string, in io.Reader, args ...string) (string, error) {
	return run(ctx, dir, nil, in, args)
}

func run(ctx context.Context, dir string, env []string, in io.Reader, args []string) (string, error) {
	git := exec.CommandContext(ctx, "git", args...)
	git.Dir = dir
	git.Env = append(environment(), env...)
	var out, errOut bytes.Buffer
	git.Stdin, git.Stdout, git.Stderr = in, &out, &errOut
	if err := git.Run(); err != nil {
		return out.String(), fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(errOut.String()))
	}
	return out.String(), nil
}

// Git runs git in dir and returns its standard output without the last line
// break. A failure ends the test.
func Git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	out, err := Run(t.Context(), dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(out, "\n")
}

// Clone clones a repository, by the git command line, into a new folder that
// ends with the test, and returns the folder. Further arguments are options.
func Clone(t testing.TB, url string, options ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "clone")
	Git(t, "", append(append([]string{"clone", "--quiet"}, options...), url, dir)...)
	return dir
}

// Log returns the subjects of the commits of a revision, newest first.
func Log(t testing.TB, dir, revision string) []string {
	t.Helper()
	return lines(Git(t, dir, "log", "--format=%s", revision, "--"))
}

// Fsck fails the test if git finds anything wrong with the repository.
func Fsck(t testing.TB, dir string) {
	t.Helper()
	Git(t, dir, "fsck", "--strict", "--no-dangling", "--no-progress")
}

// Files returns the paths of all files of a revision, sorted.
func Files(t testing.TB, dir, revision string) []string {
	t.Helper()
	out := strings.TrimSuffix(Git(t, dir, "ls-tree", "-r", "-z", "--name-only", revision), "\x00")
	if out == "" {
		return nil
	}
	return strings.Split(out, "\x00")
}

// ShowFile returns the content of a file at a revision, byte for byte.
func ShowFile(t testing.TB, dir, revision, path string) string {
	t.Helper()
	out, err := Run(t.Context(), dir, "cat-file", "blob", revision+":"+path)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// WriteFile writes a file into the worktree at dir, with the folders it needs.
func WriteFile(t testing.TB, dir, path, content string) {
	t.Helper()
	name := filepath.Join(dir, filepath.FromSlash(path))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// CommitFile writes a file into the worktree at dir and commits everything that
// changed there.
func CommitFile(t testing.TB, dir, path, content, subject string) {
	t.Helper()
	WriteFile(t, dir, path, content)
	Git(t, dir, "add", "--all")
	Git(t, dir, "commit", "--quiet", "-m", subject)
}

func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// quote makes text one word of a shell script.
func quote(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
