//go:build long

package sync

import (
	"path/filepath"
	"testing"

	"github.com/crmirror/crmirror/kube/kubetest"
)

// The seeds are of runs that were seen to pass, with the corpus of real projects and without. What happens
// between the agent's steps hangs on them alone, but for the order of events from the server.
const (
	longSeed  = 1796078229489581761
	shortSeed = 5
)

// TestTwoWritersLong is TestTwoWriters with more edits, over dozens of objects, of
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
	own := filepath.Join(root, "testdata", "corpus")
	if corpus == own {
		w := newWriters(t, shortSeed)
		w.install(own, ownKinds(), 2)
		w.run(4, 30, 4)
		return
	}
	w := newWriters(t, longSeed)
	w.install(own, ownKinds(), 5)
	w.install(corpus, projectKinds(), 4)
	w.run(6, 250, 25)
}
