package worktree

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/crmirror/crmirror/gitstore/object"
)

// index is git's list of what is staged: per file its blob and what stat said
// of it when it was last looked at. Entries stand sorted by path and stage.
type index struct{ entries []indexEntry }

type indexEntry struct {
	stat  [statLen]byte // as on disk: times, device, inode, owner, size; no mode
	mode  filemode.FileMode
	hash  object.Hash
	flags uint16 // assume-valid and the stage; the name's length is added on disk
	ext   uint16 // skip-worktree and intent-to-add
	path  string
}

const (
	statLen        = 36 // ctime 8, mtime 8, dev 4, ino 4, uid 4, gid 4, size 4
	flagExtended   = 0x4000
	flagStage      = 0x3000
	flagKept       = 0xb000 // assume-valid and stage
	flagName       = 0x0fff
	extSkip        = 0x4000
	entryFixed     = 62
	indexSignature = "DIRC"
)

// errIndex says that an index cannot be understood; git itself may still do.
var errIndex = errors.New("malformed index")

// decodeIndex reads versions 2 to 4. Extensions are caches and are dropped,
// but one that changes what the index means is an error.
func decodeIndex(b []byte) (*index, error) {
	if len(b) < 12+sha1.Size || string(b[:4]) != indexSignature {
		return nil, errIndex
	}
	body := b[:len(b)-sha1.Size]
	sum := b[len(b)-sha1.Size:]
	// git config index.skipHash leaves zeros in place of the checksum.
	if got := sha1.Sum(body); !bytes.Equal(got[:], sum) && !bytes.Equal(sum, make([]byte, sha1.Size)) {
		return nil, fmt.Errorf("%w: checksum", errIndex)
	}
	version := binary.BigEndian.Uint32(b[4:])
	if version < 2 || version > 4 {
		return nil, fmt.Errorf("%w: version %d", errIndex, version)
	}
	count := int(binary.BigEndian.Uint32(b[8:]))
	idx := &index{entries: make([]indexEntry, 0, min(count, len(b)/entryFixed))}
	rest := body[12:]
	prev := ""
	for range count {
		e, n, err := decodeEntry(rest, version, prev)
		if err != nil {
			return nil, err
		}
		idx.entries = append(idx.entries, e)
		prev, rest = e.path, rest[n:]
	}
	return idx, checkExtensions(rest)
}

func decodeEntry(b []byte, version uint32, prev string) (e indexEntry, n int, err error) {
	if len(b) < entryFixed {
		return e, 0, errIndex
	}
	copy(e.stat[:24], b[:24])
	e.mode = filemode.FileMode(binary.BigEndian.Uint32(b[24:]))
	copy(e.stat[24:], b[28:40])
	copy(e.hash[:], b[40:60])
	flags := binary.BigEndian.Uint16(b[60:])
	n = entryFixed
	if flags&flagExtended != 0 {
		if len(b) < n+2 {
			return e, 0, errIndex
		}
		e.ext = binary.BigEndian.Uint16(b[n:])
		n += 2
	}
	e.flags = flags & flagKept
	if version == 4 {
		return decodeName4(e, b, n, prev)
	}
	end := bytes.IndexByte(b[n:], 0)
	if end < 0 {
		return e, 0, errIndex
	}
	e.path = string(b[n : n+end])
	n += end
	n += 8 - n%8
	if n > len(b) {
		return e, 0, errIndex
	}
	return e, n, nil
}

// decodeName4 reads a name of version 4: how much of the previous name to
// drop, and what to add.
func decodeName4(e indexEntry, b []byte, n int, prev string) (indexEntry, int, error) {
	drop := 0
	for {
		if n == len(b) || drop > len(prev) {
			return e, 0, errIndex
		}
		c := b[n]
		n++
		drop |= int(c & 0x7f)
		if c&0x80 == 0 {
			break
		}
		drop = (drop + 1) << 7
	}
	end := bytes.IndexByte(b[n:], 0)
	if end < 0 || drop > len(prev) {
		return e, 0, errIndex
	}
	e.path = prev[:len(prev)-drop] + string(b[n:n+end])
	return e, n + end + 1, nil
}

func checkExtensions(b []byte) error {
	for len(b) >= 8 {
		size := int(binary.BigEndian.Uint32(b[4:]))
		if b[0] < 'A' || b[0] > 'Z' {
			return fmt.Errorf("it has the extension %q, which crmirror does not know (a split or sparse index: git update-index --no-split-index, git sparse-checkout disable)", b[:4])
		}
		if size < 0 || size > len(b)-8 {
			return errIndex
		}
		b = b[8+size:]
	}
	return nil
}

// encode writes version 2, or 3 when an entry needs it.
func (x *index) encode() []byte {
	version := uint32(2)
	for i := range x.entries {
		if x.entries[i].ext != 0 {
			version = 3
		}
	}
	b := make([]byte, 0, 12+len(x.entries)*104+sha1.Size)
	b = append(b, indexSignature...)
	b = binary.BigEndian.AppendUint32(b, version)
	b = binary.BigEndian.AppendUint32(b, uint32(len(x.entries)))
	for i := range x.entries {
		b = x.entries[i].append(b)
	}
	sum := sha1.Sum(b)
	return append(b, sum[:]...)
}

func (e *indexEntry) append(b []byte) []byte {
	start := len(b)
	b = append(b, e.stat[:24]...)
	b = binary.BigEndian.AppendUint32(b, uint32(e.mode))
	b = append(b, e.stat[24:]...)
	b = append(b, e.hash[:]...)
	flags := e.flags | uint16(min(len(e.path), flagName))
	if e.ext != 0 {
		b = binary.BigEndian.AppendUint16(b, flags|flagExtended)
		b = binary.BigEndian.AppendUint16(b, e.ext)
	} else {
		b = binary.BigEndian.AppendUint16(b, flags)
	}
	b = append(b, e.path...)
	pad := 8 - (len(b)-start)%8
	return append(b, make([]byte, pad)...)
}

// find returns the entry of a path outside of any merge.
func (x *index) find(path string) (i int, ok bool) {
	i, ok = slices.BinarySearchFunc(x.entries, path, func(e indexEntry, path string) int { return strings.Compare(e.path, path) })
	return i, ok && x.entries[i].flags&flagStage == 0
}

// merge returns the index with entries put in (replacing those of the same
// path) and paths taken out, in one pass.
func (x *index) merge(puts map[string]indexEntry, drops map[string]bool) *index {
	next := &index{entries: make([]indexEntry, 0, len(x.entries)+len(puts))}
	added := make([]indexEntry, 0, len(puts))
	for _, e := range puts {
		added = append(added, e)
	}
	slices.SortFunc(added, func(a, b indexEntry) int { return strings.Compare(a.path, b.path) })
	for _, e := range x.entries {
		for len(added) > 0 && added[0].path < e.path {
			next.entries = append(next.entries, added[0])
			added = added[1:]
		}
		if len(added) > 0 && added[0].path == e.path {
			continue
		}
		if !drops[e.path] {
			next.entries = append(next.entries, e)
		}
	}
	next.entries = append(next.entries, added...)
	return next
}
