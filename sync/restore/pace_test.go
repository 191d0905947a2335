package restore

import (
	"testing"
	"time"
)

// server answers as one with so many requests a second at most, each of which takes so long
// when it is alone.
type server struct {
	rate  float64
	alone time.Duration
}

// serve gives the pace n answers of a loop that always has as many requests under way as it may.
func (s server) serve(p *pace, now time.Time, n int) time.Time {
	for range n {
		took := max(s.alone, time.Duration(float64(p.limit)/s.rate*float64(time.Second)))
		now = now.Add(took / time.Duration(p.limit))
		p.answered(answer{at: now, took: took, full: true})
	}
	return now
}

func TestPaceFindsTheKnee(t *testing.T) {
	for name, test := range map[string]struct {
		server   server
		max      int
		from, to int
	}{
		"fast":             {server{rate: 1500, alone: 5 * time.Millisecond}, 0, 8, 24},       // its knee: 7.5
		"far away":         {server{rate: 1500, alone: 30 * time.Millisecond}, 0, 45, 64},     // 45
		"farther than 64":  {server{rate: 1500, alone: 100 * time.Millisecond}, 0, 64, 64},    // 150
		"one at a time":    {server{rate: 100, alone: 10 * time.Millisecond}, 0, 1, 8},        // 1
		"at most as asked": {server{rate: 1500, alone: 100 * time.Millisecond}, 10, 10, 10},   // 150
		"just one asked":   {server{rate: 1500, alone: 100 * time.Millisecond}, 1, 1, 1},      // 150
		"more than 64":     {server{rate: 5000, alone: 40 * time.Millisecond}, 500, 200, 400}, // 200
	} {
		t.Run(name, func(t *testing.T) {
			p := newPace(test.max)
			now := time.Unix(0, 0)
			now = test.server.serve(p, now, 20000)
			low, high := p.limit, p.limit
			for range 2000 {
				now = test.server.serve(p, now, 10)
				if p.trying == resting {
					low, high = min(low, p.limit), max(high, p.limit)
				}
			}
			if low < test.from || high > test.to {
				t.Errorf("rests between %d and %d, want within %d and %d", low, high, test.from, test.to)
			}
		})
	}
}

// A restore of some thousand objects is over in seconds.
func TestPaceIsQuick(t *testing.T) {
	p := newPace(0)
	server{rate: 2000, alone: 30 * time.Millisecond}.serve(p, time.Unix(0, 0), 500)
	if p.limit < 60 {
		t.Errorf("after 500 answers %d are under way, want 60", p.limit)
	}
}

// A kind with a slow webhook does not look like a server that has too much to do.
func TestPaceOfASlowKind(t *testing.T) {
	p := newPace(0)
	now := server{rate: 1500, alone: 5 * time.Millisecond}.serve(p, time.Unix(0, 0), 5000)
	server{rate: 1500, alone: 60 * time.Millisecond}.serve(p, now, 10000)
	if p.limit < 32 {
		t.Errorf("only %d are under way for a kind that waits for its webhook, want at least 32", p.limit)
	}
}

// Others need the server too.
func TestPaceGivesWay(t *testing.T) {
	p := newPace(0)
	now := server{rate: 3000, alone: 10 * time.Millisecond}.serve(p, time.Unix(0, 0), 10000)
	before := p.limit
	server{rate: 300, alone: 10 * time.Millisecond}.serve(p, now, 10000)
	if before < 30 || p.limit > 8 {
		t.Errorf("%d were under way, and %d of a server that has a tenth for us, want at most 8", before, p.limit)
	}
}

func TestPaceOverload(t *testing.T) {
	p := newPace(0)
	now := server{rate: 3000, alone: 50 * time.Millisecond}.serve(p, time.Unix(0, 0), 10000)
	if p.limit != 64 {
		t.Fatalf("%d under way, want 64", p.limit)
	}
	for range 64 { // those that were under way together
		p.answered(answer{at: now, took: 50 * time.Millisecond, full: true, overload: true, after: 2 * time.Second})
	}
	if p.limit != 32 {
		t.Errorf("%d under way, want half of what was too much", p.limit)
	}
	if p.allows(0, now.Add(time.Second)) || !p.allows(31, now.Add(2*time.Second)) || p.allows(32, now.Add(2*time.Second)) {
		t.Error("the server's Retry-After is not waited for, or for too long")
	}
	for range 10 {
		now = now.Add(time.Second)
		p.answered(answer{at: now, took: 50 * time.Millisecond, full: true, overload: true})
	}
	if p.limit != 1 {
		t.Errorf("%d under way, want one", p.limit)
	}
	server{rate: 3000, alone: 50 * time.Millisecond}.serve(p, now, 20000)
	if p.limit < 32 {
		t.Errorf("%d under way when the server is well again, want at least 32", p.limit)
	}
}

// When work runs out, that is no sign of a slow server.
func TestPaceIdle(t *testing.T) {
	p := newPace(0)
	now := server{rate: 3000, alone: 50 * time.Millisecond}.serve(p, time.Unix(0, 0), 10000)
	for range 1000 {
		now = now.Add(time.Second)
		p.answered(answer{at: now, took: 10 * time.Millisecond})
	}
	if p.limit != 64 {
		t.Errorf("%d under way, want 64 still", p.limit)
	}
}
