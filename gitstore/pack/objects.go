package pack

import (
	"bytes"
	"hash/crc32"
	"runtime"
	"sync"

	"github.com/crmirror/crmirror/gitstore/object"
)

// Object is an object to be written.
type Object struct {
	Type    object.Type
	Hash    object.Hash
	Content []byte
	// Delta leads from Base to Content; unless nil it may be written in its stead.
	Base  object.Hash
	Delta []byte
}

// partBytes is about how much content is compressed in one go.
const partBytes = 64 << 10

// part is a run of objects that one goroutine compresses.
type part struct {
	objects []Object
	buf     bytes.Buffer // their entries
	ends    []int        // of each entry in buf
	crcs    []uint32
	err     error
	ready   chan struct{}
}

// AddAll appends objects in their order, those with a Delta as deltas against a
// base that need not be in the pack. All processors compress; what waits to be
// written is bounded by a few parts. The caller vouches for the hashes.
func (p *Writer) AddAll(objects []Object) error {
	run, rest := cut(objects)
	if len(rest) == 0 {
		t := &part{objects: run}
		t.compress(p.deflater)
		return p.writePart(t)
	}
	workers := runtime.GOMAXPROCS(0)
	work := make(chan *part)
	var compressing sync.WaitGroup
	for range workers {
		compressing.Go(func() {
			for t := range work {
				t.compress(p.deflater)
				t.ready <- struct{}{}
			}
		})
	}
	defer compressing.Wait()
	defer close(work)
	return p.addParts(objects, work, 2*workers)
}

// addParts hands out runs of objects to be compressed, so many at once at most,
// and writes them in their order.
func (p *Writer) addParts(objects []Object, work chan<- *part, atOnce int) error {
	ring := make([]*part, atOnce)
	for i := range ring {
		ring[i] = &part{ready: make(chan struct{}, 1)}
	}
	first, next := 0, 0 // parts first to next-1 are out
	for len(objects) > 0 || first < next {
		if t := ring[first%atOnce]; len(objects) == 0 || next-first == atOnce {
			<-t.ready
			if err := p.writePart(t); err != nil {
				return err
			}
			first++
			continue
		}
		t := ring[next%atOnce]
		t.objects, objects = cut(objects)
		work <- t
		next++
	}
	return nil
}

// cut takes a part's objects from the front.
func cut(objects []Object) (run, rest []Object) {
	n := 0
	for bytes := 0; n < len(objects) && bytes < partBytes; n++ {
		bytes += len(objects[n].written())
	}
	return objects[:n], objects[n:]
}

// written is what of an object gets into the pack, before it is compressed.
func (o *Object) written() []byte {
	if o.Delta != nil {
		return o.Delta
	}
	return o.Content
}

func (t *part) compress(d *Deflater) {
	t.buf.Reset()
	t.ends, t.crcs = t.ends[:0], t.crcs[:0]
	for i := range t.objects {
		from := t.buf.Len()
		if t.err = t.objects[i].appendEntry(&t.buf, d); t.err != nil {
			return
		}
		t.ends = append(t.ends, t.buf.Len())
		t.crcs = append(t.crcs, crc32.ChecksumIEEE(t.buf.Bytes()[from:]))
	}
}

func (o *Object) appendEntry(buf *bytes.Buffer, d *Deflater) error {
	content := o.written()
	if o.Delta == nil {
		buf.Write(appendHeader(buf.AvailableBuffer(), o.Type, int64(len(content))))
	} else {
		buf.Write(appendHeader(buf.AvailableBuffer(), object.RefDelta, int64(len(content))))
		buf.Write(o.Base[:])
	}
	return d.deflate(buf, content)
}

// writePart writes a part that is compressed.
func (p *Writer) writePart(t *part) error {
	if t.err != nil {
		return t.err
	}
	at := 0
	for i, end := range t.ends {
		p.entries = append(p.entries, Entry{Hash: t.objects[i].Hash, CRC: t.crcs[i], Offset: p.offset + int64(at)})
		at = end
	}
	return p.write(t.buf.Bytes())
}
