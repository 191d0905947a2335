package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func writeConfig(t *testing.T, more string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "crmirror.yaml")
	content := "apiVersion: crmirror.dev/v1alpha1\nkind: Config\ncluster: c\nrepository: {url: https://git.example.com/x.git}\n" + more
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Both forms say the same, and twice the same; a key of another machine is not asked for.
func TestCommandForms(t *testing.T) {
	file := writeConfig(t, "redaction: {keyFile: /elsewhere/key}\nselect: [{resources: [widgets.a.dev], redact: [.spec.token]}, {resources: ['*.b.dev'], namespaces: [n]}]\n")
	args := []string{"rbac", "--config", file, "-n", "ops", "--name", "mirror"}
	text, err := output(t, world.crmirror, args...)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(text), "# What crmirror needs for cluster c in mode mirror, by crmirror rbac.\n# The rules say \"*\"") {
		t.Errorf("got %.200s\nwant a comment that says what it is, and when to run it again", text)
	}
	if again, err := output(t, world.crmirror, args...); err != nil || string(again) != string(text) {
		t.Errorf("the second time: got %s, %v\nwant %s", again, err, text)
	}
	list := objectsOf(t, world.crmirror, append(args, "-o", "json")...)
	items, err := list[0].ToList()
	if err != nil {
		t.Fatal(err)
	}
	var got []*unstructured.Unstructured
	for i := range items.Items {
		got = append(got, &items.Items[i])
	}
	if d := cmp.Diff(parse(t, text), got); d != "" {
		t.Errorf("(- YAML, + JSON):\n%s", d)
	}
	for _, object := range got {
		if object.GetNamespace() != "ops" && object.GetKind() == "ServiceAccount" || !strings.HasPrefix(object.GetName(), "mirror") {
			t.Errorf("%s %s/%s: want it named as the flags say", object.GetKind(), object.GetNamespace(), object.GetName())
		}
	}
}

// A mistake is told with the next thing to type.
func TestCommandMistakes(t *testing.T) {
	named, wild := writeConfig(t, "select: [{resources: [widgets.a.dev]}]\n"), writeConfig(t, "")
	nowhere := filepath.Join(t.TempDir(), "none")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "crmirror rbac --config FILE"},
		{[]string{"--config", named, "-o", "xml"}, "there are: yaml, json"},
		{[]string{"--config", named, "--name", "My Agent"}, `--name "My Agent"`},
		{[]string{"--config", writeConfig(t, "mode: both\n")}, "crmirror.yaml:5: mode"},
		{[]string{"--config", wild, "--kubeconfig", nowhere}, "--wildcard"},
	} {
		_, err := output(t, world.crmirror, append([]string{"rbac"}, tt.args...)...)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("rbac %q: got %v, want an error that holds %q", tt.args, err, tt.want)
		}
	}
	for _, args := range [][]string{{"--config", named}, {"--config", wild, "--wildcard"}} {
		if _, err := output(t, world.crmirror, append([]string{"rbac", "--kubeconfig", nowhere}, args...)...); err != nil {
			t.Errorf("rbac %q needs no cluster: %v", args, err)
		}
	}
}
