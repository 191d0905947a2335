package sync

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/threeway"
)

// unknownFile lists, in base's tree, the fields for which base has no value: a
// write was under way when an agent died, or both sides had them, different, when
// they were first seen. Until both sides are equal there they are conflicts.
const unknownFile = ".crmirror-unknown.json"

// agreement is what git and the cluster last agreed on about one object.
type agreement struct {
	content map[string]any // nil: no object
	unknown threeway.Unknown
}

// unknownEntry is one object's part in unknownFile.
type unknownEntry struct {
	Name   string   `json:"object"`
	Object bool     `json:"wholeObject,omitempty"`
	Fields fieldSet `json:"fields"`
}

// marshalUnknown writes unknownFile, sorted by object; nil when nothing is unknown.
func marshalUnknown(unknown map[kube.Key]threeway.Unknown) ([]byte, error) {
	if len(unknown) == 0 {
		return nil, nil
	}
	entries := make([]unknownEntry, 0, len(unknown))
	for _, key := range sortedKeys(unknown) {
		u := unknown[key]
		entries = append(entries, unknownEntry{Name: heldName(key), Object: u.Object, Fields: fieldSet{u.Fields}})
	}
	content, err := indentedJSON(entries)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", unknownFile, err)
	}
	return content, nil
}

// parseUnknown reads what marshalUnknown wrote.
func parseUnknown(content []byte) (map[kube.Key]threeway.Unknown, error) {
	var entries []unknownEntry
	if err := json.Unmarshal(content, &entries); err != nil {
		return nil, fmt.Errorf("read %s: %w", unknownFile, err)
	}
	unknown := make(map[kube.Key]threeway.Unknown, len(entries))
	for _, e := range entries {
		key, err := parseHeldName(e.Name)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", unknownFile, err)
		}
		unknown[key] = threeway.Unknown{Object: e.Object, Fields: e.Fields.Set}
	}
	return unknown, nil
}

func isKnown(u threeway.Unknown) bool {
	return !u.Object && (u.Fields == nil || u.Fields.Empty())
}

// readUnknown learns from base what it has no values for. It is read anew for each
// derivation: one that came to nothing may have changed what is in memory.
func (m *Mirror) readUnknown(ctx context.Context) error {
	t, base := m.two, m.repo.Ref(m.refs.Base)
	t.unknown = map[kube.Key]threeway.Unknown{}
	t.fresh = base.IsZero() && m.index.known() > 0
	blob, ok, err := m.repo.LookupIn(m.refs.Base, unknownFile)
	if err != nil || !ok {
		return err
	}
	content, err := m.repo.Read(ctx, blob)
	if err == nil {
		t.unknown, err = parseUnknown(content)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", m.refs.Base, err)
	}
	return nil
}

func (t *twoWay) setUnknown(key kube.Key, u threeway.Unknown) {
	if isKnown(u) {
		delete(t.unknown, key)
		return
	}
	t.unknown[key] = u
}

// agreementOn returns what is agreed about an object whose file in base is blob. What
// landed in the cluster since, and was not pushed yet, counts.
func (m *Mirror) agreementOn(ctx context.Context, key kube.Key, blob gitstore.Hash) (agreement, error) {
	t := m.two
	if l, ok := t.landed[key]; ok && l.from == blob {
		return l.agreement, nil
	}
	a := agreement{unknown: t.unknown[key]}
	if t.fresh {
		a.unknown = threeway.Unknown{Object: true}
	}
	if blob.IsZero() {
		return a, nil
	}
	content, err := m.repo.Read(ctx, blob)
	if err != nil {
		return a, err
	}
	obj, err := kube.Decode(content)
	if err != nil { // a mirror's base is what the branch had, broken files included
		a.unknown = threeway.Unknown{Object: true}
		return a, nil
	}
	a.content = obj.Object
	return a, nil
}
