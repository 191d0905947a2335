package sync

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/kube"
)

// Held is a deletion that waits for a person's approval.
type Held struct {
	Key    kube.Key
	Reason Reason
	Text   string    // why it waits, for people
	Since  time.Time // when it was first held; to the second where it is stored
}

// HeldSet is what waits, sorted by key.
type HeldSet []Held

// Has tells whether a deletion waits for that reason.
func (s HeldSet) Has(r Reason) bool {
	return slices.ContainsFunc(s, func(h Held) bool { return h.Reason == r })
}

// Keys returns the set's keys, as GuardInput.Approved wants them.
func (s HeldSet) Keys() map[kube.Key]bool {
	keys := make(map[kube.Key]bool, len(s))
	for _, h := range s {
		keys[h.Key] = true
	}
	return keys
}

// Digest names exactly this set of objects in 12 hex digits; "" for the empty
// set. Reasons and times do not count: a person approves deletions, not texts.
func (s HeldSet) Digest() string {
	if len(s) == 0 {
		return ""
	}
	sum := sha256.New()
	for _, h := range s.sorted() {
		sum.Write([]byte(heldName(h.Key) + "\n"))
	}
	return hex.EncodeToString(sum.Sum(nil))[:12]
}

func (s HeldSet) sorted() HeldSet {
	sorted := slices.Clone(s)
	slices.SortFunc(sorted, func(a, b Held) int { return CompareKeys(a.Key, b.Key) })
	return slices.CompactFunc(sorted, func(a, b Held) bool { return a.Key == b.Key })
}

// String returns the word that the held file stores; parseReason reads it.
func (r Reason) String() string {
	switch r {
	case ReasonDeleted:
		return "deleted"
	case ReasonUnselected:
		return "unselected"
	case ReasonKindGone:
		return "kind-gone"
	case ReasonAdopted:
		return "adopted"
	case ReasonPruned:
		return "pruned"
	}
	return fmt.Sprintf("reason-%d", int(r))
}

func parseReason(s string) (Reason, error) {
	for _, r := range []Reason{ReasonDeleted, ReasonUnselected, ReasonKindGone, ReasonAdopted, ReasonPruned} {
		if r.String() == s {
			return r, nil
		}
	}
	return 0, fmt.Errorf("unknown reason %q", s)
}

// Text writes the set as the file of its ref holds it, one deletion a line:
// object, reason, since when, why. ParseHeldSet reads it back.
func (s HeldSet) Text() string {
	var b strings.Builder
	for _, h := range s.sorted() {
		fmt.Fprintf(&b, "%s\t%s\t%s\t%s\n", heldName(h.Key), h.Reason, h.Since.UTC().Format(time.RFC3339), printable(h.Text))
	}
	return b.String()
}

// ParseHeldSet reads a file that Text wrote.
func ParseHeldSet(text string) (HeldSet, error) {
	var set HeldSet
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			continue
		}
		h, err := parseHeld(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		set = append(set, h)
	}
	return set.sorted(), nil
}

func parseHeld(line string) (Held, error) {
	fields := strings.SplitN(line, "\t", 4)
	if len(fields) != 4 {
		return Held{}, errors.New("want object, reason, time and text, separated by tabs")
	}
	key, keyErr := parseHeldName(fields[0])
	reason, reasonErr := parseReason(fields[1])
	since, timeErr := time.Parse(time.RFC3339, fields[2])
	return Held{Key: key, Reason: reason, Since: since, Text: fields[3]}, cmp.Or(keyErr, reasonErr, timeErr)
}

// heldName writes a key as people read it, escaped as in paths but never cut.
func heldName(k kube.Key) string {
	name := escape(k.Name)
	if k.Namespace != "" {
		name = escape(k.Namespace) + "/" + name
	}
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}.String() + " " + name
}

func parseHeldName(s string) (kube.Key, error) {
	bad := fmt.Errorf("%q names no object", s)
	resource, name, _ := strings.Cut(s, " ")
	gr := schema.ParseGroupResource(resource)
	k := kube.Key{Group: gr.Group, Resource: gr.Resource}
	var ok bool
	if namespace, rest, namespaced := strings.Cut(name, "/"); namespaced {
		name = rest
		if k.Namespace, ok = unescape(namespace); !ok || namespace == "" {
			return kube.Key{}, bad
		}
	}
	k.Name, ok = unescape(name)
	if !ok || k.Name == "" || heldName(k) != s {
		return kube.Key{}, bad
	}
	return k, nil
}
