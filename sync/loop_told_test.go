package sync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
)

// TestToldOnce: what a person was told of is not told again after a cycle that failed, and is after one
// that did not find it.
func TestToldOnce(t *testing.T) {
	var logs bytes.Buffer
	log := logrus.New()
	log.SetOutput(&logs)
	l := NewLoop(nil, nil, &Health{}, Pace{}, log)
	next := time.Date(2200, 11, 30, 9, 0, 0, 0, time.Local)
	found := func() *Report {
		r := newReport()
		r.Conflicts = []Conflict{{File: "a.yaml", Line: 3, Field: ".spec.size", Reason: "both changed"}}
		r.Refusals = []Refusal{{File: "b.yaml", Line: 7, Text: "forbidden", Retry: true, Next: next}}
		next = next.Add(time.Minute) // it is tried again, and that alone is no news
		return r
	}
	for _, step := range []struct {
		what   string
		report *Report
		err    error
		want   int
	}{
		{"first", found(), nil, 2},
		{"again", found(), nil, 0},
		{"a cycle that failed", newReport(), errors.New("remote away"), 0},
		{"after it", found(), nil, 0},
		{"over", newReport(), nil, 0},
		{"anew", found(), nil, 2},
	} {
		logs.Reset()
		l.done(step.report, step.err)
		if got := strings.Count(logs.String(), "conflict of") + strings.Count(logs.String(), "not applied: "); got != step.want {
			t.Errorf("%s: %d lines, want %d:\n%s", step.what, got, step.want, logs.String())
		}
		if step.what == "first" && !strings.Contains(logs.String(), `forbidden; tried again by 09:00:01, then at least every minute" at="b.yaml:7"`) {
			t.Errorf("the refusal does not say when it is tried again:\n%s", logs.String())
		}
	}
}

// TestToldLate: no time is told that is over when it is read.
func TestToldLate(t *testing.T) {
	now := time.Date(2026, 11, 30, 9, 0, 0, 0, time.Local)
	r := Refusal{Retry: true, Next: now}
	if got := r.again(now); got != "; tried again at once, then at least every minute" {
		t.Errorf("got %q", got)
	}
}

// TestStopIsNoFailure: that a cycle was cut short by the end of the agent is neither logged as a failure nor as
// the end of one.
func TestStopIsNoFailure(t *testing.T) {
	var logs bytes.Buffer
	log := logrus.New()
	log.SetOutput(&logs)
	health := &Health{}
	l := NewLoop(nil, nil, health, Pace{}, log)
	l.done(newReport(), fmt.Errorf("push: %w", context.Canceled))
	if err := health.State().Failing; err != nil {
		t.Errorf("failing: %v", err)
	}
	l.done(newReport(), nil)
	if got := logs.String(); strings.Contains(got, "again") {
		t.Errorf("logged:\n%s", got)
	}
}

// TestToldWithPlace: what is wrong with a file is logged with its place from the repository's root;
// where that is the file as a whole, without a line.
func TestToldWithPlace(t *testing.T) {
	var logs bytes.Buffer
	log := logrus.New()
	log.SetOutput(&logs)
	r := newReport()
	r.Conflicts = []Conflict{{File: "clusters/lab/a.yaml", Reason: "deleted in git"}}
	r.Findings = []Finding{{Path: "b.yaml", File: "clusters/lab/b.yaml", Line: 2, Text: "bad"}, {Path: "branch main", Text: "rewound"}}
	NewLoop(nil, nil, &Health{}, Pace{}, log).done(r, nil)
	for _, want := range []string{" at=clusters/lab/a.yaml\n", ` at="clusters/lab/b.yaml:2"`, ` at="branch main"`} {
		if !strings.Contains(logs.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, logs.String())
		}
	}
}
