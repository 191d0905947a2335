package kubetest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// shared is the control plane of this test binary. It is state of the package
// because it is one of the process: a start costs seconds, and every test of the
// binary uses the same one.
var shared struct {
	start   sync.Once
	cluster *Cluster
	err     error
}

// Main runs the tests of a package, then stops the control plane if Shared
// started one, and exits. Call it from TestMain.
func Main(m *testing.M) {
	code := m.Run()
	if shared.cluster != nil {
		if err := shared.cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// Shared returns the control plane that all tests of this binary use; the first
// call starts it. Tests keep apart by namespaces (see Namespace) and by API
// groups of their own. The package's TestMain calls Main.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	shared.start.Do(func() {
		// Not the test's context: the server outlives the test that started it.
		shared.cluster, shared.err = Start(context.Background(), Options{})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

// New starts a control plane for this test alone and stops it with the test.
func New(t testing.TB, options Options) *Cluster {
	t.Helper()
	cluster, err := Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}

// Namespace creates a namespace with a unique name and returns the name.
func (c *Cluster) Namespace(t testing.TB) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	namespace, err = client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create namespace: %v", err)
	}
	return namespace.Name
}
