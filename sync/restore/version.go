package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/crmirror/crmirror/sync"
)

type definition = apiextensionsv1.CustomResourceDefinition

// readDefinitions reads all CRDs of the commit, selected or not: they say what its objects are.
func (m *maker) readDefinitions(ctx context.Context) error {
	m.defined = map[schema.GroupResource]*definition{}
	for _, item := range m.s.Items {
		if item.Key.GroupResource() != crdResource {
			continue
		}
		obj, err := m.s.Object(ctx, item)
		var unreadable *FileError
		if errors.As(err, &unreadable) {
			continue // told where the CRD is planned
		}
		if err != nil {
			return err
		}
		crd := &definition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, crd); err != nil {
			m.find(item.Path, "cannot be read as a CRD; its objects are compared by what the cluster serves")
			continue
		}
		m.defined[schema.GroupResource{Group: crd.Spec.Group, Resource: crd.Spec.Names.Plural}] = crd
	}
	return nil
}

func (m *maker) find(what, text string) {
	m.plan.Findings = append(m.plan.Findings, Finding{What: what, Text: text})
}

// storedAt returns the version at which a CRD stores its objects.
func storedAt(crd *definition) string {
	if crd == nil {
		return ""
	}
	for _, v := range crd.Spec.Versions {
		if v.Storage {
			return v.Name
		}
	}
	return ""
}

// readAt returns the version at which most files of a resource were written, as far as it is served:
// the mirror reads objects at their storage version.
func (m *maker) readAt(gr schema.GroupResource) (schema.GroupVersionResource, bool) {
	kind, ok := m.served.Resource(gr)
	if !ok {
		return schema.GroupVersionResource{}, false
	}
	for _, version := range []string{storedAt(m.defined[gr]), storedAt(m.definitions[gr])} {
		if _, ok := kind.Version(version); ok {
			return gr.WithVersion(version), true
		}
	}
	return kind.Preferred(), true
}

// place says where an object is to be written whose file has it at a version. A note tells of another
// version than that; a problem is why it cannot be written at all.
//
// Another version is taken only where the CRD converts by name alone, as the server does then with what it stores, and one of
// the CRDs has the file's version. What the other version lacks, checkOffline finds.
func (m *maker) place(gr schema.GroupResource, version string) (at schema.GroupVersionResource, note, problem string) {
	kind, ok := m.served.Resource(gr)
	var served []string
	crd := m.definitions[gr]
	switch {
	case m.renews(gr):
		crd = m.defined[gr]
		served = servedBy(crd)
	case ok && crd == nil:
		for _, v := range kind.Versions {
			served = append(served, v.Name)
		}
	case crd != nil:
		served = servedBy(crd)
	default:
		if crd = m.defined[gr]; crd == nil {
			return at, "", m.notServed(gr)
		}
		served = servedBy(crd)
	}
	if slices.Contains(served, version) {
		return gr.WithVersion(version), "", ""
	}
	known := slices.ContainsFunc([]*definition{m.definitions[gr], m.defined[gr]}, func(crd *definition) bool { return hasVersion(crd, version) })
	if crd == nil || len(served) == 0 || converts(crd) || !known {
		return at, "", fmt.Sprintf("the cluster does not serve %s at version %s, only at %s; restore its CRD with --existing update, "+
			"or write the object at such a version in git", gr, version, strings.Join(served, ", "))
	}
	other := served[0]
	if stored := storedAt(crd); slices.Contains(served, stored) {
		other = stored
	}
	return gr.WithVersion(other), fmt.Sprintf("is written at version %s, converted by name only: %s is not served", other, version), ""
}

// renews tells whether the plan makes the cluster's CRD of a resource git's.
func (m *maker) renews(gr schema.GroupResource) bool {
	if m.verifies || m.definitions[gr] == nil || m.defined[gr] == nil {
		return false
	}
	t := m.byKey[crdKey(gr)]
	return t != nil && t.action.Verb == Update
}

// inForce is the CRD of a resource that its objects are written under; nil if there is none.
func (m *maker) inForce(gr schema.GroupResource) *definition {
	if live := m.definitions[gr]; live != nil && !m.renews(gr) {
		return live
	}
	return m.defined[gr]
}

// serves tells whether the cluster serves a version as things are.
func (m *maker) serves(at schema.GroupVersionResource) bool {
	kind, _ := m.served.Resource(at.GroupResource())
	_, ok := kind.Version(at.Version)
	return ok
}

// foreseen decides about an object that the cluster has, and that is written at a version which it serves only once
// the plan has updated the CRD: it is compared as the server will read it then.
func (m *maker) foreseen(t *target, d *Desired, live *unstructured.Unstructured) error {
	a := t.action
	crd := m.defined[a.Resource.GroupResource()]
	if converts(crd) {
		t.decide(Blocked, fmt.Sprintf("it is at version %s, and only its CRD, which is updated, can say by its webhook what it is at %s: run again then",
			t.at.Version, a.Resource.Version))
		return nil
	}
	s := m.schemas.of(a.Resource, crd)
	if s.err != nil {
		t.decide(Blocked, "the schema in its CRD cannot be used: "+sync.Printable(s.err.Error(), messageRunes))
		return nil
	}
	live = live.DeepCopy()
	live.SetAPIVersion(a.Resource.GroupVersion().String())
	s.read(live.Object)
	a.foreseen = true
	a.Notes = append(a.Notes, fmt.Sprintf("is at version %s, and is converted to %s by name only, once its CRD is updated", t.at.Version, a.Resource.Version))
	m.weigh(t, d, live, typed.DeducedParseableType)
	return nil
}

func servedBy(crd *definition) []string {
	var served []string
	for _, v := range crd.Spec.Versions {
		if v.Served {
			served = append(served, v.Name)
		}
	}
	return served
}

// hasVersion tells whether a CRD, if any, has a version, served or not.
func hasVersion(crd *definition, version string) bool {
	return crd != nil && slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version })
}

// converts tells whether versions of a CRD may differ in more than their name.
func converts(crd *definition) bool {
	return crd.Spec.Conversion != nil && crd.Spec.Conversion.Strategy != "" && crd.Spec.Conversion.Strategy != apiextensionsv1.NoneConverter
}

// undiscoveredGroup says why it is not known what is served of a resource's group; "" if it is.
func (m *maker) undiscoveredGroup(gr schema.GroupResource) string {
	for gv, err := range m.served.Failed {
		if gv.Group == gr.Group {
			return fmt.Sprintf("what the cluster serves of %s cannot be told: %s", gv, sync.Printable(err.Error(), messageRunes))
		}
	}
	return ""
}

// notServed says why a resource is not there.
func (m *maker) notServed(gr schema.GroupResource) string {
	return fmt.Sprintf("the cluster does not serve %s, and the commit has no CRD for it: install what it belongs to first", gr)
}

// versionOf returns the version in an object's apiVersion.
func versionOf(obj map[string]any) string {
	text, _ := obj["apiVersion"].(string)
	gv, err := schema.ParseGroupVersion(text)
	if err != nil {
		return text
	}
	return gv.Version
}
