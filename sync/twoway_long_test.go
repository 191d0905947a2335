//go:build long

package sync

import (
	"testing"
	"time"
)

// TestTwoWritersLong is TestTwoWriters over two dozen objects, for hundreds of edits.
func TestTwoWritersLong(t *testing.T) { twoWriters(t, uint64(time.Now().UnixNano()), 20, 24) }
