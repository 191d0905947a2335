package worktree

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/crmirror/crmirror/gitstore/object"
)

// index is git's list of what is staged, as it lies on disk: per file its blob
// and what stat said of it when it was last looked at. Entries stand sorted by
// path and stage. It is never taken apart as a whole: what changed is put between
// the runs of bytes that stay.
type index struct {
	entries []byte // of version 2 or 3
	version uint32
	count   int
}

type indexEntry struct {
	stat  [statLen]byte // as on disk: times, device, inode, owner, size; no mode
	mode  filemode.FileMode
	hash  object.Hash
	flags uint16 // assume-valid and the stage; the name's length is added on disk
	ext   uint16 // skip-worktree and intent-to-add
}

const (
	statLen        = 36 // ctime 8, mtime 8, dev 4, ino 4, uid 4, gid 4, size 4
	flagExtended   = 0x4000
	flagStage      = 0x3000
	flagKept       = 0xb000 // assume-valid and stage
	flagName       = 0x0fff
	extSkip        = 0x4000
	entryFixed     = 62
	indexHeader    = 12
	indexSignature = "DIRC"
)

// errIndex says that an index cannot be understood; git itself may still do.
var errIndex = errors.New("malformed index")

// parseIndex reads versions 2 to 4. Extensions are caches and are dropped, but one
// that changes what the index means is an error.
func parseIndex(b []byte) (*index, error) {
	if len(b) < indexHeader+sha1.Size || string(b[:4]) != indexSignature {
		return nil, errIndex
	}
	body, sum := b[:len(b)-sha1.Size], b[len(b)-sha1.Size:]
	// git config index.skipHash leaves zeros in place of the checksum.
	if got := sha1.Sum(body); !bytes.Equal(got[:], sum) && !bytes.Equal(sum, make([]byte, sha1.Size)) {
		return nil, fmt.Errorf("%w: checksum", errIndex)
	}
	x := &index{entries: body[indexHeader:], version: binary.BigEndian.Uint32(b[4:]), count: int(binary.BigEndian.Uint32(b[8:]))}
	switch x.version {
	case 2, 3:
	case 4:
		return x.expand()
	default:
		return nil, fmt.Errorf("%w: version %d", errIndex, x.version)
	}
	end := 0
	err := x.each(func(_ []byte, _, to int) { end = to })
	if err != nil {
		return nil, err
	}
	rest := x.entries[end:]
	x.entries = x.entries[:end]
	return x, checkExtensions(rest)
}

// each calls fn for every entry with its path and where it lies in entries.
func (x *index) each(fn func(path []byte, from, to int)) error {
	at := 0
	var prev []byte
	for range x.count {
		path, to, ok := x.name(at)
		if !ok || bytes.Compare(path, prev) < 0 {
			return errIndex
		}
		fn(path, at, to)
		prev, at = path, to
	}
	return nil
}

// name returns the path of the entry at an offset, and where the next one begins.
func (x *index) name(at int) (path []byte, to int, ok bool) {
	b := x.entries[at:]
	if len(b) < entryFixed {
		return nil, 0, false
	}
	flags := binary.BigEndian.Uint16(b[entryFixed-2:])
	n := entryFixed
	if flags&flagExtended != 0 {
		n += 2
	}
	length := int(flags & flagName)
	switch {
	case n > len(b):
		return nil, 0, false
	case length == flagName: // or longer
		length = bytes.IndexByte(b[n:], 0)
	}
	end := n + length
	to = end + 8 - end%8
	if length < 0 || to > len(b) || b[end] != 0 {
		return nil, 0, false
	}
	return b[n:end], at + to, true
}

// entry decodes the entry at an offset, but for its path.
func (x *index) entry(at int) (e indexEntry) {
	b := x.entries[at:]
	e.decode(b)
	if binary.BigEndian.Uint16(b[entryFixed-2:])&flagExtended != 0 {
		e.ext = binary.BigEndian.Uint16(b[entryFixed:])
	}
	return e
}

// decode reads what all versions have in common.
func (e *indexEntry) decode(b []byte) {
	copy(e.stat[:24], b[:24])
	e.mode = filemode.FileMode(binary.BigEndian.Uint32(b[24:]))
	copy(e.stat[24:], b[28:40])
	copy(e.hash[:], b[40:60])
	e.flags = binary.BigEndian.Uint16(b[60:]) & flagKept
}

func (e *indexEntry) append(b []byte, path string) []byte {
	start := len(b)
	b = append(b, e.stat[:24]...)
	b = binary.BigEndian.AppendUint32(b, uint32(e.mode))
	b = append(b, e.stat[24:]...)
	b = append(b, e.hash[:]...)
	flags := e.flags | uint16(min(len(path), flagName))
	if e.ext != 0 {
		b = binary.BigEndian.AppendUint16(b, flags|flagExtended)
		b = binary.BigEndian.AppendUint16(b, e.ext)
	} else {
		b = binary.BigEndian.AppendUint16(b, flags)
	}
	b = append(b, path...)
	pad := 8 - (len(b)-start)%8
	return append(b, make([]byte, pad)...)
}

// expand turns version 4, in which a name says only how it differs from the one
// before, into version 2 or 3.
func (x *index) expand() (*index, error) {
	out := &index{version: 2, count: x.count}
	rest := x.entries
	prev := ""
	for range x.count {
		if len(rest) < entryFixed {
			return nil, errIndex
		}
		var e indexEntry
		e.decode(rest)
		n := entryFixed
		if binary.BigEndian.Uint16(rest[entryFixed-2:])&flagExtended != 0 {
			if len(rest) < n+2 {
				return nil, errIndex
			}
			e.ext = binary.BigEndian.Uint16(rest[n:])
			out.version = 3
			n += 2
		}
		path, n, err := name4(rest, n, prev)
		if err != nil || path < prev {
			return nil, errIndex
		}
		out.entries = e.append(out.entries, path)
		prev, rest = path, rest[n:]
	}
	return out, checkExtensions(rest)
}

// name4 reads a name of version 4: how much of the previous name to drop, and what
// to add.
func name4(b []byte, n int, prev string) (string, int, error) {
	drop := 0
	for {
		if n == len(b) || drop > len(prev) {
			return "", 0, errIndex
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
		return "", 0, errIndex
	}
	return prev[:len(prev)-drop] + string(b[n:n+end]), n + end + 1, nil
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

// slot is a path's place in an index, and what it becomes.
type slot struct {
	path     string
	from, to int        // of its entries, one for each stage; empty where it comes to stand
	count    int        // of its entries
	staged   bool       // it has one, outside of any merge: entry
	entry    indexEntry // what it is; for put what it becomes
	put      bool
	drop     bool
}

// slots returns the places of paths, sorted, each once.
func (x *index) slots(paths []string) []slot {
	slices.Sort(paths)
	list := make([]slot, 0, len(paths))
	for _, path := range slices.Compact(paths) {
		list = append(list, slot{path: path, from: len(x.entries), to: len(x.entries)})
	}
	i := 0
	// What parseIndex took is in order.
	_ = x.each(func(path []byte, from, to int) {
		for ; i < len(list) && list[i].path < string(path); i++ {
			if list[i].count == 0 {
				list[i].from, list[i].to = from, from
			}
		}
		if i == len(list) || list[i].path != string(path) {
			return
		}
		s := &list[i]
		if s.count == 0 {
			s.from = from
		}
		s.to = to
		s.count++
		if e := x.entry(from); e.flags&flagStage == 0 {
			s.staged, s.entry = true, e
		}
	})
	return list
}

// findSlot returns the place of one of the paths that slots was asked for.
func findSlot(list []slot, path string) *slot {
	i, _ := slices.BinarySearchFunc(list, path, func(s slot, path string) int { return strings.Compare(s.path, path) })
	return &list[i]
}

// write writes the index as it becomes, without extensions.
func (x *index) write(w io.Writer, slots []slot) error {
	count := x.count
	for i := range slots {
		s := &slots[i]
		if s.put || s.drop {
			count -= s.count
		}
		if s.put {
			count++
		}
	}
	sum := sha1.New()
	out := bufio.NewWriterSize(io.MultiWriter(w, sum), 1<<16) // keeps its first error
	header := binary.BigEndian.AppendUint32([]byte(indexSignature), max(x.version, 2))
	_, _ = out.Write(binary.BigEndian.AppendUint32(header, uint32(count)))
	done := 0
	for i := range slots {
		s := &slots[i]
		if !s.put && !s.drop {
			continue
		}
		_, _ = out.Write(x.entries[done:s.from])
		if s.put {
			_, _ = out.Write(s.entry.append(out.AvailableBuffer(), s.path))
		}
		done = s.to
	}
	_, _ = out.Write(x.entries[done:])
	if err := out.Flush(); err != nil {
		return err
	}
	_, err := w.Write(sum.Sum(nil))
	return err
}
