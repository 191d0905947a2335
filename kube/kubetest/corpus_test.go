package kubetest

import (
	"path/filepath"
	"testing"
)

// Every object of our own corpus gets in, and the corpus is what the lab and the
// demo promise: at least 200 objects of at least five projects.
func TestLoadOwnCorpus(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	report := loadCorpus(t, filepath.Join(root, "testdata", "corpus"))
	if len(report.Objects) < 210 {
		t.Errorf("objects: got %d, want at least 210", len(report.Objects))
	}
	projects := make(map[string]bool)
	for _, loaded := range report.Objects {
		projects[loaded.Key.Group] = true
	}
	if len(projects) < 5 {
		t.Errorf("API groups: got %d, want at least 5", len(projects))
	}
	for _, refusal := range report.StatusRefused {
		t.Errorf("status refused: %v", refusal)
	}
}

// loadCorpus loads a corpus into the shared control plane; only what lies in a
// folder called "refused" may be refused.
func loadCorpus(t *testing.T, dir string) *Report {
	t.Helper()
	report, err := Load(t.Context(), Shared(t).Config, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d CRDs, %d objects, %d refused, %d without their status",
		dir, report.CRDs, len(report.Objects), len(report.Refused), len(report.StatusRefused))
	for _, refusal := range report.Refused {
		if filepath.Base(filepath.Dir(refusal.File)) != "refused" {
			t.Errorf("refused: %v", refusal)
		}
	}
	return report
}
