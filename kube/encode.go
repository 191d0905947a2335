package kube

import (
	"errors"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/kube/canon"
)

// MaxJSON is the largest object, in bytes of compact JSON, that Encode writes and
// Decode reads. An API server takes no larger request.
const MaxJSON = 3 << 20

// Errors of Encode and Decode, found with errors.Is.
var (
	// ErrSecret means that a Secret would have been written in the clear.
	ErrSecret = errors.New("a Secret is stored only by a rule that redacts or drops all of its data")
	// ErrTooLarge means more than MaxJSON, or a file of more than canon.MaxBytes.
	ErrTooLarge = errors.New("too large")
	// ErrIdentity means that apiVersion, kind or metadata.name is missing or no text.
	ErrIdentity = errors.New("not an object")
)

// lastApplied is the annotation in which kubectl repeats the object, secrets included.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// keptMetadata is what of metadata people and controllers set. All else is set by the server.
var keptMetadata = [...]string{"name", "namespace", "labels", "annotations", "finalizers", "ownerReferences"}

// Encode writes a live object in its normalized form: canonical YAML of everything
// but status (unless the shape keeps it), the metadata that the server sets,
// the uid of owners, kubectl's last-applied-configuration, and what the shape
// drops or redacts. Only top-level metadata is touched. It is pure and does
// not modify obj; a nil shape is the zero Shape.
//
// Invariant: nothing else is lost. Decode(Encode(obj)) is obj but for what is
// named above, and Encode of that writes the same bytes (TestGolden, TestCorpus, FuzzEncode).
//
// A map or list below spec that a drop empties stays, empty: there, being empty
// can mean something. Labels, annotations, finalizers and owners that become
// empty go, since the server does not keep them either.
func Encode(obj *unstructured.Unstructured, shape *Shape) ([]byte, error) {
	if shape == nil {
		shape = &Shape{}
	}
	shaped, err := shape.apply(obj.Object)
	if err == nil {
		err = checkSecret(shaped, shape.covers)
	}
	if err != nil {
		return nil, err
	}
	return write(shaped)
}

// EncodeStored writes content that is shaped already, as a file has it: as Encode does, with
// its status, and without shaping it. What of a Secret's data is there has to be redacted (ErrSecret).
func EncodeStored(content map[string]any) ([]byte, error) {
	stored, err := (&Shape{Status: true}).apply(content)
	if err == nil {
		err = checkSecret(stored, func(string) bool { return true })
	}
	if err != nil {
		return nil, err
	}
	return write(stored)
}

func write(shaped map[string]any) ([]byte, error) {
	// YAML is about as long as JSON: the result is neither grown in steps nor kept
	// with much room to spare.
	size := JSONSize(shaped)
	if size > MaxJSON {
		return nil, tooLarge(size)
	}
	out, err := canon.Append(make([]byte, 0, size+size/16), shaped)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	if len(out) > canon.MaxBytes {
		return nil, tooLarge(size)
	}
	return out, nil
}

func tooLarge(size int) error {
	return fmt.Errorf("encode: %w: %d bytes as JSON, at most %d are stored", ErrTooLarge, size, MaxJSON)
}

// apply returns what is to be stored of an object. It shares values with obj.
func (s *Shape) apply(obj map[string]any) (map[string]any, error) {
	id, err := Identify(obj)
	if err != nil {
		return nil, err
	}
	if id.APIVersion == "v1" && id.Kind == "List" {
		return nil, fmt.Errorf("%w: a List is many", ErrIdentity)
	}
	out := maps.Clone(obj)
	if !s.Status {
		delete(out, "status")
	}
	before := StoredMetadata(obj["metadata"].(map[string]any))
	out["metadata"] = before
	for _, path := range s.Drop {
		out = path.edit(out, func([]string, any) (any, bool) { return nil, false })
	}
	out["metadata"] = dropEmptied(out["metadata"].(map[string]any), before)
	return s.redact(out, id)
}

// StoredMetadata returns a new map with what Encode keeps of an object's metadata, whatever
// the shape.
func StoredMetadata(meta map[string]any) map[string]any {
	out := make(map[string]any, len(keptMetadata))
	for _, k := range keptMetadata {
		if v, ok := meta[k]; ok {
			out[k] = v
		}
	}
	if annotations, ok := out["annotations"].(map[string]any); ok {
		if _, ok := annotations[lastApplied]; ok {
			annotations = maps.Clone(annotations)
			delete(annotations, lastApplied)
			out["annotations"] = annotations
			if len(annotations) == 0 {
				delete(out, "annotations")
			}
		}
	}
	if owners, ok := out["ownerReferences"].([]any); ok {
		out["ownerReferences"] = withoutUIDs(owners)
	}
	return out
}

func withoutUIDs(owners []any) []any {
	out := make([]any, len(owners))
	for i, owner := range owners {
		out[i] = owner
		if m, ok := owner.(map[string]any); ok {
			m = maps.Clone(m)
			delete(m, "uid")
			out[i] = m
		}
	}
	return out
}

// dropEmptied removes what became empty between two states of metadata.
func dropEmptied(meta, before map[string]any) map[string]any {
	out := meta
	for _, k := range keptMetadata {
		v, ok := meta[k]
		if !ok || !empty(v) || empty(before[k]) {
			continue
		}
		if len(out) == len(meta) {
			out = maps.Clone(meta)
		}
		delete(out, k)
	}
	return out
}

func empty(v any) bool {
	switch t := v.(type) {
	case map[string]any:
		return len(t) == 0
	case []any:
		return len(t) == 0
	}
	return false
}

// SecretError is an ErrSecret.
type SecretError struct {
	Field string // that is in the clear: data, stringData
}

func (e *SecretError) Error() string {
	return fmt.Sprintf("encode: %v: .%s is in the clear", ErrSecret, e.Field)
}

func (e *SecretError) Unwrap() error { return ErrSecret }

// checkSecret looks at the rules and at what came of them: a rule that happens to
// redact every key of today's Secret does not cover the one that is added tomorrow.
//
// Invariant: no value of a Secret's data is written in the clear, whatever the rules
// say (TestSecret, TestStoredSecret).
func checkSecret(shaped map[string]any, covers func(field string) bool) error {
	if shaped["apiVersion"] != "v1" || shaped["kind"] != "Secret" {
		return nil
	}
	for _, field := range []string{"data", "stringData"} {
		v := shaped[field]
		if v != nil && !empty(v) && (!covers(field) || !allRedacted(v)) {
			return &SecretError{Field: field}
		}
	}
	return nil
}

// Identity is what an object calls itself.
type Identity struct {
	APIVersion, Kind, Namespace, Name string
}

// Group returns the API group, "" for the core group.
func (id Identity) Group() string {
	gv, err := schema.ParseGroupVersion(id.APIVersion)
	if err != nil {
		return id.APIVersion
	}
	return gv.Group
}

// Identify reads the identity of a decoded object; apiVersion, kind and name must
// be there, and each must be text (ErrIdentity).
func Identify(obj map[string]any) (Identity, error) {
	var id Identity
	meta, ok := obj["metadata"].(map[string]any)
	if !ok {
		return id, fmt.Errorf("%w: metadata is missing or no map", ErrIdentity)
	}
	for _, f := range []struct {
		in       map[string]any
		key, at  string
		required bool
		to       *string
	}{
		{obj, "apiVersion", "apiVersion", true, &id.APIVersion},
		{obj, "kind", "kind", true, &id.Kind},
		{meta, "name", "metadata.name", true, &id.Name},
		{meta, "namespace", "metadata.namespace", false, &id.Namespace},
	} {
		v, ok := f.in[f.key]
		s, isText := v.(string)
		switch {
		case ok && !isText:
			return id, fmt.Errorf("%w: %s is no text", ErrIdentity, f.at)
		case f.required && s == "":
			return id, fmt.Errorf("%w: %s is missing", ErrIdentity, f.at)
		}
		*f.to = s
	}
	return id, nil
}
