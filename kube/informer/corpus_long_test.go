//go:build long

package informer_test

import (
	"testing"

	"github.com/crmirror/crmirror/kube/kubetest"
)

// TestSharedCorpus proves what checkCorpus says for the corpus of real projects,
// where it is there.
func TestSharedCorpus(t *testing.T) {
	dir, err := kubetest.CorpusDir()
	if err != nil {
		t.Fatal(err)
	}
	checkCorpus(t, dir, nil)
}
