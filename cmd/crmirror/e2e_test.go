package main_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crmirror/crmirror/cmd/internal/lab"
	"github.com/crmirror/crmirror/gitstore/gittest"
)

// world is what all tests of this package share: the built binary and a lab with
// two clusters, the second of them empty. It is state of the package because it
// is one of the process: to build and to start them costs half a minute.
var world struct {
	binary string
	lab    *lab.Lab
	token  string // of the lab's git server over HTTP
}

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "crmirror-e2e-")
	if err == nil {
		err = startWorld(context.Background(), dir)
	}
	code := 1
	if err == nil {
		code = m.Run()
	}
	if world.lab != nil {
		err = errors.Join(err, world.lab.Stop())
	}
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// startWorld builds the binary and starts the lab with some of the corpus.
func startWorld(ctx context.Context, dir string) error {
	world.binary = filepath.Join(dir, "crmirror")
	out, err := exec.CommandContext(ctx, "go", "build", "-ldflags", "-X main.version=v1.2.3-e2e", "-o", world.binary, ".").CombinedOutput()
	if err != nil {
		return fmt.Errorf("build crmirror: %w\n%s", err, out)
	}
	corpus := filepath.Join("..", "..", "testdata", "corpus")
	world.lab, err = lab.Start(ctx, lab.Options{
		Clusters: 2,
		Load:     []string{filepath.Join(corpus, "certs"), filepath.Join(corpus, "backup")},
	})
	if err != nil {
		return err
	}
	token, err := os.ReadFile(tokenFile())
	world.token = string(token)
	return err
}

func tokenFile() string { return filepath.Join(world.lab.Dir, "token") }

// user is somebody at a shell: a home folder, an environment, a working folder.
type user struct {
	t      *testing.T
	binary string
	home   string
	env    []string // besides HOME and PATH
}

// newUser returns a user whose kubectl would speak to the lab's first cluster.
func newUser(t *testing.T) *user {
	t.Helper()
	return &user{t: t, binary: world.binary, home: t.TempDir(), env: []string{"KUBECONFIG=" + world.lab.Kubeconfig(0)}}
}

// onCluster returns the same user with another cluster, from 0.
func (u *user) onCluster(i int) *user {
	other := *u
	other.env = []string{"KUBECONFIG=" + world.lab.Kubeconfig(i)}
	return &other
}

// path returns a path below the user's home.
func (u *user) path(elements ...string) string {
	return filepath.Join(append([]string{u.home}, elements...)...)
}

// file writes a file below the user's home and returns its path.
func (u *user) file(name, content string) string {
	u.t.Helper()
	path := u.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		u.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		u.t.Fatal(err)
	}
	return path
}

// result is what a finished process left behind.
type result struct {
	args           []string
	code           int
	stdout, stderr string
}

func (r result) String() string {
	return fmt.Sprintf("crmirror %s: exit code %d\n--- stdout\n%s--- stderr\n%s", strings.Join(r.args, " "), r.code, r.stdout, r.stderr)
}

// patience bounds every wait. Nothing takes that long but on a machine that has
// much else to do.
const patience = 2 * time.Minute

func (u *user) command(args ...string) *exec.Cmd {
	cmd := exec.Command(u.binary, args...)
	cmd.Dir = u.home
	cmd.Env = append([]string{"HOME=" + u.home, "PATH=" + os.Getenv("PATH")}, u.env...)
	return cmd
}

// run runs crmirror to its end.
func (u *user) run(args ...string) result {
	u.t.Helper()
	var out, errOut strings.Builder
	cmd := u.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() }) // then the exit code is -1
	_ = cmd.Wait()                                                      // the exit code tells
	late.Stop()
	r := result{args: args, code: cmd.ProcessState.ExitCode(), stdout: out.String(), stderr: errOut.String()}
	u.checkSecrets(r.stdout + r.stderr)
	return r
}

// succeed is run for a command that must end with exit code 0.
func (u *user) succeed(args ...string) result {
	u.t.Helper()
	r := u.run(args...)
	if r.code != 0 {
		u.t.Fatalf("got %v\nwant exit code 0", r)
	}
	return r
}

// checkSecrets looks for the token in what crmirror printed.
func (u *user) checkSecrets(output string) {
	u.t.Helper()
	if strings.Contains(output, world.token) {
		u.t.Errorf("the output holds the token:\n%s", output)
	}
}

// wantFailure checks exit code and message of a refused command: each of want
// must stand on stderr, and nothing on stdout.
func (r result) wantFailure(t *testing.T, code int, want ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("got %v\nwant exit code %d", r, code)
	}
	for _, text := range want {
		if !strings.Contains(r.stderr, text) {
			t.Errorf("got %v\nwant %q on stderr", r, text)
		}
	}
	if r.stdout != "" {
		t.Errorf("got %v\nwant nothing on stdout", r)
	}
}

// newRemote makes an empty bare repository that the lab's servers serve, and
// returns its name for their URL methods and its folder.
func newRemote(t *testing.T, branch string) (name, dir string) {
	t.Helper()
	file, err := os.MkdirTemp(filepath.Dir(world.lab.RemoteDir()), "remote-*.git")
	if err != nil {
		t.Fatal(err)
	}
	if err := gittest.InitBare(t.Context(), file, branch); err != nil {
		t.Fatal(err)
	}
	return filepath.Base(file), file
}

// eventually polls until there is no error.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("wait for %s: %v", what, err)
		}
	}
}
