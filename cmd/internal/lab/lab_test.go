package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestEnvIsReadByAShell(t *testing.T) {
	want := []Variable{
		{"PLAIN", "/tmp/lab/kubeconfig"},
		{"SPACES", "/tmp/my lab/it's $HOME/`id`"},
		{"ADDRESS", "ssh://git@127.0.0.1:1234/lab.git"},
	}
	file := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(file, []byte(formatEnv(want)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, variable := range want {
		// A child of the shell sees it only if it is exported.
		out, err := exec.Command("/bin/sh", "-euc", ". \"$1\"; sh -c 'printf %s \"$"+variable.Name+"\"'", "sh", file).Output()
		if err != nil {
			t.Fatal(err)
		}
		if got := string(out); got != variable.Value {
			t.Errorf("%s as a shell reads it: got %q, want %q", variable.Name, got, variable.Value)
		}
	}
	if text := formatEnv(want[:1]); text != "PLAIN=/tmp/lab/kubeconfig\nexport PLAIN\n" {
		t.Errorf("plain value: got %q, want it unquoted", text)
	}
}

func TestStartRefuses(t *testing.T) {
	used := t.TempDir()
	if err := os.WriteFile(filepath.Join(used, "env"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name    string
		options Options
		want    string
	}{
		{"a folder that another lab uses", Options{Dir: used}, "env is there already"},
		{"a folder to load that does not exist", Options{Load: []string{"no/such/folder"}}, "load no/such/folder: no such file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Start(t.Context(), test.options)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("start: got %v, want an error with %q", err, test.want)
			}
		})
	}
	if content, err := os.ReadFile(filepath.Join(used, "env")); err != nil || string(content) != "kept" {
		t.Errorf("file of the other lab: got %q, %v, want it untouched", content, err)
	}
}
