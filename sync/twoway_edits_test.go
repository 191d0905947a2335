package sync

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	gosync "sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/yaml"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/threeway"
)

// pick returns some object. In the midst of a cycle it is none that both sides have just
// brought to the same by themselves: whether the agent saw that could not be told.
func (w *writers) pick() *thing {
	for {
		th := w.things[w.rnd.IntN(len(w.things))]
		if !w.inside || !slices.ContainsFunc(th.fields, func(f *field) bool { return f.at[inGit] != f.at[inCluster] && !f.differs() }) {
			return th
		}
	}
}

// change changes content of an object, and says which fields that edits. nil is no object.
func (w *writers) change(th *thing, content map[string]any) (map[string]any, []*field) {
	switch {
	case content == nil:
		w.counts["created"]++
		return w.compose(th)
	case !th.stays && w.rnd.IntN(12) == 0:
		w.counts["deleted"]++
		return nil, th.fields
	}
	f := th.fields[w.rnd.IntN(len(th.fields))]
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

// editCluster is somebody's write in the cluster. The informer may be late to see it.
func (w *writers) editCluster(th *thing) {
	manager := []string{"kubectl-edit", "controller", "operator"}[w.rnd.IntN(3)]
	for {
		live := w.live(th)
		var content map[string]any
		if live != nil {
			content = live.Object
		}
		w.came(th, inCluster, content)
		want, fields := w.change(th, content)
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
		want, fields := w.change(th, content)
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

// unknownOf is what base says that it has no values for.
func (w *writers) unknownOf(th *thing) threeway.Unknown {
	content, err := os.ReadFile(filepath.Join(w.base, "clusters/lab", unknownFile))
	if errors.Is(err, fs.ErrNotExist) {
		return threeway.Unknown{}
	}
	if err != nil {
		w.t.Fatal(err)
	}
	unknown, err := parseUnknown(content)
	if err != nil {
		w.t.Fatal(err)
	}
	return unknown[th.key].unknown
}

// among tells whether base has no value for the field, or for something of it.
func (f *field) among(unknown threeway.Unknown) bool {
	found := unknown.Object
	if unknown.Fields != nil {
		unknown.Fields.Iterate(func(p fieldpath.Path) { found = found || within(p, f.path) || within(f.path, p) })
	}
	return found
}

// work lets the agent do a cycle, in which something may happen to it.
func (w *writers) work() {
	w.faulty = false
	restart := w.trouble()
	err := w.turnBeside()
	w.line.mend()
	w.untouched()
	died := errors.Is(err, errCrash)
	w.tellAll("cycle: %v", err)
	switch {
	case err != nil && !w.faulty:
		w.t.Errorf("cycle: %v", err)
	case died || restart || w.rnd.IntN(6) == 0:
		w.counts["agents"]++
		w.mark()
		w.tellAll("another agent")
		if w.rnd.IntN(2) == 0 {
			w.cache = w.t.TempDir() // its disk is gone, too
		}
		w.agent()
	}
	w.look()
}

// turnBeside lets the agent do a cycle beside the test, which does itself what happens in it.
func (w *writers) turnBeside() error {
	done, over := make(chan error, 1), make(chan struct{})
	w.over = over
	var agent gosync.WaitGroup
	defer agent.Wait()
	defer close(over)
	agent.Go(func() {
		_, err := w.tryTurn()
		done <- err
	})
	for {
		select {
		case call := <-w.calls:
			call()
		case err := <-done:
			return err
		}
	}
}

// here does something in the test's goroutine, where a test can be ended, while the agent waits for it.
// If the test is ended, the agent dies.
func (w *writers) here(do func() error) error {
	done := make(chan error, 1)
	select {
	case w.calls <- func() { done <- do() }:
	case <-w.over:
		return errCrash
	}
	select {
	case err := <-done:
		return err
	case <-w.over:
		return errCrash
	}
}

// trouble chooses what happens in the next cycle, and tells whether the agent is replaced
// after it.
func (w *writers) trouble() bool {
	nth := 1 + w.rnd.IntN(14)
	step := []Step{StepAnnounced, StepWritten, StepCommitted, StepRecovered}[w.rnd.IntN(4)]
	people := []func(){
		func() { w.editCluster(w.pick()) },
		func() { w.editGit(1 + w.rnd.IntN(2)) },
		func() { w.editGit(1); w.editCluster(w.pick()) },
	}[w.rnd.IntN(3)]
	switch w.rnd.IntN(9) {
	case 0: // it dies
		w.reach(step, func() error { w.faulty = true; return errCrash })
	case 1: // people go on, then it dies
		w.reach(step, func() error { w.faulty = true; w.between(people); return errCrash })
	case 2: // people go on
		w.reach(step, func() error { w.between(people); return nil })
	case 3:
		w.line.arm(nth, 1, event{do: func() error { return w.here(func() error { w.between(people); return nil }) }})
	case 4: // the API server is away for a moment
		w.line.arm(nth, 1+w.rnd.IntN(8), event{lost: lostRequest})
		w.faulty = true
	case 5: // its answers do not arrive
		w.line.arm(nth, 1+w.rnd.IntN(4), event{lost: lostAnswer, do: func() error { return w.here(func() error { w.mark(); return nil }) }})
		w.faulty = true
	case 6: // the remote is away from some step on
		w.reach(step, func() error { w.faulty = true; return os.Rename(w.remote, w.remote+".away") })
	case 7: // the remote dies when it has, or has not, taken a push
		w.hook([]string{"pre-receive", "reference-transaction"}[w.rnd.IntN(2)])
		w.faulty = true
	}
	return w.faulty && w.rnd.IntN(2) == 0
}

// reach lets something happen at a step, once.
func (w *writers) reach(step Step, do func() error) {
	w.mirror.two.opts.Reached = func(s Step) error {
		if s != step {
			return nil
		}
		w.mirror.two.opts.Reached = nil
		return w.here(func() error { w.tellAll("at %s", step); return do() })
	}
}

// between lets people work in the midst of a cycle.
func (w *writers) between(people func()) {
	w.inside = true
	people()
	w.inside = false
}

// hook lets the remote's end of the next push die: in pre-receive before anything was
// taken, in reference-transaction when all was.
func (w *writers) hook(name string) {
	script := "#!/bin/sh\n[ \"$1\" = prepared ] || [ \"$1\" = preparing ] || { rm -f \"$0\"; kill -9 $PPID; }\n"
	if err := os.WriteFile(filepath.Join(w.remote, "hooks", name), []byte(script), 0o755); err != nil {
		w.t.Error(err)
	}
	w.tellAll("the remote will die in %s", name)
}

// untouched brings the remote back, and lets nothing happen any more.
func (w *writers) untouched() {
	w.mirror.two.opts.Reached = nil
	if _, err := os.Stat(w.remote); errors.Is(err, os.ErrNotExist) {
		if err := os.Rename(w.remote+".away", w.remote); err != nil {
			w.t.Error(err)
		}
	}
	for _, name := range []string{"pre-receive", "reference-transaction"} {
		if err := os.Remove(filepath.Join(w.remote, "hooks", name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			w.t.Error(err)
		}
	}
}

// mark notes what is announced and not settled: who comes next may have to ask about it.
func (w *writers) mark() {
	w.faulty = true
	text := w.announced()
	if text == "" {
		return
	}
	a, err := parseAnnouncement([]byte(text))
	if err != nil {
		w.t.Error(err)
		return
	}
	for _, e := range a.Writes {
		i := slices.IndexFunc(w.things, func(th *thing) bool { return th.key == e.Key })
		if i < 0 {
			w.t.Errorf("announced: %s, which is none of ours", e.Key)
			continue
		}
		th := w.things[i]
		th.tell("not settled: %s %s", e.Action, strings.ReplaceAll(e.fields().String(), "\n", " "))
		th.writing, th.making = e.UID, th.making || e.Action == writeCreate
		var base map[string]any
		if e.Base != "" {
			base = w.read([]byte(w.git("-C", w.remote, "cat-file", "blob", e.Base)))
		}
		for _, f := range th.fields {
			f.may = f.may || f.touchedBy(e.fields(), base)
		}
	}
}
