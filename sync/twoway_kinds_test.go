package sync

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/kubetest"
)

// modelKind is a kind of a corpus of which objects are edited, and where.
type modelKind struct {
	crd  string // file below the corpus
	spec string // what every object has, in YAML: the maps and lists that are edited too, empty
	// fields that are edited: path, kind of value, and a last word in YAML: what an item has
	// from its beginning, or the server's default of another field. "!" marks those that
	// their item, or object, has always.
	fields []string
}

// ownKinds are kinds of testdata/corpus.
func ownKinds() []modelKind {
	return []modelKind{{
		crd: "mesh/crds/routes.yaml", spec: "{hosts: [], listeners: [], rules: []}",
		fields: []string{
			"spec.hosts list!", // atomic
			"spec.listeners[port=80,protocol=TCP] item {}", "spec.listeners[port=80,protocol=TCP].timeout text 30s",
			"spec.listeners[port=443,protocol=TCP] item {}", "spec.listeners[port=443,protocol=TCP].timeout text 30s",
			"spec.rules[name=a] item {}", "spec.rules[name=a].path text /", "spec.rules[name=a].headers map",
			"spec.rules[name=a].targetPort either", "spec.rules[name=a].weight number 1",
			"spec.rules[name=b] item {}", "spec.rules[name=b].path text /", "spec.rules[name=b].targetPort either", "spec.rules[name=b].weight number 1",
		},
	}, {
		crd: "shop/crds/products.yaml", spec: "{tags: [], attributes: {deep: {}}}",
		fields: []string{
			"spec.title text", "spec.stock either", "spec.weightGrams number",
			"spec.tags[=x] member", "spec.tags[=y] member",
			"spec.attributes.a text", "spec.attributes.list list", "spec.attributes.deep.b either", // unknown fields
			"metadata.labels.team text", "metadata.annotations[=shop.dev/note] text",
		},
	}, {
		crd: "shop/crds/stores.yaml", spec: "{country: DE, open: true, hours: {}, contacts: []}",
		fields: []string{
			"spec.currency text EUR", "spec.hours.mon text", "spec.hours.tue text", "spec.hours.wed text",
			"spec.contacts[role=owner] item {}", "spec.contacts[role=owner].mail text", "spec.contacts[role=owner].phone text",
			"spec.contacts[role=clerk] item {}", "spec.contacts[role=clerk].mail text!",
		},
	}}
}

// projectKinds are kinds of the corpus of real projects.
func projectKinds() []modelKind {
	return []modelKind{{
		crd: "prometheus-operator/crds/monitoring.coreos.com_prometheusrules.yaml", spec: "{groups: []}",
		fields: []string{
			"spec.groups[name=a] item {labels: {}}", "spec.groups[name=a].interval seconds", "spec.groups[name=a].labels.x text",
			"spec.groups[name=a].labels.y text", "spec.groups[name=a].rules rules",
			"spec.groups[name=b] item {labels: {}}", "spec.groups[name=b].limit number", "spec.groups[name=b].labels.x text",
			"metadata.labels.team text",
		},
	}, {
		crd:  "argo-cd/crds/application-crd.yaml",
		spec: "{destination: {}, project: p, source: {repoURL: r, helm: {valuesObject: {deep: {}}}}, info: []}",
		fields: []string{
			"spec.project text!", "spec.source.targetRevision text", "spec.source.helm.valuesObject.a either",
			"spec.source.helm.valuesObject.list list", "spec.source.helm.valuesObject.deep.b text", "spec.info infos!",
			"spec.source.kustomize item {}", "spec.source.kustomize.namePrefix text", "spec.source.kustomize.nameSuffix text", // a struct
			"spec.revisionHistoryLimit number",
		},
	}, {
		crd:  "gateway-api/crds/gateway.networking.k8s.io_gateways.yaml",
		spec: "{gatewayClassName: c, infrastructure: {annotations: {}}, listeners: [{name: fixed, port: 1, protocol: HTTP, allowedRoutes: {namespaces: {from: Same}}}]}",
		fields: []string{
			"spec.gatewayClassName text!", "spec.infrastructure.annotations.a text", "spec.infrastructure.annotations.b text",
			"spec.listeners[name=a] item {protocol: HTTP, allowedRoutes: {namespaces: {from: Same}}}", "spec.listeners[name=a].port number!",
			"spec.listeners[name=a].hostname host",
			"spec.listeners[name=b] item {protocol: HTTP, allowedRoutes: {namespaces: {from: Same}}}", "spec.listeners[name=b].port number!",
		},
	}, {
		crd: "cert-manager/crds/cert-manager.io_certificates.yaml", spec: "{secretName: s, issuerRef: {name: i}, secretTemplate: {annotations: {}}, dnsNames: []}",
		fields: []string{
			"spec.secretName text!", "spec.dnsNames list!", "spec.secretTemplate.annotations.a text", "spec.secretTemplate.annotations.b text",
			"spec.subject item {}", "spec.subject.organizations list", "spec.subject.serialNumber text", "spec.revisionHistoryLimit number",
			"metadata.annotations[=cert-manager.io/note] text",
		},
	}, {
		crd: "cloudnative-pg/crds/postgresql.cnpg.io_imagecatalogs.yaml", spec: "{images: [{major: 12, image: i}], componentImages: []}",
		fields: []string{
			"spec.images images!", // atomic, with lists with keys inside
			"spec.componentImages[key=proxy] item {}", "spec.componentImages[key=proxy].image text!",
			"spec.componentImages[key=pool] item {}", "spec.componentImages[key=pool].image text!",
		},
	}}
}

// installed is a kind that the server has.
type installed struct {
	liveKind
	spec  map[string]any
	spots []*spot
}

// install creates a kind in an API group of the test's own.
func (k *modelKind) install(p *pair, corpus string) *installed {
	t := p.t
	t.Helper()
	content, err := os.ReadFile(filepath.Join(corpus, k.crd))
	if err != nil {
		t.Fatal(err)
	}
	crd := p.decode(string(content))
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	group = strings.Split(group, ".")[0] + "." + p.server.group
	crd.SetName(plural + "." + group)
	crd.SetAnnotations(nil)
	unstructured.RemoveNestedField(crd.Object, "status")
	if err := unstructured.SetNestedField(crd.Object, group, "spec", "group"); err != nil {
		t.Fatal(err)
	}
	in := &installed{liveKind: liveKind{schema.GroupVersionResource{Group: group, Version: storageVersion(crd), Resource: plural}, kind}}
	in.spec = in.yaml(t, k.spec).(map[string]any)
	for _, text := range k.fields {
		in.spots = append(in.spots, in.parse(t, text))
	}
	for _, l := range in.spots {
		for _, item := range in.spots {
			if item.kind == "item" && item != l && within(item.path, l.path) {
				l.parents = append(l.parents, item)
			}
		}
	}
	p.server.kinds = append(p.server.kinds, in.liveKind)
	kubetest.InstallCRD(t, p.server.client, crd, func(ctx context.Context) error { return in.probe(ctx, p) })
	return in
}

func storageVersion(crd *unstructured.Unstructured) string {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	i := slices.IndexFunc(versions, func(v any) bool { return v.(map[string]any)["storage"] == true })
	return versions[i].(map[string]any)["name"].(string)
}

// yaml reads a value as files of git have it: integers are integers.
func (in *installed) yaml(t *testing.T, text string) any {
	t.Helper()
	obj, err := kube.Decode([]byte("apiVersion: v1\nkind: X\nmetadata: {name: x}\nv: " + text + "\n"))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return obj.Object["v"]
}

// object is a new object of the kind, without any field.
func (in *installed) object(namespace, name string) map[string]any {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": in.spec}}
	obj = obj.DeepCopy()
	obj.SetAPIVersion(in.GroupVersion().String())
	obj.SetKind(in.kind)
	obj.SetNamespace(namespace)
	obj.SetName(name)
	return obj.Object
}

// probe tells whether the kind takes applies, without making one.
func (in *installed) probe(ctx context.Context, p *pair) error {
	content, err := json.Marshal(in.object(p.server.namespace, "probe"))
	if err != nil {
		return err
	}
	_, err = p.server.objects(in.GroupResource()).
		Patch(ctx, "probe", types.ApplyPatchType, content, metav1.PatchOptions{FieldManager: "probe", DryRun: []string{metav1.DryRunAll}})
	return err
}
