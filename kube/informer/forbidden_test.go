package informer_test

import (
	"context"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/crmirror/crmirror/kube/kubetest"
)

// allow lets a user do that to the resource of a test's kind, or to CRDs.
func allow(t *testing.T, admin *rest.Config, user, group, resource string, verbs ...string) {
	t.Helper()
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		t.Fatal(err)
	}
	name := user + "-" + resource + "-" + group + "-" + strings.Join(verbs, "-")
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}},
	}
	if _, err := client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestForbiddenKinds(t *testing.T) {
	server := kubetest.Shared(t)
	c := connect(t, server.Config)
	allowed, denied, unwatched := c.install("allowed.test.dev"), c.install("denied.test.dev"), c.install("unwatched.test.dev")
	for _, w := range []widgets{allowed, denied, unwatched} {
		w.create("default", "a")
	}
	user, _, err := server.User("mirror")
	if err != nil {
		t.Fatal(err)
	}
	allow(t, server.Config, "mirror", "apiextensions.k8s.io", "customresourcedefinitions", "get", "list", "watch")
	allow(t, server.Config, "mirror", allowed.group, "widgets", "list", "watch")
	allow(t, server.Config, "mirror", unwatched.group, "widgets", "list")
	poll(t, "permissions to be known to the server", func(ctx context.Context) error {
		_, err := connect(t, user).crds().List(ctx, metav1.ListOptions{})
		return err
	})

	told := newRecorder()
	run(t, options(user, selecting(t, allowed.name(), denied.name(), unwatched.name()), told))
	told.wait(t, 0, "changed "+allowed.key("default", "a").String())
	told.wait(t, 0, "failing "+denied.name())
	told.wait(t, 0, "listed "+unwatched.name())
	told.wait(t, 0, "failing "+unwatched.name())
	if got := told.all("failing "); len(got) != 2 {
		t.Errorf("got %q, want each of the two told once", got)
	}
	for _, unwanted := range []string{"deleted ", "gone ", "recovered ", "listed " + denied.name()} {
		if got := told.all(unwanted); len(got) > 0 {
			t.Errorf("a forbidden kind is told as %q", got)
		}
	}
	allow(t, server.Config, "mirror", denied.group, "widgets", "list", "watch")
	told.wait(t, 0, "recovered "+denied.name())
	told.wait(t, 0, "changed "+denied.key("default", "a").String())
}

func TestForbiddenCRDs(t *testing.T) {
	server := kubetest.Shared(t)
	w := connect(t, server.Config).install("nocrds.test.dev")
	w.create("default", "a")
	user, _, err := server.User("nocrds")
	if err != nil {
		t.Fatal(err)
	}
	allow(t, server.Config, "nocrds", w.group, "widgets", "get", "list", "watch")
	told := newRecorder()
	fleet := run(t, options(user, selecting(t, w.name(), "*"), told))
	told.wait(t, 0, "failing customresourcedefinitions.apiextensions.k8s.io")
	told.wait(t, 0, "listed "+w.name()) // by its name, through discovery
	allow(t, server.Config, "nocrds", "apiextensions.k8s.io", "customresourcedefinitions", "get", "list", "watch")
	told.wait(t, 0, "recovered customresourcedefinitions.apiextensions.k8s.io")
	if err := fleet.Proven(t.Context(), w.resource()); err != nil {
		t.Errorf("Proven: %v", err)
	}
	if got := told.all("gone " + w.name()); len(got) > 0 {
		t.Errorf("got %q", got)
	}
}
