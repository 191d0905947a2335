package sync

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/kube"
)

// announcementFile is the one file in the tree of the applying ref's commits.
const announcementFile = "applying.json"

// writeAction is what an announced write does to its object.
type writeAction string

const (
	writeFields writeAction = "apply"
	writeCreate writeAction = "create"
	writeDelete writeAction = "delete"
)

// announced is one write to the cluster, told in git before it is done: exactly
// the fields, with the object's state that they were judged for. After a crash
// it tells what may have landed (DESIGN 5, step 5).
//
// Invariant: it names only what is written, never the whole object, and it holds
// only while the base that it was judged against is base. Test: TestAnnouncedFieldsOnly.
type announced struct {
	Key             kube.Key    `json:"-"`
	Name            string      `json:"object"` // Key, as the held file writes it
	APIVersion      string      `json:"apiVersion"`
	Action          writeAction `json:"action"`
	UID             types.UID   `json:"uid,omitempty"`
	ResourceVersion string      `json:"resourceVersion,omitempty"`
	Base            string      `json:"base,omitempty"` // blob of the object's file in base; "" when it has none
	// Set and Remove are told apart, since owning a field says of the one that it
	// holds what we wrote, of the other that it was not removed (outcomeOfFields).
	Set    fieldSet `json:"set"`
	Remove fieldSet `json:"remove"`
	// Values are the fields that are set; of a creation, the whole content. They
	// are for people to read.
	Values map[string]any `json:"values,omitempty"`
	// Content is the blob that a created object's content would be.
	Content string `json:"content,omitempty"`
}

// fieldSet is a set of fields that JSON can carry, in the form of managedFields.
type fieldSet struct{ *fieldpath.Set }

// MarshalJSON writes the set as managedFields have it.
func (s fieldSet) MarshalJSON() ([]byte, error) {
	if s.Set == nil {
		return []byte("{}"), nil
	}
	return s.ToJSON()
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *fieldSet) UnmarshalJSON(b []byte) error {
	s.Set = fieldpath.NewSet()
	return s.FromJSON(bytes.NewReader(b))
}

// all is the set, an empty one where there is none.
func (s fieldSet) all() *fieldpath.Set {
	if s.Set == nil {
		return fieldpath.NewSet()
	}
	return s.Set
}

// leaves are the fields of the set that have none below them.
func (s fieldSet) leaves() *fieldpath.Set { return s.all().Leaves() }

// fields are all fields that the write touches.
func (a *announced) fields() *fieldpath.Set { return a.Set.all().Union(a.Remove.all()) }

// unmade says that the write is open, and what ends that.
//
// But for a creation, it does not end by itself: a paused agent may send a request at any time, and
// what keeps a late one from doing harm is only that the announcement stands.
func (a *announced) unmade() string {
	const may = " was announced and not made; an agent that was interrupted may make it yet. It stays open until the object "
	switch a.Action {
	case writeCreate:
		return "its creation" + may + fmt.Sprintf("exists, its file is back, or %.0f minutes have passed", lateAfter.Minutes())
	case writeDelete:
		return "its deletion" + may + "changes or goes"
	}
	return "a change of it" + may + "changes"
}

// filledSince are the fields that the write only had to let be there, as empty maps or
// lists, and that have content in the cluster now: whose that is, owning the field does
// not tell. What the announcement does not show the value of counts as empty.
func (a *announced) filledSince(cluster map[string]any) *fieldpath.Set {
	out := fieldpath.NewSet()
	a.Set.leaves().Iterate(func(path fieldpath.Path) {
		was, _ := ValueAt(a.Values, path)
		now, _ := ValueAt(cluster, path)
		if hasContent(now) && !hasContent(was) {
			out.Insert(path.Copy())
		}
	})
	return out
}

// hasContent tells whether a value is a map or list that is not empty.
func hasContent(v any) bool {
	switch t := v.(type) {
	case map[string]any:
		return len(t) > 0
	case []any:
		return len(t) > 0
	}
	return false
}

var errNoState = errors.New("it does not say which state of the object was judged")

// mergeWrites lets every object have one entry. What a second write to the same state of
// an object sets and removes adds to what the first does.
func mergeWrites(list []announced) []announced {
	var out []announced
	at := map[kube.Key]int{}
	for _, e := range list {
		i, again := at[e.Key]
		if !again {
			at[e.Key] = len(out)
			out = append(out, e)
			continue
		}
		was := out[i]
		e.Set.Set, e.Remove.Set = unionOf(was.Set.Set, e.Set.Set), unionOf(was.Remove.Set, e.Remove.Set)
		if was.Action == writeFields {
			e.Action = writeFields // of a deletion it is known by itself whether it landed
		}
		out[i] = e
	}
	return out
}

// hasWrite tells whether one of the writes is an object's.
func hasWrite(list []announced, key kube.Key) bool {
	return slices.ContainsFunc(list, func(e announced) bool { return e.Key == key })
}

func unionOf(a, b *fieldpath.Set) *fieldpath.Set {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return a.Union(b)
}

type announcement struct {
	Writes []announced `json:"writes"`
}

// marshal writes the announcement as its file holds it, sorted by object.
func (a announcement) marshal() ([]byte, error) {
	a.Writes = slices.Clone(a.Writes)
	slices.SortFunc(a.Writes, func(x, y announced) int { return CompareKeys(x.Key, y.Key) })
	for i := range a.Writes {
		a.Writes[i].Name = heldName(a.Writes[i].Key)
	}
	content, err := indentedJSON(a)
	if err != nil {
		return nil, fmt.Errorf("announce %d writes: %w", len(a.Writes), err)
	}
	return content, nil
}

// indentedJSON writes a value as our files in refs hold it: for people to read, one line a change.
func indentedJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return b.Bytes(), err
}

// parseAnnouncement reads what marshal wrote.
func parseAnnouncement(content []byte) (announcement, error) {
	var a announcement
	dec := json.NewDecoder(bytes.NewReader(content))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&a); err != nil {
		return announcement{}, fmt.Errorf("read announcement: %w", err)
	}
	for i := range a.Writes {
		w := &a.Writes[i]
		key, err := parseHeldName(w.Name)
		if err != nil {
			return announcement{}, fmt.Errorf("read announcement: %w", err)
		}
		w.Key = key
		switch w.Action {
		case writeFields, writeCreate, writeDelete:
		default:
			return announcement{}, fmt.Errorf("read announcement: %s: unknown action %q", w.Name, w.Action)
		}
		if w.Action != writeCreate && (w.UID == "" || w.ResourceVersion == "") {
			return announcement{}, fmt.Errorf("read announcement: %s: %w", w.Name, errNoState)
		}
	}
	return a, nil
}
