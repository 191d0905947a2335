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
