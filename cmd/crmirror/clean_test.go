package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/crmirror/crmirror/cmd/internal/config"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/sync"
)

const (
	hostile = "a\x1b[2J\u202eb\nc\r\td\xff"
	tamed   = "a?[2J?b; c; ?d?"
)

func TestClean(t *testing.T) {
	for _, arg := range []any{hostile, sync.Shown(hostile), errors.New(hostile), kube.Key{Resource: "r", Name: hostile}} {
		if got := clean("%s\n", arg); !strings.HasSuffix(got, tamed+"\n") || strings.Count(got, "\n") != 1 {
			t.Errorf("clean(%T) = %q", arg, got)
		}
	}
	if got := clean("%d\t%t\n", 1, true); got != "1\ttrue\n" {
		t.Errorf("numbers and our own format: %q", got)
	}
	if got := explain(errors.New("one\n\ttwo\x1b[31m"), false); got != "one\n    two?[31m" {
		t.Errorf("explain: %q", got)
	}
}

// TestReportIsClean: nothing that came from files, objects or commits reaches a terminal raw.
func TestReportIsClean(t *testing.T) {
	conflict := conflictResult{
		Object: hostile, File: hostile, Field: hostile, Reason: hostile, Base: hostile, Git: hostile, Cluster: hostile,
		Owners: []ownerResult{{Manager: hostile, Operation: "Update"}}, Commit: "0123456789", Author: hostile, Settle: []string{hostile},
	}
	report := applyResult{
		backupResult: backupResult{
			Repository: hostile, Path: hostile, Findings: []finding{{What: hostile, Text: hostile}},
			Held:      &heldResult{Objects: []string{hostile}, Approve: hostile},
			Resources: []sync.ResourceReport{{Resource: hostile, Objects: 1}},
		},
		Applied:   []appliedResult{{Object: hostile, Action: "configured", Fields: []string{hostile}, Notes: []string{hostile}}},
		Refused:   []finding{{What: hostile, Text: hostile}},
		Conflicts: []conflictResult{conflict},
	}
	for _, dry := range []bool{false, true} {
		report.DryRun = dry
		text := report.text()
		if strings.ContainsAny(text, "\x1b\u202e\r\t") || !strings.Contains(text, tamed) {
			t.Errorf("dry run %t: %q", dry, text)
		}
	}
}

// TestLogIsLines: an error of several is one field of one line.
func TestLogIsLines(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log := newLogger(config.Log{Level: "info", Format: format}, &out)
		log.WithError(errors.Join(errors.New("first"), errors.New("second"))).WithField("at", "x\ny").Info("one\ntwo")
		log.WithFields(logrus.Fields{"n": 1}).Info("fine")
		got := out.String()
		for _, want := range []string{"one; two", "first; second", "x; y"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q has no %q", format, got, want)
			}
		}
		if strings.Count(got, "\n") != 2 || strings.Contains(got, `\n`) {
			t.Errorf("%s: %q", format, got)
		}
	}
}
