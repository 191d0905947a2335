package kubetest

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestMain(m *testing.M) { Main(m) }

func clientset(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestServerVersionIsStamped(t *testing.T) {
	version, err := clientset(t, Shared(t).Config).Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(version.GitVersion, "v1.") || version.Major != "1" || version.Minor == "" {
		t.Errorf("server version: got %+v, want v1.x with major and minor", version)
	}
}

func TestUserMayDoNothingUnasked(t *testing.T) {
	config, kubeconfig, err := Shared(t).User("somebody")
	if err != nil {
		t.Fatal(err)
	}
	_, err = clientset(t, config).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("list as a user without roles: got %v, want forbidden", err)
	}
	if _, err := os.Stat(kubeconfig); err != nil {
		t.Error(err)
	}
}

// An outage of the API server: what was stored before is there again, at the
// same address, with the same credentials.
func TestAPIServerRestart(t *testing.T) {
	cluster := New(t, Options{})
	client := clientset(t, cluster.Config)
	want := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "before"},
		Data:       map[string]string{"key": "value"},
	}
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), want, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	if err := cluster.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	if response, err := http.Get(cluster.Config.Host); err == nil {
		_ = response.Body.Close()
		t.Error("the API server answers after StopAPIServer")
	}
	if err := cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}

	got, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "before", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Data["key"] != "value" {
		t.Errorf("config map after the restart: got %v, want %v", got.Data, want.Data)
	}
}

func TestStop(t *testing.T) {
	kept := filepath.Join(t.TempDir(), "cluster")
	for _, options := range []Options{{Dir: kept, Keep: true}, {}} {
		cluster, err := Start(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // a second Stop changes nothing
			if err := cluster.Stop(); err != nil {
				t.Fatal(err)
			}
		}
		_, err = os.Stat(cluster.Dir)
		if exists := err == nil; exists != options.Keep {
			t.Errorf("folder exists after Stop with Keep=%t: got %t", options.Keep, exists)
		}
	}
}

func TestMissingBinariesAreExplained(t *testing.T) {
	t.Setenv(assetsEnv, t.TempDir())
	_, err := Start(t.Context(), Options{})
	if err == nil || !strings.Contains(err.Error(), "make controlplane") {
		t.Errorf("start without binaries: got %v, want an error that says \"make controlplane\"", err)
	}
}
