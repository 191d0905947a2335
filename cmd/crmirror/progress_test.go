package main

import (
	"bytes"
	"strings"
	gosync "sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crmirror/crmirror/sync/restore"
)

// screen is a terminal that is drawn on from another goroutine.
type screen struct {
	mu   gosync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// steps are two stages: a long one of 100 objects, of which one ends each second, and a short one.
func steps(b *progressBar) {
	began := time.Now()
	for done := range 101 {
		b.show(restore.Progress{Stage: restore.StageObjects, Done: done, Total: 100, Began: began})
		<-time.After(time.Second)
	}
	b.show(restore.Progress{Stage: restore.StageServed, Done: 0, Total: 1, Began: time.Now()})
	b.show(restore.Progress{Stage: restore.StageServed, Done: 1, Total: 1, Began: time.Now()})
	b.finish()
}

// A terminal has a bar for each stage, with what is done, the rate and the time left.
func TestProgressOnTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &screen{}
		steps(&progressBar{w: out, isTTY: true})
		for _, want := range []string{"objects 50 / 100 [", "1/s 50s left", "objects 100 / 100 [", "kinds served 1 / 1 ["} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("got %q\nwant %q in it", out.String(), want)
			}
		}
	})
}

// Elsewhere a stage is one line at its end, and one now and then before.
func TestProgressInLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &screen{}
		steps(&progressBar{w: out})
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) > 12 || lines[0] != "objects: 11 of 100, 1/s" || lines[len(lines)-2] != "objects: 100 of 100, 1/s" ||
			!strings.HasPrefix(lines[len(lines)-1], "kinds served: 1 of 1") {
			t.Errorf("got %q, want a line every ten seconds or so, and one at the end of each stage", lines)
		}
	})
}
