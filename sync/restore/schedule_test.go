package restore

import (
	"slices"
	"testing"
	"time"
)

// clock is the present of a schedule under test.
type clock struct {
	*schedule
	now time.Time
}

// newClock makes a schedule of n tasks that wait for none; even ones are of the kind "even".
func newClock(n int) *clock {
	kind := func(task int) []string { return []string{[]string{"even", "odd"}[task%2]} }
	return &clock{newSchedule(newOrder(make([][]int, n)), kind, time.Minute, func() float64 { return 1 }), time.Unix(0, 0)}
}

// all returns what is to be attempted now.
func (c *clock) all() []int {
	var tasks []int
	for {
		task, ok := c.next(c.now)
		if !ok {
			return tasks
		}
		tasks = append(tasks, task)
	}
}

func (c *clock) want(t *testing.T, want ...int) {
	t.Helper()
	if got := c.all(); !slices.Equal(got, want) {
		t.Fatalf("after %s: %v are to be attempted, want %v", c.now.Sub(time.Unix(0, 0)), got, want)
	}
}

func TestScheduleOrder(t *testing.T) {
	c := newClock(4)
	c.schedule = newSchedule(newOrder([][]int{nil, {0}, {1}, {0}}), c.gatesOf, time.Minute, c.jitter)
	c.want(t, 0)
	c.done(0)
	c.want(t, 1, 3)
	c.refused(1)
	c.want(t)
	if got := c.behind(1); !slices.Equal(got, []int{2}) {
		t.Errorf("behind 1: %v, want 2", got)
	}
	if got := c.behind(0); !slices.Equal(got, []int{1, 2, 3}) {
		t.Errorf("behind 0: %v, want all others", got)
	}
}

// A kind whose webhook does not answer is tried by one object at a time; others go on.
func TestScheduleKindWaits(t *testing.T) {
	c := newClock(8)
	for range 3 { // 0, 1, 2
		c.next(c.now)
	}
	c.again(0, "even", 0, c.now)
	c.again(2, "even", 0, c.now)
	c.want(t, 3, 5, 7)
	if wake := c.wake(); !wake.Equal(c.now.Add(firstWait)) {
		t.Errorf("wakes after %s, want %s", wake.Sub(c.now), firstWait)
	}
	c.now = c.wake()
	c.want(t, 0)
	if wake := c.wake(); !wake.IsZero() {
		t.Error("wakes though one of the kind is under way")
	}
	c.again(0, "even", 0, c.now)
	c.want(t)
	c.now = c.now.Add(2 * firstWait)
	c.want(t, 2)
	c.done(2)
	c.want(t, 4, 6, 0)
}

// Nobody hammers a server that does not answer, whatever was under way when it stopped.
func TestScheduleServerGone(t *testing.T) {
	c := newClock(100)
	c.all()
	for task := range 100 {
		c.again(task, wholeServer, 0, c.now)
	}
	var waits []time.Duration
	for range 12 {
		wake := c.wake()
		waits = append(waits, wake.Sub(c.now))
		c.now = wake
		task, ok := c.next(c.now)
		if !ok {
			t.Fatal("nobody tries")
		}
		c.want(t)
		if given := c.again(task, wholeServer, 0, c.now); given != nil {
			if len(given) != 100 || c.now.Before(time.Unix(60, 0)) {
				t.Errorf("after %s given up: %d", c.now.Sub(time.Unix(0, 0)), len(given))
			}
			break
		}
	}
	want := []time.Duration{100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000, 10000, 10000, 10000}
	for i := range waits {
		if waits[i] != want[i]*time.Millisecond {
			t.Errorf("waits %v, want %v ms", waits, want)
			break
		}
	}
	if wake := c.wake(); !wake.IsZero() {
		t.Error("somebody still waits")
	}
}

// The server goes for good while a kind waits for its webhook: what waits for that is given up too.
func TestScheduleGivesUpAll(t *testing.T) {
	c := newClock(6)
	c.want(t, 0, 1, 2, 3, 4, 5)
	for _, task := range []int{0, 2, 4} {
		c.again(task, "even", 0, c.now)
	}
	var given []int
	for _, task := range []int{1, 3, 5} {
		given = append(given, c.again(task, wholeServer, 0, c.now)...)
	}
	for given == nil && !c.wake().IsZero() {
		c.now = c.wake()
		task, ok := c.next(c.now)
		if !ok {
			t.Fatal("nobody tries")
		}
		given = c.again(task, wholeServer, 0, c.now)
	}
	slices.Sort(given)
	if !slices.Equal(given, []int{0, 1, 2, 3, 4, 5}) || !c.wake().IsZero() {
		t.Errorf("given up: %v, want all", given)
	}
}

func TestScheduleRetryAfter(t *testing.T) {
	c := newClock(1)
	c.want(t, 0)
	c.again(0, wholeServer, 7*time.Second, c.now)
	c.now = c.now.Add(7*time.Second - 1)
	c.want(t)
	c.now = c.now.Add(1)
	c.want(t, 0)
}

// A server that has too much to do is for the pace; the task comes again.
func TestScheduleNoGate(t *testing.T) {
	c := newClock(4)
	c.want(t, 0, 1, 2, 3)
	c.again(0, noGate, time.Second, c.now)
	c.want(t, 0)
	c.now = c.now.Add(2 * time.Minute)
	for range leastTries - 2 {
		if given := c.again(0, noGate, time.Second, c.now); given != nil {
			t.Fatal("given up after too few tries")
		}
		c.want(t, 0)
	}
	if given := c.again(0, noGate, time.Second, c.now); len(given) != 1 {
		t.Error("not given up")
	}
}

// One object that always fails harms no other, and is given up in the end.
func TestSchedulePoison(t *testing.T) {
	c := newClock(20)
	done := map[int]bool{}
	var given []int
	for given == nil && c.now.Before(time.Unix(1000, 0)) {
		task, ok := c.next(c.now)
		switch {
		case !ok:
			c.now = c.wake()
		case task == 0:
			given = c.again(task, "even", 0, c.now)
		default:
			done[task] = true
			c.done(task)
		}
	}
	if len(done) != 19 || !slices.Equal(given, []int{0}) {
		t.Errorf("%d done, given up: %v; want 19 and 0", len(done), given)
	}
}

// The server goes while one of a kind tries whether its webhook is there: both gates open again.
func TestScheduleTwoGates(t *testing.T) {
	c := newClock(3)
	c.want(t, 0, 1, 2)
	c.again(0, "even", 0, c.now)
	c.again(2, "even", 0, c.now)
	c.now = c.wake()
	c.want(t, 0)
	c.again(0, wholeServer, 0, c.now)
	c.again(1, wholeServer, 0, c.now)
	c.now = c.wake()
	c.want(t, 0)
	c.again(0, "even", 0, c.now) // the server is back, the webhook is not
	c.want(t, 2, 1)
	c.done(1)
	c.done(2)
	c.want(t, 0)
	c.done(0)
	if wake := c.wake(); !wake.IsZero() {
		t.Error("wakes though all is done")
	}
}

func TestBackoff(t *testing.T) {
	for _, chance := range []float64{0, 0.5, 1} {
		for tries := 1; tries < 100; tries++ {
			if wait := backoff(tries, func() float64 { return chance }); wait < firstWait/2 || wait > longestWait {
				t.Errorf("waits %s before try %d", wait, tries+1)
			}
		}
	}
}
