package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/informer"
	"github.com/crmirror/crmirror/sync"
)

// Sources are asked for the agent's state at every scrape. All of them are needed.
type Sources struct {
	Health      func() sync.HealthState
	Resources   func() []informer.ResourceStatus
	Quarantined func() map[kube.Key]error
	// Dirty is how many objects are in the batch that is open.
	Dirty func() int
}

// Watch lets the metrics tell the state of an agent. It is called once.
func (m *Metrics) Watch(s Sources) { m.registry.MustRegister(newState(m, s)) }

// state collects what is asked for when it is scraped.
type state struct {
	of      *Metrics
	sources Sources

	objects, scopes, quarantined               *prometheus.Desc
	conflicts, refused, held, postponed        *prometheus.Desc
	findings, orphans, backlog, oldest, inSync *prometheus.Desc
}

func newState(m *Metrics, s Sources) *state {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &state{
		of: m, sources: s,
		objects: desc("crmirror_objects", "Objects in the cluster that rules select, by resource.", "resource"),
		scopes: desc("crmirror_informers", "Informers, by resource and phase: listing (not complete yet), synced, failing (it cannot be "+
			"read), gone (its CRD is).", "resource", "phase"),
		quarantined: desc("crmirror_quarantined_objects", "Objects that cannot be written to git, by resource; their files stay as they are.", "resource"),
		conflicts: desc("crmirror_conflicts", "Fields and objects that git and the cluster have differently, by resource; they are written "+
			"on neither side.", "resource"),
		refused: desc("crmirror_refused_objects", "Objects whose change in git is not applied: the server refused it, or it cannot be "+
			"judged now."),
		held:      desc("crmirror_held_deletes", "Deletions that wait for approval."),
		postponed: desc("crmirror_postponed_deletes", "Deletions that could not be proven yet."),
		findings:  desc("crmirror_findings", "Files in git that a person should look at; the log names them."),
		orphans:   desc("crmirror_orphaned_files", "Files that no rule selects any more."),
		backlog:   desc("crmirror_backlog_objects", "Objects whose push is not acknowledged, those in the open batch included."),
		oldest: desc("crmirror_backlog_oldest_timestamp_seconds", "Since when the oldest change waits that was taken for a commit, Unix time; "+
			"0 for none."),
		inSync: desc("crmirror_in_sync", "1 when the first sync was finished and the last cycle did not fail, else 0."),
	}
}

// Describe implements prometheus.Collector.
func (s *state) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		s.objects, s.scopes, s.quarantined, s.conflicts, s.refused, s.held, s.postponed, s.findings, s.orphans, s.backlog, s.oldest, s.inSync,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (s *state) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	health := s.sources.Health()
	for resource, n := range health.Conflicts {
		gauge(s.conflicts, float64(n), resource)
	}
	gauge(s.refused, float64(health.Refused))
	gauge(s.held, float64(health.Held))
	gauge(s.postponed, float64(health.Postponed))
	gauge(s.findings, float64(health.Findings))
	gauge(s.orphans, float64(health.Orphans))
	gauge(s.backlog, float64(s.of.waiting.Load())+float64(s.sources.Dirty()))
	gauge(s.oldest, time.Duration(s.of.oldest.Load()).Seconds())
	inSync := 0.0
	if health.Started && health.Failing == nil {
		inSync = 1
	}
	gauge(s.inSync, inSync)
	s.collectResources(gauge)
}

// collectResources tells of each resource. Every phase is told, so that its series do not
// come and go.
func (s *state) collectResources(gauge func(*prometheus.Desc, float64, ...string)) {
	type counts struct {
		objects, quarantined int
		phases               map[informer.Phase]int
	}
	resources := map[string]*counts{}
	at := func(resource schema.GroupResource) *counts {
		name := resource.String()
		if resources[name] == nil {
			resources[name] = &counts{phases: map[informer.Phase]int{}}
		}
		return resources[name]
	}
	for _, r := range s.sources.Resources() {
		n := at(r.Scope.Resource)
		n.objects += r.Objects
		n.phases[r.Phase]++
	}
	for key := range s.sources.Quarantined() {
		at(key.GroupResource()).quarantined++
	}
	for name, n := range resources {
		gauge(s.objects, float64(n.objects), name)
		gauge(s.quarantined, float64(n.quarantined), name)
		for _, phase := range []informer.Phase{informer.PhaseListing, informer.PhaseSynced, informer.PhaseFailing, informer.PhaseGone} {
			gauge(s.scopes, float64(n.phases[phase]), name, string(phase))
		}
	}
}
