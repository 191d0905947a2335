//go:build long

package threeway

import "testing"

// TestPropertiesLong is TestProperties with many more rounds.
func TestPropertiesLong(t *testing.T) { checkProperties(t, 5000) }
