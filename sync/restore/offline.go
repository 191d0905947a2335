package restore

import (
	"errors"
	"fmt"
	"strings"
	gosync "sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	validation "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"

	"github.com/crmirror/crmirror/sync"
)

// schemas are the schemas of the commit's CRDs, each compiled when it is first needed.
type schemas struct {
	mu       gosync.Mutex
	compiled map[schema.GroupVersionResource]*crdSchema
}

// crdSchema checks objects of one version of a CRD as a server that has it would. Rules in CEL
// (x-kubernetes-validations) are not checked here: the server checks them when the object is created, and
// refuses what breaks one.
type crdSchema struct {
	err       error // it has none that a server takes
	fields    *structural.Structural
	validator *validate.SchemaValidator
}

// checkOffline checks what is to be written against the schema of the version that it is written at, and blocks what the
// server would refuse: where the CRD is still to be written, or has another version than the object's file.
func (m *maker) checkOffline(t *target, obj map[string]any) {
	gr := t.item.Key.GroupResource()
	crd, whose := m.inForce(gr), "the cluster"
	if _, served := m.served.Resource(gr); m.renews(gr) || !served && m.definitions[gr] == nil {
		whose = "git"
	} else if !t.converted {
		return // the server is the judge
	}
	if crd == nil {
		return
	}
	s := m.schemas.of(t.action.Resource, crd)
	if s.err != nil {
		t.decide(Blocked, "the schema in its CRD cannot be used: "+sync.Printable(s.err.Error(), messageRunes))
		return
	}
	if mistakes := s.check(obj); len(mistakes) > 0 {
		t.decide(Blocked, fmt.Sprintf("the CRD in %s does not allow it: %s", whose, sync.Printable(someOf(mistakes), messageRunes)))
	}
}

func (s *schemas) of(gvr schema.GroupVersionResource, crd *definition) *crdSchema {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.compiled == nil {
		s.compiled = map[schema.GroupVersionResource]*crdSchema{}
	}
	c := s.compiled[gvr]
	if c == nil {
		c = compile(crd, gvr.Version)
		s.compiled[gvr] = c
	}
	return c
}

func compile(crd *definition, version string) *crdSchema {
	for _, v := range crd.Spec.Versions {
		if v.Name != version {
			continue
		}
		if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			return &crdSchema{err: fmt.Errorf("version %s has none", version)}
		}
		internal := &apiextensions.JSONSchemaProps{}
		err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, internal, nil)
		if err != nil {
			return &crdSchema{err: err}
		}
		fields, err := structural.NewStructural(internal)
		if err != nil {
			return &crdSchema{err: err}
		}
		validator := validate.NewSchemaValidator(fields.ToKubeOpenAPI(), nil, "", strfmt.Default)
		return &crdSchema{fields: fields, validator: validator}
	}
	return &crdSchema{err: fmt.Errorf("there is no version %s", version)}
}

// check returns what a server would find wrong with an object, in the order of a server: unknown fields,
// then, with its defaults filled in, values.
func (s *crdSchema) check(obj map[string]any) []string {
	obj = runtime.DeepCopyJSON(obj)
	var mistakes []string
	for _, field := range pruning.PruneWithOptions(obj, s.fields, true, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		mistakes = append(mistakes, field+" is no field of it")
	}
	fillDefaults(obj, s.fields)
	for _, err := range s.validator.Validate(obj).Errors {
		mistakes = append(mistakes, mistakeText(err))
	}
	for _, err := range listtype.ValidateListSetsAndMaps(nil, s.fields, obj) {
		mistakes = append(mistakes, err.Field+": "+string(err.Type))
	}
	return mistakes
}

// read makes of an object what a server does that converts it by name to this version when it reads it: what the
// version lacks is left out. Its defaults come only with the next write (TestExecuteRenewedCRD).
func (s *crdSchema) read(obj map[string]any) { pruning.Prune(obj, s.fields, true) }

// mistakeText says what the schema does not allow: the field, and what it shall be.
//
// Invariant: no value of an object is in it, for plans and reports are kept and passed on (TestOfflineTellsNoValue).
func mistakeText(err error) string {
	var mistake *validation.Validation
	if !errors.As(err, &mistake) { // one of several schemas: the text names the field, then what is behind it
		text, _, _ := strings.Cut(err.Error(), ": ")
		return text
	}
	switch mistake.Code() {
	case validation.InvalidTypeCode: // its text ends with the value
		_, typ, _ := strings.Cut(strings.TrimPrefix(mistake.Error(), mistake.Name), " must be of type ")
		typ, _, _ = strings.Cut(typ, ":")
		typ, _, _ = strings.Cut(typ, ", because")
		return mistake.Name + " must be of type " + typ
	case validation.RequiredFailCode, validation.TooLongFailCode, validation.TooShortFailCode, validation.PatternFailCode,
		validation.EnumFailCode, validation.MultipleOfFailCode, validation.MaxFailCode, validation.MinFailCode, validation.UniqueFailCode,
		validation.MaxItemsFailCode, validation.MinItemsFailCode, validation.NoAdditionalItemsCode, validation.TooFewPropertiesCode,
		validation.TooManyPropertiesCode, validation.UnallowedPropertyCode:
		return mistake.Error() // the field, and what the schema says of it
	}
	return mistake.Name + " is not what the schema allows"
}

// fillDefaults sets the fields that are missing, or null where null is not allowed, and have a default.
func fillDefaults(v any, s *structural.Structural) {
	switch t := v.(type) {
	case map[string]any:
		for name := range s.Properties {
			field := s.Properties[name]
			value, has := t[name]
			if field.Default.Object != nil && (!has || value == nil && !field.Nullable) {
				t[name] = runtime.DeepCopyJSONValue(field.Default.Object)
			}
		}
		for name, value := range t {
			if field, ok := s.Properties[name]; ok {
				fillDefaults(value, &field)
			} else if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
				fillDefaults(value, s.AdditionalProperties.Structural)
			}
		}
	case []any:
		if s.Items != nil {
			for _, item := range t {
				fillDefaults(item, s.Items)
			}
		}
	}
}
