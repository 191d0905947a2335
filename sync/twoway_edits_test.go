package sync

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/crmirror/crmirror/kube"
)

// pick returns some object, in the midst of a cycle one that may be edited then.
func (w *writers) pick() *thing {
	for {
		th := w.things[w.rnd.IntN(len(w.things))]
		if !w.inside || !th.met() {
			return th
		}
	}
}

// met tells whether both sides have just brought a field to the same by themselves. If it is
// edited in the midst of a cycle, it could not be told whether the agent has seen that.
func (th *thing) met() bool {
	return slices.ContainsFunc(th.fields, func(f *field) bool { return f.at[inGit] != f.at[inCluster] && !f.differs() })
}

// change changes one of some fields in content of an object, or all of it, and says which fields
// that edits. nil is no object.
func (w *writers) change(th *thing, content map[string]any, among []*field) (map[string]any, []*field) {
	switch {
	case content == nil:
		w.counts["created"]++
		return w.compose(th)
	case !th.stays && w.rnd.IntN(12) == 0:
		w.counts["deleted"]++
		return nil, th.fields
	}
	f := among[w.rnd.IntN(len(among))]
	for _, item := range f.parents {
		if !isThere(item.value(content)) {
			f = th.fields[slices.Index(th.spots, item)]
			break
		}
	}
	has := isThere(f.value(content))
	switch {
	case f.whole() && has, has && !f.always && w.rnd.IntN(4) == 0:
		content = put(content, f.path, nil).(map[string]any)
	case f.whole():
		content = w.add(th, content, f)
	default:
		content = put(content, f.path, w.next(f)).(map[string]any)
	}
	w.counts["edits"]++
	return content, slices.DeleteFunc(slices.Clone(th.fields), func(other *field) bool { return !within(f.path, other.path) })
}

func (w *writers) next(f *field) any {
	w.serial++
	return f.next(w.serial)
}

// compose makes an object with some of the fields.
func (w *writers) compose(th *thing) (map[string]any, []*field) {
	content := th.object(th.key.Namespace, th.key.Name)
	for _, f := range th.fields {
		if len(f.parents) > 0 || !f.always && w.rnd.IntN(2) == 0 {
			continue
		}
		if f.whole() {
			content = w.add(th, content, f)
			continue
		}
		content = put(content, f.path, w.next(f)).(map[string]any)
	}
	w.counts["edits"]++
	return content, th.fields
}

// add adds an item with some of its fields.
func (w *writers) add(th *thing, content map[string]any, item *field) map[string]any {
	content = put(content, item.path, item.item()).(map[string]any)
	for _, f := range th.fields {
		if len(f.parents) > 0 && f.parents[len(f.parents)-1] == item.spot && !f.whole() && (f.always || w.rnd.IntN(2) == 0) {
			content = put(content, f.path, w.next(f)).(map[string]any)
		}
	}
	return content
}

// note writes down that fields were edited, with the content that came of it.
func (th *thing) note(who string, side int, edited []*field, content map[string]any) {
	for _, f := range edited {
		value := f.value(content)
		if f.at[side].value != value {
			th.tell("%s: %s of %s: %s to %s", who, f.path, sideName(side), f.at[side].value, value)
		}
		f.edit(side, value, content == nil)
	}
}

// editSomething is somebody's write to any object in the cluster.
func (w *writers) editSomething() {
	th := w.pick()
	w.editCluster(th, th.fields)
}

// editCluster is somebody's write in the cluster, to one of some fields. The informer may be late to see it.
func (w *writers) editCluster(th *thing, among []*field) {
	manager := []string{"kubectl-edit", "controller", "operator"}[w.rnd.IntN(3)]
	for {
		live := w.live(th)
		var content map[string]any
		if live != nil {
			content = live.Object
		}
		w.came(th, inCluster, content)
		want, fields := w.change(th, content, among)
		now, err := w.send(th, live, want, manager)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
			continue // the agent was faster
		}
		if err != nil {
			w.t.Errorf("%s: %v", th.key.Name, err)
			return
		}
		th.note(manager, inCluster, fields, now)
		break
	}
	if w.mirror != nil && w.rnd.IntN(3) > 0 {
		w.seeKey(th.key)
	}
}

// send writes what somebody made of a live object, and returns what the server made of that.
func (w *writers) send(th *thing, live *unstructured.Unstructured, want map[string]any, manager string) (map[string]any, error) {
	objects, obj, ctx := w.server.objects(th.GroupResource()), &unstructured.Unstructured{Object: want}, w.t.Context()
	var err error
	switch {
	case want == nil:
		uid, version := live.GetUID(), live.GetResourceVersion()
		return nil, objects.Delete(ctx, th.key.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
	case live == nil:
		obj, err = objects.Create(ctx, obj, metav1.CreateOptions{FieldManager: manager})
	default:
		obj, err = objects.Update(ctx, obj, metav1.UpdateOptions{FieldManager: manager})
	}
	if err != nil {
		return nil, err
	}
	return obj.Object, nil
}

// editGit is a person's commit of some edits.
func (w *writers) editGit(edits int) {
	w.pull()
	for range edits {
		th := w.pick()
		w.see(th)
		content := w.fileOf(th)
		want, fields := w.change(th, content, th.fields)
		file := filepath.Join(w.clone, "clusters/lab", PathOf(th.key))
		if want == nil {
			if err := os.Remove(file); err != nil {
				w.t.Error(err)
			}
		} else {
			text, err := yaml.Marshal(want)
			if err == nil {
				err = os.MkdirAll(filepath.Dir(file), 0o777)
			}
			if err == nil {
				err = os.WriteFile(file, text, 0o666)
			}
			if err != nil {
				w.t.Error(err)
			}
		}
		th.note("person", inGit, fields, want)
	}
	w.git("-C", w.clone, "add", "--all")
	w.git("-C", w.clone, "commit", "--quiet", "--allow-empty", "--message", "edit")
	w.git("-C", w.clone, "push", "--quiet", "origin", "HEAD:main")
}

// pull lets the person's clone have what the branch has.
func (w *writers) pull() {
	w.git("-C", w.clone, "fetch", "--quiet", "origin", "+refs/heads/main:refs/remotes/origin/main", "+"+w.mirror.refs.Base+":refs/base")
	w.git("-C", w.clone, "reset", "--quiet", "--hard", "origin/main")
}

// pullBase lets the files of base be those that the last pull brought.
func (w *writers) pullBase() { w.git("-C", w.base, "reset", "--quiet", "--hard", "refs/base") }

// live is the object in the cluster, or nil.
func (w *writers) live(th *thing) *unstructured.Unstructured {
	live, err := w.server.objects(th.GroupResource()).Get(w.t.Context(), th.key.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		w.t.Error(err)
	}
	if err != nil {
		return nil
	}
	return live
}

// encoded is an object in the form that files have.
func (w *writers) encoded(live *unstructured.Unstructured) map[string]any {
	content, err := kube.Encode(live, &kube.Shape{})
	if err != nil {
		w.t.Fatal(err)
	}
	return w.read(content)
}

func (w *writers) read(content []byte) map[string]any {
	obj, err := kube.Decode(content)
	if err != nil {
		w.t.Error(err)
		return nil
	}
	return obj.Object
}

// fileOf is what the person's clone has of an object, or nil.
func (w *writers) fileOf(th *thing) map[string]any {
	return w.readFile(filepath.Join(w.clone, "clusters/lab", PathOf(th.key)))
}

func (w *writers) readFile(name string) map[string]any {
	content, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		w.t.Error(err)
		return nil
	}
	return w.read(content)
}

// baseOf is what base had of an object when it was pulled, or nil.
func (w *writers) baseOf(th *thing) map[string]any {
	return w.readFile(filepath.Join(w.base, "clusters/lab", PathOf(th.key)))
}
