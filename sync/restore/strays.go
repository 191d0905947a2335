package restore

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/filemode"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/sync"
)

// strays are files that may hold objects though their paths are none of an object: renamed by a person, or by a tool
// that does not keep case or escapes.
type strays struct {
	s     *Snapshot
	files map[string]gitstore.TreeFile // of the commit
	// stands are the CRDs and Namespaces that files of objects stand on, wherever those lie.
	stands map[kube.Key]bool
	// kinds are the resources that the CRDs of the commit define; nil until they are asked for.
	kinds map[schema.GroupKind]schema.GroupResource
}

// findStrays finds objects of the mirrored resources that lie beside their paths. Whatever else people keep there
// is theirs, and nothing is said of it.
//
// Invariant: no object of a mirrored resource below cluster or namespaces is passed over in silence (TestPlanStrays).
func (s *Snapshot) findStrays(ctx context.Context, files map[string]gitstore.TreeFile) error {
	x := strays{s: s, files: files, stands: map[kube.Key]bool{}}
	var names []string
	var blobs []gitstore.Hash
	for name, file := range files {
		if mayStray(name, file.Mode) {
			names, blobs = append(names, name), append(blobs, file.Blob)
		}
	}
	if len(names) == 0 {
		return nil
	}
	if err := s.repo.Prefetch(ctx, blobs); err != nil {
		return err
	}
	for _, item := range s.Items {
		x.standsOn(item.Key)
	}
	slices.Sort(names)
	var later []string // what others stand on
	for _, name := range names {
		foundation, err := x.judge(ctx, name, false)
		if err != nil {
			return err
		}
		if foundation {
			later = append(later, name)
		}
	}
	for _, name := range later {
		if _, err := x.judge(ctx, name, true); err != nil {
			return err
		}
	}
	return nil
}

// mayStray tells whether a file that is no object's by its path is to be looked into.
func mayStray(name string, mode filemode.FileMode) bool {
	root, _, below := strings.Cut(name, "/")
	if !below || !strings.EqualFold(root, "cluster") && !strings.EqualFold(root, "namespaces") ||
		!slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(path.Ext(name))) {
		return false
	}
	_, _, err := sync.KeyOf(name)
	return err != nil && (mode == filemode.Regular || mode == filemode.Executable || mode == filemode.Deprecated)
}

func (x *strays) standsOn(key kube.Key) {
	x.stands[crdKey(key.GroupResource())] = true
	if key.Namespace != "" {
		x.stands[namespaceKey(key.Namespace)] = true
	}
}

// judge tells of a file, unless it is somebody else's. A CRD or a Namespace is judged when all others were: it
// is one of ours if they stand on it.
func (x *strays) judge(ctx context.Context, name string, foundations bool) (foundation bool, err error) {
	content, err := x.s.repo.Read(ctx, x.files[name].Blob)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", name, err)
	}
	folder, among := folderOf(name)
	obj, err := kube.Decode(content)
	if err != nil {
		if stem := strings.TrimSuffix(path.Base(name), path.Ext(name)); among && stem != "kustomization" {
			x.find(Finding{What: name, of: folder,
				Text: "lies among the files of objects and is none by its name; what it holds is not restored, and cannot be read: " + err.Error()})
		}
		return false, nil
	}
	gr, ok, err := x.resourceOf(ctx, name, obj)
	if err != nil || !ok {
		return false, err
	}
	key := keyOf(gr.Resource, obj)
	if gr == crdResource || gr == namespaceResource {
		if !foundations || !x.stands[key] {
			return true, nil
		}
	} else if _, mirrored := x.s.ruleOf(gr, obj); !mirrored {
		return false, nil
	}
	x.tell(name, key, among)
	return false, nil
}

// tell tells of an object that lies at another path than its own.
func (x *strays) tell(name string, key kube.Key, among bool) {
	where := sync.Printable(sync.PathOf(key), messageRunes)
	f := Finding{What: name, of: key}
	if _, own := x.s.Item(key); own {
		f.Text = fmt.Sprintf("is not restored: the file of the object that it holds is %s, which is", where)
		if among {
			x.find(f)
		}
		return
	}
	x.standsOn(key)
	f.Fatal, f.Objects = true, []kube.Key{key}
	f.Text = fmt.Sprintf("holds %s, which is not restored from here: move it to %s", sync.Printable(key.String(), messageRunes), where)
	if namespaced, _ := folderOf(name); namespaced.Namespace != "" && key.Namespace == "" {
		f.Text = "holds an object that names no namespace, and is not restored"
	}
	x.find(f)
}

func (x *strays) find(f Finding) { x.s.Findings = append(x.s.Findings, f) }

// folderOf returns what the path says of a file's object but for its name, and whether its folder is one of objects.
func folderOf(name string) (key kube.Key, among bool) {
	key, _, err := sync.KeyOf(path.Dir(name) + "/x.yaml")
	key.Name = ""
	return key, err == nil
}

// resourceOf tells which resource an object is of: that of its folder's name, else that of the commit's CRD for its
// kind, else one of its group that is usual for such a kind and that the commit has. There may be none.
func (x *strays) resourceOf(ctx context.Context, name string, obj *unstructured.Unstructured) (schema.GroupResource, bool, error) {
	kind := obj.GroupVersionKind()
	guess, _ := apimeta.UnsafeGuessKindToResource(kind)
	if usual := guess.GroupResource(); usual == crdResource || usual == namespaceResource {
		return usual, true, nil
	}
	if key, _, err := sync.KeyOf("cluster/" + path.Base(path.Dir(name)) + "/x.yaml"); err == nil && key.Group == kind.Group && kind.Group != "" {
		return key.GroupResource(), true, nil
	}
	if x.kinds == nil {
		if err := x.readKinds(ctx); err != nil {
			return schema.GroupResource{}, false, err
		}
	}
	if gr, ok := x.kinds[kind.GroupKind()]; ok {
		return gr, true, nil
	}
	usual := guess.GroupResource()
	return usual, slices.ContainsFunc(x.s.Items, func(item Item) bool { return item.Key.GroupResource() == usual }), nil
}

// readKinds reads which resources the commit defines.
func (x *strays) readKinds(ctx context.Context) error {
	x.kinds = map[schema.GroupKind]schema.GroupResource{}
	items := slices.DeleteFunc(slices.Clone(x.s.Items), func(item Item) bool { return item.Key.GroupResource() != crdResource })
	if err := x.s.Prefetch(ctx, items); err != nil {
		return err
	}
	for _, item := range items {
		obj, err := x.s.Object(ctx, item)
		if err != nil {
			var unreadable *FileError
			if errors.As(err, &unreadable) {
				continue // which is told where it is restored
			}
			return err
		}
		gr := schema.ParseGroupResource(item.Key.Name)
		kind, _, _ := unstructured.NestedString(obj.Object, "spec", "names", "kind")
		x.kinds[schema.GroupKind{Group: gr.Group, Kind: kind}] = gr
	}
	return nil
}
