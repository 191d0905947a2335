package kube

import (
	"strconv"
	"strings"
)

// Shape says what a rule drops, redacts or keeps of an object beyond what Encode
// always does. The zero Shape is the default: nothing dropped, nothing redacted,
// no status.
type Shape struct {
	Status    bool        // keep .status
	Drop      []FieldPath // fields left out
	Redact    []FieldPath // fields whose value is replaced by a keyed digest
	RedactKey []byte      // HMAC key; required when Redact is not empty
}

// covers tells whether the whole of a top-level field is dropped or redacted.
func (s *Shape) covers(field string) bool {
	for _, paths := range [][]FieldPath{s.Drop, s.Redact} {
		for _, p := range paths {
			if len(p.steps) > 0 && p.steps[0].key == field &&
				(len(p.steps) == 1 || len(p.steps) == 2 && p.steps[1].anyKey) {
				return true
			}
		}
	}
	return false
}

// Places returns where the shape drops or redacts something in an object, as it is
// live or in a file. Steps are map keys (string) and list indices (int).
func (s *Shape) Places(obj map[string]any) [][]any {
	var places [][]any
	for _, paths := range [][]FieldPath{s.Drop, s.Redact} {
		for _, p := range paths {
			p.edit(obj, func(place []string, value any) (any, bool) {
				steps := make([]any, len(place))
				for i, step := range place {
					if key, isKey := strings.CutPrefix(step, "."); isKey {
						steps[i] = key
						continue
					}
					n, err := strconv.Atoi(strings.Trim(step, "[]"))
					if err != nil {
						panic("kube: place of a field: " + step) // edit writes keys and indices only
					}
					steps[i] = n
				}
				places = append(places, steps)
				return value, true
			})
		}
	}
	return places
}
