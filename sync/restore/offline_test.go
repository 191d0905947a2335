package restore

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/kubetest"
)

func TestPlanChecksOffline(t *testing.T) {
	w := shop(t)
	w.git(widget("shop", "small", "0"), nil)
	w.git(widget("shop", "text", "many"), nil)
	w.git(widget("shop", "more", "1")+"  colour: red\n", nil)
	w.git(widget("shop", "nothing", "1")+"  name: null\n", nil)
	plan := w.plan(Options{})
	for name, words := range map[string][]string{
		"small": {"spec.size", "greater than or equal to 1"},
		"text":  {"spec.size", "integer"},
		"more":  {"spec.colour is no field"},
	} {
		a := w.action(plan, "widgets.example.com shop/"+name)
		if a.Verb != Blocked {
			t.Errorf("%s: got %s, want blocked", name, a.Verb)
		}
		wantText(t, a.Reason, append(words, "CRD in git")...)
	}
	for _, name := range []string{"a", "nothing"} {
		if a := w.action(plan, "widgets.example.com shop/"+name); a.Verb != Create {
			t.Errorf("%s: got %s %s, want create", name, a.Verb, a.Reason)
		}
	}

	// What the server has, the server checks.
	w.live(widgetCRD("v1"))
	if a := w.action(w.plan(Options{}), "widgets.example.com shop/small"); a.Verb != Create {
		t.Errorf("served: got %s, want create", a.Verb)
	}
}

// Every object of the corpus that a server takes passes its CRD.
func TestOfflineCorpus(t *testing.T) {
	root, err := kubetest.Root()
	if err != nil {
		t.Fatal(err)
	}
	w := newScene(t)
	definitions := map[schema.GroupKind]*definition{}
	var objects []map[string]any
	err = filepath.WalkDir(filepath.Join(root, "testdata", "corpus"), func(path string, entry os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" || filepath.Base(filepath.Dir(path)) == "refused" {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, text := range strings.Split(string(content), "\n---\n") {
			obj := map[string]any{}
			if err := yaml.Unmarshal([]byte(text), &obj); err != nil || obj["kind"] == nil {
				continue
			}
			if obj["kind"] == "CustomResourceDefinition" {
				crd := w.crd(text)
				definitions[schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}] = crd
				continue
			}
			id, err := kube.Decode([]byte(text))
			if err != nil {
				continue // generateName
			}
			objects = append(objects, id.Object)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, obj := range objects {
		id, err := kube.Identify(obj)
		if err != nil {
			t.Fatal(err)
		}
		crd := definitions[schema.GroupKind{Group: id.Group(), Kind: id.Kind}]
		if crd == nil {
			continue
		}
		s := compile(crd, versionOf(obj))
		if s.err != nil {
			t.Errorf("%s %s: %v", id.Kind, id.Name, s.err)
			continue
		}
		checked++
		if mistakes := s.check(obj); len(mistakes) > 0 {
			t.Errorf("%s %s: %q", id.Kind, id.Name, mistakes)
		}
	}
	if checked < 100 {
		t.Errorf("checked %d objects, want at least 100", checked)
	}
}

// What the schema refuses is named by field and rule; the value itself stays out of plans and reports.
func TestOfflineTellsNoValue(t *testing.T) {
	w := newScene(t)
	w.git(namespaceText("shop"), nil)
	size := regexp.MustCompile(`(?m)^( +)size:$`)
	w.git(size.ReplaceAllString(widgetCRD("v1"), `${1}key: {type: string, format: byte}
${1}mode: {type: string, enum: [auto, manual]}
${1}code: {type: string, pattern: "^[0-9]+$$"}
${1}count: {type: integer}
${1}either: {type: string, anyOf: [{format: ipv4}, {format: ipv6}]}
${1}size:`), nil)
	for field, want := range map[string]string{
		"key":    "spec.key must be of type byte",
		"mode":   "auto manual",
		"code":   "^[0-9]+$",
		"count":  "spec.count must be of type integer",
		"either": "spec.either",
	} {
		w.git(widget("shop", field, "1")+"  "+field+": \"s3cr: et!\"\n", nil)
		a := w.action(w.plan(Options{}), "widgets.example.com shop/"+field)
		if a.Verb != Blocked || strings.Contains(a.Reason, "s3cr") || strings.Contains(a.Reason, "et!") {
			t.Errorf("%s: got %s %q, want it blocked without its value", field, a.Verb, a.Reason)
		}
		wantText(t, a.Reason, want)
	}
}
