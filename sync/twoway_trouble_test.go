package sync

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	gosync "sync"

	"github.com/crmirror/crmirror/kube"
)

// work lets the agent do a cycle, in which something may happen to it.
func (w *writers) work() {
	w.faulty = false
	restart := w.trouble()
	w.hands.eachWrite = w.intruder()
	err := w.turnBeside()
	w.hands.eachWrite = nil
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
		func() { w.editSomething() },
		func() { w.editGit(1 + w.rnd.IntN(2)) },
		func() { w.editGit(1); w.editSomething() },
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

// intruder lets somebody be faster than the agent: between the judgement and the write, every other time, he
// edits just what is to be written. What he does is chosen for each object by itself, since writes run side by side.
func (w *writers) intruder() func(kube.Key) {
	seed, met := w.rnd.Uint64(), map[kube.Key]bool{}
	return func(key kube.Key) {
		// An agent that is not waited for any more dies by itself.
		_ = w.here(func() error {
			rnd := w.rnd
			defer func() { w.rnd = rnd }()
			digest := fnv.New64()
			fmt.Fprint(digest, key)
			w.rnd = rand.New(rand.NewPCG(seed, digest.Sum64()))
			if th := w.thing(key); !met[key] && w.rnd.IntN(2) == 0 && !th.met() {
				w.between(func() { w.editCluster(th, w.written(th)) })
				w.counts["edited before a write"]++
			}
			met[key] = true
			return nil
		})
	}
}

// written are the fields of an object that are announced, or all of them; all also while the remote is away.
func (w *writers) written(th *thing) []*field {
	if _, err := os.Stat(w.remote); err != nil {
		return th.fields
	}
	var fields []*field
	for _, e := range w.writes() {
		for _, f := range th.fields {
			if e.Key == th.key && f.touchedBy(e.fields(), w.blob(e.Base)) {
				fields = append(fields, f)
			}
		}
	}
	if len(fields) == 0 {
		return th.fields
	}
	return fields
}

// writes are the writes that the remote's announcement tells of.
func (w *writers) writes() []announced {
	text := w.announced()
	if text == "" {
		return nil
	}
	a, err := parseAnnouncement([]byte(text))
	if err != nil {
		w.t.Error(err)
	}
	return a.Writes
}

// blob is the object in a file of the remote, nil for "".
func (w *writers) blob(name string) map[string]any {
	if name == "" {
		return nil
	}
	return w.read([]byte(w.git("-C", w.remote, "cat-file", "blob", name)))
}

// thing is the object with that key.
func (w *writers) thing(key kube.Key) *thing {
	i := slices.IndexFunc(w.things, func(th *thing) bool { return th.key == key })
	if i < 0 {
		w.t.Fatalf("%s is none of ours", key)
	}
	return w.things[i]
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
	for _, e := range w.writes() {
		th, base := w.thing(e.Key), w.blob(e.Base)
		th.tell("not settled: %s %s", e.Action, strings.ReplaceAll(e.fields().String(), "\n", " "))
		th.writing, th.making = e.UID, th.making || e.Action == writeCreate
		for _, f := range th.fields {
			f.may = f.may || f.touchedBy(e.fields(), base)
		}
	}
}
