package sync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/informer"
)

var widgets = schema.GroupResource{Group: "shop.example.dev", Resource: "widgets"}

// world is a cluster in memory, a real bare repository as the remote, and
// whatever agent runs at the moment.
type world struct {
	t       *testing.T
	cluster *fakeCluster
	remote  string // bare repository
	url     string // of it, for the agent
	rules   kube.Selection
	guard   Limits
	now     time.Time

	inbox  *Inbox
	batch  *Batch
	mirror *Mirror
	store  *gitstore.Store
	logs   *bytes.Buffer
}

// newWorld makes a world, beside those of other tests.
func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	return makeWorld(t)
}

// makeWorld makes a world for a test that runs alone.
func makeWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t:       t,
		cluster: newFakeCluster("uid-one"),
		remote:  filepath.Join(t.TempDir(), "remote.git"),
		rules:   kube.Selection{Select: []kube.Rule{{Resources: []string{"*"}}}},
		guard:   Limits{MaxDeleteObjects: 50, MaxDeletePercent: 30},
		now:     time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC),
		logs:    &bytes.Buffer{},
	}
	w.url = "file://" + w.remote
	w.git("init", "--quiet", "--bare", "--initial-branch=main", w.remote)
	return w
}

// start runs a new agent with an empty cache, as after the loss of its disk.
func (w *world) start() {
	w.t.Helper()
	w.stop()
	log := logrus.New()
	log.SetOutput(w.logs)
	log.SetLevel(logrus.DebugLevel)
	rules, err := w.rules.Compile()
	if err != nil {
		w.t.Fatal(err)
	}
	w.cluster.rules = rules
	refs := Refs("lab", "main", "clusters/lab")
	w.store, err = gitstore.Open(w.t.Context(), gitstore.Options{
		URL: w.url, Dir: w.t.TempDir(), Branch: "main", Path: "clusters/lab", Refs: refs.All(),
		Author: gitstore.Identity{Name: "crmirror", Email: "crmirror@example.com"}, Log: log,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.batch = NewBatch(BatchOptions{})
	w.inbox = NewInbox(w.batch, log)
	w.mirror = NewMirror(Options{
		ClusterName: "lab", Rules: rules, Tree: NewTree("lab", w.rules), Guard: w.guard,
		Namespaces: true, CRDs: true, Log: log,
	}, w.inbox, w.cluster, w.store, refs)
	w.t.Cleanup(w.stop)
}

func (w *world) stop() {
	if w.store != nil {
		if err := w.store.Close(); err != nil {
			w.t.Error(err)
		}
		w.store = nil
	}
}

// list lets the informer of gr see everything that the cluster has.
func (w *world) list(grs ...schema.GroupResource) {
	w.t.Helper()
	for _, gr := range append([]schema.GroupResource{crdResource}, grs...) {
		w.listAs(gr, false)
	}
}

func (w *world) listAs(gr schema.GroupResource, reborn bool) {
	w.t.Helper()
	ctx, scope := w.t.Context(), informer.Scope{Resource: gr}
	w.cluster.serve(gr)
	w.inbox.Listing(ctx, scope)
	for _, key := range w.cluster.keys() {
		if key.GroupResource() == gr {
			w.tell(key)
		}
	}
	w.inbox.Listed(ctx, scope, informer.Listing{Has: w.cluster.has, Reborn: reborn})
}

// tell lets the informer see the present state of an object.
func (w *world) tell(key kube.Key) {
	w.t.Helper()
	state, err := w.cluster.Get(w.t.Context(), key)
	switch {
	case err == nil:
		w.inbox.Changed(w.t.Context(), state)
	case errors.Is(err, informer.ErrUnselected):
		w.inbox.Absent(w.t.Context(), key, informer.Unselected)
	case errors.Is(err, informer.ErrNotFound):
		w.inbox.Absent(w.t.Context(), key, informer.Deleted)
	default:
		w.t.Fatal(err)
	}
}

func (w *world) put(keys ...kube.Key) {
	w.t.Helper()
	for _, key := range keys {
		w.cluster.put(key, "1")
	}
}

// change sets an object's value and lets the informer see it.
func (w *world) change(key kube.Key, value string) {
	w.t.Helper()
	w.cluster.put(key, value)
	w.tell(key)
}

// remove deletes objects and lets the informer see it.
func (w *world) remove(keys ...kube.Key) {
	w.t.Helper()
	for _, key := range keys {
		delete(w.cluster.objects, key)
		w.tell(key)
	}
}

// cycle runs one cycle, a minute after the last.
func (w *world) cycle() *Report {
	w.t.Helper()
	report, err := w.tryCycle()
	if err != nil {
		w.t.Fatalf("cycle: %v\n%s", err, w.logs)
	}
	return report
}

func (w *world) tryCycle() (*Report, error) {
	w.t.Helper()
	w.now = w.now.Add(time.Minute)
	return w.mirror.Cycle(w.t.Context(), w.now)
}

// names returns the sorted paths below the mirrored one on the remote's branch,
// without the marker.
func (w *world) names() []string {
	w.t.Helper()
	var names []string
	for path := range strings.SplitSeq(w.git("-C", w.remote, "ls-tree", "-r", "-z", "--name-only", "main", "--", "clusters/lab"), "\x00") {
		if name := strings.TrimPrefix(path, "clusters/lab/"); name != "" && name != MarkerName {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// file returns the content of one file there; "" when there is none.
func (w *world) file(name string) string {
	w.t.Helper()
	path := "clusters/lab/" + name
	if w.git("-C", w.remote, "ls-tree", "main", "--", path) == "" {
		return ""
	}
	return w.git("-C", w.remote, "cat-file", "blob", "main:"+path)
}

func (w *world) commits() int {
	w.t.Helper()
	return strings.Count(w.git("-C", w.remote, "log", "--format=%H", "main"), "\n")
}

// person clones the remote, lets edit work in the clone, commits all and pushes.
func (w *world) person(message string, edit func(dir string)) {
	w.t.Helper()
	dir := filepath.Join(w.t.TempDir(), "clone")
	w.git("clone", "--quiet", w.remote, dir)
	edit(dir)
	w.git("-C", dir, "add", "--all")
	w.git("-C", dir, "commit", "--quiet", "--message", message)
	w.git("-C", dir, "push", "--quiet", "origin", "HEAD:main")
}

func (w *world) git(args ...string) string {
	w.t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(w.t.Context()), "git", args...)
	cmd.Env = append(os.Environ(),
		"GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.com",
		"GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func widget(n int) kube.Key {
	return kube.Key{Group: widgets.Group, Resource: widgets.Resource, Namespace: "shop", Name: fmt.Sprintf("w%03d", n)}
}

func widgetRange(from, to int) []kube.Key {
	var keys []kube.Key
	for n := from; n < to; n++ {
		keys = append(keys, widget(n))
	}
	return keys
}

// fakeCluster stands for the API server where only what it answers matters, not
// how: the same code runs against a real one in the end-to-end tests.
type fakeCluster struct {
	uid     string
	rules   *kube.Rules
	objects map[kube.Key]*unstructured.Unstructured
	scopes  map[schema.GroupResource]bool
	proofs  map[schema.GroupResource]error
	created map[schema.GroupResource]time.Time
	getErr  error
}

func newFakeCluster(uid string) *fakeCluster {
	return &fakeCluster{
		uid: uid, objects: map[kube.Key]*unstructured.Unstructured{},
		scopes: map[schema.GroupResource]bool{}, proofs: map[schema.GroupResource]error{},
		created: map[schema.GroupResource]time.Time{},
	}
}

func (c *fakeCluster) serve(gr schema.GroupResource) { c.scopes[gr] = true }

func (c *fakeCluster) put(key kube.Key, value string) {
	if key.Namespace != "" {
		ns := kube.Key{Resource: "namespaces", Name: key.Namespace}
		if c.objects[ns] == nil {
			c.put(ns, "")
		}
	}
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	kind, _, _ := c.Kind(key.GroupResource())
	obj.SetGroupVersionKind(schema.GroupVersionKind{Group: key.Group, Version: "v1", Kind: kind})
	obj.SetNamespace(key.Namespace)
	obj.SetName(key.Name)
	obj.SetUID(types.UID("uid of " + key.String()))
	if value != "" {
		obj.Object["spec"] = map[string]any{"size": value}
	}
	c.objects[key] = obj
}

func (c *fakeCluster) label(key kube.Key, name, value string) {
	c.objects[key].SetLabels(map[string]string{name: value})
}

func (c *fakeCluster) has(key kube.Key) bool {
	obj, ok := c.objects[key]
	if !ok {
		return false
	}
	_, governed := c.governs(obj, key)
	return governed || key.Group == "" || key.GroupResource() == crdResource
}

func (c *fakeCluster) governs(obj *unstructured.Unstructured, key kube.Key) (*kube.Rule, bool) {
	rules, selected := c.rules.Resource(key.GroupResource(), true)
	if !selected {
		return nil, false
	}
	return rules.Governs(obj)
}

func (c *fakeCluster) keys() []kube.Key { return sortedKeys(c.objects) }

func (c *fakeCluster) Get(_ context.Context, key kube.Key) (informer.State, error) {
	if c.getErr != nil {
		return informer.State{}, c.getErr
	}
	obj, ok := c.objects[key]
	if !ok {
		return informer.State{}, informer.ErrNotFound
	}
	if !c.has(key) {
		return informer.State{}, informer.ErrUnselected
	}
	shape := &kube.Shape{}
	if rule, ok := c.governs(obj, key); ok {
		shape = &rule.Shape
	}
	content, err := kube.Encode(obj, shape)
	return informer.State{
		Key: key, UID: obj.GetUID(), Content: content,
		Manager: kube.Manager{Name: "kubectl", Operation: "Update"},
	}, err
}

func (c *fakeCluster) Proven(_ context.Context, gr schema.GroupResource) error { return c.proofs[gr] }

func (c *fakeCluster) Kind(gr schema.GroupResource) (string, bool, bool) {
	kind := map[string]string{
		"widgets": "Widget", "gadgets": "Gadget", "namespaces": "Namespace",
		"customresourcedefinitions": "CustomResourceDefinition",
	}[gr.Resource]
	return kind, gr != namespaceResource && gr != crdResource, kind != ""
}

func (c *fakeCluster) Version(schema.GroupResource) (string, bool) { return "v1", true }

func (c *fakeCluster) Created(gr schema.GroupResource) time.Time { return c.created[gr] }

func (c *fakeCluster) ClusterUID(context.Context) (string, error) { return c.uid, nil }

func (c *fakeCluster) Synced() bool { return true }

func (c *fakeCluster) Status() []informer.ResourceStatus {
	out := []informer.ResourceStatus{{Scope: informer.Scope{Resource: crdResource}, Phase: informer.PhaseSynced}}
	for gr := range c.scopes {
		if gr != crdResource {
			out = append(out, informer.ResourceStatus{Scope: informer.Scope{Resource: gr}, Phase: informer.PhaseSynced})
		}
	}
	return out
}
