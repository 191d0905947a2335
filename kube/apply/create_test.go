package apply_test

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
)

func TestCreate(t *testing.T) {
	w := install(t, "create")
	obj := w.object("a", "{size: 1, ports: [{port: 1}], note: null, args: [], tags: [], options: {}, selfSigned: {}}")
	obj.SetLabels(map[string]string{"a": "b"})
	obj.SetAnnotations(map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}", "x": ""})
	obj.Object["status"] = map[string]any{"ready": true}
	obj.SetResourceVersion("7")
	obj.SetUID("8")
	result, err := w.writer().Create(t.Context(), w.key("a"), w.resource("v1"), obj.Object, nil)
	if err != nil {
		t.Fatal(err)
	}
	if result.Method != apply.Created || result.Object.GetUID() == "" {
		t.Errorf("got %+v", result)
	}
	w.expect("a", "{size: 1, ports: [{port: 1, protocol: TCP}], note: null, args: [], tags: [], options: {}, selfSigned: {}, replicas: 1, mode: auto}")
	got := w.get("a")
	if got.Object["status"] != nil || len(got.GetAnnotations()) != 1 {
		t.Errorf("status %v, annotations %v", got.Object["status"], got.GetAnnotations())
	}
	expectOwned(t, got, apply.Manager, "Apply", "metadata.annotations.x", "metadata.labels.a", "spec.args", "spec.note", "spec.options",
		`spec.ports[port=1,protocol="TCP"].port`, "spec.selfSigned", "spec.size")
	if own, err := apply.ReadOwnership(got); err != nil || len(own.Owners(path(t, "spec.mode"))) != 0 {
		t.Errorf("a default has the owner %v, %v", own.Owners(path(t, "spec.mode")), err)
	}
	// What the server added can be set by anybody.
	if _, err := w.tryApply("kubectl", "a", "{mode: manual, replicas: 3}", false); err != nil {
		t.Error(err)
	}
}

// TestCreateExists creates what is there by now: nothing is merged into it, whether it conflicts or not.
func TestCreateExists(t *testing.T) {
	w := install(t, "exists")
	for name, spec := range map[string]string{
		"other-fields": "{color: red}", "other-values": "{size: 2}", "the-same": "{size: 1, legacy: x}", "nothing": "{}",
	} {
		before := w.create("other", name, spec)
		_, err := w.writer().Create(t.Context(), w.key(name), w.resource("v1"), w.object(name, "{size: 1, legacy: x}").Object, nil)
		if !errors.Is(err, apply.ErrMoved) {
			t.Errorf("%s: got %v, want ErrMoved", name, err)
		}
		if w.get(name).GetResourceVersion() != before.GetResourceVersion() {
			t.Errorf("%s: written", name)
		}
	}
	// A body that an apply cannot express is sent by POST: it creates nothing over another object either.
	w.create("other", "posted", "{}")
	_, err := w.writer().Create(t.Context(), w.key("posted"), w.resource("v1"), w.object("posted", "{nofield: 1}").Object, nil)
	if err == nil {
		t.Error("written")
	}
}

// TestCreateBuiltIn creates a kind that has no CRD, twice.
func TestCreateBuiltIn(t *testing.T) {
	w := install(t, "builtin")
	key := kube.Key{Resource: "configmaps", Namespace: w.namespace, Name: "a"}
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": w.namespace},
		"data": map[string]any{"a": "b"},
	}}
	resource := key.GroupResource().WithVersion("v1")
	result, err := w.writer().Create(t.Context(), key, resource, obj.Object, nil)
	if err != nil {
		t.Fatal(err)
	}
	expectOwned(t, result.Object, apply.Manager, "Apply", "data.a")
	if _, err := w.writer().Create(t.Context(), key, resource, obj.Object, nil); !errors.Is(err, apply.ErrMoved) {
		t.Errorf("got %v", err)
	}
	want := with(result.Object, func(o *unstructured.Unstructured) { o.Object["data"] = map[string]any{"a": "c", "d": "e"} })
	result = w.write(apply.Change{Key: key, Resource: resource, Live: result.Object, Want: want.Object, Set: paths(t, "data.a", "data.d")})
	if result.Method != apply.Applied {
		t.Errorf("written by %q", result.Method)
	}
	expectOwned(t, result.Object, apply.Manager, "Apply", "data.a", "data.d")
}

func TestCreateRejected(t *testing.T) {
	w := install(t, "createrejected")
	writer := w.writer()
	gadget := schema.GroupVersionResource{Group: w.group, Version: "v1", Resource: "gadgets"}
	for _, test := range []struct {
		name, spec string
		edit       func(*unstructured.Unstructured, *kube.Key, *schema.GroupVersionResource)
		verdict    apply.Verdict
		retry      bool
	}{
		{"unknown field", "{nofield: 1}", nil, apply.UnknownField, false},
		{"wrong type", "{size: text}", nil, apply.Invalid, false},
		{"no such value", "{grade: middle}", nil, apply.Invalid, false},
		{"duplicate keys", "{ports: [{port: 1}, {port: 1}]}", nil, apply.Invalid, false},
		{"duplicate in a set", "{tags: [a, a]}", nil, apply.Invalid, false},
		{"both of one", "{solver: {http: {}, dns: {}}}", nil, apply.Invalid, false},
		{"null", "{size: null}", nil, apply.Invalid, false},
		{"no namespace", "{size: 1}", func(o *unstructured.Unstructured, k *kube.Key, _ *schema.GroupVersionResource) {
			o.SetNamespace("nosuch")
			k.Namespace = "nosuch"
		}, apply.NoNamespace, true},
		{"no kind", "{size: 1}", func(_ *unstructured.Unstructured, k *kube.Key, r *schema.GroupVersionResource) {
			k.Resource, *r = "gadgets", gadget
		}, apply.NoKind, true},
		{"no version", "{size: 1}", func(o *unstructured.Unstructured, _ *kube.Key, r *schema.GroupVersionResource) {
			o.SetAPIVersion(w.group + "/v7")
			r.Version = "v7"
		}, apply.NoKind, true},
		{"marker", "{color: 'crmirror-redacted:v1:ab'}", nil, apply.Redacted, false},
		{"marker in a key", "{options: {'crmirror-redacted:v1:ab': x}}", nil, apply.Redacted, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			obj, key, resource := w.object("a", test.spec), w.key("a"), w.resource("v1")
			if test.edit != nil {
				test.edit(obj, &key, &resource)
			}
			_, err := writer.Create(t.Context(), key, resource, obj.Object, nil)
			if r := rejected(t, err, test.verdict); r.Retry != test.retry {
				t.Errorf("retry is %v", r.Retry)
			}
			t.Log(err)
			if !w.gone("a") {
				t.Fatal("created")
			}
		})
	}
	for _, name := range []string{"", "..", ".", "a/b"} {
		key := w.key(name)
		obj := w.object(name, "{}")
		if _, err := writer.Create(t.Context(), key, w.resource("v1"), obj.Object, nil); err == nil {
			t.Errorf("created %q", name)
		}
		obj.SetUID("1")
		obj.SetResourceVersion("1")
		if _, err := writer.Delete(t.Context(), key, w.resource("v1"), obj); err == nil {
			t.Errorf("deleted %q", name)
		}
	}
}

func TestRead(t *testing.T) {
	w := install(t, "read")
	live := w.create("other", "a", "{size: 1}")
	got, err := w.writer().Read(t.Context(), w.key("a"), "v1beta1")
	if err != nil || got.GetUID() != live.GetUID() || len(got.GetManagedFields()) == 0 || got.GetAPIVersion() != w.group+"/v1beta1" {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := w.writer().Read(t.Context(), w.key("b"), "v1"); !errors.Is(err, apply.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.writer().Read(ctx, w.key("a"), "v1"); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	_, err = w.writer().Read(t.Context(), w.key("a"), "v7")
	rejected(t, err, apply.NoKind)
	_, err = w.writer().Read(t.Context(), kube.Key{Group: w.group, Resource: "gadgets", Namespace: w.namespace, Name: "a"}, "v1")
	rejected(t, err, apply.NoKind)
}

func TestOwnerReferences(t *testing.T) {
	w := install(t, "ownerrefs")
	parent := w.create("other", "parent", "{}")
	second := w.create("other", "second", "{}")
	reference := func(name, version string) map[string]any {
		return map[string]any{"apiVersion": w.group + "/" + version, "kind": "Widget", "name": name}
	}
	obj := w.object("a", "{size: 1}")
	obj.Object["metadata"].(map[string]any)["ownerReferences"] = []any{reference("parent", "v1")}
	result, err := w.writer().Create(t.Context(), w.key("a"), w.resource("v1"), obj.Object, nil)
	if err != nil {
		t.Fatal(err)
	}
	expectOwners(t, result.Object, string(parent.GetUID()))

	// One more, at a version that is not served any more; the first one stays as it is.
	w.delete("parent")
	change := func(references ...any) apply.Change {
		want := with(w.get("a"), func(o *unstructured.Unstructured) {
			o.Object["metadata"].(map[string]any)["ownerReferences"] = references
		})
		return apply.Change{Key: w.key("a"), Resource: w.resource("v1"), Live: w.get("a"), Want: want.Object,
			Set: paths(t, "metadata.ownerReferences[apiVersion=x,kind=Widget,name=second].name")}
	}
	result = w.write(change(reference("parent", "v1"), reference("second", "v0")))
	if result.Method != apply.Applied {
		t.Errorf("written by %q", result.Method)
	}
	expectOwners(t, result.Object, string(parent.GetUID()), string(second.GetUID()))
	w.expect("a", "{size: 1, replicas: 1, mode: auto}")

	c := change(reference("second", "v1"))
	c.Set, c.Remove = nil, paths(t, "metadata.ownerReferences[apiVersion=x,kind=Widget,name=parent]")
	expectOwners(t, w.write(c).Object, string(second.GetUID()))
	c = change()
	c.Set, c.Remove = nil, paths(t, "metadata.ownerReferences")
	expectOwners(t, w.write(c).Object)

	for name, bad := range map[string]map[string]any{
		"gone": reference("parent", "v1"), "no kind": {"apiVersion": "nosuch.dev/v1", "kind": "Nothing", "name": "x"},
		"no name": {"apiVersion": "v1", "kind": "ConfigMap"}, "built in": {"apiVersion": "v1", "kind": "ConfigMap", "name": "nosuch"},
	} {
		_, err := w.writer().Write(t.Context(), change(bad))
		if r := rejected(t, err, apply.NoOwner); !r.Retry {
			t.Errorf("%s: no retry", name)
		}
		t.Log(err)
	}
}

func expectOwners(t *testing.T, obj *unstructured.Unstructured, uids ...string) {
	t.Helper()
	var got []string
	for _, r := range obj.GetOwnerReferences() {
		got = append(got, string(r.UID))
	}
	if len(got) != len(uids) {
		t.Fatalf("owners are %v, want %v", got, uids)
	}
	for i := range uids {
		if got[i] != uids[i] {
			t.Errorf("owners are %v, want %v", got, uids)
		}
	}
}

func TestDryRun(t *testing.T) {
	w := install(t, "dryrun")
	w.typ("v1")
	writer := newWriter(t, w.config, apply.Options{DryRun: true})
	live := w.create("other", "a", "{size: 1, legacy: x}")
	for _, spec := range []string{"{size: 2, legacy: x, replicas: 1, mode: auto}", "{size: 2, replicas: 1, mode: auto}"} {
		result, err := writer.Write(t.Context(), w.become(live, spec))
		if err != nil {
			t.Fatal(err)
		}
		if size, _, _ := unstructured.NestedInt64(result.Object.Object, "spec", "size"); size != 2 {
			t.Error("the result is not what would be")
		}
	}
	if _, err := writer.Create(t.Context(), w.key("b"), w.resource("v1"), w.object("b", "{}").Object, nil); err != nil {
		t.Error(err)
	}
	if _, err := writer.Delete(t.Context(), w.key("a"), w.resource("v1"), live); err != nil {
		t.Error(err)
	}
	objects, err := w.in("v1").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(objects.Items) != 1 || objects.Items[0].GetResourceVersion() != live.GetResourceVersion() {
		t.Errorf("a dry run wrote, %v", err)
	}
}
