package sync

import (
	"context"
	"encoding/json"
	"fmt"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/threeway"
)

// unknownFile lists, in base's tree, the fields for which base has no value: a
// write was under way when an agent died, or both sides had them, different, when
// they were first seen. Until both sides are equal there they are conflicts. It also
// lists the fields that an owner took back after us: they are conflicts as long as git
// has what base has, and thus over when git changes them, or when a person settles them.
const unknownFile = ".crmirror-unknown.json"

// agreement is what git and the cluster last agreed on about one object.
type agreement struct {
	content map[string]any // nil: no object
	gaps
}

// gaps is what base says of an object besides its content.
type gaps struct {
	unknown threeway.Unknown
	taken   *fieldpath.Set // taken back by their owners, while git has what base has; nil is none
}

func (g gaps) empty() bool {
	return !g.unknown.Object && isEmptySet(g.unknown.Fields) && isEmptySet(g.taken)
}

// without leaves out what is said of fields, and of what is below them.
func (g gaps) without(fields *fieldpath.Set) gaps {
	if g.unknown.Fields != nil {
		g.unknown.Fields = g.unknown.Fields.RecursiveDifference(fields)
	}
	if g.taken != nil {
		g.taken = g.taken.RecursiveDifference(fields)
	}
	return g
}

func isEmptySet(s *fieldpath.Set) bool { return s == nil || s.Empty() }

// unknownEntry is one object's part in unknownFile.
type unknownEntry struct {
	Name   string    `json:"object"`
	Object bool      `json:"wholeObject,omitempty"`
	Fields fieldSet  `json:"fields"`
	Taken  *fieldSet `json:"takenBack,omitempty"`
}

// marshalUnknown writes unknownFile, sorted by object; nil when nothing is unknown.
func marshalUnknown(unknown map[kube.Key]gaps) ([]byte, error) {
	if len(unknown) == 0 {
		return nil, nil
	}
	entries := make([]unknownEntry, 0, len(unknown))
	for _, key := range sortedKeys(unknown) {
		g := unknown[key]
		e := unknownEntry{Name: heldName(key), Object: g.unknown.Object, Fields: fieldSet{g.unknown.Fields}}
		if !isEmptySet(g.taken) {
			e.Taken = &fieldSet{g.taken}
		}
		entries = append(entries, e)
	}
	content, err := indentedJSON(entries)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", unknownFile, err)
	}
	return content, nil
}

// parseUnknown reads what marshalUnknown wrote.
func parseUnknown(content []byte) (map[kube.Key]gaps, error) {
	var entries []unknownEntry
	if err := json.Unmarshal(content, &entries); err != nil {
		return nil, fmt.Errorf("read %s: %w", unknownFile, err)
	}
	unknown := make(map[kube.Key]gaps, len(entries))
	for _, e := range entries {
		key, err := parseHeldName(e.Name)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", unknownFile, err)
		}
		g := gaps{unknown: threeway.Unknown{Object: e.Object, Fields: e.Fields.Set}}
		if e.Taken != nil {
			g.taken = e.Taken.Set
		}
		unknown[key] = g
	}
	return unknown, nil
}

// readUnknown learns from base what it has no values for. It is read anew for each
// derivation: one that came to nothing may have changed what is in memory.
func (m *Mirror) readUnknown(ctx context.Context) error {
	t, base := m.two, m.repo.Ref(m.refs.Base)
	t.unknown = map[kube.Key]gaps{}
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

func (t *twoWay) setUnknown(key kube.Key, g gaps) {
	if g.empty() {
		delete(t.unknown, key)
		return
	}
	t.unknown[key] = g
}

// agreementOn returns what is agreed about an object whose file in base is blob. What
// landed in the cluster since, and was not pushed yet, counts.
func (m *Mirror) agreementOn(ctx context.Context, key kube.Key, blob gitstore.Hash) (agreement, error) {
	t := m.two
	if l, ok := t.landed[key]; ok && l.from == blob {
		return l.agreement, nil
	}
	a := agreement{gaps: t.unknown[key]}
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
