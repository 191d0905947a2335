package main

import "testing"

func TestMemoryLimit(t *testing.T) {
	for _, tt := range []struct {
		objects int
		live    uint64
		want    int64
	}{
		{0, 10e6, 140e6},
		{100_000, 90e6, 200e6},
		{1000, 800e6, 1000e6 + 40<<20}, // a large repository beside few objects
	} {
		if got := memoryLimit(tt.objects, tt.live); got != tt.want {
			t.Errorf("memoryLimit(%d, %d) = %d, want %d", tt.objects, tt.live, got, tt.want)
		}
	}
	if liveHeap() == 0 {
		t.Error("nothing is live")
	}
}

// TestBurst covers when memory is given back: once after each burst, not in one.
func TestBurst(t *testing.T) {
	const mb = 1 << 20
	var b burst
	total := uint64(0)
	for i, step := range []struct {
		allocated uint64
		want      bool
	}{
		{10 * mb, false},  // a start, then rest: too little to matter
		{1 * mb, false},   //
		{100 * mb, false}, // the first sync
		{90 * mb, false},  //
		{1 * mb, true},    // it is over
		{1 * mb, false},   // nothing new to give back
		{30 * mb, false},  // a load that goes on
		{30 * mb, false},  //
		{30 * mb, false},  //
		{5 * mb, false},   // a slow one
		{1 * mb, true},    //
		{1 * mb, false},   // a trickle adds up, slowly
		{63 * mb, false},  //
		{0, true},         //
		{0, false},        //
	} {
		total += step.allocated
		if got := b.over(total); got != step.want {
			t.Errorf("step %d, %d MB more: over is %t, want %t", i, step.allocated/mb, got, step.want)
		}
	}
	if first := allocated(); first == 0 || allocated() < first {
		t.Error("what was allocated is not counted")
	}
}
