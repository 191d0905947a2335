package main

import (
	"strings"
	"testing"

	"github.com/crmirror/crmirror/sync"
)

// TestConflictsTellWhatElse: who is told that there are no conflicts learns what is not applied
// all the same, in JSON beside it, and that the server was not asked.
func TestConflictsTellWhatElse(t *testing.T) {
	report := &sync.Report{
		Refusals: []sync.Refusal{{File: "a.yaml", Line: 3, Text: "no such namespace"}},
		Findings: []sync.Finding{{File: "b.yaml", Text: "lies below cluster/"}},
	}
	want := []string{"a.yaml:3: no such namespace", "b.yaml: lies below cluster/", "crmirror apply --dry-run"}
	for _, format := range []outputFormat{outputJSON, outputText} {
		var out, beside strings.Builder
		if err := writeConflicts(&out, &beside, format, report, ""); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		if format == outputJSON {
			if strings.TrimSpace(text) != "[]" {
				t.Errorf("JSON %q, want an empty list", text)
			}
			text = beside.String()
		} else if beside.Len() > 0 {
			t.Errorf("beside the text: %q", beside.String())
		}
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("format %v has no %q:\n%s", format, part, text)
			}
		}
	}
	var out, beside strings.Builder
	if err := writeConflicts(&out, &beside, outputText, &sync.Report{}, ""); err != nil || out.String() != "No conflicts.\n" {
		t.Errorf("nothing to tell: %q, %v", out.String(), err)
	}
}

// TestFullName: a plural alone stands for the one mirrored resource that has it.
func TestFullName(t *testing.T) {
	mirrored := []sync.ResourceReport{{Resource: "configmaps"}, {Resource: "configmaps.x.dev"}, {Resource: "jobs.a.dev"}, {Resource: "jobs.b.dev"}, {Resource: "widgets.a.dev"}}
	for text, want := range map[string]string{
		"widgets": "widgets.a.dev", "widgets.a.dev": "widgets.a.dev", "widgets.a": "widgets.a",
		"configmaps": "configmaps", "gadgets": "gadgets", "": "",
	} {
		if got, err := fullName(text, mirrored); got != want || err != nil {
			t.Errorf("fullName(%q) = %q, %v, want %q", text, got, err, want)
		}
	}
	if _, err := fullName("jobs", mirrored); err == nil || !strings.Contains(err.Error(), "jobs.a.dev or jobs.b.dev") {
		t.Errorf("fullName of two: %v, want both names", err)
	}
}
