package sync

import (
	"context"
	"fmt"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/informer"
)

func presentEntry(s informer.State) Entry {
	return Entry{
		Key: s.Key, Op: Present, Content: s.Content,
		UID: s.UID, ResourceVersion: s.ResourceVersion, Manager: s.Manager,
	}
}

// Spill keeps the contents of entries in the object store, so that memory holds
// only their digests, and remembers them until a push is acknowledged. Entries
// that git already has are dropped. It is called when a batch holds as many
// bytes as it may, long before it is committed.
func (m *Mirror) Spill(entries []Entry) error {
	m.remember(entries)
	m.spilled += len(entries)
	return m.spill()
}

// remember adds entries to pending; they are newer than what is there.
func (m *Mirror) remember(entries []Entry) {
	// Before the head is known, and while local commits wait to be pushed,
	// nothing is said to be in git.
	known := m.loaded && !m.stale && !m.repo.Unpushed()
	for _, e := range entries {
		if was, waits := m.pending[e.Key]; waits {
			e = e.after(was)
		}
		if e.Op == Present {
			e.Digest = digestOf(e)
			delete(m.waiting, e.Key)
			if known && m.inGit(e) {
				delete(m.pending, e.Key)
				if m.two != nil {
					delete(m.two.left, e.Key) // a conflict may have ended by it
				}
				continue
			}
		}
		m.pending[e.Key] = e
	}
}

// inGit tells whether the head already holds the entry's bytes.
func (m *Mirror) inGit(e Entry) bool {
	path := PathOf(e.Key)
	h, exists := m.repo.Lookup(path)
	if !exists || h != digestOf(e) {
		return false
	}
	delete(m.foreign, path)
	return true
}

// digestOf returns the hash that a present object's file has.
func digestOf(e Entry) gitstore.Hash {
	if e.Content == nil || !e.Digest.IsZero() {
		return e.Digest
	}
	return gitstore.BlobHash(e.Content)
}

// spill writes the contents of all pending entries to the object store.
func (m *Mirror) spill() error {
	var keys []kube.Key
	var contents [][]byte
	for key, e := range m.pending {
		if e.Op == Present && e.Content != nil {
			keys = append(keys, key)
			contents = append(contents, e.Content)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	hashes, err := m.repo.PutBlobs(contents)
	if err != nil {
		return fmt.Errorf("keep %d waiting objects: %w", len(keys), err)
	}
	for i, key := range keys {
		e := m.pending[key]
		e.Content, e.Digest = nil, hashes[i]
		m.pending[key] = e
	}
	return nil
}

// content returns the bytes of a present entry, from memory or the object store.
func (m *Mirror) content(ctx context.Context, e Entry) ([]byte, error) {
	if e.Content != nil {
		return e.Content, nil
	}
	return m.repo.Read(ctx, e.Digest)
}
