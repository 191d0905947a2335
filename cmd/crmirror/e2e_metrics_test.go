package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// described is a metric as it is documented or scraped: its type and its labels.
type described map[string]string

// TestMetrics scrapes an agent that has met everything: what it tells is what the README says,
// both ways, and what the alerts and the dashboard ask for.
func TestMetrics(t *testing.T) {
	t.Parallel()
	w := newWidgets(t, "metrics.example.dev").install()
	w.create("a", 1)
	server := newServer(t)
	u := newUser(t)
	config, address := watchedConfig(t, server, w.group, "mode: two-way\n")
	agent := u.start(config)
	agent.waitLog("in sync")
	agent.stop()

	// A conflict, and a remote that is away for a moment.
	server.commitChange(t, w, "a", "size: 1", "size: 2")
	w.patch("a", `{"spec": {"size": 3}}`)
	agent = u.start(config)
	agent.waitLog(`conflict of .*\.spec\.size`)
	var turnedAway atomic.Bool
	server.Intercept(func(answer http.ResponseWriter, _ *http.Request) bool {
		if turnedAway.Swap(true) {
			return false
		}
		http.Error(answer, "out of order", http.StatusServiceUnavailable)
		return true
	})
	w.patch("a", `{"spec": {"color": "red"}}`)
	var text string
	eventually(t, "a change to be measured", func() (err error) {
		text, err = get("http://" + address + "/metrics")
		for _, want := range []string{"crmirror_errors_total{", "crmirror_conflicts{"} {
			if err == nil && !strings.Contains(text, want) {
				err = errors.New("no " + want)
			}
		}
		if err == nil && strings.Contains(text, "crmirror_change_lag_seconds_count 0") {
			err = errors.New("no lag")
		}
		return err
	})
	agent.stop()
	for _, want := range []string{
		`crmirror_errors_total{cause="unreachable",`, `crmirror_objects{resource="widgets.metrics.example.dev"} 1`,
		`crmirror_informers{phase="synced",resource="widgets.metrics.example.dev"} 1`, `crmirror_quarantined_objects{resource="widgets.metrics.example.dev"} 0`,
		`crmirror_watch_events_total{resource="widgets.metrics.example.dev",type="changed"} `, `crmirror_operation_duration_seconds_count{operation="push"} `,
		`crmirror_kube_request_duration_seconds_count{code="200",verb="watch"} `, `crmirror_build_info{goversion="go`, `version="v1.2.3-e2e"} 1`,
		`crmirror_leader 1`, "go_goroutines ", "process_resident_memory_bytes ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	scraped := scrapedMetrics(text)
	if d := cmp.Diff(documentedMetrics(t), ours(scraped)); d != "" {
		t.Errorf("metrics of the README and of the agent (-README +agent):\n%s", d)
	}
	checkQueries(t, scraped)
}

// get returns the body of an answer.
func get(url string) (string, error) {
	answer, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return string(body), err
}

// scrapedMetrics reads the text format: the type of each metric, and the labels of its samples.
func scrapedMetrics(text string) described {
	types, labels := map[string]string{}, map[string]map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`).FindAllStringSubmatch(text, -1) {
		types[m[1]], labels[m[1]] = m[2], map[string]bool{}
	}
	label := regexp.MustCompile(`(\w+)="`)
	for _, m := range regexp.MustCompile(`(?m)^(\w+)(\{.*\})? \S+$`).FindAllStringSubmatch(text, -1) {
		name := m[1]
		if types[name] == "" {
			name = family(name)
		}
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			if l[1] != "le" {
				labels[name][l[1]] = true
			}
		}
	}
	out := described{}
	for name, kind := range types {
		out[name] = strings.TrimSpace(kind + " " + strings.Join(slices.Sorted(maps.Keys(labels[name])), " "))
	}
	return out
}

// family is the metric that a sample of a histogram belongs to.
func family(sample string) string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if name, ok := strings.CutSuffix(sample, suffix); ok {
			return name
		}
	}
	return sample
}

func ours(all described) described {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(name, _ string) bool { return !strings.HasPrefix(name, "crmirror_") })
	return out
}

// documentedMetrics reads the README's table.
func documentedMetrics(t *testing.T) described {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	out := described{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(crmirror_\\w+)` \\| (\\w+) \\|([^|]*)\\|").FindAllStringSubmatch(string(content), -1) {
		labels := regexp.MustCompile(`\w+`).FindAllString(row[3], -1)
		slices.Sort(labels)
		out[row[1]] = strings.TrimSpace(row[2] + " " + strings.Join(labels, " "))
	}
	return out
}

// targetLabels are those that Prometheus adds to what it scrapes.
var targetLabels = []string{"namespace", "job", "pod", "instance", "le"}

// checkQueries lets Prometheus' parser read every query of the alerts and the dashboard. Each
// metric in them is one of the agent's, with the labels that it is asked for.
func checkQueries(t *testing.T, metrics described) {
	t.Helper()
	queries := deployedQueries(t)
	asked, err := json.Marshal(queries)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", ".")
	cmd.Dir = filepath.Join("..", "..", "testdata", "promql")
	cmd.Stdin, cmd.Stderr = strings.NewReader(string(asked)), os.Stderr
	answer, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var parsed []struct {
		Error   string
		Metrics map[string][]string
		Groups  []string
	}
	if err := json.Unmarshal(answer, &parsed); err != nil || len(parsed) != len(queries) {
		t.Fatalf("%d answers to %d queries: %v", len(parsed), len(queries), err)
	}
	for i, p := range parsed {
		if p.Error != "" {
			t.Errorf("%s: %s", queries[i], p.Error)
		}
		known := slices.Clone(targetLabels)
		for sample, by := range p.Metrics {
			what, ok := metrics[sample]
			if !ok {
				what, ok = metrics[family(sample)]
			}
			if !ok {
				t.Errorf("%s: the agent has no %s", queries[i], sample)
			}
			labels := append(strings.Fields(what), targetLabels...)
			known = append(known, labels...)
			if wrong := missing(by, labels); len(wrong) > 0 {
				t.Errorf("%s: %s has no label %q", queries[i], sample, wrong)
			}
		}
		if wrong := missing(p.Groups, known); len(wrong) > 0 {
			t.Errorf("%s: nothing in it has a label %q", queries[i], wrong)
		}
	}
}

func missing(want, have []string) []string {
	return slices.DeleteFunc(slices.Clone(want), func(s string) bool { return slices.Contains(have, s) })
}

// deployedQueries are the queries of the alerts and of the dashboard.
func deployedQueries(t *testing.T) []string {
	t.Helper()
	read := func(name string) any {
		content, err := os.ReadFile(filepath.Join("..", "..", "deploy", filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		var out any
		if err := yaml.Unmarshal(content, &out); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return out
	}
	rules, dashboard := expressions(read("components/monitoring/prometheusrule.yaml")), expressions(read("dashboards/crmirror.json"))
	if len(rules) < 10 || len(dashboard) < 20 {
		t.Fatalf("%d queries of alerts, %d of the dashboard", len(rules), len(dashboard))
	}
	queries := append(rules, dashboard...)
	for i, q := range queries {
		queries[i] = strings.ReplaceAll(q, "$__rate_interval", "5m")
	}
	return queries
}

// expressions are the values of all keys called expr.
func expressions(value any) []string {
	var found []string
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if text, ok := v[key].(string); ok && key == "expr" {
				found = append(found, text)
			}
			found = append(found, expressions(v[key])...)
		}
	case []any:
		for _, item := range v {
			found = append(found, expressions(item)...)
		}
	}
	return found
}

// TestProfiles: Go's profiles are served where they are wanted, and nowhere else.
func TestProfiles(t *testing.T) {
	t.Parallel()
	for _, wanted := range []bool{false, true} {
		address := freeAddress(t)
		agent := newUser(t).start(configFor(newServer(t).url(), "profiles.example.dev",
			fmt.Sprintf("health: {listen: '%s', pprof: %t}\n", address, wanted)))
		agent.waitLog("in sync")
		text, err := get("http://" + address + "/debug/pprof/goroutine?debug=1")
		if served := strings.Contains(text, "goroutine profile:"); err != nil || served != wanted {
			t.Errorf("pprof: %t: profiles served: %t, %v", wanted, served, err)
		}
		agent.stop()
	}
}

// TestHeldDeletionsShow: that deletions wait shows to the users of the namespace that they are
// of, and to who watches the agent.
func TestHeldDeletionsShow(t *testing.T) {
	t.Parallel()
	w := newWidgets(t, "heldshow.example.dev").install()
	names := []string{"a", "b", "c"}
	for _, name := range names {
		w.create(name, 1)
	}
	config, address := watchedConfig(t, newServer(t), w.group, "mode: two-way\n")
	agent := newUser(t).start(config)
	agent.waitLog("in sync")
	for _, name := range names {
		w.delete(name)
	}
	agent.waitLog("deletions are held")
	eventually(t, "an event on the namespace", func() error { return w.event(w.namespace, "GitDeletionsHeld") })
	eventually(t, "the metric", func() error { return metric("http://"+address+"/metrics", "crmirror_held_deletes 3\n") })
	agent.stop()
}
