package sync

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

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

// spot is a field that is edited, of all objects of a kind.
type spot struct {
	path    fieldpath.Path
	kind    string
	always  bool
	first   map[string]any // of an item: what it begins with
	preset  string         // the server's default; "" for none
	parents []*spot        // the items that it lies in, outermost first
}

// whole tells whether the spot is an item, a struct or a set's value, which is there or not.
func (l *spot) whole() bool { return l.kind == "item" || l.kind == "member" }

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

func (in *installed) parse(t *testing.T, text string) *spot {
	t.Helper()
	words := strings.SplitN(text, " ", 3)
	l := &spot{path: parseModelPath(t, words[0])}
	l.kind, l.always = strings.CutSuffix(words[1], "!")
	switch {
	case l.kind == "item":
		l.first = in.yaml(t, words[2]).(map[string]any)
	case len(words) == 3:
		l.preset = compact(in.yaml(t, words[2]))
	}
	return l
}

// parseModelPath reads a.b[k=v,n=1].c, and [=x]: a set's value in a list of spec, else a map's key.
func parseModelPath(t *testing.T, text string) fieldpath.Path {
	t.Helper()
	var path fieldpath.Path
	for text != "" {
		if key, ok := strings.CutPrefix(text, "["); ok {
			inner, rest, ok := strings.Cut(key, "]")
			if !ok {
				t.Fatalf("path %q does not end", text)
			}
			path, text = append(path, modelElement(inner, *path[0].FieldName == "metadata")), strings.TrimPrefix(rest, ".")
			continue
		}
		end := strings.IndexAny(text, ".[")
		if end < 0 {
			end = len(text)
		}
		path, text = append(path, fieldpath.FieldNameElement(text[:end])), strings.TrimPrefix(text[end:], ".")
	}
	return path
}

func modelElement(inner string, key bool) fieldpath.PathElement {
	if name, ok := strings.CutPrefix(inner, "="); ok && key {
		return fieldpath.FieldNameElement(name)
	} else if ok {
		return fieldpath.ValueElement(value.NewValueInterface(name))
	}
	fields := map[string]any{}
	for pair := range strings.SplitSeq(inner, ",") {
		name, v, _ := strings.Cut(pair, "=")
		fields[name] = v
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			fields[name] = n
		}
	}
	return fieldpath.KeyElementByFields(slicesOf(fields)...)
}

func slicesOf(fields map[string]any) []any {
	var out []any
	for _, name := range sortedNames(fields) {
		out = append(out, name, fields[name])
	}
	return out
}

// next is a value that nobody used before.
func (l *spot) next(serial int64) any {
	text := fmt.Sprintf("v%d", serial)
	switch l.kind {
	case "number":
		return serial
	case "either":
		if serial%2 == 0 {
			return serial
		}
	case "seconds":
		return fmt.Sprintf("%ds", serial)
	case "host":
		return text + ".example.dev"
	case "list":
		return []any{text, "same"}
	case "map":
		return map[string]any{"a": text, "b": "same"}
	case "rules":
		return []any{map[string]any{"record": "r", "expr": serial, "labels": map[string]any{"l": text}}}
	case "images":
		return []any{map[string]any{"major": int64(16), "image": text, "extensions": []any{map[string]any{"name": "gis", "image": map[string]any{"reference": text}}}}}
	case "infos":
		return []any{map[string]any{"name": "same", "value": text}}
	}
	return text
}

// value is what content has of a field, as versions have it.
func (l *spot) value(content map[string]any) string {
	v, ok := lookUp(content, l.path)
	switch {
	case content == nil, len(l.parents) > 0 && !isThere(l.parents[len(l.parents)-1].value(content)):
		return noPlace
	case !ok:
		return notThere
	case l.whole():
		return "there"
	}
	return compact(v)
}

// What versions have where there is no value: nor the item or object that it would be in, or only not it.
const (
	noPlace  = ""
	notThere = "-"
)

func isThere(value string) bool { return value != noPlace && value != notThere }

func compact(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// lookUp returns the value at a path.
func lookUp(v any, path fieldpath.Path) (any, bool) {
	for _, e := range path {
		if e.FieldName != nil {
			m, _ := v.(map[string]any)
			next, ok := m[*e.FieldName]
			if !ok {
				return nil, false
			}
			v = next
			continue
		}
		items, _ := v.([]any)
		i := slices.IndexFunc(items, func(item any) bool { return picks(e, item) })
		if i < 0 {
			return nil, false
		}
		v = items[i]
	}
	return v, v != nil
}

// picks tells whether a path's step names an item.
func picks(e fieldpath.PathElement, item any) bool {
	if e.Value != nil {
		return (*e.Value).Unstructured() == item
	}
	m, _ := item.(map[string]any)
	for _, f := range *e.Key {
		if m[f.Name] != f.Value.Unstructured() {
			return false
		}
	}
	return true
}

// put returns content with a value at a path, or without what is there if v is nil.
func put(content any, path fieldpath.Path, v any) any {
	if len(path) == 0 {
		return v
	}
	e := path[0]
	if e.FieldName != nil {
		m, _ := content.(map[string]any)
		if m = maps.Clone(m); m == nil {
			m = map[string]any{}
		}
		if m[*e.FieldName] = put(m[*e.FieldName], path[1:], v); m[*e.FieldName] == nil {
			delete(m, *e.FieldName)
		}
		return m
	}
	items, _ := content.([]any)
	items = slices.Clone(items)
	i := slices.IndexFunc(items, func(item any) bool { return picks(e, item) })
	if i < 0 {
		i, items = len(items), append(items, nil)
	}
	if items[i] = put(items[i], path[1:], v); items[i] == nil {
		items = slices.Delete(items, i, i+1)
	}
	if items == nil {
		items = []any{}
	}
	return items
}

// item is a new item of a list, or a new struct.
func (l *spot) item() any {
	e := l.path[len(l.path)-1]
	if e.Value != nil {
		return (*e.Value).Unstructured()
	}
	made := maps.Clone(l.first)
	if e.Key != nil {
		for _, f := range *e.Key {
			made[f.Name] = f.Value.Unstructured()
		}
	}
	return made
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
