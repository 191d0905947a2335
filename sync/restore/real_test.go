package restore

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	gosync "sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/bulk"
	"github.com/crmirror/crmirror/kube/kubetest"
	"github.com/crmirror/crmirror/sync"
)

// What commands put together is what planning needs.
var (
	_ Repository = (*gitstore.Store)(nil)
	_ Cluster    = reading{}
)

// reading is a cluster as commands read it.
type reading struct {
	*bulk.Client
	*apply.Schemas
	mu    *gosync.Mutex
	lists *[]string
}

func (r reading) List(ctx context.Context, gvr schema.GroupVersionResource, namespace, selector string, fn func(*unstructured.Unstructured) error) (string, error) {
	r.mu.Lock()
	*r.lists = append(*r.lists, gvr.GroupResource().String()+" "+namespace)
	r.mu.Unlock()
	return r.Client.List(ctx, gvr, namespace, selector, fn)
}

// The corpus, mirrored from a real API server, equals it: one listing per kind finds that out. What is
// changed then is told field by field, with who did it.
func TestPlanCorpus(t *testing.T) {
	cluster := kubetest.Shared(t)
	root, err := kubetest.Root()
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := kubetest.Load(t.Context(), cluster.Config, filepath.Join(root, "testdata", "corpus"))
	if err != nil {
		t.Fatal(err)
	}
	bulkClient, err := bulk.New(cluster.Config, bulk.Options{})
	if err != nil {
		t.Fatal(err)
	}
	types, err := apply.NewSchemas(cluster.Config, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	var lists []string
	r := reading{bulkClient, types, &gosync.Mutex{}, &lists}
	w := newScene(t)
	mirrored := map[schema.GroupResource]bool{crdResource: true}
	for _, object := range loaded.Objects {
		mirrored[object.Key.GroupResource()] = true
	}
	served, err := r.Discover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for gr := range mirrored {
		kind, ok := served.Resource(gr)
		if !ok {
			t.Fatalf("%s is not served", gr)
		}
		crds, err := r.CRDs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		at := kind.Preferred()
		if crd := crds[gr]; crd != nil {
			at.Version = storedAt(crd)
		}
		_, err = bulkClient.List(t.Context(), at, "", "", func(live *unstructured.Unstructured) error {
			content, err := kube.Encode(live, nil)
			if err != nil {
				return err
			}
			n++
			w.file(sync.PathOf(keyOf(gr.Resource, live)), string(content))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n < 200 {
		t.Fatalf("mirrored %d objects", n)
	}
	snapshot, err := ReadSnapshot(t.Context(), w, gitstore.Hash{1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := Make(t.Context(), snapshot, r, &Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := plan.Totals()[Unchanged]; got != n || len(plan.Actions) != n {
		t.Errorf("unchanged: %d of %d", got, n)
		for _, a := range plan.Actions {
			if a.Verb != Unchanged {
				t.Logf("%s: %s %s %v", a.Key, a.Verb, a.Reason, a.Changes)
			}
		}
	}
	if want := len(mirrored) + 1; len(lists) != want { // the namespaces
		t.Errorf("listings: %d of %d kinds: %q", len(lists), want, lists)
	}
	changeOne(t, w, r, snapshot)
}

// changeOne edits one object, labels another, and plans again.
func changeOne(t *testing.T, w *scene, r reading, snapshot *Snapshot) {
	client, err := dynamic.NewForConfig(kubetest.Shared(t).Config)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(snapshot.Items, func(item Item) bool {
		return item.Key.Namespace != "" && strings.Contains(item.Key.Group, ".")
	})
	item := snapshot.Items[i]
	at := item.Key.GroupResource()
	kind, ok := func() (bulk.Kind, bool) {
		served, err := r.Discover(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return served.Resource(at)
	}()
	if !ok {
		t.Fatalf("%s is not served", at)
	}
	patch := []byte(`{"metadata":{"labels":{"edited.example.com/by":"hand"}}}`)
	_, err = client.Resource(kind.Preferred()).Namespace(item.Key.Namespace).Patch(t.Context(), item.Key.Name, "application/merge-patch+json",
		patch, metav1.PatchOptions{FieldManager: "somebody"})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := Make(t.Context(), snapshot, r, &Options{Existing: ExistingUpdate})
	if err != nil {
		t.Fatal(err)
	}
	a := w.action(plan, item.Key.String())
	if a.Verb != Update || len(a.Changes) != 1 || a.Changes[0].Kind != "only in the cluster" || !slices.Equal(a.Changes[0].Owners, []string{"somebody"}) {
		t.Errorf("got %s %+v, want the label to go", a.Verb, a.Changes)
	}
	wantText(t, a.Changes[0].Field+" "+a.Changes[0].Cause, "edited.example.com/by", "set by somebody")
}
