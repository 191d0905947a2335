package pack

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/crmirror/crmirror/gitstore/object"
)

const (
	indexHeaderLen = 8
	largeOffset    = 1 << 31
	// maxObject bounds what one object may inflate to, so that a damaged
	// header cannot ask for all memory.
	maxObject = 1 << 31
)

// ErrDamaged says that a pack or its index is truncated or does not add up.
var ErrDamaged = errors.New("damaged pack")

// Pack is a pack file on disk with its index. It is safe for several
// goroutines. Neither file is held open or loaded before it is needed.
type Pack struct {
	path string // of the .pack file

	mu    sync.Mutex
	index []byte
	count int
	file  *os.File
	size  int64
	// what was read of the file last; it begins at a multiple of windowLen
	window   []byte
	windowAt int64
	// offsets of all entries in order, while entries are copied out
	offsets []int64
}

// Open returns the pack whose .pack file is at path. It checks nothing yet.
func Open(path string) *Pack { return &Pack{path: path} }

// Path is where the .pack file lies.
func (p *Pack) Path() string { return p.path }

// Check reads the index and proves that the two files belong together and are
// complete: sizes, header, count, and both checksums of the index. The pack's
// own content is not read.
func (p *Pack) Check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.load(); err != nil {
		return err
	}
	if sum := sha1.Sum(p.index[:len(p.index)-trailerLen]); !bytes.Equal(sum[:], p.index[len(p.index)-trailerLen:]) {
		return fmt.Errorf("%w: checksum of %s", ErrDamaged, indexPath(p.path))
	}
	return p.openFile()
}

func indexPath(path string) string { return strings.TrimSuffix(path, ".pack") + ".idx" }

// load reads the index into memory, 28 bytes an object and a bit.
func (p *Pack) load() error {
	if p.index != nil {
		return nil
	}
	b, err := os.ReadFile(indexPath(p.path))
	if err != nil {
		return err
	}
	if len(b) < indexHeaderLen+256*4+2*trailerLen {
		return fmt.Errorf("%w: %s is too short", ErrDamaged, indexPath(p.path))
	}
	if !bytes.HasPrefix(b, []byte{0xff, 't', 'O', 'c', 0, 0, 0, 2}) {
		return fmt.Errorf("%w: %s is no index of version 2 (git index-pack writes one)", ErrDamaged, indexPath(p.path))
	}
	count := int(binary.BigEndian.Uint32(b[indexHeaderLen+255*4:]))
	if len(b) < indexHeaderLen+256*4+count*28+2*trailerLen {
		return fmt.Errorf("%w: %s is too short", ErrDamaged, indexPath(p.path))
	}
	p.index, p.count = b, count
	return nil
}

// openFile opens the pack and compares its header and trailer with the index.
func (p *Pack) openFile() error {
	if p.file != nil {
		return nil
	}
	f, err := os.Open(p.path)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		p.size = info.Size()
		err = p.checkFile(f)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	p.file = f
	return nil
}

func (p *Pack) checkFile(f *os.File) error {
	if p.size < headerLen+trailerLen {
		return fmt.Errorf("%w: %s is too short", ErrDamaged, p.path)
	}
	var header [headerLen]byte
	var trailer [trailerLen]byte
	if _, err := f.ReadAt(header[:], 0); err != nil {
		return err
	}
	if _, err := f.ReadAt(trailer[:], p.size-trailerLen); err != nil {
		return err
	}
	if string(header[:4]) != "PACK" || int(binary.BigEndian.Uint32(header[8:])) != p.count {
		return fmt.Errorf("%w: header of %s", ErrDamaged, p.path)
	}
	if !bytes.Equal(trailer[:], p.index[len(p.index)-2*trailerLen:len(p.index)-trailerLen]) {
		return fmt.Errorf("%w: %s and its index differ", ErrDamaged, p.path)
	}
	return nil
}

// Close closes the pack file; the next read opens it again.
func (p *Pack) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.offsets, p.window = nil, nil
	if p.file == nil {
		return nil
	}
	err := p.file.Close()
	p.file = nil
	return err
}

// Count is the number of objects, 0 when the index cannot be read.
func (p *Pack) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.load() != nil {
		return 0
	}
	return p.count
}

// Find returns the object's entry; ok is false when it is not in the pack.
func (p *Pack) Find(h object.Hash) (e Entry, ok bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.load(); err != nil {
		return e, false, err
	}
	i, hi, err := p.search(h)
	if err != nil || i == hi || !bytes.Equal(p.name(i), h[:]) {
		return e, false, err
	}
	e, err = p.entry(i)
	return e, err == nil, err
}

// search returns the place in the index of the first object that is not less than h, among
// those that share its first byte and end at hi.
func (p *Pack) search(h object.Hash) (i, hi int, err error) {
	lo := 0
	if h[0] > 0 {
		lo = p.fanout(int(h[0]) - 1)
	}
	hi = p.fanout(int(h[0]))
	if lo > hi || hi > p.count {
		return 0, 0, fmt.Errorf("%w: fan-out of %s", ErrDamaged, indexPath(p.path))
	}
	return lo + sort.Search(hi-lo, func(i int) bool { return bytes.Compare(p.name(lo+i), h[:]) >= 0 }), hi, nil
}

func (p *Pack) name(i int) []byte {
	at := indexHeaderLen + 256*4 + i*20
	return p.index[at : at+20]
}

// Abbreviated returns the objects whose hashes, as hexadecimal digits, begin with
// some; these are at least two.
func (p *Pack) Abbreviated(digits string) ([]object.Hash, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.load(); err != nil {
		return nil, err
	}
	i, hi, err := p.search(plumbing.NewHash(digits + strings.Repeat("0", 40-len(digits))))
	if err != nil {
		return nil, err
	}
	var found []object.Hash
	for ; i < hi; i++ {
		h := object.Hash(p.name(i))
		if !strings.HasPrefix(h.String(), digits) {
			break
		}
		found = append(found, h)
	}
	return found, nil
}

// entry returns the i-th object of the index.
func (p *Pack) entry(i int) (e Entry, err error) {
	names := p.index[indexHeaderLen+256*4:]
	copy(e.Hash[:], names[i*20:])
	e.CRC = binary.BigEndian.Uint32(names[p.count*20+i*4:])
	e.Offset, err = p.offset(i)
	return e, err
}

func (p *Pack) fanout(i int) int {
	return int(binary.BigEndian.Uint32(p.index[indexHeaderLen+4*i:]))
}

// offset returns the place of the i-th object of the index.
func (p *Pack) offset(i int) (int64, error) {
	table := p.index[indexHeaderLen+256*4+p.count*24:]
	offset := int64(binary.BigEndian.Uint32(table[i*4:]))
	if offset < largeOffset {
		return offset, nil
	}
	at := p.count*4 + int(offset&^largeOffset)*8
	if at+8 > len(table)-2*trailerLen {
		return 0, fmt.Errorf("%w: offsets of %s", ErrDamaged, indexPath(p.path))
	}
	return int64(binary.BigEndian.Uint64(table[at:])), nil
}
