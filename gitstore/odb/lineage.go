package odb

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/pack"
)

// Live says what a database has to keep.
type Live struct {
	// Commits, each after its parents, with their trees and files.
	Commits []object.Hash
	// Objects are kept besides, without what they lead to.
	Objects []object.Hash
}

// Repack merges all packs into one that leans on nothing outside it, and leaves
// out what is not live. It is for a folder of our own only.
//
// Invariant: what is left out can be reached from nothing that is live, and what
// is kept never leans on it. Test: TestRepackDropsDead.
func (db *DB) Repack(ctx context.Context, live Live) error {
	if !db.ownAll {
		return fmt.Errorf("repack %s: it is not ours alone", db.dirs[0])
	}
	group, err := db.group(true)
	if err != nil || len(group) < 2 {
		return err
	}
	if err := db.merge(ctx, group, true, &live); err != nil {
		return fmt.Errorf("merge %d packs: %w", len(group), err)
	}
	return nil
}

// mark notes all that is live; it also finds the lineages.
func (m *merger) mark(live Live) error {
	m.prune = true
	for _, h := range slices.Concat(live.Commits, live.Objects) {
		if i := m.find(h); i >= 0 {
			m.items[i].live = true
		}
	}
	return m.trace(live.Commits)
}

// pair finds, in the commits that are merged, which object is the next version
// of which. That only makes the pack smaller, so what cannot be read is passed over.
func (m *merger) pair() error {
	parents := map[object.Hash][]object.Hash{}
	var tips []object.Hash
	for i := range m.items {
		if m.items[i].kind != object.Commit {
			continue
		}
		h := m.items[i].hash
		_, of, err := m.commit(h)
		if err != nil {
			return err
		}
		parents[h] = of
		tips = append(tips, h)
	}
	return m.trace(ParentsFirst(tips, parents))
}

func (m *merger) commit(h object.Hash) (root object.Hash, parents []object.Hash, err error) {
	t, content, err := m.read.get(m.db, h)
	if err != nil {
		return root, nil, err
	}
	if t != object.Commit {
		return root, nil, fmt.Errorf("read commit %s: it is a %s", h, t)
	}
	return object.DecodeCommit(content)
}

// trace follows each commit's tree from its parent's.
func (m *merger) trace(commits []object.Hash) error {
	roots := map[object.Hash]object.Hash{}
	for _, h := range commits {
		if err := m.ended(); err != nil {
			return err
		}
		root, parents, err := m.commit(h)
		if err != nil {
			return err
		}
		roots[h] = root
		var before object.Hash
		if len(parents) > 0 {
			var walked bool
			before, walked = roots[parents[0]]
			if !walked && !m.prune {
				if before, _, err = m.commit(parents[0]); err != nil && !missing(err) {
					return err
				}
			}
		}
		if err := m.follow(before, root, 0); err != nil {
			return err
		}
	}
	return nil
}

const (
	// quickTree is up to where a tree is read though its lineage is known.
	quickTree = 16 << 10
	// deepest bounds folders in folders.
	deepest = 1000
)

// follow notes that a tree took the place of another, and what of it is new. All
// that the other holds was followed before.
func (m *merger) follow(before, tree object.Hash, depth int) error {
	if before == tree || tree == object.EmptyTree {
		return nil
	}
	if depth > deepest {
		if m.prune {
			return fmt.Errorf("tree %s lies more than %d folders deep", tree, deepest)
		}
		return nil
	}
	i := m.find(tree)
	if i < 0 && !m.prune || i >= 0 && !m.succeed(i, before) {
		return nil
	}
	if !m.full && m.settled(i) {
		return nil
	}
	_, new, err := m.read.get(m.db, tree)
	if err != nil {
		return m.unread(err)
	}
	var old []byte
	if !before.IsZero() && before != object.EmptyTree {
		if _, old, err = m.read.get(m.db, before); err != nil {
			return m.unread(err)
		}
	}
	return m.compare(cursor{rest: old}, cursor{rest: new}, depth)
}

// unread passes over what is missing when nothing is pruned by it.
func (m *merger) unread(err error) error {
	if !m.prune && missing(err) {
		return nil
	}
	return err
}

// settled tells whether a merge before has seen to all below a tree: it made a
// delta of it. A small one is read all the same, for a large one may be below.
func (m *merger) settled(i int32) bool {
	it := &m.items[i]
	if it.kind != object.OfsDelta {
		return false
	}
	raw, err := m.packs[it.pack].Header(it.at)
	if err != nil {
		return false
	}
	delta, err := m.packs[it.pack].Inflate(raw, &m.in)
	if err != nil {
		return false
	}
	size, ok := pack.PatchedSize(delta)
	return ok && size > quickTree
}

// succeed notes that an item is the next version of another object, unless it
// was come across before; then it tells so.
func (m *merger) succeed(i int32, before object.Hash) (first bool) {
	it := &m.items[i]
	if it.met {
		return false
	}
	it.met, it.live = true, true
	if before.IsZero() {
		return true
	}
	if j := m.find(before); j >= 0 && j != i {
		it.pred, it.gen = j, m.items[j].gen+1
	}
	return true
}

// compare goes through two trees side by side.
func (m *merger) compare(old, new cursor, depth int) error {
	more := old.next()
	for new.next() {
		if more && bytes.Equal(old.raw, new.raw) {
			more = old.next()
			continue
		}
		for more && object.Compare(string(old.name), old.dir, string(new.name), new.dir) < 0 {
			more = old.next()
		}
		var before, h object.Hash
		copy(h[:], new.hash)
		if more && new.dir == old.dir && bytes.Equal(old.name, new.name) {
			copy(before[:], old.hash)
		}
		switch {
		case new.submodule:
		case new.dir:
			if err := m.follow(before, h, depth+1); err != nil {
				return err
			}
		default:
			if i := m.find(h); i >= 0 {
				m.succeed(i, before)
			}
		}
	}
	if new.bad && m.prune {
		return fmt.Errorf("%w: malformed tree", pack.ErrDamaged)
	}
	return nil
}

// cursor goes through a tree's content, entry by entry, without a copy.
type cursor struct {
	rest           []byte
	raw            []byte // the entry
	name, hash     []byte
	dir, submodule bool
	bad            bool
}

func (c *cursor) next() bool {
	if len(c.rest) == 0 {
		return false
	}
	n := pack.NextEntry(c.rest)
	c.raw, c.rest = c.rest[:n], c.rest[n:]
	space := bytes.IndexByte(c.raw, ' ')
	if space < 0 || n < space+2+len(object.Hash{}) {
		c.bad = true
		return false
	}
	mode := c.raw[:space]
	at := n - len(object.Hash{})
	c.name, c.hash = c.raw[space+1:at-1], c.raw[at:]
	c.dir, c.submodule = string(bytes.TrimLeft(mode, "0")) == "40000", string(mode) == "160000"
	return true
}

// ParentsFirst orders commits that can be reached from tips so that each comes
// after its parents. Those without an entry in parents are left out.
func ParentsFirst(tips []object.Hash, parents map[object.Hash][]object.Hash) []object.Hash {
	order := make([]object.Hash, 0, len(parents))
	entered, placed := map[object.Hash]bool{}, map[object.Hash]bool{}
	stack := slices.Clone(tips)
	for len(stack) > 0 {
		h := stack[len(stack)-1]
		before, ok := parents[h]
		if !ok || placed[h] {
			stack = stack[:len(stack)-1]
			continue
		}
		if entered[h] { // its parents were placed since
			placed[h] = true
			order = append(order, h)
			continue
		}
		entered[h] = true
		for _, p := range before {
			if !entered[p] {
				stack = append(stack, p)
			}
		}
	}
	return order
}
