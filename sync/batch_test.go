package sync

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	gosync "sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/crmirror/crmirror/kube"
)

func entry(name, content string) Entry {
	return Entry{Key: certificate("shop", name), Op: Present, Content: []byte(content)}
}

func names(entries []Entry) []string {
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = e.Key.Name + "=" + string(e.Content)
	}
	return out
}

// after passes fake time.
func after(d time.Duration) { <-time.After(d) }

func mustPut(t *testing.T, b *Batch, entries ...Entry) {
	t.Helper()
	for _, e := range entries {
		if err := b.Put(t.Context(), e); err != nil {
			t.Errorf("Put(%v): %v", e.Key, err)
		}
	}
}

// wantDue waits for the batch and checks what it wants, when, and then takes it.
func wantDue(t *testing.T, b *Batch, want Due, at time.Duration, entries ...string) {
	t.Helper()
	start := time.Now()
	due, err := b.Wait(t.Context())
	if err != nil || due != want {
		t.Fatalf("Wait = %v, %v, want %v", due, err, want)
	}
	if got := time.Since(start); got != at {
		t.Errorf("due after %v, want %v", got, at)
	}
	if want == DueTake {
		if diff := cmp.Diff(entries, names(b.Take()), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("taken (-want +got):\n%s", diff)
		}
	}
}

// wantIdle checks that the batch stays open for d.
func wantIdle(t *testing.T, b *Batch, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if due, err := b.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Wait = %v, %v, want it to stay open for %v", due, err, d)
	}
}

func TestBatchCloses(t *testing.T) {
	opts := BatchOptions{Quiet: 2 * time.Second, Max: 30 * time.Second, MaxObjects: 3, MaxBytes: 10}
	tests := []struct {
		name string
		run  func(*testing.T, *Batch)
	}{
		{"after the quiet window", func(t *testing.T, b *Batch) {
			mustPut(t, b, entry("b", "1"), entry("a", "1"))
			wantDue(t, b, DueTake, 2*time.Second, "a=1", "b=1")
			wantIdle(t, b, time.Hour)
		}},
		{"the newest state wins", func(t *testing.T, b *Batch) {
			mustPut(t, b, entry("a", "1"), entry("a", "2"), Entry{Key: certificate("shop", "a"), Op: Absent}, entry("a", "3"))
			wantDue(t, b, DueTake, 2*time.Second, "a=3")
		}},
		{"each entry opens the window anew", func(t *testing.T, b *Batch) {
			mustPut(t, b, entry("a", "1"))
			wantIdle(t, b, 1500*time.Millisecond)
			mustPut(t, b, entry("b", "1"))
			wantDue(t, b, DueTake, 2*time.Second, "a=1", "b=1")
		}},
		{"at the maximum of objects", func(t *testing.T, b *Batch) {
			mustPut(t, b, entry("a", "1"), entry("b", "1"), entry("c", "1"))
			wantDue(t, b, DueTake, 0, "a=1", "b=1", "c=1")
		}},
		{"at the maximum of bytes", func(t *testing.T, b *Batch) {
			mustPut(t, b, entry("a", "12345"), entry("b", "12345"))
			wantDue(t, b, DueTake, 0, "a=12345", "b=12345")
		}},
		{"one entry over the maximum of bytes", func(t *testing.T, b *Batch) {
			mustPut(t, b, entry("a", "12345678901"))
			wantDue(t, b, DueTake, 0, "a=12345678901")
		}},
		{"when kicked, empty or not", func(t *testing.T, b *Batch) {
			b.Kick()
			wantDue(t, b, DueTake, 0)
			mustPut(t, b, entry("a", "1"))
			b.Kick()
			wantDue(t, b, DueTake, 0, "a=1")
			wantIdle(t, b, time.Hour)
		}},
		{"when taken in a quiet window, and the next key has its own", func(t *testing.T, b *Batch) {
			mustPut(t, b, entry("a", "1"))
			wantIdle(t, b, time.Second)
			if got := names(b.Take()); !cmp.Equal(got, []string{"a=1"}) {
				t.Errorf("a poll tick took %v, want whatever is dirty", got)
			}
			mustPut(t, b, entry("b", "1"))
			wantDue(t, b, DueTake, 2*time.Second, "b=1")
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { tt.run(t, NewBatch(opts)) })
		})
	}
}

func TestFloodOnOneObjectStarvesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBatch(BatchOptions{Quiet: 2 * time.Second, Max: 30 * time.Second, MaxBytes: 100})
		ctx, stop := context.WithCancel(t.Context())
		flooded := make(chan struct{})
		go func() {
			defer close(flooded)
			for i := 0; ctx.Err() == nil; i++ {
				mustPut(t, b, entry("flood", fmt.Sprintf("%09d", i)))
				if objects, bytes := b.Size(); objects > 2 || bytes > 10 {
					t.Errorf("a flood on one object holds %d objects, %d bytes", objects, bytes)
				}
				after(100 * time.Millisecond)
			}
		}()
		after(time.Second)
		mustPut(t, b, entry("quiet", "1"))
		start := time.Now()
		if due, err := b.Wait(ctx); due != DueTake || err != nil {
			t.Fatalf("Wait = %v, %v", due, err)
		}
		if waited := time.Since(start); waited != 29*time.Second {
			t.Errorf("closed %v after the other object, want 29s: the maximum window", waited)
		}
		if got := names(b.Take()); len(got) != 2 || got[1] != "quiet=1" {
			t.Errorf("took %v, want both objects once", got)
		}
		stop()
		<-flooded
	})
}

func TestHoldKeepsTheBatchOpen(t *testing.T) {
	opts := BatchOptions{Quiet: time.Second, Max: 5 * time.Second, MaxObjects: 2, MaxBytes: 10, MaxHold: time.Minute}
	synctest.Test(t, func(t *testing.T) {
		b := NewBatch(opts)
		b.Hold()
		b.Hold()
		mustPut(t, b, entry("a", "1"), entry("b", "1"), entry("c", "1"))
		b.Kick()
		wantIdle(t, b, 10*time.Second)
		b.Release()
		wantIdle(t, b, 10*time.Second)
		b.Release()
		wantDue(t, b, DueTake, 0, "a=1", "b=1", "c=1")
	})
	synctest.Test(t, func(t *testing.T) {
		b := NewBatch(opts)
		b.Hold()
		mustPut(t, b, entry("a", "1"))
		wantIdle(t, b, 20*time.Second)
		b.Hold() // MaxHold counts from the first
		wantDue(t, b, DueTake, 40*time.Second, "a=1")
		mustPut(t, b, entry("b", "1"))
		wantDue(t, b, DueTake, time.Second, "b=1")
		b.Release()
		b.Release()
		b.Release() // one too many does no harm
		b.Hold()
		mustPut(t, b, entry("c", "1"))
		wantIdle(t, b, 30*time.Second)
	})
}

func TestHeldBatchSpills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBatch(BatchOptions{Quiet: time.Second, Max: 5 * time.Second, MaxBytes: 10})
		b.Hold()
		mustPut(t, b, entry("a", "12345"), entry("b", "1234"))
		wantIdle(t, b, 10*time.Second)
		put := make(chan error, 1)
		go func() { put <- b.Put(t.Context(), entry("c", "12")) }()
		wantDue(t, b, DueSpill, 0)

		full := errors.New("disk full")
		for range 3 { // memory does not grow with the tries
			err := b.Spill(func([]Entry) error {
				synctest.Wait()
				return full
			})
			if !errors.Is(err, full) {
				t.Errorf("Spill = %v, want %v", err, full)
			}
			synctest.Wait()
			select {
			case err := <-put:
				t.Fatalf("a Put was let in although nothing was spilled: %v", err)
			default:
			}
			wantDue(t, b, DueSpill, 0)
		}
		var spilled []string
		newer := make(chan error, 1)
		err := b.Spill(func(entries []Entry) error {
			spilled = names(entries)
			go func() { newer <- b.Put(t.Context(), entry("a", "new")) }()
			synctest.Wait()
			return nil
		})
		if err := errors.Join(err, <-put, <-newer); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a=12345", "b=1234"}, spilled); diff != "" {
			t.Errorf("spilled (-want +got):\n%s", diff)
		}
		b.Release()
		wantDue(t, b, DueTake, 0, "a=new", "c=12")

		b.Hold()
		mustPut(t, b, entry("d", "1234567890"))
		if err := b.Spill(func([]Entry) error { return nil }); err != nil {
			t.Fatal(err)
		}
		b.Release()
		wantDue(t, b, DueTake, time.Second) // spilled entries still close their batch
	})
}

func TestSpilledEntriesCountAsObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBatch(BatchOptions{Quiet: time.Second, MaxObjects: 3})
		mustPut(t, b, entry("a", "1"), entry("b", "1"))
		if err := b.Spill(func([]Entry) error { return nil }); err != nil {
			t.Fatal(err)
		}
		mustPut(t, b, entry("c", "1"))
		wantDue(t, b, DueTake, 0, "c=1")
		mustPut(t, b, entry("d", "1"))
		wantDue(t, b, DueTake, time.Second, "d=1")
	})
}

func TestPutBlocksUntilThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBatch(BatchOptions{Quiet: time.Second, MaxBytes: 10})
		mustPut(t, b, entry("a", "12345678"))
		mustPut(t, b, entry("a", "1234567890"))                        // replaces: fits
		mustPut(t, b, Entry{Key: certificate("", "gone"), Op: Absent}) // has no bytes: fits
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := b.Put(ctx, entry("b", "1")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Put into a full batch = %v, want it to wait for the deadline", err)
		}
		put := make(chan error)
		go func() { put <- b.Put(t.Context(), entry("b", "1")) }()
		synctest.Wait()
		if got := len(b.Take()); got != 2 {
			t.Errorf("took %d entries, want 2", got)
		}
		if err := <-put; err != nil {
			t.Errorf("Put after Take: %v", err)
		}
		wantDue(t, b, DueTake, time.Second, "b=1")
	})
}

func TestReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBatch(BatchOptions{Quiet: time.Second, MaxObjects: 2, MaxBytes: 10})
		mustPut(t, b, entry("a", "1"), entry("b", "1"))
		wantDue(t, b, DueTake, 0, "a=1", "b=1")
		mustPut(t, b, entry("b", "newer"))
		b.Return([]Entry{entry("a", "1"), entry("b", "1")}, time.Minute)
		b.Kick() // a pause is not cut short
		wantIdle(t, b, 30*time.Second)
		mustPut(t, b, entry("c", "1234"))
		wantDue(t, b, DueSpill, 0)
		if err := b.Spill(func([]Entry) error { return nil }); err != nil {
			t.Fatal(err)
		}
		mustPut(t, b, entry("d", "1"))
		wantDue(t, b, DueTake, 30*time.Second, "d=1")

		b.Return(nil, time.Minute) // the owner keeps the entries itself
		wantDue(t, b, DueTake, time.Minute)
	})
}

// TestNothingIsStranded puts random entries while an owner takes, fails and
// spills at random moments: in the end the owner has the newest state of all.
func TestNothingIsStranded(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			b := NewBatch(BatchOptions{Quiet: 2 * time.Second, Max: 10 * time.Second, MaxObjects: 20, MaxBytes: 100, MaxHold: time.Minute})
			want := map[kube.Key]string{}
			var wg gosync.WaitGroup
			for writer := range 4 {
				rnd := rand.New(rand.NewPCG(seed, uint64(writer)))
				var sent [5]string
				for i := range sent {
					sent[i] = fmt.Sprint(99, seed)
					want[certificate("shop", fmt.Sprint(writer, i))] = sent[i]
				}
				wg.Go(func() {
					for n := range 100 {
						for i, final := range sent {
							content := final
							if n < 99 {
								content = fmt.Sprint(n, seed)
							}
							mustPut(t, b, entry(fmt.Sprint(writer, i), content))
						}
						after(time.Duration(rnd.IntN(3000)) * time.Millisecond)
						switch rnd.IntN(10) {
						case 0:
							b.Kick()
						case 1:
							b.Hold()
							after(time.Duration(rnd.IntN(5)) * time.Second)
							b.Release()
						}
					}
				})
			}
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				wg.Wait()
				after(time.Hour)
				cancel()
			}()
			if diff := cmp.Diff(want, own(ctx, b, rand.New(rand.NewPCG(seed, 99)))); diff != "" {
				t.Errorf("seed %d: what the owner has (-want +got):\n%s", seed, diff)
			}
		})
	}
}

// own empties the batch until ctx ends, failing now and then, and returns the
// state of every key that it was told last.
func own(ctx context.Context, b *Batch, rnd *rand.Rand) map[kube.Key]string {
	got := map[kube.Key]string{}
	store := func(entries []Entry) error {
		after(time.Duration(rnd.IntN(4000)) * time.Millisecond)
		if rnd.IntN(4) == 0 {
			return errors.New("remote is down")
		}
		for _, e := range entries {
			got[e.Key] = string(e.Content)
		}
		return nil
	}
	for {
		due, err := b.Wait(ctx)
		if err != nil {
			return got
		}
		if due == DueSpill {
			_ = b.Spill(store) // tried again: it stays due
			continue
		}
		entries := b.Take()
		if err := store(entries); err != nil {
			b.Return(entries, time.Duration(rnd.IntN(20))*time.Second)
		}
	}
}

// BenchmarkBatch puts a thousand changes in, half of them of the same objects, and
// takes them.
func BenchmarkBatch(b *testing.B) {
	entries := make([]Entry, 1000)
	content := make([]byte, 2000)
	for i := range entries {
		entries[i] = Entry{Key: certificate("shop", fmt.Sprintf("web-%03d", i%500)), Op: Present, Content: content}
	}
	batch := NewBatch(BatchOptions{MaxBytes: 64 << 20})
	b.ReportAllocs()
	for b.Loop() {
		for _, e := range entries {
			if err := batch.Put(b.Context(), e); err != nil {
				b.Fatal(err)
			}
		}
		if got := len(batch.Take()); got != 500 {
			b.Fatalf("%d entries", got)
		}
	}
}
