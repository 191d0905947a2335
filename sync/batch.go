package sync

import (
	"context"
	"maps"
	"slices"
	gosync "sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
)

// Presence says whether an object exists.
type Presence int

// What an Entry can say of its object.
const (
	Present Presence = iota + 1
	Absent
)

// Entry is the newest known state of one object whose key is dirty.
type Entry struct {
	Key kube.Key
	Op  Presence

	// Of a present object: its encoded bytes or, once they were written to the
	// object store, nil; and their Digest, zero while it is not known.
	Content         []byte
	Digest          gitstore.Hash
	UID             types.UID
	ResourceVersion string
	Manager         kube.Manager

	// Since is when the object's first change was seen that no acknowledged push holds;
	// Batch.Put sets it, and it is zero for what was found otherwise. Listed says that a
	// listing showed the change: it is older than that.
	Since  time.Time
	Listed bool

	// Of an absent one: why, and how often its kind had gone away when that was seen.
	Reason Reason
	Epoch  int
}

// after returns the entry as one that replaces an older one of its key: it has waited as long.
func (e Entry) after(was Entry) Entry {
	e.Since, e.Listed = was.Since, was.Listed
	return e
}

// BatchOptions say when a Batch closes.
type BatchOptions struct {
	Quiet      time.Duration // closes when nothing came for so long; 0 closes at once
	Max        time.Duration // closes so long after the first entry, however many come; 0 = Quiet
	MaxObjects int           // closes when so many objects are dirty; 0 = no limit
	MaxBytes   int64         // contents held in memory; 0 = 16 MiB
	MaxHold    time.Duration // longest time that Hold keeps it open; 0 = no limit
}

const defaultMaxBytes = 16 << 20

// Due is what a Batch wants of its owner.
type Due int

// What Wait returns.
const (
	DueTake  Due = iota + 1 // call Take: the batch is closed
	DueSpill                // call Spill: it must stay open, but its bytes must leave memory
)

// Batch is the set of dirty keys, debounced. Informers fill it from many
// goroutines; one owner empties it: Wait, then Take or Spill.
//
// When it is due follows from its state alone (entries, times, holds), never
// from a timer that was armed once: no order of events can strand a key.
//
// Invariant: an entry leaves the batch only through Take or a Spill that
// succeeded, or when a newer one of its key replaces it. TestNothingIsStranded.
type Batch struct {
	opts BatchOptions

	mu      gosync.Mutex
	dirty   map[kube.Key]Entry
	bytes   int64         // contents in dirty
	spilled int           // entries that left through Spill since the last Take
	first   time.Time     // of the first entry since the last Take; zero when there was none
	last    time.Time     // of the newest one
	kicked  bool          // closes without waiting for quiet
	paused  time.Time     // stays open until then
	holds   int           // reasons to stay open
	held    time.Time     // when the first of them began
	blocked int           // Puts that wait for room
	room    chan struct{} // closed and replaced when bytes leave
	wake    chan struct{} // tells Wait to look again
}

// NewBatch returns an empty Batch.
func NewBatch(opts BatchOptions) *Batch {
	if opts.MaxBytes <= 0 {
		opts.MaxBytes = defaultMaxBytes
	}
	opts.Max = max(opts.Max, opts.Quiet)
	return &Batch{
		opts:  opts,
		dirty: map[kube.Key]Entry{},
		room:  make(chan struct{}),
		wake:  make(chan struct{}, 1),
	}
}

// Put makes a key dirty with its newest state; an older state of the key is
// forgotten. It blocks while the batch holds as many bytes as it may, until its
// owner took or spilled them. The only error is ctx's.
func (b *Batch) Put(ctx context.Context, e Entry) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.fits(e) {
		room := b.room
		b.blocked++
		b.signal()
		b.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
		}
		b.mu.Lock()
		b.blocked--
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	b.put(e, time.Now())
	b.signal()
	return nil
}

// fits tells whether an entry can be added without exceeding MaxBytes. One that
// is larger than that by itself fits an empty batch.
func (b *Batch) fits(e Entry) bool {
	rest := b.bytes - int64(len(b.dirty[e.Key].Content))
	return len(e.Content) == 0 || rest == 0 || rest+int64(len(e.Content)) <= b.opts.MaxBytes
}

func (b *Batch) put(e Entry, now time.Time) {
	was, dirty := b.dirty[e.Key]
	b.bytes += int64(len(e.Content)) - int64(len(was.Content))
	if dirty {
		e = e.after(was)
	}
	if e.Since.IsZero() {
		e.Since = now
	}
	b.dirty[e.Key] = e
	if b.first.IsZero() {
		b.first = now
	}
	b.last = now
}

// Wait blocks until the batch is due. The only error is ctx's.
func (b *Batch) Wait(ctx context.Context) (Due, error) {
	for {
		b.mu.Lock()
		due, at := b.due(time.Now())
		b.mu.Unlock()
		if due != 0 {
			return due, nil
		}
		var timer <-chan time.Time
		if !at.IsZero() {
			timer = time.After(time.Until(at))
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-b.wake:
		case <-timer:
		}
	}
}

// due returns what the owner has to do now, or else when to look again (zero:
// only when something happens).
func (b *Batch) due(now time.Time) (Due, time.Time) {
	var holdEnds time.Time
	held := b.holds > 0
	if held && b.opts.MaxHold > 0 {
		holdEnds = b.held.Add(b.opts.MaxHold)
		held = now.Before(holdEnds)
	}
	full := b.bytes >= b.opts.MaxBytes || b.blocked > 0 && b.bytes > 0
	switch {
	case full && (held || now.Before(b.paused)):
		return DueSpill, time.Time{}
	case b.first.IsZero() && !b.kicked:
		return 0, time.Time{}
	case held:
		return 0, holdEnds
	case now.Before(b.paused):
		return 0, b.paused
	case full, b.kicked, b.opts.MaxObjects > 0 && len(b.dirty)+b.spilled >= b.opts.MaxObjects:
		return DueTake, time.Time{}
	}
	closes := b.last.Add(b.opts.Quiet)
	if latest := b.first.Add(b.opts.Max); latest.Before(closes) {
		closes = latest
	}
	if now.Before(closes) {
		return 0, closes
	}
	return DueTake, time.Time{}
}

// Take closes the batch: it returns all that is dirty, sorted by key, whether or
// not it is due, and begins a new one. What comes from then on belongs to the
// next batch. The result can be empty (after a Kick, or a Spill). Contents that
// were taken no longer count as held.
func (b *Batch) Take() []Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	// Re-armed before the owner works: an entry that comes during its cycle
	// opens the next batch.
	b.first, b.last, b.kicked, b.spilled = time.Time{}, time.Time{}, false, 0
	return b.empty()
}

// Spill hands all that is dirty, sorted by key, to store, which moves the bytes
// out of memory and keeps the entries until the batch closes. The batch stays
// open and as old as it was. If store fails, the entries stay here.
func (b *Batch) Spill(store func([]Entry) error) error {
	b.mu.Lock()
	entries, bytes := b.sorted(), b.bytes
	b.dirty = map[kube.Key]Entry{}
	b.mu.Unlock() // b.bytes stays what it was: nothing comes in while store has not succeeded
	err := store(entries)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes -= bytes
	if err != nil {
		b.putBack(entries)
		return err
	}
	b.spilled += len(entries)
	b.makeRoom()
	return nil
}

// Return puts entries of a failed cycle back, but those of which a newer state
// has come meanwhile, and lets the batch close when the pause is over, not
// before. Without entries it only arms and pauses: for an owner that keeps them
// itself. Bytes are still spilled in a pause; Kick does not end one.
func (b *Batch) Return(entries []Entry, pause time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.putBack(entries)
	b.kicked = true
	b.paused = time.Now().Add(pause)
	b.signal()
}

func (b *Batch) putBack(entries []Entry) {
	now := time.Now()
	for _, e := range entries {
		if _, newer := b.dirty[e.Key]; !newer {
			b.put(e, now)
		}
	}
}

// empty returns and removes everything that is dirty, and lets waiting Puts in.
func (b *Batch) empty() []Entry {
	entries := b.sorted()
	b.dirty, b.bytes = map[kube.Key]Entry{}, 0
	b.makeRoom()
	return entries
}

func (b *Batch) sorted() []Entry {
	return slices.SortedFunc(maps.Values(b.dirty), func(x, y Entry) int { return CompareKeys(x.Key, y.Key) })
}

// makeRoom lets waiting Puts look again.
func (b *Batch) makeRoom() {
	close(b.room)
	b.room = make(chan struct{})
}

// Hold keeps the batch open, for at most MaxHold, until as many Releases: while
// initial listings run, so that a start is one commit.
func (b *Batch) Hold() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.holds == 0 {
		b.held = time.Now()
	}
	b.holds++
}

// Release ends one Hold.
func (b *Batch) Release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holds = max(0, b.holds-1)
	b.signal()
}

// Kick closes the batch without waiting for quiet, as soon as no Hold and no
// pause keeps it open, even if nothing is dirty.
func (b *Batch) Kick() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kicked = true
	b.signal()
}

// Pause keeps the batch open for a time, whatever it holds. Bytes are still spilled.
func (b *Batch) Pause(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.paused = time.Now().Add(d)
	b.signal()
}

// Size returns how many objects are dirty, and the bytes of their contents held
// in memory.
func (b *Batch) Size() (objects int, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.dirty), b.bytes
}

func (b *Batch) signal() {
	select {
	case b.wake <- struct{}{}:
	default: // a signal is waiting already
	}
}
