package deploy

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/crmirror/crmirror/gitstore/gittest"
	"github.com/crmirror/crmirror/kube/kubetest"
)

const configHead = `apiVersion: crmirror.dev/v1alpha1
kind: Config
cluster: rights
repository: {url: "file://REMOTE", branch: main}
batch: {quiet: 100ms}
`

func unchanged(*unstructured.Unstructured) {}

// without takes a rule away: the one of that resource; or only a verb of it.
func without(t *testing.T, resource, verb string) func(*unstructured.Unstructured) {
	return func(role *unstructured.Unstructured) {
		t.Helper()
		var rules []rbacv1.PolicyRule
		for _, rule := range rulesOf(t, role) {
			if strings.TrimSuffix(rule.Resources[0]+"."+rule.APIGroups[0], ".") == resource {
				if verb == "" {
					continue
				}
				rule.Verbs = slices.DeleteFunc(rule.Verbs, func(v string) bool { return v == verb })
			}
			rules = append(rules, rule)
		}
		typed, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&rbacv1.ClusterRole{Rules: rules})
		if err != nil {
			t.Fatal(err)
		}
		role.Object["rules"] = typed["rules"]
	}
}

// In mode mirror the agent needs what crmirror rbac prints, and nothing else.
func TestMirrorRights(t *testing.T) {
	t.Parallel()
	s := newScene(t, "mirror")
	one, two := s.groups[0], s.groups[1]
	s.config = configHead + "select: [{resources: [widgets." + one + ", '*." + two + "']}]\n"
	for _, group := range s.groups {
		s.create(group, "a")
		s.create(group, "b")
	}
	account := s.account("mirror", unchanged)
	agent := s.start(account, "run")
	s.waitFiles(s.file(one, "a"), s.file(one, "b"), s.file(two, "a"), s.file(two, "b"))
	for _, group := range s.groups {
		if err := s.widgets(group).Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s.waitFiles(s.file(one, "a"), s.file(two, "a"))
	agent.stop()
	account.check(t)

	for _, tt := range []struct {
		name, resource string
		finding        string
		code           int
		files          []string
	}{
		{"crds", "customresourcedefinitions.apiextensions.k8s.io", `customresourcedefinitions.apiextensions.k8s.io: .*forbidden`, 3, []string{s.file(one, "a")}},
		{"namespaces", "namespaces", `identify cluster: get namespace kube-system: .*forbidden`, 1, nil},
		{"one", "widgets." + one, `widgets\.one\.mirror\.dev: .*forbidden`, 3, []string{s.file(two, "a")}},
		{"two", "widgets." + two, `widgets\.two\.mirror\.dev: .*forbidden`, 3, []string{s.file(one, "a")}},
	} {
		s.newRemote()
		backup := s.start(s.account("mirror-"+tt.name, without(t, tt.resource, "")), "backup")
		if code := backup.wait(); code != tt.code {
			t.Errorf("without %s: got exit code %d, want %d", tt.resource, code, tt.code)
		}
		backup.waitSaid(tt.finding)
		if tt.files != nil {
			s.waitFiles(tt.files...)
		}
	}
}

// In mode two-way too, with Roles where the rules name namespaces.
func TestTwoWayRights(t *testing.T) {
	t.Parallel()
	s := newScene(t, "both")
	one, two := s.groups[0], s.groups[1]
	s.config = configHead + "mode: two-way\ninclude: {namespaces: false}\nleaderElection: {enabled: true, namespace: " + s.home + "}\napply: {prune: true, poll: 1s}\n" +
		"select: [{resources: [widgets." + one + ", widgets." + two + "], namespaces: [" + s.namespace + "]}]\n"
	for _, group := range s.groups {
		for _, name := range []string{"a", "b", "c", "d"} {
			s.create(group, name)
		}
	}
	account := s.account("both", unchanged)
	if n := len(account.roles); n != 3 {
		t.Errorf("got %d roles, want the cluster's, the namespace's and the Lease's", n)
	}
	for _, role := range account.roles[1:] {
		if role.GetNamespace() == "" {
			t.Errorf("%s %s: want a Role, since the rules name a namespace", role.GetKind(), role.GetName())
		}
	}
	agent := s.start(account, "run")
	agent.waitSaid("in sync")
	s.commit(func(clone string) {
		for _, group := range s.groups {
			s.replace(clone, s.file(group, "a"), "size: 1", "size: 2")
			gittest.WriteFile(t, clone, s.file(group, "new"), strings.NewReplacer(
				"name: a", "name: new", "size: 2", "size: 3").Replace(s.content(clone, s.file(group, "a"))))
			gittest.Git(t, clone, "rm", "--quiet", s.file(group, "b"))
			s.replace(clone, s.file(group, "c"), "size: 1", "grade: none") // which the schema refuses
		}
	})
	for _, group := range s.groups {
		s.waitSize(group, "a", 2)
		s.waitSize(group, "new", 3)
		s.waitSize(group, "b", 0)
	}
	s.waitEvent("GitNotApplied")
	if err := s.widgets(one).Delete(t.Context(), "d", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.waitFiles(s.file(one, "a"), s.file(one, "c"), s.file(one, "new"), s.file(two, "a"), s.file(two, "c"), s.file(two, "d"), s.file(two, "new"))
	agent.stop()
	account.check(t)
	t.Run("less", func(t *testing.T) { s.lessRights(t) })
}

// lessRights takes one right after the other away: what lacks is named, and the other
// kind is applied all the same.
func (s *scene) lessRights(t *testing.T) {
	s.t = t
	one, two := s.groups[0], s.groups[1]
	size := int64(10)
	for _, tt := range []struct {
		name, resource, verb string
		finding              string
		code                 int
		applied              []string // groups
	}{
		{"crds", "customresourcedefinitions.apiextensions.k8s.io", "", `customresourcedefinitions.apiextensions.k8s.io: .*forbidden`, 3, []string{one, two}},
		{"namespaces", "namespaces", "", `identify cluster: get namespace kube-system: .*forbidden`, 1, nil},
		{"one", "widgets." + one, "", `widgets\.one\.both\.dev.*: .*forbidden`, 3, []string{two}},
		{"two", "widgets." + two, "", `widgets\.two\.both\.dev.*: .*forbidden`, 3, []string{one}},
		{"patch", "widgets." + one, "patch", `/widgets\.one\.both\.dev/a\.yaml(:\d+)?: forbidden: .* cannot patch`, 3, []string{two}},
	} {
		s.newRemote()
		if code := s.start(&account{user: "admin", kubeconfig: world.cluster.Kubeconfig}, "apply").wait(); code != 0 {
			t.Fatalf("first apply: got exit code %d, want 0", code)
		}
		size++
		s.resize("a", size)
		apply := s.start(s.account("both-"+tt.name, without(t, tt.resource, tt.verb)), "apply")
		if code := apply.wait(); code != tt.code {
			t.Errorf("without %s of %s: got exit code %d, want %d", tt.verb, tt.resource, code, tt.code)
		}
		apply.waitSaid(tt.finding)
		for _, group := range tt.applied {
			s.waitSize(group, "a", size)
		}
	}
	s.newRemote()
	agent := s.start(s.account("both-events", without(t, "events", "")), "run")
	agent.waitSaid("in sync")
	s.commit(func(clone string) {
		s.replace(clone, s.file(one, "c"), "size: 1", "grade: none")
		s.replace(clone, s.file(two, "d"), "size: 1", "size: 2")
	})
	s.waitSize(two, "d", 2)
	agent.waitSaid(`no events are written on objects.*events is forbidden`)
	agent.stop()
	agent = s.start(s.account("both-leases", without(t, "leases.coordination.k8s.io", "")), "run")
	agent.waitSaid(`leases.* is forbidden`)
	agent.stop()
}

// waitEvent waits until the namespace has an Event for that reason.
func (s *scene) waitEvent(reason string) {
	s.t.Helper()
	events := s.client.Resource(corev1.SchemeGroupVersion.WithResource("events")).Namespace(s.namespace)
	kubetest.Poll(s.t.Context(), s.t, patience, "an event "+reason, func(ctx context.Context) error {
		list, err := events.List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
		if err == nil && len(list.Items) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
}

// commit lets a person change the repository, and push.
func (s *scene) commit(change func(clone string)) {
	s.t.Helper()
	clone := gittest.Clone(s.t, "file://"+s.remote)
	change(clone)
	gittest.Git(s.t, clone, "add", "--all")
	gittest.Git(s.t, clone, "commit", "--quiet", "--message", "Change")
	gittest.Git(s.t, clone, "push", "--quiet", "origin", "HEAD:main")
}

// resize changes the size of a widget of both groups in git.
func (s *scene) resize(name string, size int64) {
	s.t.Helper()
	s.commit(func(clone string) {
		for _, group := range s.groups {
			content := s.content(clone, s.file(group, name))
			_, rest, _ := strings.Cut(content, "size: ")
			old, _, _ := strings.Cut(rest, "\n")
			s.replace(clone, s.file(group, name), "size: "+old, "size: "+strconv.FormatInt(size, 10))
		}
	})
}

func (s *scene) content(clone, file string) string {
	s.t.Helper()
	content, err := os.ReadFile(filepath.Join(clone, file))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(content)
}

func (s *scene) replace(clone, file, old, new string) {
	s.t.Helper()
	content := s.content(clone, file)
	if !strings.Contains(content, old) {
		s.t.Fatalf("%s has no %q:\n%s", file, old, content)
	}
	gittest.WriteFile(s.t, clone, file, strings.Replace(content, old, new, 1))
}
