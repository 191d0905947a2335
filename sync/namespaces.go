package sync

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/informer"
)

// follows tells whether key is a Namespace that is mirrored only because of the
// objects in it.
func (m *Mirror) follows(key kube.Key) bool {
	return m.opts.Namespaces && key.GroupResource() == namespaceResource && !m.named(namespaceResource)
}

// namespaces plans the files of the Namespaces that are mirrored for what they
// hold: one is there as long as a mirrored object is in it.
func (m *Mirror) namespaces(ctx context.Context, p *plan, entries []Entry) error {
	if !m.opts.Namespaces || m.named(namespaceResource) {
		return nil
	}
	told := map[string]Entry{}
	for _, e := range entries {
		told[e.Key.Name] = e
		if p.index.namespaces[e.Key.Name] == 0 {
			delete(m.pending, e.Key)
		}
	}
	names := map[string]bool{}
	for name := range told {
		names[name] = true
	}
	for name, n := range p.index.namespaces {
		if (n > 0) != (m.index.namespaces[name] > 0) || (n > 0 && !m.isSettled(kube.Key{Resource: namespaceResource.Resource, Name: name})) {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if err := m.namespace(ctx, p, name, told[name], p.index.namespaces[name] > 0); err != nil {
			return err
		}
	}
	return nil
}

func (m *Mirror) namespace(ctx context.Context, p *plan, name string, told Entry, needed bool) error {
	key := kube.Key{Resource: namespaceResource.Resource, Name: name}
	path := PathOf(key)
	blob, exists := m.repo.Lookup(path)
	switch {
	case !needed && exists:
		content, err := m.repo.Read(ctx, blob)
		if err != nil {
			return err
		}
		if m.ours(key, content) == nil {
			p.edits = append(p.edits, gitstore.Edit{Path: path, Delete: true})
			p.changes = append(p.changes, Change{Key: key, Op: Unselected, path: path, before: blob})
			p.index.remove(path)
		}
		return nil
	case needed && told.Op == Present:
		return m.present(ctx, p, told)
	case needed && !exists:
		state, err := m.cluster.Get(ctx, key)
		if errors.Is(err, informer.ErrNotFound) {
			return nil // its objects are on their way out too
		}
		if err != nil {
			p.postponed[key] = err
			return nil
		}
		m.pending[key] = presentEntry(state)
		return m.present(ctx, p, m.pending[key])
	}
	delete(m.pending, key)
	return nil
}
