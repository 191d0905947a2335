package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// tidyEvery is how often the agent looks whether a burst of work is over.
	tidyEvery = 5 * time.Second
	// burstBytes is what has to be allocated before memory is given back, and
	// restBytes what may be allocated in a period that counts as rest.
	burstBytes, restBytes = 64 << 20, 8 << 20
)

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
