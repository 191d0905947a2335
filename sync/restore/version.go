package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
// Another version is taken only where the CRD says that all of them have the same fields.
func (m *maker) place(gr schema.GroupResource, version string) (at schema.GroupVersionResource, note, problem string) {
	kind, ok := m.served.Resource(gr)
	var served []string
	crd := m.definitions[gr]
	switch {
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
	if crd == nil || len(served) == 0 || converts(crd) {
		return at, "", fmt.Sprintf("the cluster does not serve %s at version %s, only at %s; restore its CRD with --existing update, "+
			"or write the object at such a version in git", gr, version, strings.Join(served, ", "))
	}
	other := served[0]
	if stored := storedAt(crd); slices.Contains(served, stored) {
		other = stored
	}
	return gr.WithVersion(other), fmt.Sprintf("is written at version %s: %s is not served, and the CRD has the same fields at both", other, version), ""
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

// converts tells whether versions of a CRD may differ in more than their name.
func converts(crd *definition) bool {
	return crd.Spec.Conversion != nil && crd.Spec.Conversion.Strategy != "" && crd.Spec.Conversion.Strategy != apiextensionsv1.NoneConverter
}

// notServed says why a resource is not there.
func (m *maker) notServed(gr schema.GroupResource) string {
	for gv, err := range m.served.Failed {
		if gv.Group == gr.Group {
			return fmt.Sprintf("what the cluster serves of %s cannot be told: %v", gv, err)
		}
	}
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
