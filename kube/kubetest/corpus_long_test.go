//go:build long

package kubetest

import "testing"

// The corpus of real projects, where it is there, gets in as a whole.
func TestLoadSharedCorpus(t *testing.T) {
	dir, err := CorpusDir()
	if err != nil {
		t.Fatal(err)
	}
	loadCorpus(t, dir)
}
