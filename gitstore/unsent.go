package gitstore

import (
	"io"

	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/odb"
	"github.com/crmirror/crmirror/gitstore/pack"
)

// send is an object that the remote lacks.
type send struct {
	hash Hash
	kind object.Type
	// base is an object that the remote has or is sent too, with a content
	// probably near this one; zero if there is none.
	base Hash
	// delta leads from base to this object; nil when it is not computed yet.
	delta []byte
}

// unsent is what was made here since the remote last had everything: about 100
// bytes an object.
type unsent struct {
	list  []send
	index map[Hash]struct{} // what list has
	depth map[Hash]int      // of the chain of deltas that ends in a tree of list
	there map[Hash]bool     // bases outside list, which the remote has
}

func newUnsent() *unsent {
	return &unsent{index: map[Hash]struct{}{}, depth: map[Hash]int{}, there: map[Hash]bool{}}
}

// maxChain bounds chains of deltas: the server resolves them one by one.
const maxChain = 40

// add takes objects, those of a commit after those of its parents. The list is
// not the caller's any more.
//
// Invariant: a delta's base is earlier in the list or at the remote and not in
// the list at all. A content that comes back (v1, v2, v1) would else be a delta
// of its own delta, which no server can resolve. Test: TestUnsentComesBack.
func (u *unsent) add(sends []send) {
	if len(u.list) == 0 { // the first is the largest: it is not copied
		u.list, u.index = sends[:0], make(map[Hash]struct{}, len(sends))
	}
	for _, s := range sends {
		if _, ok := u.index[s.hash]; ok || u.there[s.hash] {
			continue
		}
		if !s.base.IsZero() {
			if _, ok := u.index[s.base]; !ok {
				u.there[s.base] = true
			}
			depth := u.depth[s.base] + 1
			if depth > maxChain {
				s.base, s.delta, depth = Hash{}, nil, 0
			}
			u.depth[s.hash] = depth
		}
		u.index[s.hash] = struct{}{}
		u.list = append(u.list, s)
	}
}

// write writes the objects as a pack; thin allows deltas.
func (u *unsent) write(w io.Writer, db *odb.DB, thin bool) error {
	p, err := pack.NewWriter(w, len(u.list), db.Deflater())
	if err != nil {
		return err
	}
	for _, s := range u.list {
		if err := writeSend(p, db, s, thin); err != nil {
			return err
		}
	}
	_, err = p.Close()
	return err
}

func writeSend(p *pack.Writer, db *odb.DB, s send, thin bool) error {
	if thin && s.delta != nil {
		return p.AddDelta(s.hash, s.base, s.delta)
	}
	small := thin && s.kind == object.Blob && !s.base.IsZero() && db.Has(s.base)
	if !small {
		if t, size, deflated, ok := db.Compressed(s.hash); ok && t == s.kind {
			return p.AddCompressed(t, s.hash, size, deflated)
		}
	}
	_, content, err := db.Read(s.hash)
	if err != nil {
		return err
	}
	if small {
		_, base, err := db.Read(s.base)
		if err != nil {
			return err
		}
		if delta, ok := pack.Diff(base, content); ok {
			return p.AddDelta(s.hash, s.base, delta)
		}
	}
	return p.Add(s.kind, s.hash, content)
}
