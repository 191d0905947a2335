package deploy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/crmirror/crmirror/gitstore/gittest"
	"github.com/crmirror/crmirror/kube/kubetest"
)

// scene is what one test's agents mirror: widgets of two groups in a namespace, and a
// repository.
type scene struct {
	t         *testing.T
	client    dynamic.Interface
	groups    [2]string
	namespace string
	remote    string // a bare repository
	config    string // text
	home      string // the namespace of the agents' accounts
}

func newScene(t *testing.T, name string) *scene {
	t.Helper()
	client, err := dynamic.NewForConfig(world.cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{
		t: t, client: client, groups: [2]string{"one." + name + ".dev", "two." + name + ".dev"},
		namespace: world.cluster.Namespace(t), home: world.cluster.Namespace(t),
	}
	for _, group := range s.groups {
		kubetest.InstallWidgets(t, client, group, s.namespace, nil)
	}
	s.newRemote()
	return s
}

// newRemote begins anew with an empty repository.
func (s *scene) newRemote() {
	s.t.Helper()
	s.remote = filepath.Join(s.t.TempDir(), "remote.git")
	if err := gittest.InitBare(s.t.Context(), s.remote, "main"); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) widgets(group string) dynamic.ResourceInterface {
	return s.client.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}).Namespace(s.namespace)
}

func (s *scene) create(group, name string) {
	s.t.Helper()
	widget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1", "kind": "Widget", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"size": int64(1)},
	}}
	if _, err := s.widgets(group).Create(s.t.Context(), widget, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// file is where git has a widget.
func (s *scene) file(group, name string) string {
	return "namespaces/" + s.namespace + "/widgets." + group + "/" + name + ".yaml"
}

// waitFiles waits until the branch has exactly these widgets.
func (s *scene) waitFiles(want ...string) {
	s.t.Helper()
	slices.Sort(want)
	kubetest.Poll(s.t.Context(), s.t, patience, "git to have "+strings.Join(want, ", "), func(ctx context.Context) error {
		text, err := gittest.Run(ctx, s.remote, "ls-tree", "-r", "--name-only", "main", "namespaces/"+s.namespace+"/")
		var got []string
		for line := range strings.Lines(text) {
			if strings.Contains(line, "/widgets.") {
				got = append(got, strings.TrimSpace(line))
			}
		}
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("it has %q", got)
		}
		return err
	})
}

// waitSize waits until a widget in the cluster has that size; 0 means that it is gone.
func (s *scene) waitSize(group, name string, want int64) {
	s.t.Helper()
	kubetest.Poll(s.t.Context(), s.t, patience, fmt.Sprintf("size %d of %s %s", want, group, name), func(ctx context.Context) error {
		list, err := s.widgets(group).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		if err != nil {
			return err
		}
		var got int64
		for _, widget := range list.Items {
			got, _, _ = unstructured.NestedInt64(widget.Object, "spec", "size")
		}
		if got != want {
			return fmt.Errorf("it is %d", got)
		}
		return nil
	})
}

// account is a ServiceAccount with what crmirror rbac prints for the configuration,
// after edit.
type account struct {
	user       string
	kubeconfig string
	roles      []*unstructured.Unstructured
}

func (s *scene) account(name string, edit func(role *unstructured.Unstructured)) *account {
	s.t.Helper()
	objects := objectsOf(s.t, world.crmirror, "rbac", "--config", s.configFile(), "--namespace", s.home, "--name", name)
	a := &account{user: "system:serviceaccount:" + s.home + ":" + name}
	for _, object := range objects {
		if kind := object.GetKind(); kind == "Role" || kind == "ClusterRole" {
			edit(object)
			a.roles = append(a.roles, object)
		}
	}
	put(s.t, objects)
	groups := []string{"system:serviceaccounts", "system:serviceaccounts:" + s.home, "system:authenticated"}
	var err error
	if _, a.kubeconfig, err = world.cluster.User(a.user, groups...); err != nil {
		s.t.Fatal(err)
	}
	a.wait(s.t, groups)
	return a
}

func (s *scene) configFile() string {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(s.config, "REMOTE", s.remote)), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

// wait returns when the server knows of all the rights.
func (a *account) wait(t *testing.T, groups []string) {
	t.Helper()
	client, err := kubernetes.NewForConfig(world.cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	for right := range rightsOf(t, a.roles) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: a.user, Groups: groups,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: right.namespace, Verb: right.verb, Group: right.group, Resource: right.resource, Name: right.name,
			},
		}}
		kubetest.Poll(t.Context(), t, patience, fmt.Sprintf("%s to have %v", a.user, right), func(ctx context.Context) error {
			answer, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err == nil && !answer.Status.Allowed {
				err = errors.New("not allowed")
			}
			return err
		})
	}
}

// process is a command under way.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	log string // a file
	end chan struct{}
}

// start starts crmirror as an account, as in a pod: there is no temporary folder.
func (s *scene) start(a *account, command string, args ...string) *process {
	s.t.Helper()
	home := s.t.TempDir()
	p := &process{t: s.t, log: filepath.Join(home, "log"), end: make(chan struct{})}
	args = append([]string{command, "--config", s.configFile(), "--cache-dir", filepath.Join(home, "cache")}, args...)
	p.cmd = exec.Command(world.crmirror, args...)
	p.cmd.Dir = home
	p.cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + a.kubeconfig, "TMPDIR=" + filepath.Join(home, "none")}
	log, err := os.Create(p.log)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // the exit code tells
		close(p.end)
	}()
	s.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // one that is still there
		<-p.end
		if s.t.Failed() {
			s.t.Logf("crmirror %v as %s:\n%s", args, a.user, p.said())
		}
	})
	return p
}

func (p *process) said() string {
	content, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Error(err)
	}
	return string(content)
}

// wait waits for the end and returns the exit code.
func (p *process) wait() int {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	select {
	case <-p.end:
	case <-ctx.Done():
		p.t.Fatal("the process did not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

// stop ends an agent.
func (p *process) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	if code := p.wait(); code != 0 {
		p.t.Errorf("exit code after SIGTERM: got %d, want 0", code)
	}
}

// waitSaid waits until the output matches.
func (p *process) waitSaid(pattern string) {
	p.t.Helper()
	kubetest.Poll(p.t.Context(), p.t, patience, "output "+pattern, func(context.Context) error {
		if said := p.said(); !regexp.MustCompile(pattern).MatchString(said) {
			return errors.New(said)
		}
		return nil
	})
}

// call is one that a service account made, as the server wrote it down.
type call struct {
	right
	forbidden bool
}

// calls reads what an account asked of the server about objects.
func calls(t *testing.T, user string) []call {
	t.Helper()
	log, err := os.ReadFile(world.audit)
	if err != nil {
		t.Fatal(err)
	}
	var out []call
	lines := bufio.NewScanner(bytes.NewReader(log))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var entry struct {
			Verb           string
			User           struct{ Username string }
			ObjectRef      struct{ Resource, Namespace, Name, APIGroup string }
			ResponseStatus struct{ Code int }
			Annotations    map[string]string
		}
		if err := json.Unmarshal(lines.Bytes(), &entry); err != nil {
			t.Fatalf("read audit log: %v", err)
		}
		if entry.User.Username != user {
			continue
		}
		ref := entry.ObjectRef
		c := call{
			right:     right{ref.Namespace, ref.APIGroup, ref.Resource, ref.Name, entry.Verb},
			forbidden: entry.ResponseStatus.Code == 403 || entry.Annotations["authorization.k8s.io/decision"] == "forbid",
		}
		out = append(out, c)
		if entry.Verb == "patch" && entry.ResponseStatus.Code == 201 { // an apply that creates needs both
			c.verb = "create"
			out = append(out, c)
		}
	}
	return out
}

// checkCalls compares what an account did with what it may: no call was forbidden, and
// nothing is granted that was not needed.
func (a *account) check(t *testing.T) {
	t.Helper()
	made := calls(t, a.user)
	for _, c := range made {
		if c.forbidden {
			t.Errorf("forbidden: %+v", c.right)
		}
	}
	for granted := range rightsOf(t, a.roles) {
		used := slices.ContainsFunc(made, func(c call) bool {
			return c.verb == granted.verb && c.group == granted.group && c.resource == granted.resource &&
				(granted.namespace == "" || granted.namespace == c.namespace) && (granted.name == "" || granted.name == c.name)
		})
		if !used && !seldom(granted) {
			t.Errorf("granted, and not needed: %+v", granted)
		}
	}
}

// seldom are rights that an ordinary day does not show.
func seldom(r right) bool {
	switch {
	case r.verb == "list": // of a server that does not stream listings
	case r.resource == "events" && r.verb == "patch": // an event that comes again is counted up
	default:
		return false
	}
	return true
}
