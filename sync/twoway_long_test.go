//go:build long

package sync

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/crmirror/crmirror/kube/kubetest"
)

// TestTwoWritersLong is TestTwoWriters with two thousand edits, over dozens of objects, of
// kinds of real projects too where their corpus is at hand.
func TestTwoWritersLong(t *testing.T) {
	root, err := kubetest.Root()
	if err != nil {
		t.Fatal(err)
	}
	corpus, err := kubetest.CorpusDir()
	if err != nil {
		t.Fatal(err)
	}
	w := newWriters(t, uint64(time.Now().UnixNano()))
	own := filepath.Join(root, "testdata", "corpus")
	w.install(own, ownKinds(), 5)
	if corpus != own {
		w.install(corpus, projectKinds(), 4)
	}
	w.run(8, 250, 25)
}
