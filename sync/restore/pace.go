package restore

import "time"

const (
	firstLimit   = 8    // requests under way at the beginning; no server minds as many
	defaultLimit = 64   // and at most, unless told otherwise
	worthIt      = 1.03 // how much the rate has to grow when the limit is doubled
	noLoss       = 0.95 // what has to be left of it when the limit is halved
	slower       = 2    // how many times the latency at which less is tried
	firstRest    = 8    // windows until more is tried again
	longestRest  = 64   // windows

	// A window has as many answers, and lasts as long, at least.
	leastAnswers = 32
	perRequest   = 4 // answers for each request under way
	leastWindow  = 100 * time.Millisecond
)

// pace says how many requests are to be under way at once. It looks for the smallest number at
// which the server gives all it has: more would only queue there, before the
// requests of others. It is told of each answer, and is pure: times come from outside.
//
// It compares the rates of two windows of answers that follow each other, with one limit twice the
// other, and keeps the larger one if the rate grew with it. Rates of windows far apart are
// not compared: kinds differ, in their size and in the webhooks that they wait for. More is tried
// from time to time, and less when answers begin to take longer, but never less than at
// the beginning: on a busy machine rates go up and down by themselves. Only when the server says that
// it is too much, the limit is halved at once, down to one.
type pace struct {
	max   int
	limit int

	before trial     // what the window is compared with
	trying direction // what is being tried in this window
	rest   int       // windows until something is tried again
	length int       // how long the next rest is
	calm   time.Duration

	began   time.Time // of the window
	answers int
	waited  time.Duration // sum of the window's latencies
	cut     time.Time     // when the limit was halved
	pause   time.Time     // nothing is sent before
}

// trial is a limit and the rate at it, in answers per second.
type trial struct {
	limit int
	rate  float64
}

type direction int

const (
	resting direction = iota
	raising
	lowering
)

// answer is what is to be known of an answer.
type answer struct {
	at       time.Time
	took     time.Duration
	full     bool // as many requests were under way as the limit allows
	overload bool // the server is there and has too much to do
	after    time.Duration
}

// newPace returns the pace of at most that many requests; zero means 64.
func newPace(limit int) *pace {
	if limit == 0 {
		limit = defaultLimit
	}
	return &pace{max: limit, limit: min(limit, firstLimit), trying: raising, length: firstRest}
}

// allows tells whether one more request may be sent.
func (p *pace) allows(underWay int, now time.Time) bool {
	return underWay < p.limit && !now.Before(p.pause)
}

// answered takes an answer into account.
func (p *pace) answered(a answer) {
	if pause := a.at.Add(a.after); a.after > 0 && pause.After(p.pause) {
		p.pause = pause
	}
	switch {
	case a.overload:
		p.overloaded(a)
	case !a.full:
		// There is less to do than the limit allows: the rate says nothing about it.
		p.open(a.at)
	default:
		p.count(a)
	}
}

// overloaded halves the limit, once for all requests that were under way together.
func (p *pace) overloaded(a answer) {
	if a.at.Add(-a.took).Before(p.cut) {
		return
	}
	p.cut = a.at
	p.limit = max(1, p.limit/2)
	p.settle()
	p.open(a.at)
}

func (p *pace) count(a answer) {
	if p.began.IsZero() {
		p.open(a.at)
		return
	}
	p.answers++
	p.waited += a.took
	took := a.at.Sub(p.began)
	if p.answers < max(leastAnswers, perRequest*p.limit) || took < leastWindow {
		return
	}
	p.judge(float64(p.answers)/took.Seconds(), p.waited/time.Duration(p.answers))
	p.open(a.at)
}

// open begins a window.
func (p *pace) open(at time.Time) {
	p.began, p.answers, p.waited = at, 0, 0
}

// judge looks at a whole window.
func (p *pace) judge(rate float64, latency time.Duration) {
	here := trial{limit: p.limit, rate: rate}
	switch p.trying {
	case raising:
		if p.before.limit > 0 && rate < worthIt*p.before.rate {
			p.limit = p.before.limit
			p.settle()
			return
		}
		p.raise(here)
	case lowering:
		if p.before.limit > 0 && rate < noLoss*p.before.rate {
			p.limit = p.before.limit
			p.settle()
			return
		}
		p.length = firstRest
		p.lower(here)
	case resting:
		if p.calm == 0 {
			p.calm = latency
		}
		switch p.rest--; {
		case latency > slower*p.calm:
			p.trying, p.before = lowering, trial{} // this window may have begun before
		case p.rest <= 0:
			p.trying = raising
			p.raise(here)
		}
	}
}

// raise tries a larger limit, or rests where there is none.
func (p *pace) raise(here trial) {
	if p.limit == p.max {
		p.settle()
		return
	}
	if p.before.limit > 0 {
		p.length = firstRest // what was tried before was worth it
	}
	p.before, p.limit = here, min(p.max, 2*p.limit)
}

// lower tries half the limit, or rests where there is none.
func (p *pace) lower(here trial) {
	if p.limit <= firstLimit {
		p.settle()
		return
	}
	p.before, p.trying, p.limit = here, lowering, max(firstLimit, p.limit/2)
}

// settle keeps the limit for a while, each time for longer.
func (p *pace) settle() {
	p.trying, p.before, p.calm = resting, trial{}, 0
	p.rest = p.length
	p.length = min(2*p.length, longestRest)
}
