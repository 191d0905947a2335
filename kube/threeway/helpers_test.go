package threeway

import (
	"maps"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/yaml"

	"github.com/crmirror/crmirror/kube"
)

// handmade has every kind of type: structs and maps of like values, granular and atomic;
// atomic lists, lists with one key, with two of which one has a default, sets; nullable,
// int-or-string and undeclared fields.
const handmade = `
types:
- name: root
  map:
    fields:
    - {name: apiVersion, type: {scalar: string}}
    - {name: kind, type: {scalar: string}}
    - {name: metadata, type: {namedType: __untyped_deduced_}}
    - {name: spec, type: {namedType: spec}}
    - {name: status, type: {namedType: __untyped_deduced_}}
- name: spec
  map:
    fields:
    - {name: size, type: {scalar: numeric}}
    - {name: legacy, type: {scalar: string}}
    - {name: note, type: {scalar: string, nullable: true}}
    - {name: port, type: {scalar: untyped}}
    - {name: tls, type: {namedType: tls}}
    - {name: tags, type: {map: {elementType: {scalar: string}}}}
    - {name: groups, type: {map: {elementType: {namedType: tls}}}}
    - {name: selector, type: {map: {elementType: {scalar: string}, elementRelationship: atomic}}}
    - {name: args, type: {list: {elementType: {scalar: string}, elementRelationship: atomic}}}
    - {name: zones, type: {list: {elementType: {scalar: string}, elementRelationship: associative}}}
    - {name: users, type: {list: {elementType: {namedType: user}, elementRelationship: associative, keys: [name]}}}
    - {name: ports, type: {list: {elementType: {namedType: port}, elementRelationship: associative, keys: [port, protocol]}}}
    - {name: values, type: {namedType: __untyped_deduced_}}
- name: tls
  map:
    fields:
    - {name: secret, type: {scalar: string}}
    - {name: host, type: {scalar: string}}
- name: user
  map:
    fields:
    - {name: name, type: {scalar: string}}
    - {name: role, type: {scalar: string}}
    - {name: password, type: {scalar: string}}
    - {name: keys, type: {list: {elementType: {scalar: string}, elementRelationship: associative}}}
- name: port
  map:
    fields:
    - {name: port, type: {scalar: numeric}}
    - {name: protocol, type: {scalar: string}, default: TCP}
    - {name: timeout, type: {scalar: numeric}}
- name: __untyped_atomic_
  scalar: untyped
  list:
    elementType: {namedType: __untyped_atomic_}
    elementRelationship: atomic
  map:
    elementType: {namedType: __untyped_atomic_}
    elementRelationship: atomic
- name: __untyped_deduced_
  scalar: untyped
  list:
    elementType: {namedType: __untyped_atomic_}
    elementRelationship: atomic
  map:
    elementType: {namedType: __untyped_deduced_}
    elementRelationship: separable
`

func handmadeType(t testing.TB) typed.ParseableType {
	t.Helper()
	parser, err := typed.NewParser(handmade)
	if err != nil {
		t.Fatal(err)
	}
	return parser.Type("root")
}

// crdType returns the type of a CRD's version as the server publishes it, but for metadata,
// whose type Decide brings along.
func crdType(t testing.TB, file, version string) typed.ParseableType {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Group    string
			Names    struct{ Kind string }
			Versions []struct {
				Name   string
				Schema struct {
					OpenAPIV3Schema spec.Schema `json:"openAPIV3Schema"`
				}
			}
		}
	}
	if err := yaml.Unmarshal(content, &crd); err != nil {
		t.Fatal(err)
	}
	for _, v := range crd.Spec.Versions {
		if v.Name != version {
			continue
		}
		s := v.Schema.OpenAPIV3Schema
		if s.Properties == nil {
			s.Properties = map[string]spec.Schema{}
		}
		for _, name := range []string{"apiVersion", "kind"} {
			s.Properties[name] = *spec.StringProperty()
		}
		s.Properties["metadata"] = *spec.MapProperty(nil)
		s.AddExtension("x-kubernetes-group-version-kind", []any{map[string]any{
			"group": crd.Spec.Group, "version": version, "kind": crd.Spec.Names.Kind,
		}})
		converter, err := managedfields.NewTypeConverter(map[string]*spec.Schema{"root": &s}, false)
		if err != nil {
			t.Fatal(err)
		}
		tv, err := converter.ObjectToTyped(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": crd.Spec.Group + "/" + version, "kind": crd.Spec.Names.Kind,
		}})
		if err != nil {
			t.Fatal(err)
		}
		return typed.ParseableType{Schema: tv.Schema(), TypeRef: tv.TypeRef()}
	}
	t.Fatalf("%s has no version %s", file, version)
	return typed.ParseableType{}
}

// object reads an object from YAML without its identity: "spec: {size: 1}", with metadata
// as "meta" and another version as "version". "-" is no object.
func object(t testing.TB, s string) map[string]any {
	t.Helper()
	if s == "-" {
		return nil
	}
	// Decode keeps 1 and 1.0 apart, as the real inputs do.
	decoded, err := kube.Decode([]byte("{apiVersion: example.dev/v1, kind: Thing, metadata: {name: x}, body: {" + s + "}}"))
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	obj := decoded.Object
	body := obj["body"].(map[string]any)
	delete(obj, "body")
	for k, v := range body {
		switch k {
		case "meta":
			maps.Copy(obj["metadata"].(map[string]any), v.(map[string]any))
		case "version":
			obj["apiVersion"] = "example.dev/" + v.(string)
		default:
			obj[k] = v
		}
	}
	return obj
}

// pathSet makes a set of paths, each given as in ".spec.users[name=bob].role".
func pathSet(t testing.TB, paths ...string) *fieldpath.Set {
	t.Helper()
	out := fieldpath.NewSet()
	for _, p := range paths {
		out.Insert(parsePath(t, p))
	}
	return out
}

// parsePath reads a path of field names, [key=text] and [#0].
func parsePath(t testing.TB, s string) fieldpath.Path {
	t.Helper()
	var out fieldpath.Path
	for s != "" {
		end := len(s)
		if i := strings.IndexAny(s[1:], ".["); i >= 0 {
			end = i + 1
		}
		if s[0] == '.' {
			out = append(out, fieldpath.FieldNameElement(s[1:end]))
			s = s[end:]
			continue
		}
		end = strings.Index(s, "]")
		name, text, _ := strings.Cut(s[1:end], "=")
		if name == "#0" {
			out = append(out, fieldpath.IndexElement(0))
		} else {
			out = append(out, fieldpath.KeyElementByFields(name, text))
		}
		s = s[end+1:]
	}
	return out
}
