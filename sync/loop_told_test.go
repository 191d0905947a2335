package sync

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
)

// TestToldOnce: what a person was told of is not told again after a cycle that failed, and is after one
// that did not find it.
func TestToldOnce(t *testing.T) {
	var logs bytes.Buffer
	log := logrus.New()
	log.SetOutput(&logs)
	l := NewLoop(nil, nil, &Health{}, Pace{}, log)
	found := func() *Report {
		r := newReport()
		r.Conflicts = []Conflict{{File: "a.yaml", Line: 3, Field: ".spec.size", Reason: "both changed"}}
		r.Refusals = []Refusal{{File: "b.yaml", Text: "forbidden"}}
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
	}
}
