package sync

import (
	"errors"
	"net"
	"net/http"
	gosync "sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"github.com/crmirror/crmirror/kube/apply"
)

// line is the agent's connection to the API server. Something may happen to it at a request.
type line struct {
	mu    gosync.Mutex
	armed int // requests until it happens; 0 is never
	times int // how many requests it happens to
	event event
}

// event is what happens to a request.
type event struct {
	lost lossOf
	do   func() error // before it; with an answer that is lost, after it
}

// lossOf is what is lost of a request.
type lossOf string

const (
	lostNothing lossOf = ""
	lostRequest lossOf = "request" // it was not sent
	lostAnswer  lossOf = "answer"  // the server did what it asks for
)

// arm lets an event happen at the nth request from now on, to that and the following ones.
func (l *line) arm(nth, requests int, e event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed, l.times, l.event = nth, requests, e
}

// mend lets nothing more happen.
func (l *line) mend() { l.arm(0, 0, event{}) }

// now tells what happens to this request.
func (l *line) now() event {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.armed == 0 {
		return event{}
	}
	if l.armed > 1 {
		l.armed--
		return event{}
	}
	if l.times--; l.times == 0 {
		l.armed = 0
	}
	return l.event
}

// trip carries one request.
func (l *line) trip(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	e := l.now()
	if e.do != nil && e.lost == lostNothing {
		if err := e.do(); err != nil {
			return nil, err
		}
	}
	if e.lost == lostRequest {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	answer, err := next.RoundTrip(r)
	if e.lost != lostAnswer || err != nil {
		return answer, err
	}
	lost := errors.New("the connection was lost")
	if e.do != nil && r.Method != http.MethodGet {
		lost = errors.Join(lost, e.do())
	}
	return nil, errors.Join(lost, answer.Body.Close())
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// newLine gives the pair's hands a line.
func newLine(p *pair, config *rest.Config) *line {
	p.t.Helper()
	l := &line{}
	config = rest.CopyConfig(config)
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return tripper(func(r *http.Request) (*http.Response, error) { return l.trip(r, next) })
	})
	schemas, err := apply.NewSchemas(config, time.Minute)
	if err != nil {
		p.t.Fatal(err)
	}
	writer, err := apply.NewWriter(config, schemas, apply.Options{})
	if err != nil {
		p.t.Fatal(err)
	}
	p.hands = &hands{Writer: writer, Schemas: schemas}
	return l
}
