package restore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube/apply"
)

// flaky is a cluster whose listings of widgets break off in the end, as often as it says.
type flaky struct {
	*scene
	fails int
	lists int
}

func (f *flaky) List(ctx context.Context, gvr schema.GroupVersionResource, namespace, labels string, fn func(*unstructured.Unstructured) error) (string, error) {
	version, err := f.scene.List(ctx, gvr, namespace, labels, fn)
	if gvr.GroupResource() != widgets || err != nil {
		return version, err
	}
	if f.lists++; f.lists <= f.fails {
		return "", &apply.Rejected{Verdict: apply.Unavailable, Message: "not now", Retry: true}
	}
	return version, nil
}

// A server that does not answer for a while is asked again, for two minutes.
func TestReadsAreRetried(t *testing.T) {
	for name, c := range map[string]struct {
		fails int
		want  bool
	}{"once": {1, true}, "some times": {4, true}, "for ever": {1 << 30, false}} {
		synctest.Test(t, func(t *testing.T) {
			w := shop(t)
			w.live(namespaceText("shop"))
			w.live(widgetCRD("v1"))
			w.live(widget("shop", "a", "1"))
			w.live(widget("shop", "b", "2"))
			s, err := ReadSnapshot(t.Context(), w, gitstore.Hash{1}, nil)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			plan, err := Make(t.Context(), s, &flaky{scene: w, fails: c.fails}, &Options{})
			if took := time.Since(began); took > defaultPatience+longestWait || !c.want && took < defaultPatience {
				t.Errorf("%s: the plan took %s", name, took)
			}
			if got := err == nil && plan.Complete() && plan.Totals()[Unchanged] == 4; got != c.want {
				t.Errorf("%s: planned %v (%v), want %v", name, got, err, c.want)
			}
			v, err := Verify(t.Context(), s, &flaky{scene: w, fails: c.fails}, &Options{})
			if got := err == nil && v.Same() && v.Equal == 4 && len(v.Extra) == 0; got != c.want {
				t.Errorf("%s: verified %v (%v), want %v", name, got, err, c.want)
			}
		})
	}
}
