package sync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	gosync "sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/informer"
	"github.com/crmirror/crmirror/kube/kubetest"
)

func TestMain(m *testing.M) { kubetest.Main(m) }

// pair is a real API server with a kind of its own for one test, a real bare
// repository, and whatever agent runs at the moment.
type pair struct {
	*world
	server *liveCluster
	hands  *hands
	dry    *hands // of dry runs
	opts   TwoWay
	cache  string

	unsettled []Unsettled // by the last resolve
}

// hands are the real ones; a test may do something between an agent's step and the next.
type hands struct {
	*apply.Writer
	*apply.Schemas
	mu          gosync.Mutex
	beforeWrite func(kube.Key) error // called once; an error takes the place of the write's answer
	afterWrite  func(kube.Key) error // the same
	eachWrite   func(kube.Key)       // called before each write
	writes      int
	beforeRead  func()
}

func (h *hands) Read(ctx context.Context, key kube.Key, version string) (*unstructured.Unstructured, error) {
	if h.beforeRead != nil {
		h.beforeRead()
	}
	return h.Writer.Read(ctx, key, version)
}

func (h *hands) Write(ctx context.Context, c apply.Change) (apply.Result, error) {
	return around(h, c.Key, func() (apply.Result, error) { return h.Writer.Write(ctx, c) })
}

func around[T any](h *hands, key kube.Key, write func() (T, error)) (T, error) {
	var none T
	if h.eachWrite != nil {
		h.eachWrite(key)
	}
	if before := h.once(&h.beforeWrite); before != nil {
		if err := before(key); err != nil {
			return none, err
		}
	}
	result, err := write()
	if after := h.once(&h.afterWrite); after != nil {
		if err := after(key); err != nil {
			return none, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writes++
	return result, err
}

// once takes a hook: writes run side by side, and one of them meets it.
func (h *hands) once(hook *func(kube.Key) error) func(kube.Key) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := *hook
	*hook = nil
	return f
}

// liveCluster answers what a Mirror asks from a real API server. What the informers tell, a
// test tells: so it can be late.
type liveCluster struct {
	t         *testing.T
	client    dynamic.Interface
	group     string
	namespace string
	kinds     []liveKind // the first is Widget
	rules     *kube.Rules
}

// liveKind is a kind that the informers watch.
type liveKind struct {
	schema.GroupVersionResource
	kind string
}

var secretResource = schema.GroupResource{Resource: "secrets"}

// watchSecrets lets secrets be watched too.
func (c *liveCluster) watchSecrets() {
	c.kinds = append(c.kinds, liveKind{secretResource.WithVersion("v1"), "Secret"})
}

// of returns the kind of a resource, or nil.
func (c *liveCluster) of(gr schema.GroupResource) *liveKind {
	i := slices.IndexFunc(c.kinds, func(k liveKind) bool { return k.GroupResource() == gr })
	if i < 0 {
		return nil
	}
	return &c.kinds[i]
}

func (c *liveCluster) resource() schema.GroupResource { return c.kinds[0].GroupResource() }

// objects speaks of the objects of a kind that is watched.
func (c *liveCluster) objects(gr schema.GroupResource) dynamic.ResourceInterface {
	return c.client.Resource(c.of(gr).GroupVersionResource).Namespace(c.namespace)
}

func (c *liveCluster) widgets() dynamic.ResourceInterface {
	return c.objects(c.resource())
}

func (c *liveCluster) key(name string) kube.Key {
	return kube.Key{Group: c.group, Resource: "widgets", Namespace: c.namespace, Name: name}
}

func (c *liveCluster) Get(ctx context.Context, key kube.Key) (informer.State, error) {
	if c.of(key.GroupResource()) == nil {
		return informer.State{}, informer.ErrUnknownKind
	}
	live, err := c.objects(key.GroupResource()).Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return informer.State{}, informer.ErrNotFound
	}
	if err != nil {
		return informer.State{}, err
	}
	shape := &kube.Shape{}
	if rules, ok := c.rules.Resource(key.GroupResource(), key.Group != ""); ok {
		rule, ok := rules.Governs(live)
		if !ok {
			return informer.State{}, informer.ErrUnselected
		}
		shape = &rule.Shape
	}
	content, err := kube.Encode(live, shape)
	return informer.State{
		Key: key, UID: live.GetUID(), ResourceVersion: live.GetResourceVersion(),
		Manager: kube.NewestManager(live), Content: content,
	}, err
}

func (c *liveCluster) Proven(context.Context, schema.GroupResource) error { return nil }

func (c *liveCluster) Kind(gr schema.GroupResource) (string, bool, bool) {
	k := c.of(gr)
	if k == nil {
		return "", false, false
	}
	return k.kind, true, true
}

func (c *liveCluster) Version(gr schema.GroupResource) (string, bool) {
	k := c.of(gr)
	if k == nil {
		return "", false
	}
	return k.Version, true
}

func (c *liveCluster) Created(schema.GroupResource) time.Time { return time.Time{} }

func (c *liveCluster) ClusterUID(context.Context) (string, error) { return "uid-one", nil }

func (c *liveCluster) Synced() bool { return true }

func (c *liveCluster) Status() []informer.ResourceStatus {
	var out []informer.ResourceStatus
	for _, k := range c.kinds {
		out = append(out, informer.ResourceStatus{Scope: informer.Scope{Resource: k.GroupResource()}, Phase: informer.PhaseSynced})
	}
	return out
}

// newPair makes the kind and an empty repository. No agent runs yet.
func newPair(t *testing.T) *pair {
	t.Helper()
	server := kubetest.Shared(t)
	config := rest.CopyConfig(server.Config)
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	schemas, err := apply.NewSchemas(config, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	writer, err := apply.NewWriter(config, schemas, apply.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dry, err := apply.NewWriter(config, schemas, apply.Options{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	namespace := server.Namespace(t)
	p := &pair{
		world:  w,
		server: &liveCluster{t: t, client: client, group: namespace + ".test.dev", namespace: namespace},
		hands:  &hands{Writer: writer, Schemas: schemas},
		dry:    &hands{Writer: dry, Schemas: schemas},
		cache:  t.TempDir(),
	}
	p.server.kinds = []liveKind{{schema.GroupVersionResource{Group: p.server.group, Version: "v1", Resource: "widgets"}, "Widget"}}
	kubetest.InstallWidgets(t, client, p.server.group, namespace, nil)
	return p
}

func (p *pair) decode(text string) *unstructured.Unstructured {
	p.t.Helper()
	content, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		p.t.Fatal(err)
	}
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(content); err != nil {
		p.t.Fatal(err)
	}
	return obj
}

// agent starts an agent in mode two-way: a new process, with the cache of the last.
func (p *pair) agent() {
	p.t.Helper()
	p.startAs(&p.opts)
}

func (p *pair) startAs(two *TwoWay) {
	p.t.Helper()
	p.stop()
	log := logrus.New()
	p.logs = &bytes.Buffer{}
	log.SetOutput(p.logs)
	log.SetLevel(logrus.DebugLevel)
	rules, err := p.rules.Compile()
	if err != nil {
		p.t.Fatal(err)
	}
	p.server.rules = rules
	refs := Refs("lab", "main", "clusters/lab")
	p.store, err = gitstore.Open(p.t.Context(), gitstore.Options{
		URL: p.url, Dir: p.cache, Branch: "main", Path: "clusters/lab", Refs: refs.All(), History: true,
		Author: gitstore.Identity{Name: "crmirror", Email: "crmirror@example.com"}, Log: log,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.batch = NewBatch(BatchOptions{})
	p.inbox = NewInbox(p.batch, log)
	if two != nil {
		two.Hands = p.hands
		if two.DryRun {
			two.Hands = p.dry
		}
	}
	p.mirror = NewMirror(Options{
		ClusterName: "lab", Rules: rules, Tree: NewTree("lab", p.rules), Guard: p.guard, TwoWay: two, Log: log,
	}, p.inbox, p.server, p.store, refs)
	p.t.Cleanup(p.stop)
	p.relist()
}

// relist lets the informers see everything.
func (p *pair) relist() {
	p.t.Helper()
	ctx := p.t.Context()
	for _, k := range p.server.kinds {
		scope := informer.Scope{Resource: k.GroupResource()}
		list, err := p.server.objects(k.GroupResource()).List(ctx, metav1.ListOptions{})
		if err != nil {
			p.t.Fatal(err)
		}
		p.inbox.Listing(ctx, scope)
		names := map[string]bool{}
		for i := range list.Items {
			key := kube.Key{Group: k.Group, Resource: k.Resource, Namespace: p.server.namespace, Name: list.Items[i].GetName()}
			names[key.Name] = true
			p.seeKey(key)
		}
		p.inbox.Listed(ctx, scope, informer.Listing{Has: func(key kube.Key) bool { return names[key.Name] }})
	}
}

// see lets the informer see widgets as they are now.
func (p *pair) see(names ...string) {
	p.t.Helper()
	for _, name := range names {
		p.seeKey(p.server.key(name))
	}
}

// seeKey lets the informer see an object as it is now.
func (p *pair) seeKey(key kube.Key) {
	p.t.Helper()
	state, err := p.server.Get(p.t.Context(), key)
	switch {
	case err == nil:
		p.inbox.Changed(p.t.Context(), state)
	case errors.Is(err, informer.ErrNotFound):
		p.inbox.Absent(p.t.Context(), key, informer.Deleted)
	case errors.Is(err, informer.ErrUnselected):
		p.inbox.Absent(p.t.Context(), key, informer.Unselected)
	default:
		p.t.Fatal(err)
	}
}

// turn is one cycle that asks the remote first.
func (p *pair) turn() *Report {
	p.t.Helper()
	p.mirror.Recheck()
	return p.cycle()
}

func (p *pair) tryTurn() (*Report, error) {
	p.t.Helper()
	p.mirror.Recheck()
	return p.tryCycle()
}

// settled runs cycles until nothing moves, and returns the last report.
func (p *pair) settled() *Report {
	p.t.Helper()
	for range 6 {
		p.relist()
		before := p.refsNow()
		report := p.turn()
		if p.refsNow() == before {
			return report
		}
	}
	p.t.Fatal("cycles go on writing")
	return nil
}

// refsNow is where branch and base are; announcements come and go with every try.
func (p *pair) refsNow() string {
	return p.git("-C", p.remote, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", p.mirror.refs.Base)
}

// create creates a widget in the cluster; spec is YAML.
func (p *pair) create(manager, name, spec string) {
	p.t.Helper()
	obj := p.decode(p.text(name, spec))
	if _, err := p.server.widgets().Create(p.t.Context(), obj, metav1.CreateOptions{FieldManager: manager}); err != nil {
		p.t.Fatal(err)
	}
}

// patch merges a patch of the spec, in the cluster, as that manager.
func (p *pair) patch(manager, name, spec string) {
	p.t.Helper()
	content, err := yaml.YAMLToJSON([]byte("spec: " + spec))
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.server.widgets().Patch(p.t.Context(), name, types.MergePatchType, content, metav1.PatchOptions{FieldManager: manager}); err != nil {
		p.t.Fatal(err)
	}
}

// namespace creates a namespace.
func (p *pair) namespace(name string) {
	p.t.Helper()
	obj := p.decode("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + name + "}\n")
	if _, err := p.server.client.Resource(namespaceResource.WithVersion("v1")).Create(p.t.Context(), obj, metav1.CreateOptions{}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pair) delete(name string) {
	p.t.Helper()
	if err := p.server.widgets().Delete(p.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		p.t.Fatal(err)
	}
}

// announced is the announcement at the remote; "" when there never was one.
func (p *pair) announced() string {
	p.t.Helper()
	if p.git("-C", p.remote, "for-each-ref", p.mirror.refs.Applying) == "" {
		return ""
	}
	return p.git("-C", p.remote, "cat-file", "blob", p.mirror.refs.Applying+":"+announcementFile)
}

// text is the manifest of a widget.
func (p *pair) text(name, spec string) string {
	return fmt.Sprintf("apiVersion: %s/v1\nkind: Widget\nmetadata:\n  name: %s\n  namespace: %s\nspec: %s\n", p.server.group, name, p.server.namespace, spec)
}

// spec is what the cluster has, as YAML in flow style; "" when there is no object.
func (p *pair) spec(name string) string {
	p.t.Helper()
	live, err := p.server.widgets().Get(p.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return p.flow(live.Object["spec"])
}

func (p *pair) flow(v any) string {
	p.t.Helper()
	m, ok := v.(map[string]any)
	if !ok {
		return fmt.Sprint(v)
	}
	var parts []string
	for _, key := range sortedNames(m) {
		parts = append(parts, fmt.Sprintf("%s: %v", key, m[key]))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func (p *pair) pathOf(name string) string { return PathOf(p.server.key(name)) }

// inGit is the spec that the branch has; "" when there is no file.
func (p *pair) inGit(name string) string {
	p.t.Helper()
	content := p.file(p.pathOf(name))
	if content == "" {
		return ""
	}
	return p.flow(p.decode(content).Object["spec"])
}

// inBase is the spec that base has.
func (p *pair) inBase(name string) string {
	p.t.Helper()
	ref := p.mirror.refs.Base
	if p.git("-C", p.remote, "ls-tree", ref, "--", "clusters/lab/"+p.pathOf(name)) == "" {
		return ""
	}
	return p.flow(p.decode(p.git("-C", p.remote, "cat-file", "blob", ref+":clusters/lab/"+p.pathOf(name))).Object["spec"])
}

// edit lets a person commit a change of files; "" deletes one.
func (p *pair) edit(message string, specs map[string]string) {
	p.t.Helper()
	p.person(message, func(dir string) {
		for name, spec := range specs {
			file := filepath.Join(dir, "clusters/lab", p.pathOf(name))
			if spec == "" {
				if err := os.Remove(file); err != nil {
					p.t.Fatal(err)
				}
				continue
			}
			if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
				p.t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(p.text(name, spec)), 0o666); err != nil {
				p.t.Fatal(err)
			}
		}
	})
}

// want compares what the three have of a widget.
func (p *pair) want(name, cluster, git, base string) {
	p.t.Helper()
	for _, x := range []struct{ what, got, want string }{
		{"cluster", p.spec(name), cluster}, {"git", p.inGit(name), git}, {"base", p.inBase(name), base},
	} {
		if x.got != x.want {
			p.t.Errorf("%s: %s has %s, want %s", name, x.what, x.got, x.want)
		}
	}
}

func (p *pair) wantConflicts(r *Report, fields ...string) {
	p.t.Helper()
	var got []string
	for _, c := range r.Conflicts {
		got = append(got, c.Field)
	}
	if fmt.Sprint(got) != fmt.Sprint(fields) {
		p.t.Errorf("conflicts %q, want %q\nrefusals: %v\nfindings: %v", got, fields, r.Refusals, r.Findings)
	}
}

func sortedNames(m map[string]any) []string {
	return slices.Sorted(maps.Keys(m))
}

func fieldPathsOf(t *testing.T, texts ...string) []kube.FieldPath {
	t.Helper()
	var out []kube.FieldPath
	for _, text := range texts {
		path, err := kube.ParseFieldPath(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, path)
	}
	return out
}
