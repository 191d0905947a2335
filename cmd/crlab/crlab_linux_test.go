package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/crmirror/crmirror/gitstore/gittest"
)

const beCrlab = "CRMIRROR_TEST_BE_CRLAB"

// TestMain turns this binary into crlab when a test runs it as such.
func TestMain(m *testing.M) {
	if os.Getenv(beCrlab) != "" {
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// crlab is a running crlab process.
type crlab struct {
	*exec.Cmd
	dir    string
	env    map[string]string
	output bytes.Buffer
}

// start starts crlab in a folder of its own and returns when the file env is there.
func start(t *testing.T, args ...string) *crlab {
	t.Helper()
	lab := &crlab{dir: filepath.Join(t.TempDir(), "lab")}
	lab.Cmd = exec.Command(os.Args[0], append([]string{"--dir", lab.dir}, args...)...)
	lab.Env = append(os.Environ(), beCrlab+"=1")
	lab.Stdout, lab.Stderr = &lab.output, &lab.output
	if err := lab.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = lab.Process.Kill() // if the test did not come to its end
		_ = lab.Wait()
	})
	eventually(t, "the file env", func() bool {
		_, err := os.Stat(filepath.Join(lab.dir, "env"))
		return err == nil
	})
	lab.env = source(t, filepath.Join(lab.dir, "env"))
	return lab
}

// source returns what a shell has in its environment after reading the file env.
func source(t *testing.T, file string) map[string]string {
	t.Helper()
	out, err := exec.Command("/bin/sh", "-euc", ". \"$1\"; env", "sh", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	variables := make(map[string]string)
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), "=")
		variables[name] = value
	}
	return variables
}

// The whole life of a lab: what env names answers, and after SIGTERM nothing is left.
func TestLab(t *testing.T) {
	manifests := t.TempDir()
	manifest := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: loaded, namespace: shop}\n"
	if err := os.WriteFile(filepath.Join(manifests, "shop.yaml"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	lab := start(t, "--clusters", "2", "--load", manifests)

	if got := configMaps(t, lab.env["KUBECONFIG"], "shop"); len(got) != 1 || got[0] != "loaded" {
		t.Errorf("config maps of the first cluster: got %q, want [loaded]", got)
	}
	if got := configMaps(t, lab.env["KUBECONFIG_2"], "shop"); len(got) != 0 {
		t.Errorf("config maps of the second cluster: got %q, want none", got)
	}
	checkRemotes(t, lab.env)

	if err := lab.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := lab.Wait(); err != nil {
		t.Errorf("crlab after SIGTERM: %v\n%s", err, &lab.output)
	}
	checkNothingIsLeft(t, lab)
}

// Invariant: no orphan process survives the lab, however it ends.
func TestNothingSurvivesSIGKILL(t *testing.T) {
	lab := start(t)
	if got := processes(t, lab.dir); len(got) < 3 { // crlab, etcd, kube-apiserver
		t.Fatalf("processes of the lab: got %q, want at least three", got)
	}
	if err := lab.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = lab.Wait() // it says "killed"
	eventually(t, "the end of all processes", func() bool { return len(processes(t, lab.dir)) == 0 })
	eventually(t, "the end of all files", func() bool {
		entries, err := os.ReadDir(lab.dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries) == 0
	})
}

func TestKeepLeavesTheRepository(t *testing.T) {
	lab := start(t, "--keep")
	if err := lab.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := lab.Wait(); err != nil {
		t.Errorf("crlab after SIGINT: %v\n%s", err, &lab.output)
	}
	gittest.Fsck(t, lab.env["REMOTE_DIR"])
	if got := processes(t, lab.dir); len(got) != 0 {
		t.Errorf("processes after the end: got %q, want none", got)
	}
}

func TestUsage(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"help", []string{"--help"}, 0, "REMOTE_TOKEN_FILE"},
		{"unknown flag", []string{"--directory", "x"}, 2, "unknown flag: --directory"},
		{"an argument", []string{"x"}, 2, `unexpected argument "x"`},
		{"three clusters", []string{"--clusters", "3"}, 2, "must be 1 or 2"},
		{"no such folder", []string{"--load", "no/such/folder"}, 1, "no/such/folder"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			if code := run(test.args, &out, &out); code != test.code {
				t.Errorf("exit code: got %d, want %d", code, test.code)
			}
			if !strings.Contains(out.String(), test.want) {
				t.Errorf("output: got %q, want it to contain %q", out.String(), test.want)
			}
		})
	}
}

func configMaps(t *testing.T, kubeconfig, namespace string) []string {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, item := range list.Items {
		names = append(names, item.Name)
	}
	return names
}

// checkRemotes pushes over ssh and reads over HTTP and from the folder.
func checkRemotes(t *testing.T, env map[string]string) {
	t.Helper()
	token, err := os.ReadFile(env["REMOTE_TOKEN_FILE"])
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GIT_SSH_COMMAND", "ssh -F /dev/null -o IdentityAgent=none -o StrictHostKeyChecking=yes"+
		" -i "+env["SSH_KEY"]+" -o UserKnownHostsFile="+env["KNOWN_HOSTS"])
	clone := gittest.Clone(t, env["REMOTE_SSH"])
	gittest.CommitFile(t, clone, "file", "content\n", "Add file")
	gittest.Git(t, clone, "push", "--quiet", "origin", "HEAD:main")

	http := strings.Replace(env["REMOTE_HTTP"], "://", "://git:"+strings.TrimSpace(string(token))+"@", 1)
	if got := gittest.Log(t, gittest.Clone(t, http), "main"); len(got) != 1 || got[0] != "Add file" {
		t.Errorf("log over HTTP: got %q, want [Add file]", got)
	}
	if got := gittest.Log(t, env["REMOTE_DIR"], "main"); len(got) != 1 || got[0] != "Add file" {
		t.Errorf("log of the bare repository: got %q, want [Add file]", got)
	}
}

func checkNothingIsLeft(t *testing.T, lab *crlab) {
	t.Helper()
	if got := processes(t, lab.dir); len(got) != 0 {
		t.Errorf("processes after the end: got %q, want none", got)
	}
	if _, err := os.Stat(lab.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder after the end: got %v, want it gone", err)
	}
}

// processes returns the command lines of the processes that name dir.
func processes(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		line, err := os.ReadFile(file) // empty for a zombie
		if err == nil && bytes.Contains(line, []byte(dir)) {
			found = append(found, string(bytes.ReplaceAll(line, []byte{0}, []byte(" "))))
		}
	}
	return found
}

// eventually polls with a deadline that a slow machine does not miss.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}
