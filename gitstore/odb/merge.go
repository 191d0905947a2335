package odb

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/pack"
)

// maxChain bounds chains of deltas, as git has it.
const maxChain = 50

// item is one object to be merged, about 80 bytes.
type item struct {
	hash  object.Hash
	crc   uint32
	pack  int32 // the pack that its entry is taken from
	pred  int32 // the item of the version before, -1 for none
	gen   int32 // how many versions came before that are items
	base  int32 // the item that it was written as a delta of, -1 for none
	at    int64 // where its entry lies there
	end   int64
	to    int64 // where it lies in the new pack, 0 until it is written
	depth uint16
	kind  object.Type // as it is stored
	met   bool        // come across while lineages were traced
	live  bool        // to be kept
	gone  bool        // dropped: left out, and read only to rebuild what is a delta of it
	busy  bool        // being written
	leans bool        // its chain of deltas leaves the new pack
}

// slot leads from a place in a pack to its item.
type slot struct {
	at   int64
	item int32
}

// merger makes one pack of several.
//
// Objects are copied as they are stored, compressed. What is stored whole and
// has a version before it becomes a delta, and so, in a full merge, does what
// is a delta of another than would keep the chains short.
type merger struct {
	db    *DB
	ended func() error // what ends the merge early
	packs []*pack.Pack
	items []item        // by hash
	slots [][]slot      // of each pack, by place
	full  bool          // all packs are merged
	thin  bool          // deltas may lean on objects elsewhere
	prune bool          // items that are not live are left out
	left  []object.Hash // dropped before, and left out
	w     *pack.Writer
	sum   object.Hash
	in    pack.Inflater
	read  contents
}

func (m *merger) name() string {
	return filepath.Join(m.db.dirs[0], "pack", "pack-"+m.sum.String()+".pack")
}

// plan lists what lies in the packs, each object once: whole if it is whole in any.
func (m *merger) plan() error {
	var all []item
	for i, p := range m.packs {
		entries, err := p.Entries()
		if err != nil {
			return err
		}
		size, err := p.Size()
		if err != nil {
			return err
		}
		all = slices.Grow(all, len(entries))
		for j, e := range entries {
			end := size - int64(len(object.Hash{}))
			if j+1 < len(entries) {
				end = entries[j+1].Offset
			}
			m.db.mu.Lock()
			m.db.limitOpen(p)
			_, drop := m.db.dropped[e.Hash]
			m.db.mu.Unlock()
			if drop {
				m.left = append(m.left, e.Hash)
			}
			raw, err := p.Header(e.Offset)
			if err != nil {
				return err
			}
			all = append(all, item{hash: e.Hash, crc: e.CRC, pack: int32(i), pred: -1, base: -1, at: e.Offset, end: end, kind: raw.Type, gone: drop})
		}
	}
	slices.SortStableFunc(all, func(a, b item) int {
		if c := bytes.Compare(a.hash[:], b.hash[:]); c != 0 {
			return c
		}
		return cmp.Compare(isDelta(a.kind), isDelta(b.kind))
	})
	m.slots = make([][]slot, len(m.packs))
	m.items = all[:0]
	for _, it := range all {
		if n := len(m.items); n == 0 || m.items[n-1].hash != it.hash {
			m.items = append(m.items, it)
		}
		m.slots[it.pack] = append(m.slots[it.pack], slot{it.at, int32(len(m.items) - 1)})
	}
	for _, slots := range m.slots {
		slices.SortFunc(slots, func(a, b slot) int { return cmp.Compare(a.at, b.at) })
	}
	return m.ended()
}

func isDelta(t object.Type) int {
	if t == object.OfsDelta || t == object.RefDelta {
		return 1
	}
	return 0
}

// find returns the index of an item, -1 when there is none.
func (m *merger) find(h object.Hash) int32 {
	i, ok := slices.BinarySearchFunc(m.items, h, func(it item, h object.Hash) int { return bytes.Compare(it.hash[:], h[:]) })
	if !ok {
		return -1
	}
	return int32(i)
}

// dropped tells whether an item is left out.
func (m *merger) dropped(i int32) bool { return m.items[i].gone || m.prune && !m.items[i].live }

// write writes the new pack.
func (m *merger) write(f *os.File) (index []byte, sum object.Hash, err error) {
	count := 0
	for i := range m.items {
		if !m.dropped(int32(i)) {
			count++
		}
	}
	if count == 0 {
		return nil, m.sum, nil
	}
	buffered := bufio.NewWriterSize(f, 1<<16)
	if m.w, err = pack.NewWriter(buffered, count, m.db.deflater); err != nil {
		return nil, m.sum, err
	}
	for _, slots := range m.slots {
		for n, s := range slots {
			if n%256 == 0 {
				if err := m.ended(); err != nil {
					return nil, m.sum, err
				}
			}
			if m.dropped(s.item) {
				continue
			}
			if err := m.put(s.item); err != nil {
				return nil, m.sum, err
			}
		}
	}
	if m.sum, err = m.w.Close(); err != nil {
		return nil, m.sum, err
	}
	return m.w.Index(), m.sum, buffered.Flush()
}

// put writes an item, after what it is a delta of.
//
// Invariant: every delta's base lies before it in the new pack, or elsewhere in
// a database that allows that. Tests: TestMergeThin, TestMergeComesBack.
func (m *merger) put(i int32) error {
	it := &m.items[i]
	if it.to != 0 {
		return nil
	}
	it.busy = true
	defer func() { it.busy = false }()
	p := m.packs[it.pack]
	m.db.mu.Lock()
	m.db.limitOpen(p)
	m.db.mu.Unlock()
	raw, err := p.Header(it.at)
	if err != nil {
		return err
	}
	var base int32
	baseHash := raw.BaseRef
	switch raw.Type {
	case object.OfsDelta:
		if base = m.slotItem(it.pack, raw.BaseOfs); base < 0 {
			return fmt.Errorf("%w: entry at %d of %s: nothing is where its base should be", pack.ErrDamaged, it.at, p.Path())
		}
		baseHash = m.items[base].hash
	case object.RefDelta:
		base = m.find(baseHash)
	default:
		if done, err := m.putNew(i); done || err != nil {
			return err
		}
		return m.copyWhole(i, raw)
	}
	if m.full && base != m.target(i) {
		if done, err := m.putDelta(i, m.target(i)); done || err != nil {
			return err
		}
	}
	if done, err := m.copyDelta(i, raw, base, baseHash); done || err != nil {
		return err
	}
	if done, err := m.putNew(i); done || err != nil {
		return err
	}
	t, content, err := m.read.get(m.db, it.hash)
	if err != nil {
		return err
	}
	it.to = m.w.Offset()
	return m.w.Add(t, it.hash, content)
}

// slotItem returns the item whose entry, or a double of it, begins at a place of a pack.
func (m *merger) slotItem(p int32, at int64) int32 {
	slots := m.slots[p]
	n, ok := slices.BinarySearchFunc(slots, at, func(s slot, at int64) int { return cmp.Compare(s.at, at) })
	if !ok {
		return -1
	}
	return slots[n].item
}

func (m *merger) copyWhole(i int32, raw pack.Raw) error {
	it := &m.items[i]
	deflated, err := m.deflated(it, raw)
	if err != nil {
		return err
	}
	it.to = m.w.Offset()
	return m.w.AddCompressed(raw.Type, it.hash, raw.Size, deflated)
}

func (m *merger) deflated(it *item, raw pack.Raw) ([]byte, error) {
	return m.packs[it.pack].Deflated(pack.Entry{Hash: it.hash, CRC: it.crc, Offset: it.at}, raw, it.end)
}

// copyDelta copies a delta as it is stored, if its base is where it can serve.
func (m *merger) copyDelta(i int32, raw pack.Raw, base int32, baseHash object.Hash) (done bool, err error) {
	it := &m.items[i]
	depth := 0
	if base >= 0 {
		if usable, err := m.usable(base); !usable || err != nil {
			return false, err
		}
		depth = int(m.items[base].depth)
	} else {
		if !m.thin {
			return false, nil
		}
		m.db.mu.Lock()
		depth = m.db.chain(baseHash)
		_, drop := m.db.dropped[baseHash]
		m.db.mu.Unlock()
		if drop || depth >= maxChain {
			return false, nil
		}
	}
	deflated, err := m.deflated(it, raw)
	if err != nil {
		return false, err
	}
	it.to, it.depth, it.base = m.w.Offset(), uint16(depth+1), base
	it.leans = base < 0 || m.items[base].leans
	if base < 0 {
		return true, m.w.AddCompressedThin(it.hash, baseHash, raw.Size, deflated)
	}
	return true, m.w.AddCompressedDelta(it.hash, m.items[base].to, raw.Size, deflated)
}

// usable writes an item that is to be a base, and tells whether it can be one.
func (m *merger) usable(i int32) (bool, error) {
	if m.items[i].busy || m.dropped(i) {
		return false, nil
	}
	if err := m.put(i); err != nil {
		return false, err
	}
	return int(m.items[i].depth) < maxChain, nil
}

// smallest is what an object must have to be tried as a delta, bytes.
const smallest = 128

// putNew writes an item as a new delta, if there is an earlier version for it.
func (m *merger) putNew(i int32) (done bool, err error) {
	target := m.target(i)
	if done, err := m.putDelta(i, target); done || err != nil {
		return done, err
	}
	// The chain may be full: an item that was stored whole for that ends it.
	if pred := m.items[i].pred; pred >= 0 {
		if _, err := m.usable(pred); err != nil {
			return false, err
		}
	}
	if near := m.nearest(i); near != target {
		return m.putDelta(i, near)
	}
	return false, nil
}

// putDelta writes an item as a delta of another, if that is much smaller.
//
// Invariant: a chain that leaves the new pack is only ever copied, never made: what lies
// elsewhere may itself lean on the item, and the last whole copy would be gone. Test: TestMergeRotation.
func (m *merger) putDelta(i, base int32) (done bool, err error) {
	it := &m.items[i]
	if base < 0 {
		return false, nil
	}
	if usable, err := m.usable(base); !usable || err != nil || m.items[base].leans {
		return false, err
	}
	t, content, err := m.read.get(m.db, it.hash)
	if err != nil || len(content) < smallest {
		return false, err
	}
	was, from, err := m.read.get(m.db, m.items[base].hash)
	if err != nil || was != t {
		return false, err
	}
	next := pack.NextLine
	if t == object.Tree {
		next = pack.NextEntry
	}
	delta, ok := pack.DiffParts(from, content, next)
	if !ok {
		return false, nil
	}
	it.to, it.depth, it.base = m.w.Offset(), m.items[base].depth+1, base
	return true, m.w.AddOffsetDelta(it.hash, m.items[base].to, delta)
}

// fanOut is how many versions are deltas, one of the other, before one skips them.
const fanOut = 16

// target returns the earlier version that an item should be a delta of, -1 for
// none. With n versions before it, written in base 16, that is the one with the
// lowest digit that is not zero one less: 0x123 leads to 0x122, 0x120 to 0x110,
// 0x100 to none at 0x000. So 4,096 versions have chains of at most 45 deltas, and
// hardly any delta leads over many versions.
func (m *merger) target(i int32) int32 {
	gen, steps := m.items[i].gen, 1
	if gen == 0 {
		return -1
	}
	for ; gen%fanOut == 0; gen /= fanOut {
		steps *= fanOut
	}
	if steps >= fanOut*fanOut*fanOut {
		return -1
	}
	for range steps {
		if i = m.items[i].pred; i < 0 {
			return -1
		}
	}
	return i
}

// nearest returns, of what the version before is a delta of in turn, the one that
// leaves most of a chain: among near versions, or among farther ones if the near
// ones leave less than half. Those of a chain that was written one by one are
// followed by deltas of the same length again.
func (m *merger) nearest(i int32) int32 {
	const near, far = maxChain + fanOut, 1024
	best := m.items[i].pred
	if best < 0 {
		return -1
	}
	reach := int32(near)
	for b := best; b >= 0 && m.items[i].gen-m.items[b].gen <= reach; b = m.items[b].base {
		best = b
		if next := m.items[b].base; next >= 0 && m.items[i].gen-m.items[next].gen > reach && m.items[b].depth > maxChain/2 {
			reach = far
		}
	}
	return best
}

// contents keeps what was read last, for versions are compared with each other.
type contents struct {
	list  []content // the newest last
	bytes int
}

type content struct {
	hash object.Hash
	t    object.Type
	b    []byte
}

// contentBytes bounds what is kept.
const contentBytes = 12 << 20

// get reads an object. What it returns must not be changed.
func (c *contents) get(db *DB, h object.Hash) (object.Type, []byte, error) {
	for _, k := range slices.Backward(c.list) {
		if k.hash == h {
			return k.t, k.b, nil
		}
	}
	t, b, err := db.Read(h)
	if err != nil {
		return t, nil, err
	}
	c.list = append(c.list, content{h, t, b})
	c.bytes += len(b)
	for c.bytes > contentBytes || len(c.list) > 64 {
		c.bytes -= len(c.list[0].b)
		c.list[0].b = nil
		c.list = c.list[1:]
	}
	return t, b, nil
}

// missing tells an object that is not here from one that cannot be read.
func missing(err error) bool { return errors.Is(err, ErrMissing) }
