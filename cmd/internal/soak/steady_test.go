//go:build long

package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/crmirror/crmirror/cmd/internal/lab"
	"github.com/crmirror/crmirror/gitstore/gittest"
	"github.com/crmirror/crmirror/kube"
)

const (
	steadyMinutes = 2                      // unless SOAK_MINUTES says another number
	steadyObjects = 200                    // that are changed in turn
	steadyPause   = 150 * time.Millisecond // between two changes
)

// The agent works under a steady stream of changes, undisturbed, with a
// maintenance every half minute. What it takes must not grow: memory, packs,
// files, what waits. A chart and all samples are written to SOAK_OUT.
func TestSteady(t *testing.T) {
	minutes := steadyMinutes
	if text := os.Getenv("SOAK_MINUTES"); text != "" {
		var err error
		if minutes, err = strconv.Atoi(text); err != nil || minutes < 1 {
			t.Fatalf("SOAK_MINUTES is %q, want a number of minutes", text)
		}
	}
	out := os.Getenv("SOAK_OUT")
	if out == "" {
		out = t.ArtifactDir()
	}
	if err := os.MkdirAll(out, 0o777); err != nil {
		t.Fatal(err)
	}
	s := newSteady(t)
	s.agent.start()
	s.agent.waitReady()
	samples := s.run(time.Duration(minutes) * time.Minute)
	writeCSV(t, filepath.Join(out, "soak.csv"), samples)
	writeSVG(t, filepath.Join(out, "soak.svg"), samples)
	t.Logf("%d updates, %d samples, in %s", s.updates, len(samples), out)
	for _, what := range grown(samples) {
		t.Error(what)
	}
	s.finish()
}

// steady is a run of TestSteady.
type steady struct {
	t       *testing.T
	rng     *rand.Rand
	lab     *lab.Lab
	cluster *soakCluster
	agent   *agent
	people  *people

	keys    []kube.Key
	updates int
}

func newSteady(t *testing.T) *steady {
	t.Helper()
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
	s := &steady{t: t, rng: rand.New(rand.NewPCG(5, 6)), lab: l}
	s.people = newPeople(t, s.rng, l.RemoteDir())
	config, cache, health := filepath.Join(dir, "crmirror.yaml"), filepath.Join(dir, "cache"), freeAddress(t)
	writeFile(t, config, fmt.Sprintf(soakConfig, l.Kubeconfig(0), cache, l.RemoteHTTP(), soakPath, tokenFile(t, l), health)+
		"schedule: {maintenance: \"@every 30s\"}\n")
	s.cluster = newSoakCluster(t, s.rng, l.Clusters[0].Config, config)
	for i := range steadyObjects {
		s.keys = append(s.keys, s.cluster.key(widgets, soakNamespaces[i%2], fmt.Sprintf("steady-%03d", i)))
		s.cluster.create(s.keys[i])
	}
	// The race detector's own memory is not what is looked at.
	s.agent = &agent{t: t, binary: build(t), config: config, cache: cache, health: health}
	s.agent.keepLog("agent.log")
	return s
}

// run changes objects for so long and samples what the agent takes.
func (s *steady) run(length time.Duration) []sample {
	s.t.Helper()
	every := max(time.Second, length/300)
	begin := time.Now()
	var samples []sample
	change := time.NewTicker(steadyPause)
	defer change.Stop()
	for time.Since(begin) < length {
		select {
		case <-s.t.Context().Done():
			s.t.Fatal(s.t.Context().Err())
		case <-change.C:
		}
		s.update()
		if why := s.agent.ended(); why != "" {
			s.t.Fatalf("the agent ended by itself: %s", why)
		}
		if at := time.Since(begin); at >= time.Duration(len(samples))*every {
			samples = append(samples, s.sample(at))
		}
	}
	return samples
}

// update changes the next object. How many were made before stands in it.
func (s *steady) update() {
	s.t.Helper()
	s.updates++
	s.cluster.update(s.keys[s.updates%len(s.keys)], "", func(obj *unstructured.Unstructured) {
		spec := s.cluster.fields(widgets)
		spec["updates"] = int64(s.updates)
		obj.Object["spec"] = spec
	})
}

// sample looks at the agent, its clone and the remote.
func (s *steady) sample(at time.Duration) sample {
	s.t.Helper()
	repo := filepath.Join(s.agent.cache, "repo.git")
	now := sample{seconds: at.Seconds(), resident: s.agent.resident(), files: float64(len(filesBelow(s.t, repo, "")))}
	for _, name := range filesBelow(s.t, repo, "objects/pack") {
		if strings.HasSuffix(name, ".pack") {
			now.packs++
		}
	}
	now.backlog = float64(s.updates - s.arrived())
	count := gittest.Git(s.t, s.lab.RemoteDir(), "rev-list", "--count", "main")
	var err error
	if now.commits, err = strconv.ParseFloat(count, 64); err != nil {
		s.t.Fatal(err)
	}
	return now
}

// arrived is the number of the newest update that the remote shows.
func (s *steady) arrived() int {
	s.t.Helper()
	found, err := gittest.Run(s.t.Context(), s.lab.RemoteDir(), "grep", "-h", "-E", "^  updates: [0-9]+$", "main", "--", soakPath)
	if err != nil {
		return 0 // none is there yet
	}
	newest := 0
	for line := range strings.Lines(found) {
		n, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "updates:")))
		if err != nil {
			s.t.Fatal(err)
		}
		newest = max(newest, n)
	}
	return newest
}

// finish proves that nothing was lost, and that the clone is sound.
func (s *steady) finish() {
	s.t.Helper()
	var differences string
	waitFor(s.t, soakSettle, func() string { return differences + "\n" + s.agent.tail() }, func(context.Context) bool {
		s.people.fetch()
		differences = s.people.compare(s.cluster.files())
		return differences == ""
	})
	if code := s.agent.terminate(); code != exitDone {
		s.t.Errorf("exit code after SIGTERM: got %d, want 0\n%s", code, s.agent.tail())
	}
	s.people.fetch()
	s.agent.checkCache(s.people.head())
	s.agent.checkLog(s.lab)
	gittest.Fsck(s.t, s.lab.RemoteDir())
	log, err := os.ReadFile(s.agent.log.Name())
	if err != nil {
		s.t.Fatal(err)
	}
	if !strings.Contains(string(log), "repository maintained") {
		s.t.Error("the repository was never maintained")
	}
}
