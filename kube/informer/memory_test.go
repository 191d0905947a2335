package informer

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"testing"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crmirror/crmirror/kube"
)

// counting is a Sink that counts what it is told.
type counting struct {
	failuresOnly
	changed, deleted int
}

func (c *counting) Changed(context.Context, State) { c.changed++ }

func (c *counting) Absent(_ context.Context, _ kube.Key, a Absence) {
	if a == Deleted {
		c.deleted++
	}
}

// fed returns an informer's feed for a test without a server.
func fed(t testing.TB, sink Sink) *feed {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	resource := schema.GroupVersionResource{Group: "memory.test.dev", Version: "v1", Resource: "widgets"}
	return &feed{ctx: t.Context(), informer: &informer{
		scope: Scope{Resource: resource.GroupResource()}, resource: resource, known: newKnown(), sink: sink, log: log,
		governs: func(*unstructured.Unstructured) (*kube.Shape, bool) { return &kube.Shape{}, true },
		changed: func() {},
	}}
}

// widget is an object of about three kilobytes with managed fields.
func widget(n int) *unstructured.Unstructured {
	spec := map[string]any{}
	for f := range 60 {
		spec[fmt.Sprintf("field%d", f)] = fmt.Sprintf("value %d of object %d, of some length", f, n)
	}
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "memory.test.dev/v1", "kind": "Widget", "spec": spec,
	}}
	obj.SetName(fmt.Sprintf("widget-with-a-usual-name-%06d", n))
	obj.SetNamespace(fmt.Sprintf("namespace-%03d", n%100))
	obj.SetUID(types.UID(fmt.Sprintf("0f8fad5b-d9cb-469f-a165-%012d", n)))
	obj.SetResourceVersion(fmt.Sprint(n))
	obj.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: "controller", Operation: "Update", APIVersion: "memory.test.dev/v1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:field1":{}}}`),
	}})
	return obj
}

// TestMemoryPerObject streams a large listing and weighs what stays of it.
func TestMemoryPerObject(t *testing.T) {
	const objects, limit = 20_000, 180
	sink := &counting{}
	f := fed(t, sink)
	before := heap()
	items := make([]any, 0, objects)
	for n := range objects {
		kept, err := f.Transformer()(widget(n))
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, kept)
	}
	if err := f.Replace(items, "1"); err != nil {
		t.Fatal(err)
	}
	clear(items)
	perObject := (int64(heap()) - int64(before)) / objects
	t.Logf("%d bytes of heap for each object", perObject)
	if perObject > limit {
		t.Errorf("%d bytes of heap for each object, want at most %d", perObject, limit)
	}
	if got := f.informer.known.count(); got != objects || sink.changed != objects {
		t.Errorf("%d objects known and %d told, want %d", got, sink.changed, objects)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// TestReplaceTellsWhatVanished covers objects told in a listing that broke off, and
// those deleted while the initial events streamed.
func TestReplaceTellsWhatVanished(t *testing.T) {
	sink := &counting{}
	f := fed(t, sink)
	first, second := f.read(widget(1)), f.read(widget(2))
	if err := f.Replace([]any{first, second}, "1"); err != nil || sink.deleted != 0 {
		t.Fatalf("first listing: %v, %d deleted", err, sink.deleted)
	}
	f.read(widget(3)) // of a listing that breaks off
	again := f.read(widget(2))
	if err := f.Replace([]any{again}, "2"); err != nil {
		t.Fatal(err)
	}
	if sink.deleted != 2 || f.informer.known.count() != 1 {
		t.Errorf("%d deleted, %d known; want 2 and 1", sink.deleted, f.informer.known.count())
	}
}

func TestListingSlots(t *testing.T) {
	slots := make(chan struct{}, 1)
	first, second := &informer{slots: slots}, &informer{slots: slots}
	if err := first.admit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := first.admit(t.Context()); err != nil {
		t.Errorf("a listing that has its slot is not admitted again: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := second.admit(ended); err == nil {
		t.Error("two listings run, one is allowed")
	}
	first.leave()
	first.leave() // also when a failed attempt ends
	if err := second.admit(t.Context()); err != nil {
		t.Error(err)
	}
	second.leave()
	if err := second.admit(ended); err == nil || len(slots) != 0 {
		t.Errorf("an attempt that is over was admitted, or keeps a slot: %v, %d", err, len(slots))
	}
}

// TestUnheardAbsence covers a deletion whose telling the end of the informer cut
// short: it is told again by the next one.
func TestUnheardAbsence(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	sink := &deaf{cancel: cancel}
	f := fed(t, sink)
	f.ctx = ctx
	f.read(widget(1))
	if err := f.Delete(widget(1)); err != nil {
		t.Fatal(err)
	}
	if f.informer.known.count() != 1 {
		t.Error("an absence that was perhaps not heard is forgotten")
	}
}

// deaf is a Sink whose informer ends while it is told of an absence.
type deaf struct {
	failuresOnly
	cancel context.CancelFunc
}

func (d *deaf) Absent(context.Context, kube.Key, Absence) { d.cancel() }
