package restore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

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

// silent is a cluster in which only lists can be read.
type silent struct {
	*scene
	err error
}

func (s *silent) Get(context.Context, schema.GroupVersionResource, string, string) (*unstructured.Unstructured, error) {
	return nil, s.err
}

func (s *silent) Endpoints(context.Context, types.NamespacedName) (bool, error) { return false, s.err }

func (s *silent) Type(context.Context, schema.GroupVersionKind) (typed.ParseableType, bool, error) {
	return typed.DeducedParseableType, false, s.err
}

// One thing that may not be read keeps back what needs it, and nothing else.
func TestPlanUnreadable(t *testing.T) {
	w := shop(t)
	w.live(namespaceText("shop"))
	w.live(widgetCRD("v1"))
	w.crds[widgets].Spec.Conversion = webhook("system", "convert")
	w.live(widget("shop", "a", "7"))
	w.git(widget("shop", "child", "1", "  ownerReferences:\n  - {apiVersion: v1, kind: ConfigMap, name: settings, uid: old}\n"), nil)
	w.unlisted[namespaceResource] = &apply.Rejected{Verdict: apply.Forbidden, Message: "not that"}
	s, err := ReadSnapshot(t.Context(), w, gitstore.Hash{1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	opts := &Options{Resources: []string{"widgets.example.com"}}
	plan, err := Make(t.Context(), s, &silent{scene: w, err: &apply.Rejected{Verdict: apply.Forbidden, Message: "no way"}}, opts)
	if err != nil {
		t.Fatal(err)
	}
	wantText(t, w.action(plan, "widgets.example.com shop/a").Reason, "schema of its kind cannot be read", "no way")
	told := false
	for _, f := range plan.Findings {
		told = told || f.What == "namespaces" && !f.Fatal && strings.Contains(f.Text, "not that")
	}
	if !told {
		t.Errorf("findings %+v, want one about the namespaces", plan.Findings)
	}
	delete(w.unlisted, namespaceResource)
	if plan, err = Make(t.Context(), s, &silent{scene: w, err: &apply.Rejected{Verdict: apply.Forbidden, Message: "no way"}}, opts); err != nil {
		t.Fatal(err)
	}
	wantText(t, w.action(plan, "widgets.example.com shop/child").Reason, "its owner configmaps shop/settings cannot be read", "no way")
	if a := w.action(plan, "widgets.example.com shop/b"); a.Verb != Create {
		t.Errorf("b: got %s %s, want create", a.Verb, a.Reason)
	}
	told = false
	for _, f := range plan.Findings {
		told = told || f.What == crdKey(widgets).String() && !f.Fatal
	}
	if !told {
		t.Errorf("findings %+v, want one about the webhook", plan.Findings)
	}
	if _, err := Make(t.Context(), s, &silent{scene: w, err: context.Canceled}, opts); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the end of the context", err)
	}
}
