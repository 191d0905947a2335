package kube

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
