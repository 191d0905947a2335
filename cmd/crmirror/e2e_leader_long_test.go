//go:build long

package main_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// roundsFor is how long leaders are killed.
const roundsFor = 2 * time.Minute

// TestLeaderRounds kills, pauses and stops whoever leads, in random order, under load and in both modes, and starts
// another standby each time. SEED repeats a run's order.
func TestLeaderRounds(t *testing.T) {
	seed := rand.Uint64()
	if text := os.Getenv("SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SEED=%d", seed)
	for i, mode := range []string{"mirror", "two-way"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			w := newWidgets(t, "rounds-"+mode+".example.dev").install()
			server := newServer(t)
			load := startLoad(t, w, 20)
			leader, _ := startElecting(t, server, w, mode)
			leader.waitLog("in sync")
			rounds := 0
			for began := time.Now(); time.Since(began) < roundsFor; rounds++ {
				standby, address := startElecting(t, server, w, mode)
				waitStanding(t, address)
				server.waitCommits(t, len(server.subjects(t))+1+rng.IntN(3))
				switch rng.IntN(3) {
				case 0:
					leader.signal(syscall.SIGKILL)
					leader.wait()
				case 1:
					leader.stop()
				case 2:
					leader.signal(syscall.SIGSTOP)
					standby.waitLog("msg=leading")
					leader.signal(syscall.SIGCONT)
					if code := leader.wait(); code != 1 {
						t.Errorf("exit code of a revived leader: got %d, want 1", code)
					}
				}
				standby.waitLog("in sync")
				leader = standby
			}
			server.endLed(t, w, load, leader)
			t.Logf("%d changes of leader, %d commits", rounds, len(server.subjects(t)))
		})
	}
}

// TestBranchEach has five agents with a branch each under load, and reports how they fared.
func TestBranchEach(t *testing.T) {
	server := newServer(t)
	writers := startWriters(t, server, 5, true)
	for _, w := range writers {
		w.waitLog("in sync")
	}
	server.settle(t, writers)
}
