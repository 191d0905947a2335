package sync

import (
	"context"
	"maps"
	"slices"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
)

// follows tells whether key is a Namespace that is mirrored only because of the
// objects in it.
func (m *Mirror) follows(key kube.Key) bool {
	return m.opts.Namespaces && key.GroupResource() == namespaceResource && !m.named(namespaceResource)
}

// namespaces plans the files of the Namespaces that are mirrored for what they
// hold: one is there as long as a mirrored object is in it.
func (m *Mirror) namespaces(ctx context.Context, p *plan, entries []Entry) error {
	if !m.follows(namespaceKey("")) {
		return nil // none, or each for its own sake
	}
	told := map[string]Entry{}
	for _, e := range entries {
		told[e.Key.Name] = e
	}
	names := map[string]bool{}
	for name := range told {
		names[name] = true
	}
	for name, n := range p.index.namespaces {
		if (n > 0) != (m.index.namespaces[name] > 0) || (n > 0 && !m.isSettled(namespaceKey(name))) {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if err := m.namespace(ctx, p, name, told[name]); err != nil {
			return err
		}
	}
	return nil
}

func namespaceKey(name string) kube.Key {
	return kube.Key{Resource: namespaceResource.Resource, Name: name}
}

func (m *Mirror) namespace(ctx context.Context, p *plan, name string, told Entry) error {
	key := namespaceKey(name)
	path := PathOf(key)
	blob, exists := m.repo.Lookup(path)
	needed, was := p.index.namespaces[name] > 0, m.index.namespaces[name] > 0
	switch {
	case !needed && exists && was:
		content, err := m.repo.Read(ctx, blob)
		if err != nil {
			return err
		}
		if m.ours(key, content) == nil {
			p.edits = append(p.edits, gitstore.Edit{Path: path, Delete: true})
			p.changes = append(p.changes, Change{Key: key, Op: Unselected, path: path, before: blob})
			p.index.remove(path)
		}
	case !needed && exists:
		m.orphans[key] = struct{}{} // it was mirrored for its own sake, under other rules
	case needed && told.Op == Present:
		return m.present(ctx, p, told)
	case needed && !exists:
		m.unread[key] = nil
		states, errs := m.readLive(ctx, []kube.Key{key})
		m.readOne(key, states[0], errs[0])
		if err := m.unread[key]; err != nil {
			p.postponed[key] = err
			return ctx.Err()
		}
		if e := m.pending[key]; e.Op == Present {
			return m.present(ctx, p, e)
		}
	}
	return nil
}
