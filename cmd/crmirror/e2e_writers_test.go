package main_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/crmirror/crmirror/gitstore/gittest"
)

// writer is the agent of one cluster among many that share a repository. One API server stands for
// all clusters: each agent mirrors a kind of its own to a path, or a branch, of its own.
type writer struct {
	*widgets
	*agent
	load                  *load
	cluster, branch, path string
	address               string
}

// startWriters starts n agents under load on one repository: on one branch with a path each or, with
// branches, on a branch each.
func startWriters(t *testing.T, s served, n int, branches bool) []*writer {
	t.Helper()
	var writers []*writer
	for i := range n {
		name := fmt.Sprintf("c%d", i)
		w := &writer{cluster: name, branch: "main", path: "clusters/" + name, address: freeAddress(t)}
		if branches {
			w.branch, w.path = name, "here"
		}
		w.widgets = newWidgets(t, fmt.Sprintf("%s-of-%d.example.dev", name, n)).install()
		w.load = startLoad(t, w.widgets, 5)
		config := strings.NewReplacer("cluster: e2e", "cluster: "+name, "path: clusters/e2e", "path: "+w.path, "branch: main", "branch: "+w.branch).
			Replace(configFor(s.url(), w.group, "health: {listen: '"+w.address+"'}\n"))
		w.agent = newUser(t).start(config)
		writers = append(writers, w)
	}
	return writers
}

// settle ends the load, waits until everything arrived, stops the agents, and looks at what is in git.
func (s served) settle(t *testing.T, writers []*writer) {
	t.Helper()
	for _, w := range writers {
		w.load.end()
	}
	for _, w := range writers {
		eventually(t, "the newest state of "+w.group, func() error {
			if gittest.Git(t, s.dir, "for-each-ref", "refs/heads/"+w.branch) == "" {
				return errors.New("no commit yet")
			}
			if d := diff(t, s.dir, w.branch, w.path, cluster(t, w.group)); d != "" {
				return errors.New(d)
			}
			return nil
		})
	}
	for _, w := range writers {
		w.report()
		w.stop()
		if d := diff(t, s.dir, w.branch, w.path, cluster(t, w.group)); d != "" {
			t.Errorf("%s differs from the cluster in the end (-cluster +remote):\n%s", w.group, d)
		}
		base := gittest.Git(t, s.dir, "for-each-ref", "--format=%(refname)", "refs/crmirror/"+w.cluster+"-*/base")
		if d := gittest.Git(t, s.dir, "diff", "--stat", base, w.branch, "--", w.path); d != "" {
			t.Errorf("base and branch differ below %s:\n%s", w.path, d)
		}
	}
	s.checkHistory(t, "--branches")
}

// report tells how the agent fared among the others.
func (w *writer) report() {
	w.t.Helper()
	m := scrape(w.t, w.address)
	push := `{operation="push"}`
	w.t.Logf("%s: %.0f pushes in %.1f s, %.0f lost to a faster writer, %.0f cycles tried again; lag of a change %.2f s on average, at most %g s",
		w.path, m["crmirror_operation_duration_seconds_count"+push], m["crmirror_operation_duration_seconds_sum"+push],
		m[`crmirror_errors_total{cause="diverged",operation="push"}`], m["crmirror_retries_total"],
		m["crmirror_change_lag_seconds_sum"]/m["crmirror_change_lag_seconds_count"], worst(m, "crmirror_change_lag_seconds"))
}

// worst is the bound of the highest bucket of a histogram that counts anything.
func worst(m map[string]float64, name string) float64 {
	all, bound := m[name+"_count"], math.Inf(1)
	for sample, n := range m {
		le, ok := strings.CutPrefix(sample, name+`_bucket{le="`)
		if !ok || n < all {
			continue
		}
		if b, err := strconv.ParseFloat(strings.TrimSuffix(le, `"}`), 64); err == nil {
			bound = min(bound, b)
		}
	}
	return bound
}

// scrape reads an agent's metrics.
func scrape(t *testing.T, address string) map[string]float64 {
	t.Helper()
	response, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return samples(t, response.Body)
}

func samples(t *testing.T, body io.Reader) map[string]float64 {
	t.Helper()
	m := map[string]float64{}
	for lines := bufio.NewScanner(body); lines.Scan(); {
		name, text, ok := strings.Cut(lines.Text(), " ")
		if value, err := strconv.ParseFloat(text, 64); ok && err == nil {
			m[name] = value
		}
	}
	return m
}

// Three agents on one branch, under load: nothing of any is lost, and nobody's commits are undone.
func TestManyWriters(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	writers := startWriters(t, server, 3, false)
	for _, w := range writers {
		w.waitLog("in sync")
	}
	server.waitCommits(t, len(server.subjects(t))+6)
	server.settle(t, writers)
}

// waitCommits waits until main has so many.
func (s served) waitCommits(t *testing.T, n int) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " commits"), func() error {
		if got := len(s.subjects(t)); got < n {
			return fmt.Errorf("%d so far", got)
		}
		return nil
	})
}
