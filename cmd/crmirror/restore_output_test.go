package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A report that cannot be kept is told all the same.
func TestReportIsTold(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	result := &restoreResult{Commit: "0123456789", Totals: map[string]int{"created": 1}}
	err = result.write(&out, &restoreRequest{report: file, format: outputJSON})
	if err == nil || !strings.Contains(err.Error(), "report.json") {
		t.Errorf("got %v, want the file that cannot be written", err)
	}
	if !strings.Contains(out.String(), `"created": 1`) {
		t.Errorf("got %q, want the report", out.String())
	}
}

// What could not be read back is neither complete nor told as if nothing had been written.
func TestUnverified(t *testing.T) {
	result := (&restoreResult{Complete: true, Totals: map[string]int{"created": 1}}).unverified()
	text := result.text(&restoreRequest{})
	if result.Complete || !strings.Contains(text, "Written, not verified") || strings.Contains(text, "Nothing was") {
		t.Errorf("complete %v: %s", result.Complete, text)
	}
}
