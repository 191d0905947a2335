package restore

import (
	"slices"
	"time"
)

const (
	firstWait   = 100 * time.Millisecond // before a request is repeated; doubles each time
	longestWait = 10 * time.Second
)

const (
	wholeServer = "server" // the gate that all tasks go through first
	noGate      = ""       // what it is to wait for is waited for elsewhere

	// leastTries is how often a task is tried before it is given up, however long that takes.
	leastTries = 4
)

// schedule says which of the tasks of an order is to be attempted next. It is pure: times come
// from outside.
//
// What makes an attempt fail for a while is seldom the object: the server is gone, or the
// webhook of a kind has nobody behind it yet. So what fails for a while closes a gate, such as the
// server's or the kind's, for all tasks that go through it. One of them after the other tries, with growing
// waits between; the first of which the server says something else opens the gate. If nothing does
// within patience, all that wait there are given up, and with the server all that wait anywhere: nobody
// would try the other gates.
type schedule struct {
	order    *order
	gatesOf  func(task int) []string // that it goes through after the server's
	patience time.Duration
	jitter   func() float64 // of [0, 1)

	ready []int
	gates map[string]*gate
	tried map[int]trouble // tasks that failed for a while
}

// gate is one that is closed.
type gate struct {
	since   time.Time
	next    time.Time // not tried before
	tries   int
	probe   int // the task that tries; nobody if none does
	waiting []int
}

const nobody = -1

type trouble struct {
	since time.Time
	tries int
}

func newSchedule(order *order, gatesOf func(int) []string, patience time.Duration, jitter func() float64) *schedule {
	return &schedule{
		order: order, gatesOf: gatesOf, patience: patience, jitter: jitter,
		ready: order.ready(), gates: map[string]*gate{}, tried: map[int]trouble{},
	}
}

// next returns a task to be attempted now, and false when there is none.
func (s *schedule) next(now time.Time) (task int, ok bool) {
	if task, ok := s.probe(now); ok {
		return task, true
	}
	for len(s.ready) > 0 {
		task, s.ready = s.ready[0], s.ready[1:]
		g := s.closed(task)
		if g == nil {
			return task, true
		}
		g.waiting = append(g.waiting, task)
	}
	return 0, false
}

// probe returns a task that tries whether a gate can be opened.
func (s *schedule) probe(now time.Time) (task int, ok bool) {
	for name, g := range s.gates {
		if s.due(name, g) && !now.Before(g.next) {
			g.probe, g.waiting = g.waiting[0], g.waiting[1:]
			return g.probe, true
		}
	}
	return 0, false
}

// due tells whether a gate is to be tried when its time has come.
func (s *schedule) due(name string, g *gate) bool {
	return g.probe == nobody && len(g.waiting) > 0 && (name == wholeServer || s.gates[wholeServer] == nil)
}

// closed returns the closed gate before a task, if any.
func (s *schedule) closed(task int) *gate {
	if g := s.gates[wholeServer]; g != nil {
		return g
	}
	for _, name := range s.gatesOf(task) {
		if g := s.gates[name]; g != nil {
			return g
		}
	}
	return nil
}

// wake returns when next has something again though no attempt ends; zero is never.
func (s *schedule) wake() time.Time {
	var wake time.Time
	for name, g := range s.gates {
		if s.due(name, g) && (wake.IsZero() || g.next.Before(wake)) {
			wake = g.next
		}
	}
	return wake
}

// done takes note that a task is done; what waited for it comes next.
func (s *schedule) done(task int) {
	s.refused(task)
	s.release(task)
}

// refused takes note that a task cannot be done. What waits for it stays where it is.
func (s *schedule) refused(task int) {
	s.open(wholeServer)
	for _, name := range s.gatesOf(task) {
		s.open(name)
	}
}

// release lets what waits for a task come next.
func (s *schedule) release(task int) {
	s.ready = append(s.ready, s.order.done(task)...)
}

func (s *schedule) open(name string) {
	if g := s.gates[name]; g != nil {
		s.ready = append(s.ready, g.waiting...)
		delete(s.gates, name)
	}
}

// again takes note that a task failed for a while at one of its gates, and that the server wants
// to be left alone for some time. It returns the tasks that are given up, maybe this one
// among them.
func (s *schedule) again(task int, name string, after time.Duration, now time.Time) []int {
	if name != wholeServer {
		s.open(wholeServer)
	}
	g := s.shut(task, name, after, now)
	for _, g := range s.gates {
		if g.probe == task {
			g.probe = nobody
		}
	}
	switch {
	case g != nil && now.Sub(g.since) >= s.patience:
		return append(s.giveUp(name), task)
	case s.hopeless(task, now):
		return []int{task}
	case g == nil:
		s.ready = append(s.ready, task)
	default:
		g.waiting = append(g.waiting, task)
	}
	return nil
}

// giveUp returns the tasks that wait before a gate, or before any if it is the server's. They wait no more.
func (s *schedule) giveUp(name string) []int {
	var given []int
	for other, g := range s.gates {
		if other == name || name == wholeServer {
			given, g.waiting = append(given, g.waiting...), nil
		}
	}
	slices.Sort(given)
	return given
}

// shut shuts a gate before which a task failed, and returns it.
func (s *schedule) shut(task int, name string, after time.Duration, now time.Time) *gate {
	if name == noGate {
		return nil
	}
	g := s.gates[name]
	if g == nil {
		g = &gate{since: now, probe: task}
		s.gates[name] = g
	}
	if g.probe == task { // and not one of those that were under way when it was shut
		g.tries++
		g.next = now.Add(max(after, backoff(g.tries, s.jitter)))
	}
	return g
}

// hopeless counts a failure of a task, and tells whether it had too many for too long.
func (s *schedule) hopeless(task int, now time.Time) bool {
	own, ok := s.tried[task]
	if !ok {
		own.since = now
	}
	own.tries++
	s.tried[task] = own
	return own.tries >= leastTries && now.Sub(own.since) >= s.patience
}

// backoff returns how long to wait after so many tries: it doubles, and a part of it is chance,
// so that two of us do not come at the same time for ever.
func backoff(tries int, jitter func() float64) time.Duration {
	wait := longestWait
	if doublings := tries - 1; doublings < 10 {
		wait = min(wait, firstWait<<doublings)
	}
	return wait/2 + time.Duration(jitter()*float64(wait/2))
}

// behind returns the tasks that wait for one, directly or not, in their order.
func (s *schedule) behind(task int) []int {
	seen := map[int]bool{task: true}
	var all []int
	for list := []int{task}; len(list) > 0; {
		next := list[0]
		list = list[1:]
		for _, dependent := range s.order.dependents[next] {
			if !seen[dependent] {
				seen[dependent] = true
				all, list = append(all, dependent), append(list, dependent)
			}
		}
	}
	slices.Sort(all)
	return all
}
