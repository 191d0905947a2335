package apply_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crmirror/crmirror/kube/apply"
)

// TestMoved has something happen between the judgement and the write, for each way of writing.
func TestMoved(t *testing.T) {
	w := install(t, "moved")
	w.typ("v1")
	writer := w.writer()
	happenings := []struct {
		name   string
		happen func(name string)
	}{
		{"changed", func(name string) { w.patch("other", name, "spec: {color: green}") }},
		{"its status changed", func(name string) { w.status(name, true) }},
		{"changed to what is written", func(name string) { w.patch("other", name, "spec: {size: 2, legacy: null}") }},
		{"deleted", w.delete},
		{"made again, the same", func(name string) { w.delete(name); w.create("other", name, "{size: 1, legacy: x}") }},
	}
	writes := []struct {
		name  string
		write func(live *unstructured.Unstructured) error
	}{
		{"apply", func(live *unstructured.Unstructured) error {
			c := w.become(live, "{size: 2, legacy: x, replicas: 1, mode: auto}")
			_, err := writer.Write(t.Context(), c)
			return err
		}},
		{"patch", func(live *unstructured.Unstructured) error {
			_, err := writer.Write(t.Context(), w.become(live, "{size: 2, replicas: 1, mode: auto}"))
			return err
		}},
		{"delete", func(live *unstructured.Unstructured) error {
			_, err := writer.Delete(t.Context(), w.key(live.GetName()), w.resource("v1"), live)
			return err
		}},
	}
	for i, h := range happenings {
		for _, wr := range writes {
			t.Run(h.name+", "+wr.name, func(t *testing.T) {
				name := fmt.Sprintf("%s-%d", wr.name, i)
				live := w.create("other", name, "{size: 1, legacy: x}")
				h.happen(name)
				var before *unstructured.Unstructured
				if h.name != "deleted" {
					before = w.get(name)
				}
				if err := wr.write(live); !errors.Is(err, apply.ErrMoved) {
					t.Errorf("got %v, want ErrMoved", err)
				}
				switch {
				case before == nil && !w.gone(name):
					t.Error("created again")
				case before != nil && w.get(name).GetResourceVersion() != before.GetResourceVersion():
					t.Error("written all the same")
				}
			})
		}
	}
}

func (w *widgets) status(name string, ready bool) {
	w.t.Helper()
	patch := fmt.Appendf(nil, `{"status":{"ready":%v}}`, ready)
	if _, err := w.in("v1").Patch(w.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "controller"}, "status"); err != nil {
		w.t.Fatal(err)
	}
}

func TestTerminating(t *testing.T) {
	w := install(t, "terminating")
	w.create("other", "a", "{size: 1}")
	live := w.patch("other", "a", "metadata: {finalizers: [x.io/f]}")
	gone, err := w.writer().Delete(t.Context(), w.key("a"), w.resource("v1"), live)
	if err != nil || gone {
		t.Fatalf("delete: gone %v, %v; want it to wait for its finalizer", gone, err)
	}
	live = w.get("a")
	c := w.become(live, "{size: 2, replicas: 1, mode: auto}")
	_, err = w.writer().Write(t.Context(), c)
	rejected(t, err, apply.Terminating)
	_, err = w.writer().Delete(t.Context(), w.key("a"), w.resource("v1"), live)
	rejected(t, err, apply.Terminating)
	if w.get("a").GetResourceVersion() != live.GetResourceVersion() {
		t.Error("a terminating object was written")
	}
	w.patch("other", "a", "metadata: {finalizers: null}")
	live = w.create("other", "b", "{size: 1}")
	if gone, err := w.writer().Delete(t.Context(), w.key("b"), w.resource("v1"), live); err != nil || !gone {
		t.Errorf("delete: gone %v, %v", gone, err)
	}
}

// TestUnjudged offers live objects that no server has: without uid, without resourceVersion.
func TestUnjudged(t *testing.T) {
	w := install(t, "unjudged")
	live := w.create("other", "a", "{size: 1}")
	for _, field := range []string{"uid", "resourceVersion"} {
		forged := with(live, func(o *unstructured.Unstructured) { unstructured.RemoveNestedField(o.Object, "metadata", field) })
		if _, err := w.writer().Write(t.Context(), w.become(forged, "{size: 2, replicas: 1, mode: auto}")); err == nil {
			t.Errorf("written without %s", field)
		}
		if _, err := w.writer().Delete(t.Context(), w.key("a"), w.resource("v1"), forged); err == nil {
			t.Errorf("deleted without %s", field)
		}
	}
	c := w.become(live, "{size: 2, replicas: 1, mode: auto}")
	c.Live = nil
	if _, err := w.writer().Write(t.Context(), c); err == nil {
		t.Error("written without a live object")
	}
	c = w.become(live, "{size: 2, replicas: 1, mode: auto}")
	c.Key.Name = "b"
	if _, err := w.writer().Write(t.Context(), c); err == nil {
		t.Error("written under another name")
	}
	if got := w.get("a"); got.GetResourceVersion() != live.GetResourceVersion() {
		t.Error("the object was written")
	}
}

// TestForceOnlyHere reads the source: only package wire may speak to a server, and in it only
// ForceApply, which wants a judged state, may force.
func TestForceOnlyHere(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../internal/wire/*.go")
	if err != nil || len(more) == 0 {
		t.Fatal("no source of wire", err)
	}
	forced := 0
	for _, file := range append(files, more...) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, content, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			f, ok := decl.(*ast.FuncDecl)
			inWire := strings.HasPrefix(file, "../internal")
			ast.Inspect(decl, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.BasicLit:
					if n.Value == `"force"` {
						forced++
						if !inWire || !ok || f.Name.Name != "ForceApply" || !takesJudged(f) {
							t.Errorf("%s: force outside of ForceApply(Judged)", file)
						}
					}
				case *ast.SelectorExpr:
					name := n.Sel.Name
					if !inWire && (name == "ApplyPatchType" || name == "ApplyOptions" || name == "PatchOptions" || name == "NewForConfig") {
						t.Errorf("%s: %s belongs into package wire", file, name)
					}
				}
				return true
			})
		}
	}
	if forced != 1 {
		t.Errorf("force is said %d times, want once", forced)
	}
}

func takesJudged(f *ast.FuncDecl) bool {
	for _, p := range f.Type.Params.List {
		if id, ok := p.Type.(*ast.Ident); ok && id.Name == "Judged" {
			return true
		}
	}
	return false
}

// TestHammer writes one field of an object while others write the rest of it, and the same
// field. Each of their writes is seen by ours or refuses it: every value of ours is one more than the
// value it was judged on, so no write of anybody is overwritten unseen.
func TestHammer(t *testing.T) {
	w := install(t, "hammer")
	w.typ("v1")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w.create("other", "a", "{size: 0, options: {ours: x0}}")
	var group sync.WaitGroup
	const each = 40
	// Two others count up the shared field, and each a field of its own, by updates.
	for i := range 2 {
		group.Go(func() {
			for n := 0; n < each; {
				live, err := w.in("v1").Get(t.Context(), "a", metav1.GetOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				size, _, _ := unstructured.NestedInt64(live.Object, "spec", "size")
				_ = unstructured.SetNestedField(live.Object, size+1, "spec", "size")
				_ = unstructured.SetNestedField(live.Object, fmt.Sprint(n+1), "spec", "options", fmt.Sprintf("h%d", i))
				_, err = w.in("v1").Update(t.Context(), live, metav1.UpdateOptions{FieldManager: fmt.Sprintf("hammer%d", i)})
				switch {
				case err == nil:
					n++
				case !apierrors.IsConflict(err):
					t.Error(err)
					return
				}
			}
		})
	}
	// We count it up too, and add or remove a field now and then, so both ways of writing are used.
	landed, moved := 0, 0
	random := rand.New(rand.NewPCG(seed, 1))
	writer := w.writer()
	for landed < each {
		live, err := writer.Read(t.Context(), w.key("a"), "v1")
		if err != nil {
			t.Fatal(err)
		}
		want := with(live, func(o *unstructured.Unstructured) {
			size, _, _ := unstructured.NestedInt64(o.Object, "spec", "size")
			_ = unstructured.SetNestedField(o.Object, size+1, "spec", "size")
			if random.IntN(2) == 0 {
				unstructured.RemoveNestedField(o.Object, "spec", "options", "ours")
			} else {
				_ = unstructured.SetNestedField(o.Object, fmt.Sprint("x", landed), "spec", "options", "ours")
			}
		})
		_, err = writer.Write(t.Context(), w.toward(live, want))
		switch {
		case err == nil:
			landed++
		case errors.Is(err, apply.ErrMoved):
			moved++
		default:
			t.Fatal(err)
		}
	}
	group.Wait()
	got := w.get("a")
	if size, _, _ := unstructured.NestedInt64(got.Object, "spec", "size"); size != 3*each {
		t.Errorf("counted to %d, want %d: a write got lost", size, 3*each)
	}
	for i := range 2 {
		if v, _, _ := unstructured.NestedString(got.Object, "spec", "options", fmt.Sprintf("h%d", i)); v != fmt.Sprint(each) {
			t.Errorf("h%d is %q", i, v)
		}
	}
	if moved == 0 {
		t.Error("nobody came in between; the test shows nothing")
	}
	t.Logf("%d landed, %d were refused", landed, moved)
}
