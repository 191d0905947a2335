package informer_test

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/informer"
	"github.com/crmirror/crmirror/kube/kubetest"
)

// TestOwnCorpus proves for every object of the project's own corpus what
// checkCorpus says.
func TestOwnCorpus(t *testing.T) {
	root, err := kubetest.Root()
	if err != nil {
		t.Fatal(err)
	}
	checkCorpus(t, filepath.Join(root, "testdata", "corpus"), nil)
}

// checkCorpus loads a corpus into a real API server and proves for every object
// that its encoding loses nothing but what Encode names, that a second read is
// encoded to the same bytes, and that the decoded file, created on a second,
// empty server, is encoded to the same bytes there. The exceptions are objects for
// which the last cannot hold, with the reason.
func checkCorpus(t *testing.T, dir string, exceptions map[string]string) {
	first := kubetest.New(t, kubetest.Options{})
	report, err := kubetest.Load(t.Context(), first.Config, dir)
	if err != nil {
		t.Fatal(err)
	}
	told := newRecorder()
	o := options(first.Config, selecting(t, "*"), told)
	o.IncludeCRDs, o.IncludeNamespaces = true, true
	fleet := run(t, o)
	for _, unwanted := range []string{"refused ", "failing ", "deleted ", "gone "} {
		if got := told.all(unwanted); len(got) > 0 {
			t.Errorf("told %q", got)
		}
	}
	for _, loaded := range report.Objects {
		if told.state(loaded.Key).Content == nil {
			t.Errorf("%s was loaded and is not told", loaded.Key)
		}
	}
	states := told.snapshot()
	t.Logf("%d objects of %d CRDs loaded, %d told", len(report.Objects), report.CRDs, len(states))
	checkReads(t, connect(t, first.Config), fleet, states)

	second := connect(t, kubetest.New(t, kubetest.Options{}).Config)
	failed := second.recreate(states)
	again := newRecorder()
	o = options(second.config, selecting(t, "*"), again)
	o.IncludeCRDs, o.IncludeNamespaces = true, true
	run(t, o)
	for key, state := range states {
		_, excepted := exceptions[key.String()]
		got := again.state(key)
		diff := cmp.Diff(string(state.Content), string(got.Content))
		switch {
		case excepted && diff == "":
			t.Errorf("%s is an exception and need not be", key)
		case !excepted && failed[key] != nil:
			t.Errorf("%s cannot be created from its file: %v", key, failed[key])
		case !excepted && diff != "":
			t.Errorf("%s differs on the second server (-first +second):\n%s", key, diff)
		case excepted:
			t.Logf("%s differs: %s", key, exceptions[key.String()])
		}
	}
}

// checkReads compares every state with the live object, and with a second read.
func checkReads(t *testing.T, c cluster, fleet *informer.Fleet, states map[kube.Key]informer.State) {
	t.Helper()
	for key, state := range states {
		again, err := fleet.Get(t.Context(), key)
		if err != nil {
			t.Errorf("second read: %v", err)
			continue
		}
		if string(again.Content) != string(state.Content) {
			t.Errorf("%s is encoded differently on a second read:\n%s", key, cmp.Diff(string(state.Content), string(again.Content)))
		}
		decoded, err := kube.Decode(state.Content)
		if err != nil {
			t.Errorf("decode %s: %v", key, err)
			continue
		}
		resource := key.GroupResource().WithVersion(decoded.GroupVersionKind().Version)
		live, err := c.client.Resource(resource).Namespace(key.Namespace).Get(t.Context(), key.Name, metav1.GetOptions{})
		if err != nil {
			t.Error(err)
			continue
		}
		if diff := cmp.Diff(withoutServerFields(live), decoded.Object); diff != "" {
			t.Errorf("%s loses something (-live +file):\n%s", key, diff)
		}
	}
}

// withoutServerFields takes from a live object what DESIGN says is not stored.
func withoutServerFields(live *unstructured.Unstructured) map[string]any {
	delete(live.Object, "status")
	metadata := live.Object["metadata"].(map[string]any)
	for _, field := range []string{
		"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "generateName", "selfLink",
		"deletionTimestamp", "deletionGracePeriodSeconds",
	} {
		delete(metadata, field)
	}
	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
		if len(annotations) == 0 {
			delete(metadata, "annotations")
		}
	}
	owners, _ := metadata["ownerReferences"].([]any)
	for _, owner := range owners {
		delete(owner.(map[string]any), "uid")
	}
	return live.Object
}

// recreate creates the objects of the files: CRDs, then Namespaces, then the
// others. It returns why those that failed did.
func (c cluster) recreate(states map[kube.Key]informer.State) map[kube.Key]error {
	c.t.Helper()
	failed := map[kube.Key]error{}
	for _, phase := range []func(kube.Key) bool{
		func(k kube.Key) bool { return k.Resource == "customresourcedefinitions" },
		func(k kube.Key) bool { return k.Group == "" && k.Resource == "namespaces" },
		func(k kube.Key) bool { return k.Resource != "customresourcedefinitions" && k.Group != "" },
	} {
		keys := slices.DeleteFunc(slices.Collect(maps.Keys(states)), func(k kube.Key) bool { return !phase(k) })
		maps.Copy(failed, c.createAll(keys, states))
		for _, key := range keys {
			if key.Resource == "customresourcedefinitions" {
				c.waitServed(states[key])
			}
		}
	}
	return failed
}

// createAll creates those objects, some at a time.
func (c cluster) createAll(keys []kube.Key, states map[kube.Key]informer.State) map[kube.Key]error {
	var mu sync.Mutex
	var workers sync.WaitGroup
	failed := map[kube.Key]error{}
	next := make(chan kube.Key)
	for range 8 {
		workers.Go(func() {
			for key := range next {
				if err := c.createFrom(key, states[key]); err != nil {
					mu.Lock()
					failed[key] = err
					mu.Unlock()
				}
			}
		})
	}
	for _, key := range keys {
		next <- key
	}
	close(next)
	workers.Wait()
	return failed
}

// createFrom creates an object from its file. An owner needs a uid, which a
// restore will look up; here any will do.
func (c cluster) createFrom(key kube.Key, state informer.State) error {
	obj, err := kube.Decode(state.Content)
	if err != nil {
		return err
	}
	owners := obj.GetOwnerReferences()
	for n := range owners {
		owners[n].UID = types.UID("00000000-0000-0000-0000-000000000000")
	}
	if len(owners) > 0 {
		obj.SetOwnerReferences(owners)
	}
	resource := key.GroupResource().WithVersion(obj.GroupVersionKind().Version)
	_, err = c.client.Resource(resource).Namespace(key.Namespace).Create(c.t.Context(), obj, metav1.CreateOptions{})
	if err != nil && key.Resource == "namespaces" && strings.Contains(err.Error(), "already exists") {
		return nil // every server has some from the start
	}
	return err
}

// waitServed waits until the objects of a CRD can be listed.
func (c cluster) waitServed(state informer.State) {
	c.t.Helper()
	obj, err := kube.Decode(state.Content)
	if err != nil {
		c.t.Fatal(err)
	}
	group, _, _ := unstructured.NestedString(obj.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(obj.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(obj.Object, "spec", "versions")
	for _, v := range versions {
		version := v.(map[string]any)
		if version["served"] != true {
			continue
		}
		poll(c.t, plural+"."+group+" to be served", func(ctx context.Context) error {
			resource := kube.Key{Group: group, Resource: plural}.GroupResource().WithVersion(version["name"].(string))
			_, err := c.client.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1})
			return err
		})
	}
}
