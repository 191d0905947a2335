package kube

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/crmirror/crmirror/kube/canon"
)

// marker begins every redacted value, of any version.
const marker = "crmirror-redacted:"

// redactedV1 begins a value that this version redacts; 64 hexadecimal digits follow.
const redactedV1 = marker + "v1:"

// ContainsRedaction tells whether a redacted value stands anywhere in an object,
// as a value, as part of one, or in a key. Such an object must not be written to a cluster.
func ContainsRedaction(v any) bool {
	switch t := v.(type) {
	case string:
		return strings.Contains(t, marker)
	case []any:
		for _, item := range t {
			if ContainsRedaction(item) {
				return true
			}
		}
	case map[string]any:
		for k, item := range t {
			if strings.Contains(k, marker) || ContainsRedaction(item) {
				return true
			}
		}
	}
	return false
}

// redact replaces the values that the shape's redact paths name, whatever their type.
// A value that is redacted already stays, so that a stored object can be encoded again.
//
// The digest is an HMAC over the object's group, kind, namespace and name, the
// place of the value, and the value: that a value changed shows, that two places hold
// the same one does not. A list item's place is its number.
func (s *Shape) redact(obj map[string]any, id Identity) (map[string]any, error) {
	if len(s.Redact) == 0 {
		return obj, nil
	}
	if len(s.RedactKey) == 0 {
		return nil, errors.New("encode: redact fields: no key")
	}
	var failed error
	for _, path := range s.Redact {
		obj = path.edit(obj, func(place []string, value any) (any, bool) {
			if isRedacted(value) {
				return value, true
			}
			digest, err := s.digest(id, place, value)
			if err != nil && failed == nil {
				failed = fmt.Errorf("encode: redact %s: %w", path, err)
			}
			return redactedV1 + digest, true
		})
	}
	return obj, failed
}

func (s *Shape) digest(id Identity, place []string, value any) (string, error) {
	canonical, err := canon.Append(nil, value)
	if err != nil {
		return "", err
	}
	mac := hmac.New(sha256.New, s.RedactKey)
	write := func(part string) {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		mac.Write(size[:])
		mac.Write([]byte(part))
	}
	for _, part := range []string{redactedV1, id.Group(), id.Kind, id.Namespace, id.Name, strconv.Itoa(len(place))} {
		write(part)
	}
	for _, part := range place {
		write(part)
	}
	write(string(canonical))
	return hex.EncodeToString(mac.Sum(nil)), nil
}

func isRedacted(v any) bool {
	s, ok := v.(string)
	digest, found := strings.CutPrefix(s, redactedV1)
	if !ok || !found || len(digest) != hex.EncodedLen(sha256.Size) {
		return false
	}
	_, err := hex.DecodeString(digest)
	return err == nil
}

// allRedacted tells whether nothing but redacted values is left of a value.
func allRedacted(v any) bool {
	switch t := v.(type) {
	case nil:
		return true
	case []any:
		return !slices.ContainsFunc(t, func(item any) bool { return !allRedacted(item) })
	case map[string]any:
		for _, item := range t {
			if !allRedacted(item) {
				return false
			}
		}
		return true
	}
	return isRedacted(v)
}
