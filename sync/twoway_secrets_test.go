package sync

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/crmirror/crmirror/kube"
)

// hunter2 is a Secret's value, in base64.
const hunter2 = "aHVudGVyMg=="

// withSecrets returns a pair whose agent runs and mirrors Secrets with redacted data.
func withSecrets(t *testing.T, names ...string) *pair {
	t.Helper()
	p := newPair(t)
	p.server.watchSecrets()
	p.rules.Select = append(p.rules.Select, kube.Rule{Resources: []string{"secrets"}, Shape: kube.Shape{
		Redact: fieldPathsOf(t, ".data"), RedactKey: []byte("0123456789abcdef"),
	}})
	p.create("kubectl", "a", "{size: 1}")
	for _, name := range names {
		obj := p.decode(p.secretText(name, "data: {password: "+hunter2+"}"))
		if _, err := p.server.objects(secretResource).Create(t.Context(), obj, metav1.CreateOptions{FieldManager: "kubectl"}); err != nil {
			t.Fatal(err)
		}
	}
	p.agent()
	p.settled()
	return p
}

func (p *pair) secretText(name, rest string) string {
	return "apiVersion: v1\nkind: Secret\nmetadata:\n  name: " + name + "\n  namespace: " + p.server.namespace + "\n" + rest + "\ntype: Opaque\n"
}

func (p *pair) secretKey(name string) kube.Key {
	return kube.Key{Resource: "secrets", Namespace: p.server.namespace, Name: name}
}

// editSecret lets a person commit another text of a Secret's file.
func (p *pair) editSecret(name string, edit func(was string) string) {
	p.t.Helper()
	p.person("edit a Secret", func(dir string) {
		file := filepath.Join(dir, "clusters/lab", PathOf(p.secretKey(name)))
		was, err := os.ReadFile(file)
		if err != nil && !os.IsNotExist(err) {
			p.t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			p.t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(edit(string(was))), 0o666); err != nil {
			p.t.Fatal(err)
		}
	})
}

// TestRedactedSecret: what is not redacted of a Secret is changed through git as of any object,
// and cycles go on after it.
func TestRedactedSecret(t *testing.T) {
	p := withSecrets(t, "s")
	p.editSecret("s", func(was string) string {
		return strings.Replace(was, "metadata:\n", "metadata:\n  labels: {lab: one}\n", 1)
	})
	if report := p.settled(); !report.Clean() {
		t.Errorf("findings %v, conflicts %v, refusals %v", report.Findings, report.Conflicts, report.Refusals)
	}
	live, err := p.server.objects(secretResource).Get(t.Context(), "s", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := p.flow(live.Object["data"]); live.GetLabels()["lab"] != "one" || got != "{password: "+hunter2+"}" {
		t.Errorf("the Secret has labels %v and data %s", live.GetLabels(), got)
	}
	p.edit("grow", map[string]string{"a": of("{size: 2}")})
	p.settled()
	p.want("a", of("{size: 2}"), of("{size: 2}"), of("{size: 2}"))
	p.agent()
	p.edit("grow", map[string]string{"a": of("{size: 3}")})
	p.settled()
	p.want("a", of("{size: 3}"), of("{size: 3}"), of("{size: 3}"))
}

// TestSecretFiles: a Secret's file with data in the clear is named with its line, nothing
// of it is applied or told in git, and everything else goes on.
func TestSecretFiles(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(p *pair, was string) string
		want string // in what is told
	}{
		{"new", func(p *pair, _ string) string {
			return p.secretText("new", "stringData: {password: hunter2}")
		}, ":6: .stringData is in the clear"},
		{"replaced", func(p *pair, _ string) string {
			return p.secretText("replaced", "data: {password: "+hunter2+"}")
		}, ":6: edits a dropped or redacted field: .data"},
		{"added", func(_ *pair, was string) string {
			return was + "stringData: {password: hunter2}\n"
		}, ":8: .stringData is in the clear"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := withSecrets(t, "replaced", "added")
			p.editSecret(tc.name, func(was string) string { return tc.edit(p, was) })
			p.edit("grow", map[string]string{"a": of("{size: 2}")})
			report := p.settled()
			p.want("a", of("{size: 2}"), of("{size: 2}"), of("{size: 2}"))
			if len(report.Findings) != 1 || report.Findings[0].Path != PathOf(p.secretKey(tc.name)) ||
				!strings.Contains(report.Findings[0].At()+": "+report.Findings[0].Text, tc.want) {
				t.Errorf("findings %v, want one of %s: %s", report.Findings, tc.name, tc.want)
			}
			live, err := p.server.objects(secretResource).Get(t.Context(), tc.name, metav1.GetOptions{})
			if tc.name == "new" && err == nil || tc.name != "new" && (err != nil || p.flow(live.Object["data"]) != "{password: "+hunter2+"}") {
				t.Errorf("the cluster has %v, %v", live, err)
			}
			if got := p.announced(); strings.Contains(got, "hunter2") || strings.Contains(got, hunter2) {
				t.Errorf("a secret is announced:\n%s", got)
			}
		})
	}
}

// TestUnstorableBase: what base cannot hold it has no value for.
func TestUnstorableBase(t *testing.T) {
	p := withSecrets(t, "s")
	key := p.secretKey("s")
	secret := p.decode(p.secretText("s", "data: {password: "+hunter2+"}")).Object
	if edits := p.mirror.agreeOn(key, agreement{content: secret}); len(edits) != 0 {
		t.Errorf("base would take %d edits", len(edits))
	}
	if !p.mirror.two.unknown[key].unknown.Object {
		t.Error("base does not say that it has no value")
	}
	secret["data"] = "crmirror-redacted:v1:" + strings.Repeat("0", 64)
	edits := p.mirror.agreeOn(key, agreement{content: secret})
	if len(edits) != 1 || !strings.Contains(string(edits[0].Content), "crmirror-redacted:v1:") || !p.mirror.two.unknown[key].empty() {
		t.Errorf("base would take %v, and know %v", edits, p.mirror.two.unknown[key])
	}
}
