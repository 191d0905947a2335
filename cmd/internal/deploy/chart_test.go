package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// With its default values the chart gives the objects of the kustomize base, but for the
// Namespace, which Helm makes, and for Helm's own labels.
func TestChartEqualsBase(t *testing.T) {
	base := byName(t, objectsOf(t, world.render, "kustomize", "base"))
	delete(base, "Namespace crmirror")
	chart := byName(t, objectsOf(t, world.render, "helm", "chart/crmirror", "crmirror", namespace))
	if d := cmp.Diff(base, chart, cmp.AllowUnexported(right{})); d != "" {
		t.Errorf("(- base, + chart):\n%s", d)
	}
}

// byName lists rendered objects so that they can be compared: rights as sets, the
// configuration as data.
func byName(t *testing.T, objects []*unstructured.Unstructured) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, object := range objects {
		if object.GetLabels()["app.kubernetes.io/name"] != "crmirror" {
			t.Errorf("%s %s has not the label of the application", object.GetKind(), object.GetName())
		}
		object.SetLabels(nil)
		name := object.GetKind() + " " + object.GetName()
		switch object.GetKind() {
		case "Role", "ClusterRole":
			out[name] = rightsOf(t, []*unstructured.Unstructured{object})
		case "ConfigMap":
			out[name] = plain(t, parse(t, []byte(configText(t, []*unstructured.Unstructured{object})))[0].Object)
		default:
			out[name] = plain(t, object.Object)
		}
	}
	return out
}

// A mistake in the values is told by its place, before anything is installed.
func TestChartRefusesMistakes(t *testing.T) {
	for _, tt := range []struct{ values, want string }{
		{"replica: 1", "replica"},
		{"replicas: many", "/replicas"},
		{"image: {repositry: x}", "/image"},
		{"image: {digest: latest}", "/image/digest"},
		{"config: {mode: both}", "/config/mode"},
		{"config: {cluster: Prod EU}", "/config/cluster"},
		{"config: {repository: {url: ./backup}}", "/config/repository/url"},
		{"config: {health: {listen: none}}", "/config/health/listen"},
		{"git: {secret: ''}", "/git/secret"},
		{"cache: {sizeLimit: lots}", "/cache/sizeLimit"},
		{"networkPolicy: {egressPorts: [0]}", "/networkPolicy/egressPorts/0"},
		{"config: {select: [{resources: ['*']}]}", "crmirror rbac"},
		{"config: {cacheDir: null}", "config.cacheDir is needed"},
		{"config: {leaderElection: {enabled: false}}", "config.leaderElection.enabled"},
		{"serviceAccount: {create: false}", "serviceAccount.name is needed"},
	} {
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, []byte(tt.values), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := output(t, world.render, "helm", "chart/crmirror", "crmirror", namespace, file)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("values %s: got %v, want an error that names %q", tt.values, err, tt.want)
		}
	}
}
