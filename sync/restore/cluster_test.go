package restore

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing/filemode"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/bulk"
	"github.com/crmirror/crmirror/kube/kubetest"
	"github.com/crmirror/crmirror/sync"
)

func TestMain(m *testing.M) { kubetest.Main(m) }

// files is a repository of one commit: contents by path.
type files map[string]string

func (f files) FilesAt(context.Context, gitstore.Hash) (map[string]gitstore.TreeFile, error) {
	out := map[string]gitstore.TreeFile{}
	for path, content := range f {
		out[path] = gitstore.TreeFile{Blob: gitstore.BlobHash([]byte(content)), Mode: filemode.Regular}
	}
	return out, nil
}

func (f files) Read(_ context.Context, blob gitstore.Hash) ([]byte, error) {
	for _, content := range f {
		if gitstore.BlobHash([]byte(content)) == blob {
			return []byte(content), nil
		}
	}
	return nil, gitstore.ErrMissing
}

func (f files) Prefetch(context.Context, []gitstore.Hash) error { return nil }

func (f files) Info(gitstore.Hash) (gitstore.CommitInfo, error) {
	return gitstore.CommitInfo{When: time.Unix(0, 0)}, nil
}

// cluster is a real one, of which a test can spoil requests.
type cluster struct {
	*bulk.Client
	*apply.Schemas
	// before, unless nil, is called before each write, and its error is the answer.
	before func(verb string, obj map[string]any) error
	// after, unless nil, is called after each write, and its error takes the place of the answer.
	after func(verb string, obj map[string]any) error
}

func (c *cluster) write(verb string, obj map[string]any, send func() (bulk.Written, error)) (bulk.Written, error) {
	if c.before != nil {
		if err := c.before(verb, obj); err != nil {
			return bulk.Written{}, err
		}
	}
	written, err := send()
	if err == nil && c.after != nil {
		err = c.after(verb, obj)
	}
	return written, err
}

func (c *cluster) Create(ctx context.Context, resource schema.GroupVersionResource, obj map[string]any, dryRun bool) (bulk.Written, error) {
	return c.write("create", obj, func() (bulk.Written, error) { return c.Client.Create(ctx, resource, obj, dryRun) })
}

func (c *cluster) Replace(ctx context.Context, resource schema.GroupVersionResource, obj map[string]any, dryRun bool) (bulk.Written, error) {
	return c.write("replace", obj, func() (bulk.Written, error) { return c.Client.Replace(ctx, resource, obj, dryRun) })
}

func (c *cluster) PutStatus(ctx context.Context, resource schema.GroupVersionResource, obj map[string]any) (bulk.Written, error) {
	return c.write("status", obj, func() (bulk.Written, error) { return c.Client.PutStatus(ctx, resource, obj) })
}

// world is a test's own kind and namespace in a real cluster, and a repository.
type world struct {
	t         *testing.T
	files     files
	cluster   *cluster
	dynamic   dynamic.Interface
	group     string
	namespace string
	opts      ExecuteOptions
}

// newWorld installs the kind Widget in an API group of the test's own.
func newWorld(t *testing.T, name string) *world {
	t.Helper()
	w := newEmptyWorld(t, name)
	kubetest.InstallWidgets(t, w.dynamic, w.group, w.namespace, nil)
	return w
}

func newEmptyWorld(t *testing.T, name string) *world {
	t.Helper()
	return worldOn(t, kubetest.Shared(t), name)
}

func worldOn(t *testing.T, server *kubetest.Cluster, name string) *world {
	t.Helper()
	config := rest.CopyConfig(server.Config)
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	w := &world{t: t, files: files{}, namespace: server.Namespace(t)}
	w.group = name + "." + w.namespace + ".dev" // another one each time, for go test -count
	w.opts.Existing = ExistingUpdate
	saver := NewSaver(filepath.Join(t.TempDir(), "before.yaml"))
	w.opts.Saver = saver
	t.Cleanup(func() {
		if err := saver.Close(); err != nil {
			t.Error(err)
		}
	})
	var err error
	if w.dynamic, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	w.cluster = &cluster{}
	if w.cluster.Client, err = bulk.New(config, bulk.Options{}); err != nil {
		t.Fatal(err)
	}
	if w.cluster.Schemas, err = apply.NewSchemas(config, time.Minute); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: w.group, Version: "v1", Resource: "widgets"}
}

func (w *world) key(name string) kube.Key {
	return kube.Key{Group: w.group, Resource: "widgets", Namespace: w.namespace, Name: name}
}

func (w *world) widgets() dynamic.ResourceInterface {
	return w.dynamic.Resource(w.resource()).Namespace(w.namespace)
}

// widget puts a widget into git. More is further lines of it.
func (w *world) widget(name, spec string, more ...string) {
	w.t.Helper()
	meta := fmt.Sprintf("{name: %s, namespace: %s", name, w.namespace)
	rest := ""
	for _, m := range more {
		if field, ok := strings.CutPrefix(m, "metadata."); ok {
			meta += ", " + field
		} else {
			rest += m + "\n"
		}
	}
	w.files[sync.PathOf(w.key(name))] = fmt.Sprintf("apiVersion: %s/v1\nkind: Widget\nmetadata: %s}\nspec: %s\n%s", w.group, meta, spec, rest)
}

// owner is an ownerReference to a widget, as git has it.
func (w *world) owner(name string) string {
	return fmt.Sprintf("{apiVersion: %s/v1, kind: Widget, name: %s}", w.group, name)
}

// live makes a widget in the cluster, as somebody else.
func (w *world) live(name, spec string) *unstructured.Unstructured {
	w.t.Helper()
	obj, err := kube.Decode(fmt.Appendf(nil, "apiVersion: %s/v1\nkind: Widget\nmetadata: {name: %s, namespace: %s}\nspec: %s\n", w.group, name, w.namespace, spec))
	if err != nil {
		w.t.Fatal(err)
	}
	obj, err = w.widgets().Create(w.t.Context(), obj, metav1.CreateOptions{FieldManager: "somebody"})
	if err != nil {
		w.t.Fatal(err)
	}
	return obj
}

func (w *world) get(name string) *unstructured.Unstructured {
	w.t.Helper()
	obj, err := w.widgets().Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return obj
}

func (w *world) snapshot() *Snapshot {
	w.t.Helper()
	s, err := ReadSnapshot(w.t.Context(), w.files, gitstore.Hash{}, w.opts.RedactKey)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) plan(s *Snapshot) *Plan {
	w.t.Helper()
	plan, err := Make(w.t.Context(), s, w.cluster, &w.opts.Options)
	if err != nil {
		w.t.Fatal(err)
	}
	return plan
}

// restore plans and executes.
func (w *world) restore(ctx context.Context) *Report {
	w.t.Helper()
	s := w.snapshot()
	return w.execute(ctx, s, w.plan(s))
}

func (w *world) execute(ctx context.Context, s *Snapshot, plan *Plan) *Report {
	w.t.Helper()
	report, err := Execute(ctx, s, w.cluster, plan, w.opts)
	if err != nil {
		w.t.Fatal(err)
	}
	return report
}

// want compares results with those by name.
func (w *world) want(r *Report, want map[string]Result) map[string]Outcome {
	w.t.Helper()
	got, outcomes := map[string]Result{}, map[string]Outcome{}
	for _, o := range r.Outcomes {
		got[o.Key.Name], outcomes[o.Key.Name] = o.Result, o
	}
	if !maps.Equal(got, want) {
		for _, o := range r.Outcomes {
			w.t.Logf("%s: %s %s", o.Key, o.Result, o.Reason)
		}
		w.t.Fatalf("got %v, want %v", got, want)
	}
	return outcomes
}
