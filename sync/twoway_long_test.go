//go:build long

package sync

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/crmirror/crmirror/kube/kubetest"
)

// TestTwoWritersLong is TestTwoWriters with more edits, over more objects, of kinds of real
// projects too where their corpus is at hand. The seeds are of runs that were seen to pass: what happens between the
// agent's steps hangs on them alone, but for the order of events from the server. CRMIRROR_SEED takes their place.
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
	for _, seed := range longSeeds(t, 102, 104) {
		t.Run(fmt.Sprint("own kinds, seed ", seed), func(t *testing.T) {
			w := newWriters(t, seed)
			w.install(own, ownKinds(), 4)
			w.run(4, 80, 10)
		})
	}
	if corpus == own {
		return
	}
	for _, seed := range longSeeds(t, 201, 202, 203) {
		t.Run(fmt.Sprint("kinds of projects, seed ", seed), func(t *testing.T) {
			w := newWriters(t, seed)
			w.install(own, ownKinds(), 2)
			w.install(corpus, projectKinds(), 1)
			w.run(3, 80, 10)
		})
	}
}

// longSeeds are the seeds, or the one that the environment names instead.
func longSeeds(t *testing.T, seeds ...uint64) []uint64 {
	t.Helper()
	text := os.Getenv("CRMIRROR_SEED")
	if text == "" {
		return seeds
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("CRMIRROR_SEED: %v", err)
	}
	return []uint64{seed}
}
