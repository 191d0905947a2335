package restore

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing/filemode"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/bulk"
	"github.com/crmirror/crmirror/sync"
)

// shop is a commit of a namespace, a kind, and two objects of it.
func shop(t *testing.T) *scene {
	w := newScene(t)
	w.git(namespaceText("shop"), nil)
	w.git(widgetCRD("v1"), nil)
	w.git(widget("shop", "a", "1"), nil)
	w.git(widget("shop", "b", "2"), nil)
	return w
}

func TestPlanEmptyCluster(t *testing.T) {
	w := shop(t)
	plan := w.plan(Options{})
	w.wantVerbs(plan,
		"customresourcedefinitions.apiextensions.k8s.io widgets.example.com: create",
		"namespaces shop: create",
		"widgets.example.com shop/a: create",
		"widgets.example.com shop/b: create",
	)
	if a := w.action(plan, "widgets.example.com shop/a"); a.Resource.Version != "v1" || a.Phase != Objects {
		t.Errorf("written at %v in phase %v, want v1 in phase %v", a.Resource, a.Phase, Objects)
	}
	if got := plan.Totals()[Create]; got != 4 {
		t.Errorf("to create: %d, want 4", got)
	}
}

func TestPlanExisting(t *testing.T) {
	w := shop(t)
	w.live(namespaceText("shop"))
	w.live(widgetCRD("v1"))
	w.live(widget("shop", "a", "1"))
	w.live(widget("shop", "b", "3", `  managedFields:
  - {manager: kubectl-edit, operation: Update, apiVersion: example.com/v1, time: "2026-01-02T03:04:05Z", fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:size": {}}}}
`))
	w.live(widget("shop", "only-live", "9"))
	const changed = "widgets.example.com shop/b"

	plan := w.plan(Options{})
	w.wantVerbs(plan, "customresourcedefinitions.apiextensions.k8s.io widgets.example.com: unchanged", "namespaces shop: unchanged",
		"widgets.example.com shop/a: unchanged", changed+": skip")
	a := w.action(plan, changed)
	wantText(t, a.Reason, "--existing update")
	if len(a.Changes) != 1 || a.Changes[0].Field != "spec.size" || a.Changes[0].Git != "2" || a.Changes[0].Cluster != "3" {
		t.Fatalf("changes: %+v, want spec.size from 3 to 2", a.Changes)
	}
	wantText(t, a.Changes[0].Cause, "kubectl-edit", "2026-01-02T03:04:05Z")

	plan = w.plan(Options{Existing: ExistingUpdate})
	if a := w.action(plan, changed); a.Verb != Update || a.UID != "uid-b" || a.ResourceVersion != "7" {
		t.Errorf("got %+v, want an update of uid-b at 7", a)
	}
	respect := Options{Existing: ExistingUpdate, Respect: []string{"kubectl-edit"}}
	if a = w.action(w.plan(respect), changed); a.Verb != Conflict {
		t.Errorf("got %s, want a conflict: its owner is respected", a.Verb)
	}
	wantText(t, a.Reason, "spec.size", "kubectl-edit", "--force")
	respect.Force = true
	if a = w.action(w.plan(respect), changed); a.Verb != Update {
		t.Errorf("got %s, want an update by force", a.Verb)
	}
}

// A file that a person formatted, and an object that has only what the server added, are equal.
func TestPlanSameContent(t *testing.T) {
	w := shop(t)
	w.file("namespaces/shop/widgets.example.com/a.yaml", "# mine\n"+widget("shop", "a", "1"))
	w.live(namespaceText("shop"))
	w.live(widgetCRD("v1"))
	w.live(widget("shop", "a", "1", "  generation: 4\n"))
	if a := w.action(w.plan(Options{}), "widgets.example.com shop/a"); a.Verb != Unchanged {
		t.Errorf("got %s %v, want unchanged", a.Verb, a.Changes)
	}
}

func TestPlanMissing(t *testing.T) {
	w := newScene(t)
	w.git(widget("shop", "a", "1"), nil)
	plan := w.plan(Options{})
	w.wantVerbs(plan, "widgets.example.com shop/a: blocked")
	wantText(t, w.action(plan, "widgets.example.com shop/a").Reason, "does not serve widgets.example.com", "no CRD")

	w.git(widgetCRD("v1"), nil)
	plan = w.plan(Options{})
	wantText(t, w.action(plan, "widgets.example.com shop/a").Reason, "kubectl create namespace shop")

	w.live(namespaceText("shop") + "  deletionTimestamp: \"2026-01-02T03:04:05Z\"\n")
	plan = w.plan(Options{})
	wantText(t, w.action(plan, "widgets.example.com shop/a").Reason, "namespace shop is being deleted")
	if !slices.ContainsFunc(plan.Findings, func(f Finding) bool { return f.Fatal && len(f.Objects) == 1 }) {
		t.Errorf("findings: %+v, want a fatal one with the object", plan.Findings)
	}
}

func TestPlanBringsWhatItStandsOn(t *testing.T) {
	w := shop(t)
	w.git(namespaceText("other"), nil)
	w.git(widget("other", "c", "1"), nil)
	plan := w.plan(Options{Resources: []string{"widgets.example.com"}, Namespaces: []string{"sh*"}, Names: []string{"a"}})
	w.wantVerbs(plan, "customresourcedefinitions.apiextensions.k8s.io widgets.example.com: create", "namespaces shop: create",
		"widgets.example.com shop/a: create")

	// What is there already is left alone, though it differs.
	w.live(namespaceText("shop") + "    team: x\n")
	w.live(widgetCRD("v1", "v1beta1"))
	plan = w.plan(Options{Resources: []string{"widgets.example.com"}, Names: []string{"a"}, Existing: ExistingUpdate})
	w.wantVerbs(plan, "widgets.example.com shop/a: create")
}

func TestPlanRunsAreSkippedUnlessNamed(t *testing.T) {
	w := newScene(t)
	w.serve("workflows.argoproj.io", "Workflow", true, "v1alpha1")
	w.live(namespaceText("ci"))
	w.git("apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: build, namespace: ci}\n", nil)
	key := "workflows.argoproj.io ci/build"
	a := w.action(w.plan(Options{}), key)
	if a.Verb != Skip {
		t.Errorf("got %s, want skip", a.Verb)
	}
	wantText(t, a.Reason, "would run again", "workflows.argoproj.io")
	if a := w.action(w.plan(Options{Resources: []string{"workflows.argoproj.io"}}), key); a.Verb != Create {
		t.Errorf("named in full: got %s, want create", a.Verb)
	}
	if a := w.action(w.plan(Options{Resources: []string{"*"}}), key); a.Verb != Skip {
		t.Errorf("by a wildcard: got %s, want skip", a.Verb)
	}
	if a := w.action(w.plan(Options{Runs: []string{}}), key); a.Verb != Create {
		t.Errorf("with a list of its own: got %s, want create", a.Verb)
	}
}

func TestPlanMapNamespace(t *testing.T) {
	w := shop(t)
	w.git(widget("shop", "self", "1", "  annotations: {in: shop}\n  ownerReferences:\n  - {apiVersion: v1, kind: Namespace, name: shop, uid: x}\n"), nil)
	opts := Options{MapNamespaces: map[string]string{"shop": "shop2"}}
	plan := w.plan(opts)
	w.wantVerbs(plan, "customresourcedefinitions.apiextensions.k8s.io widgets.example.com: create", "namespaces shop2: create",
		"widgets.example.com shop2/a: create", "widgets.example.com shop2/b: create", "widgets.example.com shop2/self: create")
	self := w.action(plan, "widgets.example.com shop2/self")
	wantText(t, strings.Join(self.Notes, "; "), "metadata.annotations.in", "namespace shop (now shop2)")
	if len(self.Owners) != 1 || self.Owners[0].Key != namespaceKey("shop2") || self.Owners[0].Dropped {
		t.Errorf("owners: %+v, want the namespace shop2", self.Owners)
	}

	// Restored like that, nothing is left to do.
	w.live(namespaceText("shop2"))
	w.live(widgetCRD("v1"))
	w.live(widget("shop2", "a", "1"))
	w.live(widget("shop2", "b", "2"))
	w.live(widget("shop2", "self", "1", "  annotations: {in: shop}\n  ownerReferences:\n  - {apiVersion: v1, kind: Namespace, name: shop2, uid: uid-shop2}\n"))
	for i, a := range w.plan(opts).Actions {
		if a.Verb != Unchanged {
			t.Errorf("action %d: %s is %s %+v, want unchanged", i, a.Key, a.Verb, a.Changes)
		}
	}
}

func TestPlanMapTwoNamespacesToOne(t *testing.T) {
	w := shop(t)
	w.git(namespaceText("other"), nil)
	w.git(widget("other", "a", "5"), nil)
	w.git(widget("other", "c", "5"), nil)
	for name, c := range map[string]struct {
		maps        map[string]string
		space, note string
		blocked     []string
	}{
		"both mapped": {map[string]string{"shop": "one", "other": "one"}, "namespaces one", "namespace shop is mapped to it too",
			[]string{"widgets.example.com other/a", "widgets.example.com shop/a"}},
		"to one after it": {map[string]string{"other": "shop"}, "namespaces shop", "namespace other is mapped to it too",
			[]string{"widgets.example.com other/a"}},
		"to one before it": {map[string]string{"shop": "other"}, "namespaces other", "namespace shop is mapped to it too",
			[]string{"widgets.example.com shop/a"}},
	} {
		plan := w.plan(Options{MapNamespaces: c.maps})
		var blocked []string
		spaces := 0
		for _, a := range plan.Actions {
			if a.Phase == Namespaces {
				spaces++
			}
			if a.Verb == Blocked {
				blocked = append(blocked, a.From.String())
				wantText(t, a.Reason, "--map-namespace", "restore one of them")
			}
		}
		slices.Sort(blocked)
		if !slices.Equal(blocked, c.blocked) {
			t.Errorf("%s: blocked %q, want %q", name, blocked, c.blocked)
		}
		space := w.action(plan, c.space)
		if spaces != 1 || space.Verb != Create {
			t.Errorf("%s: %d namespaces, %s; want one to be created", name, spaces, space.Verb)
		}
		wantText(t, strings.Join(space.Notes, ""), c.note)
	}
}

func TestPlanOwners(t *testing.T) {
	owner := func(kind, name string) string {
		return "  ownerReferences:\n  - {apiVersion: example.com/v1, kind: " + kind + ", name: " + name + ", uid: old}\n"
	}
	w := shop(t)
	w.git(widget("shop", "child", "1", owner("Widget", "a")), nil)
	w.git(widget("shop", "orphan", "1", owner("Widget", "gone")), nil)
	w.git(widget("shop", "stranger", "1", owner("Nobody", "x")), nil)

	plan := w.plan(Options{})
	child := w.action(plan, "widgets.example.com shop/child")
	if len(child.Owners) != 1 || child.Owners[0].Key.Name != "a" || child.Owners[0].Key.Namespace != "shop" || child.Owners[0].Dropped {
		t.Errorf("owners of child: %+v", child.Owners)
	}
	for _, name := range []string{"orphan", "stranger"} {
		a := w.action(plan, "widgets.example.com shop/"+name)
		if a.Verb != Create || len(a.Owners) != 1 || !a.Owners[0].Dropped {
			t.Errorf("%s: %s, owners %+v; want it created without its owner", name, a.Verb, a.Owners)
		}
		wantText(t, strings.Join(a.Notes, ""), "neither in git nor in the cluster")
	}

	a := w.action(w.plan(Options{Names: []string{"child"}}), "widgets.example.com shop/child")
	if a.Verb != Blocked {
		t.Errorf("its owner is not selected: got %s, want blocked", a.Verb)
	}
	wantText(t, a.Reason, "widgets.example.com shop/a", "restore it too")

	w.file("namespaces/shop/widgets.example.com/a.yaml", "apiVersion: example.com/v1\nkind: [\n")
	a = w.action(w.plan(Options{}), "widgets.example.com shop/child")
	wantText(t, a.Reason, "its owner widgets.example.com shop/a is blocked")
	wantText(t, w.action(w.plan(Options{}), "widgets.example.com shop/a").Reason, "cannot be read", "line 3")
}

// What has an owner that is being deleted waits, wherever that owner is: in the plan, listed, or read.
func TestPlanOwnerGoes(t *testing.T) {
	w := shop(t)
	w.live(namespaceText("shop"))
	w.live(widgetCRD("v1"))
	w.serve("owners.example.com", "Owner", true, "v1")
	const going = "  deletionTimestamp: \"2026-01-02T03:04:05Z\"\n"
	w.live(widget("shop", "a", "1", going))
	w.live(widget("shop", "listed", "1", going))
	w.live("apiVersion: example.com/v1\nkind: Owner\nmetadata:\n  name: read\n  namespace: shop\n" + going)
	for name, owner := range map[string]string{"a": "Widget", "listed": "Widget", "read": "Owner"} {
		w.git(widget("shop", "of-"+name, "1", "  ownerReferences:\n  - {apiVersion: example.com/v1, kind: "+owner+", name: "+name+", uid: old}\n"), nil)
	}
	plan := w.plan(Options{})
	for _, name := range []string{"a", "listed", "read"} {
		a := w.action(plan, "widgets.example.com shop/of-"+name)
		if a.Verb != Blocked {
			t.Errorf("%s: got %s, want blocked", name, a.Verb)
		}
		wantText(t, a.Reason, "shop/"+name+" is being deleted", "run again")
	}
}

// An object that outlived its owner has the old uid; the owner, made again, has another.
func TestPlanStaleOwner(t *testing.T) {
	w := shop(t)
	ref := "  ownerReferences:\n  - {apiVersion: example.com/v1, kind: Widget, name: a, uid: old}\n"
	w.git(widget("shop", "child", "1", ref), nil)
	w.live(namespaceText("shop"))
	w.live(widgetCRD("v1"))
	w.live(widget("shop", "child", "1", ref))
	want := func(verb Verb, owner Owner, words ...string) {
		t.Helper()
		a := w.action(w.plan(Options{}), "widgets.example.com shop/child")
		if a.Verb != verb || verb == Update && (len(a.relinks) != 1 || a.relinks[0].owner != owner || !a.relinksOnly()) {
			t.Errorf("got %s %+v %+v, want %s, owner %+v", a.Verb, a.Changes, a.relinks, verb, owner)
		}
		wantText(t, strings.Join(a.Notes, ""), words...)
	}
	owner := Owner{Key: kube.Key{Group: "example.com", Resource: "widgets", Namespace: "shop", Name: "a"}}
	want(Update, owner, "Widget a was made anew", "garbage collection")
	made := w.live(widget("shop", "a", "1"))
	owner.UID = string(made.GetUID())
	want(Update, owner, "Widget a was made anew")
	made.SetUID("old")
	want(Unchanged, owner)

	// The file of one whose owner is a stranger to git, and of one that differs besides.
	w.git(widget("shop", "other", "1", strings.Replace(ref, "example.com/v1, kind: Widget, name: a", "v1, kind: ConfigMap, name: settings", 1)), nil)
	w.live(widget("shop", "other", "1", strings.Replace(ref, "example.com/v1, kind: Widget, name: a", "v1, kind: ConfigMap, name: settings", 1)))
	if a := w.action(w.plan(Options{}), "widgets.example.com shop/other"); a.Verb != Unchanged {
		t.Errorf("without its owner: got %s %v, want unchanged", a.Verb, a.Notes)
	}
	w.live("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: shop, uid: new}\n")
	if a := w.action(w.plan(Options{}), "widgets.example.com shop/other"); a.Verb != Update || a.relinks[0].owner.UID != "new" {
		t.Errorf("got %s %+v, want it to get the uid of the ConfigMap", a.Verb, a.relinks)
	}
	made.SetUID("new-a")
	w.git(widget("shop", "child", "2", ref), nil)
	want(Skip, owner, "Widget a has another uid", "garbage collection")
}

func TestPlanVersions(t *testing.T) {
	w := newScene(t)
	w.live(namespaceText("shop"))
	w.git(widgetCRD("v1"), nil)
	w.git(widget("shop", "a", "1"), nil)
	w.live(widgetCRD("v2"))
	plan := w.plan(Options{Existing: ExistingUpdate})
	a := w.action(plan, "widgets.example.com shop/a")
	if a.Verb != Create || a.Resource.Version != "v2" {
		t.Errorf("got %s at %s, want it created at v2: the CRD converts nothing", a.Verb, a.Resource.Version)
	}
	wantText(t, strings.Join(a.Notes, ""), "at version v2", "v1 is not served")
	crd := w.action(plan, "customresourcedefinitions.apiextensions.k8s.io widgets.example.com")
	if crd.Verb != Skip {
		t.Errorf("CRD: got %s, want skip: never downgraded", crd.Verb)
	}
	wantText(t, crd.Reason, "newer", "v2")

	w.live(widget("shop", "a", "1"))
	if a := w.action(w.plan(Options{}), "widgets.example.com shop/a"); a.Verb != Unchanged {
		t.Errorf("there at v2: got %s %+v, want unchanged", a.Verb, a.Changes)
	}

	w.objects[schema.GroupResource{Group: "example.com", Resource: "widgets"}] = nil
	w.crds[schema.GroupResource{Group: "example.com", Resource: "widgets"}].Spec.Conversion = webhook("shop", "convert")
	a = w.action(w.plan(Options{}), "widgets.example.com shop/a")
	if a.Verb != Blocked {
		t.Errorf("with a webhook: got %s, want blocked", a.Verb)
	}
	wantText(t, a.Reason, "version v1", "only at v2")
}

func TestPlanPermissions(t *testing.T) {
	w := shop(t)
	w.git(namespaceText("other"), nil)
	w.git(widget("other", "c", "1"), nil)
	gr := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	w.forbidden[bulk.Access{Verb: "create", Resource: gr, Namespace: "shop"}] = true
	w.forbidden[bulk.Access{Verb: "create", Resource: namespaceResource}] = true
	plan := w.plan(Options{})
	wantText(t, w.action(plan, "widgets.example.com shop/a").Reason, "may not create widgets.example.com in namespace shop")
	wantText(t, w.action(plan, "namespaces shop").Reason, "may not create namespaces")
	fatal := 0
	for _, f := range plan.Findings {
		if f.Fatal {
			fatal++
		}
	}
	if fatal != 3 { // and what stands on the namespace that cannot be created
		t.Errorf("findings: %+v, want all at once", plan.Findings)
	}
	wantText(t, w.action(plan, "widgets.example.com other/c").Reason, "namespace other is not there and not restored", "may not create namespaces")

	w = shop(t)
	w.forbidden[bulk.Access{Verb: "create", Resource: crdResource}] = true
	wantText(t, w.action(w.plan(Options{}), "widgets.example.com shop/a").Reason, "the CRD widgets.example.com is not restored", "may not create")
}

// redactedScene is a shop whose passwords, and Secrets, are redacted with a key.
func redactedScene(t *testing.T) (w *scene, key []byte) {
	w, key = shop(t), []byte("a key")
	shape := &kube.Shape{RedactKey: key}
	for _, field := range []string{".spec.password", ".data.*"} {
		path, err := kube.ParseFieldPath(field)
		if err != nil {
			t.Fatal(err)
		}
		shape.Redact = append(shape.Redact, path)
	}
	tree := sync.NewTree("lab", kube.Selection{Select: []kube.Rule{{Resources: []string{"*", "secrets"}, Shape: *shape}}})
	tree.ClusterUID = "old"
	marker, err := tree.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	w.file(sync.MarkerName, string(marker))
	w.git(widget("shop", "s", "1")+"  password: hunter2\n", shape)
	w.git("apiVersion: v1\nkind: Secret\nmetadata: {name: core, namespace: shop}\ndata: {a: aHVudGVyMg==}\n", shape)
	return w, key
}

func TestPlanRedacted(t *testing.T) {
	const name = "widgets.example.com shop/s"
	w, key := redactedScene(t)
	a := w.action(w.plan(Options{}), name)
	if a.Verb != Blocked {
		t.Errorf("got %s, want blocked", a.Verb)
	}
	wantText(t, a.Reason, "spec.password", "only digests")

	w.live(namespaceText("shop"))
	w.live(widgetCRD("v1"))
	live := w.live(widget("shop", "s", "1") + "  password: hunter2\n")
	a = w.action(w.plan(Options{}), name)
	if a.Verb != Unchanged {
		t.Errorf("without the key: got %s %+v, want unchanged", a.Verb, a.Changes)
	}
	wantText(t, strings.Join(a.Notes, ""), "not compared", "spec.password")
	if a = w.action(w.plan(Options{RedactKey: key}), name); a.Verb != Unchanged || len(a.Notes) != 0 {
		t.Errorf("with the key: got %s %q, want unchanged", a.Verb, a.Notes)
	}

	live.Object["spec"].(map[string]any)["password"] = "other"
	if a = w.action(w.plan(Options{RedactKey: key}), name); a.Verb != Skip || len(a.Changes) != 1 || a.Changes[0].Field != "spec.password" {
		t.Errorf("with the key: got %s %+v, want the password to differ", a.Verb, a.Changes)
	}
	a = w.action(w.plan(Options{RedactKey: key, Existing: ExistingUpdate}), name)
	if a.Verb != Conflict && a.Verb != Blocked {
		t.Errorf("got %s, want no update to a digest", a.Verb)
	}
	plan := w.plan(Options{RedactKey: []byte("wrong")})
	if a = w.action(plan, name); a.Verb != Unchanged {
		t.Errorf("with the wrong key: got %s %+v, want unchanged", a.Verb, a.Changes)
	}
	wantText(t, plan.Findings[0].Text, "another key")
}

func TestPlanBySelector(t *testing.T) {
	w := shop(t)
	w.git(widget("shop", "mine", "1", "  labels: {team: a}\n"), nil)
	w.git(widget("shop", "theirs", "1", "  labels: {team: b}\n"), nil)
	selector, err := labels.Parse("team=a")
	if err != nil {
		t.Fatal(err)
	}
	w.wantVerbs(w.plan(Options{Selector: selector}), "customresourcedefinitions.apiextensions.k8s.io widgets.example.com: create",
		"namespaces shop: create", "widgets.example.com shop/mine: create")
}

// An owner that git does not have is looked for in the cluster.
func TestPlanOwnerInCluster(t *testing.T) {
	w := shop(t)
	ref := "  ownerReferences:\n  - {apiVersion: v1, kind: ConfigMap, name: settings, uid: old}\n"
	w.git(widget("shop", "child", "1", ref), nil)
	w.live("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: shop, uid: new}\n")
	a := w.action(w.plan(Options{}), "widgets.example.com shop/child")
	want := []Owner{{Key: kube.Key{Resource: "configmaps", Namespace: "shop", Name: "settings"}, UID: "new"}}
	if a.Verb != Create || !slices.Equal(a.Owners, want) {
		t.Errorf("got %s, owners %+v; want %+v", a.Verb, a.Owners, want)
	}
}

func TestPlanOddFiles(t *testing.T) {
	w := shop(t)
	link := "namespaces/shop/widgets.example.com/link.yaml"
	w.file(link, "elsewhere")
	w.files[link] = gitstore.TreeFile{Blob: w.files[link].Blob, Mode: filemode.Symlink}
	w.file("README.md", "mine")
	w.file("namespaces/shop/widgets.example.com/other.yaml", widget("shop", "not-other", "1"))
	w.file("namespaces/shop/widgets.example.com/lfs.yaml", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
	long := strings.Repeat("long.", 50) + "x"
	w.git(widget("shop", long, "1"), nil)
	plan := w.plan(Options{})
	if a := w.action(plan, "widgets.example.com shop/"+long); a.Verb != Create {
		t.Errorf("a cut name: got %s %s, want create", a.Verb, a.Reason)
	}
	wantText(t, w.action(plan, "widgets.example.com shop/other").Reason, "names another object")
	wantText(t, w.action(plan, "widgets.example.com shop/lfs").Reason, "LFS")
	if !slices.ContainsFunc(plan.Findings, func(f Finding) bool { return f.What == link && f.Fatal && strings.Contains(f.Text, "symbolic link") }) {
		t.Errorf("findings: %+v, want one about the symbolic link", plan.Findings)
	}
}

func TestPlanStatus(t *testing.T) {
	w := shop(t)
	tree := sync.NewTree("lab", kube.Selection{Select: []kube.Rule{{Resources: []string{"*"}, Shape: kube.Shape{Status: true}}}})
	tree.ClusterUID = "old"
	marker, err := tree.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	w.file(sync.MarkerName, string(marker))
	w.live(namespaceText("shop"))
	w.live(widgetCRD("v1"))
	w.git(widget("shop", "a", "1")+"status: {ready: true, seen: {x: 1}, gone: 1}\n", &kube.Shape{Status: true})
	w.live(widget("shop", "a", "1") + "status: {ready: false, seen: {x: 1}, new: 2}\n")
	a := w.action(w.plan(Options{}), "widgets.example.com shop/a")
	var got []string
	for _, c := range a.Changes {
		got = append(got, c.Field+" "+c.Kind)
	}
	want := []string{"status.gone only in git", "status.new only in the cluster", "status.ready differs"}
	if a.Verb != Skip || !slices.Equal(got, want) {
		t.Errorf("got %s %q, want skip %q", a.Verb, got, want)
	}
}

// An owner that no object of its kind can be is looked for nowhere, and keeps nothing else back.
func TestPlanImpossibleOwners(t *testing.T) {
	w := shop(t)
	w.live(namespaceText("shop"))
	w.live(widgetCRD("v1"))
	owner := func(kind, name string) string {
		return "  ownerReferences:\n  - {apiVersion: example.com/v1, kind: " + kind + ", name: " + name + ", uid: old}\n"
	}
	w.git(widget("shop", "self", "1", owner("Widget", "self")), nil)
	w.git(widget("shop", "left", "1", owner("Widget", "right")), nil)
	w.git(widget("shop", "right", "1", owner("Widget", "left")), nil)
	w.git(widget("shop", "behind", "1", owner("Widget", "right")), nil)
	leaf := "apiVersion: example.com/v1\nkind: Big\nmetadata:\n  name: "
	w.serve("bigs.example.com", "Big", false, "v1")
	for _, name := range []string{"leaf", "lost"} {
		w.git(leaf+name+"\n"+owner("Widget", "a"), nil)
	}
	w.live(leaf + "leaf\n" + owner("Widget", "a"))
	s, err := ReadSnapshot(t.Context(), w, gitstore.Hash{1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := Make(t.Context(), s, &silent{scene: w, err: errors.New("asked for an owner")}, &Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, verb := range map[string]Verb{"widgets.example.com shop/self": Create, "widgets.example.com shop/left": Blocked, "widgets.example.com shop/right": Blocked,
		"widgets.example.com shop/behind": Blocked, "bigs.example.com leaf": Unchanged, "bigs.example.com lost": Create, "widgets.example.com shop/a": Create} {
		if a := w.action(plan, name); a.Verb != verb {
			t.Errorf("%s: got %s %s, want %s", name, a.Verb, a.Reason, verb)
		}
	}
	wantText(t, w.action(plan, "widgets.example.com shop/left").Reason, "lead back to itself")
	for _, name := range []string{"widgets.example.com shop/self", "bigs.example.com lost"} {
		if a := w.action(plan, name); len(a.Owners) != 1 || !a.Owners[0].Dropped {
			t.Errorf("%s: owners %+v, want it dropped", name, a.Owners)
		}
		wantText(t, strings.Join(w.action(plan, name).Notes, ""), "cannot be an owner of it")
	}
}

// A CRD that the cluster got while the plan was made is waited for as one of our own.
func TestPlanCRDComes(t *testing.T) {
	w := shop(t)
	w.live(namespaceText("shop"))
	w.live(widgetCRD("v1"))
	delete(w.crds, widgets)
	delete(w.served.Kinds, widgets)
	plan := w.plan(Options{})
	w.wantVerbs(plan, "customresourcedefinitions.apiextensions.k8s.io widgets.example.com: unchanged", "namespaces shop: unchanged",
		"widgets.example.com shop/a: create", "widgets.example.com shop/b: create")
	if !plan.Complete() {
		t.Errorf("findings: %+v", plan.Findings)
	}
}

// References that cannot be written are no reason to write, again and again.
func TestPlanDroppedOwners(t *testing.T) {
	w := shop(t)
	w.live(namespaceText("shop"))
	w.live(widgetCRD("v1"))
	ref := func(names ...string) string {
		text := "  ownerReferences:\n"
		for _, name := range names {
			text += "  - {apiVersion: example.com/v1, kind: Widget, name: " + name + ", uid: uid-" + name + "}\n"
		}
		return text
	}
	w.live(widget("shop", "a", "1"))
	const name = "widgets.example.com shop/child"
	opts := Options{Existing: ExistingUpdate}
	for _, c := range []struct {
		git, live string
		want      Verb
	}{
		{ref("lost"), "", Skip},
		{ref("a", "lost"), ref("a"), Skip},
		{ref("a", "lost"), "", Update},
		{ref("a"), "", Update},
		{ref("lost") + "  labels: {x: z}\n", "", Update},
	} {
		w.git(widget("shop", "child", "1", c.git), nil)
		live := w.live(widget("shop", "child", "1", c.live))
		a := w.action(w.plan(opts), name)
		if a.Verb != c.want {
			t.Errorf("git has\n%sthe cluster\n%sgot %s %+v, want %s", c.git, c.live, a.Verb, a.Changes, c.want)
		}
		if a.Verb == Skip {
			wantText(t, a.Reason, "Widget lost", "cannot have here")
		}
		w.objects[widgets] = slices.DeleteFunc(w.objects[widgets], func(o *unstructured.Unstructured) bool { return o == live })
	}
}
