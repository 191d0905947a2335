package sync

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
)

// TestTwoWriters lets people edit git and the cluster at random while the agent
// works, dies and is refused; see twoWriters. The edits are the same each time; the long
// test takes others.
func TestTwoWriters(t *testing.T) { twoWriters(t, 1, 6, 4) }

// twoWriters runs rounds. In each, both sides make edits, every one with a value that was
// never used, the agent does parts of its work, and then all comes to rest.
//
// At rest git and the cluster have the same but for the conflicts that are reported. A
// field that only one side edited in the round has that side's last edit on both
// sides, and is no conflict, unless an agent died in the round: then it may be asked about.
// A field that both edited has one of the two last edits, or is a conflict that has both.
func twoWriters(t *testing.T, seed uint64, rounds, objects int) {
	t.Logf("seed %d", seed)
	w := &writers{pair: newPair(t), rnd: rand.New(rand.NewPCG(seed, 0))}
	for i := range objects {
		name := fmt.Sprintf("w%d", i)
		w.names = append(w.names, name)
		w.create("kubectl", name, `{size: 0, color: c, options: {a: x, b: x}, ports: [{port: 80, name: first}, {port: 90, name: first}]}`)
	}
	w.agent()
	w.settled()
	for round := range rounds {
		w.round(round)
		if t.Failed() {
			t.Fatalf("in round %d; seed %d", round, seed)
		}
	}
}

// writers are the two sides and what each edited in the present round.
type writers struct {
	*pair
	rnd    *rand.Rand
	names  []string
	serial int
	died   bool
	git    map[string]any // by object and field: the last value
	there  map[string]any
}

// modelFields are the fields that are edited: where in spec, and how.
var modelFields = []string{"size", "color", "legacy", "options.a", "options.b", "options.c", "ports.80", "ports.90"} //nolint:gochecknoglobals // a constant

// set sets a field of a spec to a value, or takes it away.
func setModelField(spec map[string]any, field string, v any) {
	kind, key, _ := cutField(field)
	switch kind {
	case "options":
		m, _ := spec["options"].(map[string]any)
		m = maps.Clone(m)
		if m == nil {
			m = map[string]any{}
		}
		m[key] = v
		spec["options"] = m
	case "ports":
		for _, item := range spec["ports"].([]any) {
			if port := item.(map[string]any); fmt.Sprint(port["port"]) == key {
				port["name"] = v
			}
		}
	default:
		spec[field] = v
	}
}

func cutField(field string) (kind, key string, nested bool) {
	for i := range field {
		if field[i] == '.' {
			return field[:i], field[i+1:], true
		}
	}
	return field, "", false
}

// modelField is the value of a field in a spec; nil when it is not there.
func modelField(spec map[string]any, field string) any {
	kind, key, _ := cutField(field)
	switch kind {
	case "options":
		m, _ := spec["options"].(map[string]any)
		return m[key]
	case "ports":
		ports, _ := spec["ports"].([]any)
		for _, item := range ports {
			if port := item.(map[string]any); fmt.Sprint(port["port"]) == key {
				return port["name"]
			}
		}
		return nil
	}
	if n, ok := spec[field].(float64); ok {
		return int64(n)
	}
	return spec[field]
}

// next is a value for a field that nobody used before.
func (w *writers) next(field string) any {
	w.serial++
	if field == "size" {
		return int64(w.serial)
	}
	return fmt.Sprintf("v%d", w.serial)
}

func (w *writers) pick() (name, field string) {
	return w.names[w.rnd.IntN(len(w.names))], modelFields[w.rnd.IntN(len(modelFields))]
}

// editGit is a person's commit.
func (w *writers) editGit() {
	w.person("edit", func(dir string) {
		for range 1 + w.rnd.IntN(3) {
			name, field := w.pick()
			file := filepath.Join(dir, "clusters/lab", w.pathOf(name))
			content, err := os.ReadFile(file)
			if err != nil {
				w.t.Fatal(err)
			}
			obj := w.decode(string(content))
			v := w.next(field)
			setModelField(obj.Object["spec"].(map[string]any), field, v)
			out, err := yaml.Marshal(obj.Object)
			if err != nil {
				w.t.Fatal(err)
			}
			if err := os.WriteFile(file, out, 0o666); err != nil {
				w.t.Fatal(err)
			}
			w.git[name+" "+field] = v
		}
	})
}

// editCluster is somebody's update in the cluster.
func (w *writers) editCluster() {
	name, field := w.pick()
	v := w.next(field)
	live, err := w.server.widgets().Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	setModelField(live.Object["spec"].(map[string]any), field, v)
	manager := []string{"kubectl-edit", "controller", "operator"}[w.rnd.IntN(3)]
	if _, err := w.server.widgets().Update(w.t.Context(), live, metav1.UpdateOptions{FieldManager: manager}); err != nil {
		w.t.Fatal(err)
	}
	w.there[name+" "+field] = v
	if w.rnd.IntN(3) > 0 { // else the informer is late
		w.see(name)
	}
}

// work lets the agent do some of its work, die, or be refused.
func (w *writers) work() {
	switch w.rnd.IntN(5) {
	case 0:
		steps := []Step{StepAnnounced, StepWritten, StepCommitted, StepRecovered}
		w.at(steps[w.rnd.IntN(len(steps))])
		w.mirror.two.opts.Reached = w.opts.Reached
		_, err := w.tryTurn()
		w.opts.Reached = nil
		if errors.Is(err, errCrash) {
			w.died = true
			w.agent()
			return
		}
		w.mirror.two.opts.Reached = nil
		w.okOrRetry(err)
	case 1:
		w.hands.afterWrite = func(kube.Key) error {
			w.died = true // as good as: nobody knows whether it landed
			return apply.ErrUncertain
		}
		_, err := w.tryTurn()
		w.hands.afterWrite = nil
		w.okOrRetry(err)
	case 2:
		w.editCluster() // a write is under way elsewhere
		w.hands.beforeWrite = func(kube.Key) error {
			w.editCluster()
			return nil
		}
		_, err := w.tryTurn()
		w.hands.beforeWrite = nil
		w.okOrRetry(err)
	default:
		_, err := w.tryTurn()
		w.okOrRetry(err)
	}
}

func (w *writers) okOrRetry(err error) {
	if err != nil && !errors.Is(err, errCrash) {
		w.t.Errorf("cycle: %v", err)
	}
}

func (w *writers) round(n int) {
	w.git, w.there, w.died = map[string]any{}, map[string]any{}, false
	for range 4 + w.rnd.IntN(4) {
		switch w.rnd.IntN(4) {
		case 0, 1:
			w.editCluster()
		case 2:
			w.editGit()
		default:
			w.work()
		}
	}
	report := w.settled()
	conflicts := map[string]bool{}
	for _, c := range report.Conflicts {
		conflicts[c.Key.Name+" "+w.fieldOf(c)] = true
		if c.Git == c.Cluster {
			w.t.Errorf("round %d: %s %s is reported though both have %s", n, c.Key.Name, c.Field, c.Git)
		}
	}
	if len(report.Refusals)+len(report.Findings) > 0 {
		w.t.Errorf("round %d: refusals %v, findings %v", n, report.Refusals, report.Findings)
	}
	for _, name := range w.names {
		w.check(n, name, conflicts)
	}
	if len(conflicts) > 0 { // a person settles them, now this way, now that
		w.resolve(Resolution{Take: []Side{TakeGit, TakeCluster}[n%2]})
		w.wantConflicts(w.settled())
	}
}

// fieldOf names a conflict's field as modelFields does.
func (w *writers) fieldOf(c Conflict) string {
	for _, field := range modelFields {
		kind, key, nested := cutField(field)
		want := ".spec." + field
		if nested && kind == "ports" {
			want = fmt.Sprintf(`.spec.ports[port=%s,protocol="TCP"].name`, key)
		}
		if c.Field == want {
			return field
		}
	}
	w.t.Errorf("a conflict on %q, which nobody edits", c.Field)
	return c.Field
}

func (w *writers) check(round int, name string, conflicts map[string]bool) {
	live, err := w.server.widgets().Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	inCluster := live.Object["spec"].(map[string]any)
	inGit := w.specIn(w.file(w.pathOf(name)))
	for _, field := range modelFields {
		id := name + " " + field
		g, c := modelField(inGit, field), modelField(inCluster, field)
		byGit, gitEdited := w.git[id]
		byCluster, clusterEdited := w.there[id]
		fail := func(format string, args ...any) {
			w.t.Errorf("round %d: %s: git has %v, the cluster %v, edited to %v and %v; agent died %v: %s", round, id, g, c, byGit, byCluster, w.died, fmt.Sprintf(format, args...))
		}
		if conflicts[id] {
			if !w.died && (!gitEdited || !clusterEdited) {
				fail("a conflict, though only one side edited it")
			}
			if gitEdited && g != byGit || clusterEdited && c != byCluster {
				fail("a conflict in which an edit is gone")
			}
			continue
		}
		if g != c {
			fail("they differ, and it is not reported")
		}
		var may []any
		if gitEdited {
			may = append(may, byGit)
		}
		if clusterEdited {
			may = append(may, byCluster)
		}
		if len(may) > 0 && !slices.Contains(may, g) {
			fail("an edit is gone")
		}
	}
}

func (w *writers) specIn(text string) map[string]any {
	obj := &unstructured.Unstructured{Object: w.decode(text).Object}
	spec, _ := obj.Object["spec"].(map[string]any)
	return spec
}
