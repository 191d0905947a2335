//go:build long

package sync

import (
	"path/filepath"
	"testing"

	"github.com/crmirror/crmirror/kube/kubetest"
)

// longSeed is of a run that was seen to pass. What happens between the agent's steps hangs on it alone,
// but for the order of events from the server.
const longSeed = 1796078229489581761

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
	w := newWriters(t, longSeed)
	own := filepath.Join(root, "testdata", "corpus")
	w.install(own, ownKinds(), 5)
	if corpus != own {
		w.install(corpus, projectKinds(), 4)
	}
	w.run(6, 250, 25)
}
