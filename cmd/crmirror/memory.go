package main

import (
	"context"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// tidyEvery is how often the agent looks whether a burst of work is over.
	tidyEvery = 5 * time.Second
	// burstBytes is what has to be allocated before memory is given back, and
	// restBytes what may be allocated in a period that counts as rest: what a few
	// changes take, and far less than a slow flood of them does.
	burstBytes, restBytes = 64 << 20, 1 << 20

	// boundEvery is how often the limit follows the number of objects.
	boundEvery = 2 * time.Second
	// An agent may hold baseBytes, and objectBytes for each object. Of the process's memory
	// that leaves out some 30 MB of the program itself.
	baseBytes, objectBytes = 140e6, 600
)

// bound lets the collector work harder when memory nears what an agent of so many
// objects may take, as it does in a first sync: by itself the runtime lets garbage grow to
// the size of what is live. It runs until ctx ends. A limit that the user set (GOMEMLIMIT)
// stands.
func bound(ctx context.Context, objects func() int) {
	if debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return
	}
	ticker := time.NewTicker(boundEvery)
	defer ticker.Stop()
	for {
		debug.SetMemoryLimit(memoryLimit(objects(), liveHeap()))
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// memoryLimit leaves room above what is live whatever that is: a limit below it would
// have the collector work without end.
func memoryLimit(objects int, live uint64) int64 {
	return max(baseBytes+objectBytes*int64(objects), int64(live)+int64(live)/4+40<<20)
}

// liveHeap is how many bytes the last collection found in use.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// tidy gives memory back to the system when a burst of work is over: a first sync,
// a resync, maintenance. The runtime by itself collects garbage when as much was
// allocated again as was live at the last collection, in the middle of the burst;
// an agent that rests after it would keep that for minutes, and a part for good. It
// runs until ctx ends.
func tidy(ctx context.Context) {
	ticker := time.NewTicker(tidyEvery)
	defer ticker.Stop()
	var b burst
	for {
		select {
		case <-ticker.C:
			if b.over(allocated()) {
				debug.FreeOSMemory()
			}
		case <-ctx.Done():
			return
		}
	}
}

// burst decides when memory is worth giving back. The zero burst has seen nothing.
type burst struct {
	last uint64 // allocated in all when looked at last
	work uint64 // allocated since memory was given back
}

// over takes how many bytes were allocated in all so far, and says whether much was
// and now it is quiet. Under a load that goes on it never is: a collection, and the
// pages that come back after it, would only cost then.
func (b *burst) over(allocated uint64) bool {
	step := allocated - b.last
	b.last = allocated
	b.work += step
	if step > restBytes || b.work < burstBytes {
		return false
	}
	b.work = 0
	return true
}

// allocated is how many bytes of heap this process has allocated so far.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
