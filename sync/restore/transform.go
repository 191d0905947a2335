package restore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/sync"
)

// Desired is an object as it shall be in the cluster.
type Desired struct {
	Item // in git
	To   kube.Key
	// Object has everything that git has of the object, status too where git keeps it, under the
	// mapped namespace and without what Options strip. Its owner references have no uid. It
	// shares values with nobody: it is the caller's.
	Object map[string]any
	// Redacted are the fields that git holds no value of: where there are any, the object must
	// not be written. Each is a path as in Change.Field.
	Redacted []string
	// Notes are what a person should know; see Action.Notes.
	Notes []string
}

// Wanted reads an object and returns it as it shall be in the cluster. With apiVersion, unless
// empty, it is written at that; the caller knows that both versions have the same fields.
// The error is a *FileError where the file is at fault.
func (s *Snapshot) Wanted(ctx context.Context, item Item, apiVersion string, opts *Options) (*Desired, error) {
	obj, err := s.Object(ctx, item)
	if err != nil {
		return nil, err
	}
	d := &Desired{Item: item, To: opts.mapKey(item.Key), Object: obj.Object}
	if apiVersion != "" {
		obj.SetAPIVersion(apiVersion)
	}
	d.Object["metadata"] = kube.StoredMetadata(d.Object["metadata"].(map[string]any))
	opts.strip(d.Object)
	opts.mapObject(d.Object, item.Key)
	d.Redacted = redactedFields(d.Object)
	d.Notes = opts.oldNamespaces(d.Object, d.To)
	return d, nil
}

// mapKey returns the key that an object of git has in the cluster.
func (o *Options) mapKey(k kube.Key) kube.Key {
	if k.GroupResource() == namespaceResource {
		k.Name = o.mapNamespace(k.Name)
		return k
	}
	k.Namespace = o.mapNamespace(k.Namespace)
	return k
}

// mapNamespace returns the name that a namespace of git has in the cluster.
func (o *Options) mapNamespace(name string) string {
	if to, ok := o.MapNamespaces[name]; ok && name != "" {
		return to
	}
	return name
}

// mapObject puts an object of git, whose key is given, into the namespace that it has in the
// cluster. Only metadata is touched; maps that obj may share with others are replaced.
func (o *Options) mapObject(obj map[string]any, key kube.Key) {
	o.rename(obj, o.mapKey(key), o.mapNamespace)
}

// unmapped returns a live object under the names that git has it by.
//
// Where two namespaces are mapped to one, a reference to that Namespace as an owner is
// taken for one to the first of them.
func (o *Options) unmapped(live *unstructured.Unstructured, key kube.Key) *unstructured.Unstructured {
	if len(o.MapNamespaces) == 0 {
		return live
	}
	out := maps.Clone(live.Object)
	o.rename(out, key, o.unmapNamespace)
	return &unstructured.Unstructured{Object: out}
}

// unmapNamespace returns the name that a namespace of the cluster has in git.
func (o *Options) unmapNamespace(name string) string {
	for _, from := range slices.Sorted(maps.Keys(o.MapNamespaces)) {
		if o.MapNamespaces[from] == name {
			return from
		}
	}
	return name
}

// unmapKey returns the key that an object of the cluster, no Namespace, has in git.
func (o *Options) unmapKey(k kube.Key) kube.Key {
	k.Namespace = o.unmapNamespace(k.Namespace)
	return k
}

// rename gives an object the namespace, or a Namespace the name, of a key, and renames the
// Namespaces among its owners.
func (o *Options) rename(obj map[string]any, key kube.Key, namespace func(string) string) {
	meta := maps.Clone(obj["metadata"].(map[string]any))
	obj["metadata"] = meta
	if key.GroupResource() == namespaceResource {
		meta["name"] = key.Name
		if labels, ok := meta["labels"].(map[string]any); ok {
			if _, ok := labels[corev1.LabelMetadataName]; ok {
				labels = maps.Clone(labels)
				labels[corev1.LabelMetadataName] = key.Name
				meta["labels"] = labels
			}
		}
	} else if key.Namespace != "" {
		meta["namespace"] = key.Namespace
	}
	owners, ok := meta["ownerReferences"].([]any)
	if !ok {
		return
	}
	owners = slices.Clone(owners)
	for i := range owners {
		owner, _ := owners[i].(map[string]any)
		name, isText := owner["name"].(string)
		if isText && owner["kind"] == "Namespace" && owner["apiVersion"] == "v1" {
			owner = maps.Clone(owner)
			owner["name"] = namespace(name)
			owners[i] = owner
		}
	}
	meta["ownerReferences"] = owners
}

// strip takes out what the options leave out. Its metadata may not be shared with others.
func (o *Options) strip(obj map[string]any) {
	meta := obj["metadata"].(map[string]any)
	if o.StripFinalizers {
		delete(meta, "finalizers")
	}
	if o.StripTracking {
		for _, field := range []string{"labels", "annotations"} {
			tags, ok := meta[field].(map[string]any)
			if !ok {
				continue
			}
			kept := maps.Clone(tags)
			maps.DeleteFunc(kept, func(key string, value any) bool { return tracks(field, key, value) })
			if len(kept) == 0 && len(tags) > 0 {
				delete(meta, field)
			} else {
				meta[field] = kept
			}
		}
	}
}

// redactedFields returns the places where an object holds a redacted value.
func redactedFields(obj map[string]any) []string {
	var fields []string
	walk(nil, obj, func(path fieldpath.Path, v any) {
		if kube.ContainsRedaction(v) {
			fields = append(fields, fieldText(path))
		}
	})
	return fields
}

// oldNamespaces notes where an object still names a namespace that is mapped.
func (o *Options) oldNamespaces(obj map[string]any, to kube.Key) []string {
	if len(o.MapNamespaces) == 0 {
		return nil
	}
	found := map[string][]string{}
	walk(nil, obj, func(path fieldpath.Path, v any) {
		name, ok := v.(string)
		if !ok || isOwnName(path) {
			return
		}
		if new, mapped := o.MapNamespaces[name]; mapped && new != name {
			found[name] = append(found[name], fieldText(path))
		}
	})
	var notes []string
	for _, name := range slices.Sorted(maps.Keys(found)) {
		notes = append(notes, fmt.Sprintf("still names namespace %s (now %s), and is left as it is: %s",
			name, o.MapNamespaces[name], someOf(found[name])))
	}
	return notes
}

// isOwnName tells whether a path is that of a name or namespace which mapping takes care of.
func isOwnName(path fieldpath.Path) bool {
	text := fieldText(path)
	return text == "metadata.name" || text == "metadata.namespace" || text == "kind" || text == "apiVersion" ||
		text == "metadata.labels."+corev1.LabelMetadataName || strings.HasPrefix(text, "metadata.ownerReferences[")
}

// shownFields bounds how many fields one note lists.
const shownFields = 10

func someOf(fields []string) string {
	if n := len(fields); n > shownFields {
		return fmt.Sprintf("%s and %d more", strings.Join(fields[:shownFields], ", "), n-shownFields)
	}
	return strings.Join(fields, ", ")
}

// walk calls fn with each value of an object that is no map or list, and with each key that
// holds a redacted value, in a fixed order. The path is valid during the call.
func walk(path fieldpath.Path, v any, fn func(fieldpath.Path, any)) {
	switch t := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(t)) {
			at := append(path, fieldpath.FieldNameElement(key))
			if kube.ContainsRedaction(key) {
				fn(at, key)
			}
			walk(at, t[key], fn)
		}
	case []any:
		for i, item := range t {
			walk(append(path, fieldpath.IndexElement(i)), item, fn)
		}
	default:
		fn(path, v)
	}
}

// fieldText writes a path as kubectl explains fields, fit to be shown.
func fieldText(path fieldpath.Path) string {
	const runes = 1000
	return sync.Printable(strings.TrimPrefix(path.String(), "."), runes)
}
