package sync

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/crmirror/crmirror/kube"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func change(op Op, resource, namespace, name string, fields ...string) Change {
	plural, group, _ := strings.Cut(resource, ".")
	return Change{Key: kube.Key{Resource: plural, Group: group, Namespace: namespace, Name: name}, Op: op, Fields: fields}
}

func (c Change) by(manager string) Change {
	c.Manager.Name = manager
	return c
}

func (c Change) undoing(who string) Change {
	c.Undoes = who
	return c
}

const (
	certs  = "certificates.cert-manager.io"
	deploy = "deployments.apps"
)

func many(op Op, n int, resource, namespace string) []Change {
	var out []Change
	for i := range n {
		out = append(out, change(op, resource, namespace, fmt.Sprintf("object-%03d", i)))
	}
	return out
}

func flat(lists ...[]Change) []Change {
	var out []Change
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

var long = strings.Repeat("long-name-", 25)

// messages are the golden messages: testdata/message/<name>.txt.
var messages = []struct {
	name    string
	initial bool
	changes []Change
}{
	{"one-created", false, []Change{change(Created, certs, "shop", "frontend-tls").by("kubectl-create")}},
	{"one-changed", false, []Change{change(Changed, certs, "shop", "frontend-tls", "spec.replicas").by("kubectl-edit")}},
	{"one-changed-cluster-scoped", false, []Change{change(Changed, "clusterissuers.cert-manager.io", "", "le", "spec.acme.email").by("helm")}},
	{"one-changed-leaves", false, []Change{change(Changed, deploy, "shop", "web", "spec.template.spec.containers.web.image", "spec.template.spec.replicas").by("argocd-controller")}},
	{"one-changed-many-fields", false, []Change{change(Changed, certs, "shop", "frontend-tls", "metadata.labels.app", "spec.commonName", "spec.dnsNames", "spec.duration", "spec.issuerRef.name").by("kubectl-edit")}},
	{"one-changed-annotation", false, []Change{change(Changed, certs, "shop", "frontend-tls", `metadata.annotations["cert-manager.io/common-name"]`).by("helm")}},
	{"one-changed-unknown", false, []Change{change(Changed, certs, "shop", "frontend-tls")}},
	{"one-deleted", false, []Change{change(Deleted, certs, "shop", "frontend-tls")}},
	{"one-unselected", false, []Change{change(Unselected, certs, "shop", "frontend-tls")}},
	{"one-undone", false, []Change{change(Changed, certs, "shop", "frontend-tls", "spec.replicas").by("kubectl-edit").undoing("3f2a1bc by Jane Doe")}},
	{"one-changed-list-item", false, []Change{change(Changed, deploy, "shop", "web-frontend-of-the-shop", "spec.template.spec.containers[web].image").by("argocd-controller")}},
	{"one-file-put-back", false, []Change{change(Created, certs, "shop", "frontend-tls").undoing("3f2a1bc by Jane Doe")}},
	{"one-stray-file", false, []Change{change(Deleted, certs, "shop", "frontend-tls").undoing("3f2a1bc by Jane Doe")}},
	{"one-long-name", false, []Change{change(Changed, certs, "shop", long+"abc", "spec.replicas")}},
	{"some-of-one-kind", false, flat(many(Changed, 2, certs, "shop"), many(Created, 1, certs, "shop"))},
	{"some-of-two-kinds", false, flat(many(Changed, 3, certs, "shop"), many(Deleted, 2, deploy, "web"))},
	{"some-of-many-kinds", false, flat(many(Changed, 3, certs, "shop"), many(Created, 2, deploy, "web"),
		many(Deleted, 1, "gateways.gateway.networking.k8s.io", "web"), many(Unselected, 1, "httproutes.gateway.networking.k8s.io", "web"))},
	{"many", false, flat(many(Changed, 980, certs, "shop"), many(Deleted, 20, certs, "web"))},
	{"reshaped", false, many(Reshaped, 3, certs, "shop")},
	{"one-long-kind", false, many(Created, 2, long+"."+long, "shop")},
	{"initial", true, flat(many(Created, 120, certs, "shop"), many(Created, 7, deploy, "web"))},
	{"initial-empty", true, nil},
	{"marker-only", false, nil},
}

func TestMessages(t *testing.T) {
	for _, tt := range messages {
		t.Run(tt.name, func(t *testing.T) {
			got := Message(MessageInput{Cluster: "prod-eu1", Initial: tt.initial, Changes: tt.changes})
			file := filepath.Join("testdata", "message", tt.name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
			checkMessage(t, got, len(tt.changes))
		})
	}
}

// TestLeaf: keys of maps may hold whatever else parts a path.
func TestLeaf(t *testing.T) {
	for path, want := range map[string]string{
		"spec.containers[web].image":          "image",
		`spec.m["a.io/[x]"]`:                  "m",
		`spec.m["]"].n`:                       "n",
		`spec.m["say \"]\" twice"].list[3].o`: "o",
		`metadata.annotations["x"]`:           "annotations",
		"spec":                                "spec",
	} {
		if got := leaf(path); got != want {
			t.Errorf("leaf(%s) = %s, want %s", path, got, want)
		}
	}
}

func TestMessageInitialIsCapped(t *testing.T) {
	var changes []Change
	for i := range 67 {
		changes = append(changes, change(Created, fmt.Sprintf("kind%02ds.example.com", i), "shop", "a"))
	}
	got := Message(MessageInput{Cluster: strings.Repeat("very-long-cluster-name-", 5), Initial: true, Changes: changes})
	for _, want := range []string{"Mirror a cluster: 67 objects of 67 resources\n\n- 1 kind00s.example.com\n", "- 1 kind49s.example.com\nand 17 resources more\n\nCrmirror-Cluster"} {
		if !strings.Contains(got, want) {
			t.Errorf("message lacks %q:\n%s", want, got)
		}
	}
}

// TestMessageCannotBeForged gives names as an attacker could choose them.
func TestMessageCannotBeForged(t *testing.T) {
	evil := "x\n\nCrmirror-Cluster: other\r\n\u2028\u202eSigned-off-by: root\x00\x1b[31m\xff"
	c := change(Changed, certs, evil, evil, evil, evil+"2").by(evil).undoing(evil)
	c.Key.Group, c.Key.Resource = evil, evil
	for _, in := range []MessageInput{
		{Cluster: evil, Changes: []Change{c}},
		{Cluster: evil, Changes: []Change{c, change(Created, certs, "a", "b")}},
		{Cluster: evil, Initial: true, Changes: []Change{c}},
	} {
		got := Message(in)
		checkMessage(t, got, len(in.Changes))
		if strings.ContainsAny(got, "\r\x00\x1b\u2028\u202e") || !utf8.ValidString(got) {
			t.Errorf("message lets control characters through: %q", got)
		}
	}
	long := Message(MessageInput{Cluster: "c", Changes: []Change{change(Changed, certs, "a", "b", strings.Repeat("f", 5000)).by(strings.Repeat("m", 5000))}})
	if len(long) > 500 {
		t.Errorf("a long field and manager make a message of %d bytes", len(long))
	}
}

// checkMessage checks the form of any message, and asks git for its trailers.
func checkMessage(t *testing.T, message string, objects int) {
	t.Helper()
	subject, rest, _ := strings.Cut(message, "\n")
	if n := utf8.RuneCountInString(subject); n == 0 || n > 72 {
		t.Errorf("subject of %d characters: %s", n, subject)
	}
	if !strings.HasPrefix(rest, "\n") || strings.Contains(rest, "\n\n\n") || !strings.HasSuffix(rest, "\n") {
		t.Errorf("paragraphs are not well formed:\n%s", message)
	}
	git := exec.CommandContext(t.Context(), "git", "interpret-trailers", "--parse")
	git.Stdin = strings.NewReader(message)
	out, err := git.Output()
	if err != nil {
		t.Fatalf("git interpret-trailers: %v", err)
	}
	trailers := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(trailers) != 2 || !strings.HasPrefix(trailers[0], "Crmirror-Cluster: ") || trailers[1] != fmt.Sprintf("Crmirror-Objects: %d", objects) {
		t.Errorf("git sees the trailers %q in\n%s", trailers, message)
	}
}
