//go:build long

package canon

import (
	"math/rand/v2"
	"testing"
)

// TestManyTokens is TestTokens with another seed each time.
func TestManyTokens(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 50_000 {
		checkReaders(t, places(tokenRow(r)))
	}
}
