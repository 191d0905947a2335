//go:build long

// Package soak lets the built crmirror work for minutes on a real API server and
// a real git server while everything around it fails at random. It holds tests
// only, and has a package of its own since it needs servers of its own.
package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crmirror/crmirror/cmd/internal/lab"
	"github.com/crmirror/crmirror/gitstore/gittest"
)

// Exit codes of crmirror.
const (
	exitDone        = 0
	exitDifferences = 3
	exitInterrupted = 130
)

const (
	soakOperations = 2200 // creates, updates and deletes in the cluster
	soakPath       = "clusters/soak"
	soakSettle     = 3 * time.Minute // until everything is in git once nothing disturbs it
)

// The agent mirrors a stream of random changes while everything around it
// fails: it is killed, its cache is damaged, the remote goes away, people push
// to its branch and rewind it, the API server restarts, a CRD is deleted. Then
// it is left in peace, and the repository has to equal the cluster object for
// object, with a history in which every commit is whole.
//
// CRMIRROR_SEED repeats the choices of a run, though not its timing.
func TestSoak(t *testing.T) {
	s := newSoak(t)
	s.agent.start()
	for s.cluster.operations < soakOperations {
		s.step()
	}
	s.settle()
	s.check()
	s.restartChangesNothing()
	t.Logf("what happened: %s", s.tally())
}

// soak is one run: all choices come from one source, in one goroutine.
type soak struct {
	t       *testing.T
	rng     *rand.Rand
	lab     *lab.Lab
	cluster *soakCluster
	agent   *agent
	people  *people
	proxy   *proxy // between the agent and the API server

	steps   int
	counts  map[string]int
	startAt int // step at which a stopped agent is started
	onAt    int // step at which the remote is switched on; 0 = it is on
	joinAt  int // step at which the API server can be reached again; 0 = it can
	joined  int // step at which it last could be
	restart int // step at which the API server is restarted
	crdGone int // step at which the CRD of visitors is deleted
	crdBack int // and created again
}

func newSoak(t *testing.T) *soak {
	t.Helper()
	rng := soakRandom(t)
	l, err := lab.Start(t.Context(), lab.Options{Dir: filepath.Join(t.TempDir(), "lab")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	s := &soak{
		t: t, rng: rng, lab: l, counts: map[string]int{},
		people:  newPeople(t, rng, l.RemoteDir()),
		restart: 40 + rng.IntN(100),
		crdGone: 60 + rng.IntN(60),
	}
	s.crdBack = s.crdGone + 1 + rng.IntN(30)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	s.proxy = proxied(t, l.Kubeconfig(0), l.Clusters[0].Config.Host, kubeconfig)
	config, cache, health := filepath.Join(dir, "crmirror.yaml"), filepath.Join(dir, "cache"), freeAddress(t)
	writeFile(t, config, fmt.Sprintf(soakConfig, kubeconfig, cache, l.RemoteHTTP(), soakPath, tokenFile(t, l), health))
	s.cluster = newSoakCluster(t, rng, l.Clusters[0].Config, config)
	s.agent = &agent{t: t, binary: buildCrmirror(t), config: config, cache: cache, health: health}
	s.agent.keepLog("agent.log")
	return s
}

// proxied starts a proxy to the API server at host, and writes a kubeconfig that
// leads through it.
func proxied(t *testing.T, kubeconfig, host, file string) *proxy {
	t.Helper()
	server, err := url.Parse(host)
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy(t, server.Host)
	content, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, file, strings.ReplaceAll(string(content), server.Host, p.address))
	return p
}

// soakConfig has short windows, and a guard that lets ordinary deletions
// through. What is held all the same is approved.
const soakConfig = `apiVersion: crmirror.dev/v1alpha1
kind: Config
cluster: soak
kubeconfig: %s
cacheDir: %s
repository:
  url: %s
  branch: main
  path: %s
  auth: {tokenFile: %s}
select:
  - resources: ["*.soak.example.dev"]
    drop: [.spec.noise]
  - resources: [configmaps]
    namespaces: ["soak-*"]
exclude:
  - resources: ["*.soak.example.dev"]
    labelSelector: skip=yes
batch: {quiet: 100ms, max: 1s, maxObjects: 200}
apply: {poll: 1s}
guard: {maxDeleteObjects: 100000, maxDeletePercent: 100}
health: {listen: %q}
timeouts: {git: 20s, kubernetes: 10s, grace: 10s}
log: {level: debug}
`

// soakRandom returns the source of a run's choices and prints its seed.
func soakRandom(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano()) % 1_000_000
	if text := os.Getenv("CRMIRROR_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("CRMIRROR_SEED: %v", err)
		}
	}
	t.Logf("CRMIRROR_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// step is a burst of changes, maybe a blow, and a pause of random length, so
// that the next blow falls into whatever the agent is doing then.
func (s *soak) step() {
	s.steps++
	for range 1 + s.rng.IntN(18) {
		s.cluster.operate()
	}
	s.blow()
	if s.steps%4 == 0 {
		s.people.fetch()
		s.people.noteHeld()
	}
	s.pause(time.Duration(s.rng.IntN(700)) * time.Millisecond)
	s.watch()
}

// watch looks whether the agent ended by itself. Without an API server it cannot
// start, and gives up; as a container it would be tried again.
func (s *soak) watch() {
	why := s.agent.ended()
	switch {
	case why == "":
	case s.joinAt == 0 && s.steps > s.joined+2:
		s.t.Fatalf("step %d: the agent ended by itself: %s", s.steps, why)
	default:
		s.did("the agent gave up")
		s.startAt = s.steps + 1
	}
}

func (s *soak) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.t.Context().Done():
	}
}

// blow does what is due at this step, and draws what else happens.
func (s *soak) blow() {
	switch {
	case s.onAt > 0 && s.steps >= s.onAt:
		s.remoteOn()
	case s.joinAt > 0 && s.steps >= s.joinAt:
		s.join()
	case s.restart > 0 && s.steps >= s.restart:
		s.restart = 0
		s.restartAPIServer()
	case !s.agent.up() && s.steps >= s.startAt:
		s.agent.start()
	case s.crdGone > 0 && s.steps >= s.crdGone:
		s.crdGone = 0
		s.did("a CRD is deleted")
		s.cluster.deleteCRD()
	case s.crdBack > 0 && s.steps >= s.crdBack:
		s.crdBack = 0
		s.did("a CRD is there again")
		s.cluster.createCRD(visitors)
	default:
		s.draw()
	}
}

func (s *soak) draw() {
	switch n := s.rng.IntN(100); {
	case n < 14 && s.agent.up():
		s.did("the agent is killed")
		s.agent.kill()
		s.startAt = s.steps + s.rng.IntN(6)
		for range s.rng.IntN(3) {
			s.did("cache: " + damageCache(s.t, s.rng, s.agent.cache))
		}
	case n < 17 && s.agent.up():
		s.did("the agent is stopped")
		// While the remote is away, the last flush cannot succeed.
		if code := s.agent.terminate(); code != exitDone && code != exitInterrupted && s.onAt == 0 && s.joinAt == 0 {
			s.t.Fatalf("exit code after SIGTERM: got %d, want 0\n%s", code, s.agent.tail())
		}
		s.startAt = s.steps + s.rng.IntN(6)
	case n < 23 && s.onAt == 0:
		s.did("the remote is away")
		s.lab.HTTP.Off()
		s.onAt = s.steps + 1 + s.rng.IntN(8)
	case n < 26 && s.joinAt == 0:
		s.did("the API server is away")
		s.proxy.cut()
		s.joinAt = s.steps + 1 + s.rng.IntN(6)
	case n < 36:
		s.did(s.people.act())
	}
}

func (s *soak) did(what string) {
	s.t.Logf("step %3d: %s", s.steps, what)
	s.agent.note(what)
	s.counts[what]++
}

func (s *soak) tally() string {
	var list []string
	for what, n := range s.counts {
		list = append(list, fmt.Sprintf("%d × %s", n, what))
	}
	slices.Sort(list)
	return fmt.Sprintf("%d steps, %d operations, %s", s.steps, s.cluster.operations, strings.Join(list, ", "))
}

func (s *soak) remoteOn() {
	if err := s.lab.HTTP.On(); err != nil {
		s.t.Fatal(err)
	}
	s.onAt = 0
}

func (s *soak) join() {
	s.proxy.join()
	s.joinAt, s.joined = 0, s.steps
}

// restartAPIServer is an outage after which the server knows nothing but what
// etcd has. The agent's watches are cut before, or it would wait for them.
func (s *soak) restartAPIServer() {
	s.did("the API server restarts")
	if s.joinAt == 0 {
		s.proxy.cut()
	}
	if err := s.lab.Clusters[0].StopAPIServer(); err != nil {
		s.t.Fatal(err)
	}
	if err := s.lab.Clusters[0].StartAPIServer(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	s.joinAt = s.steps + 1
}

const approval = "held deletions are approved"

// settle ends all disturbance and waits until git has everything.
func (s *soak) settle() {
	s.remoteOn()
	if s.joinAt > 0 {
		s.join()
	}
	// A last change lets the agent meet what people did to its branch.
	s.cluster.touch()
	s.agent.note("left in peace")
	began := time.Now()
	var differences, held string
	waitFor(s.t, soakSettle, func() string { return differences + "\n" + s.agent.tail() }, func(context.Context) bool {
		s.steps++ // so that an agent that still gives up is started, and one that keeps on is not
		if s.watch(); !s.agent.up() {
			s.agent.start()
		}
		s.people.fetch()
		if s.counts[approval] == 0 {
			s.people.noteHeld()
			s.people.checkHeld(s.cluster.reborn)
		}
		if digest := s.people.held(); digest != "" && digest == held {
			s.did(approval)
			s.agent.approve(digest)
		} else {
			held = digest
		}
		differences = s.people.compare(s.cluster.files())
		return differences == ""
	})
	s.t.Logf("in step %v after the last disturbance", time.Since(began).Round(100*time.Millisecond))
}

// check holds what lies in git against what is promised.
func (s *soak) check() {
	gittest.Fsck(s.t, s.people.dir)
	gittest.Fsck(s.t, s.lab.RemoteDir())
	s.people.checkForeign()
	s.people.checkHistory()
	s.people.checkBase()
}

// restartChangesNothing stops the agent, looks at its clone, and starts it once
// more: nothing changed, so nothing may be committed.
func (s *soak) restartChangesNothing() {
	s.stopCleanly()
	s.agent.checkCache(s.people.head())
	s.agent.start()
	s.agent.waitReady()
	s.stopCleanly()
	before := s.people.head()
	s.people.fetch()
	if after := s.people.head(); after != before {
		s.t.Errorf("a start with nothing changed made a commit:\n%s",
			gittest.Git(s.t, s.people.dir, "log", "--stat", before+".."+after))
	}
	s.agent.checkLog(s.lab)
}

func (s *soak) stopCleanly() {
	if code := s.agent.terminate(); code != exitDone {
		s.t.Errorf("exit code after SIGTERM: got %d, want 0\n%s", code, s.agent.tail())
	}
}

// waitFor polls until done, and fails with what explain says when it takes too long.
func waitFor(t *testing.T, limit time.Duration, explain func() string, done func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for !done(ctx) {
		select {
		case <-ctx.Done():
			t.Fatalf("not done after %v: %s", limit, explain())
		case <-tick.C:
		}
	}
}
