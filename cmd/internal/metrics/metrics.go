// Package metrics measures the agent for Prometheus: it is what the agent's parts tell what
// they do (a sync.Observer, and a wrapper of the connection to the cluster), and it asks them
// for their state when it is scraped. Its metrics are named as Prometheus' conventions want it, in
// seconds, and have no label whose values grow with the number of objects.
package metrics

import (
	"net/http"
	"runtime"
	gosync "sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/sync"
)

// Metrics measures one agent. It is ready for use as sync.Observer from its creation on.
type Metrics struct {
	registry *prometheus.Registry

	events       *prometheus.CounterVec
	batches      prometheus.Counter
	batchObjects prometheus.Histogram
	operations   *prometheus.HistogramVec
	errors       *prometheus.CounterVec
	retries      prometheus.Counter
	lag          prometheus.Histogram
	lastCycle    prometheus.Gauge
	lastPush     prometheus.Gauge
	leader       prometheus.Gauge
	requests     *prometheus.HistogramVec

	seen gosync.Map // counters of events, by sighting

	waiting atomic.Int64
	oldest  atomic.Int64 // Unix nanoseconds; 0 for none

	mu      gosync.Mutex
	running map[sync.Operation]time.Time // since when
}

// sighting is what one counter of events counts.
type sighting struct {
	resource schema.GroupResource
	sight    sync.Sight
}

// New returns Metrics of an agent of that version, which leads until SetLeader says
// otherwise.
func New(version string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), running: map[sync.Operation]time.Time{}}
	m.define()
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.events, m.batches, m.batchObjects, m.operations, m.errors, m.retries, m.lag,
		m.lastCycle, m.lastPush, m.leader, m.requests, buildInfo(version),
	)
	m.leader.Set(1)
	for _, op := range sync.Operations() {
		m.operations.WithLabelValues(string(op))
	}
	return m
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}

// SetLeader tells whether this agent is the one of several that writes.
func (m *Metrics) SetLeader(leads bool) {
	m.leader.Set(0)
	if leads {
		m.leader.Set(1)
	}
}

func buildInfo(version string) prometheus.Collector {
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "crmirror_build_info", Help: "Always 1; the labels tell which crmirror runs.",
	}, []string{"version", "goversion"})
	info.WithLabelValues(version, runtime.Version()).Set(1)
	return info
}

// define makes everything that is measured as it happens.
func (m *Metrics) define() {
	m.events = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "crmirror_watch_events_total",
		Help: "What watches told of objects, by resource and type: changed, deleted, unselected (no rule selects it), quarantined (it cannot be written).",
	}, []string{"resource", "type"})
	m.batches = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "crmirror_batches_total", Help: "Batches of changes that were closed.",
	})
	m.batchObjects = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "crmirror_batch_objects", Help: "Objects in a batch.", Buckets: prometheus.ExponentialBuckets(1, 4, 9),
	})
	m.operations = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "crmirror_operation_duration_seconds",
		Help: "How long operations took, failed ones included: cycle (a whole pass), fetch, commit, push, checkout (of the worktree), maintain.",
		// A commit of one object takes a few milliseconds, a first push minutes.
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300},
	}, []string{"operation"})
	m.errors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "crmirror_errors_total", Help: "Operations that failed, by operation and cause.",
	}, []string{"operation", "cause"})
	m.retries = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "crmirror_retries_total", Help: "Cycles that are tried again because of an error.",
	})
	m.lag = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "crmirror_change_lag_seconds",
		Help:    "From when a watch told of a change until the remote acknowledged the push that has it.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 900, 3600},
	})
	m.lastCycle = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "crmirror_last_cycle_timestamp_seconds", Help: "When a cycle last ended without an error, Unix time; 0 for never.",
	})
	m.lastPush = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "crmirror_last_push_timestamp_seconds", Help: "When the remote last acknowledged a push, Unix time; 0 for never.",
	})
	m.leader = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "crmirror_leader", Help: "1 for the agent that writes, 0 for a standby.",
	})
	m.requests = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "crmirror_kube_request_duration_seconds",
		Help:    "Until the API server began to answer, by verb and HTTP status (or: error).",
		Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	}, []string{"verb", "code"})
}

// Seen implements sync.Observer.
func (m *Metrics) Seen(resource schema.GroupResource, sight sync.Sight) {
	key := sighting{resource, sight}
	counter, ok := m.seen.Load(key)
	if !ok {
		counter, _ = m.seen.LoadOrStore(key, m.events.WithLabelValues(resource.String(), string(sight)))
	}
	counter.(prometheus.Counter).Inc()
}

// Begin implements sync.Observer.
func (m *Metrics) Begin(op sync.Operation) func(error) {
	began := time.Now()
	m.mu.Lock()
	m.running[op] = began
	m.mu.Unlock()
	return func(err error) {
		m.mu.Lock()
		delete(m.running, op)
		m.mu.Unlock()
		m.operations.WithLabelValues(string(op)).Observe(time.Since(began).Seconds())
		switch {
		case err != nil:
			m.errors.WithLabelValues(string(op), Cause(err)).Inc()
		case op == sync.OpCycle:
			m.lastCycle.SetToCurrentTime()
		case op == sync.OpPush:
			m.lastPush.SetToCurrentTime()
		}
	}
}

// Running returns since when the operations run that are under way.
func (m *Metrics) Running() map[sync.Operation]time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	running := make(map[sync.Operation]time.Time, len(m.running))
	for op, since := range m.running {
		running[op] = since
	}
	return running
}

// Taken implements sync.Observer.
func (m *Metrics) Taken(objects int) {
	m.batches.Inc()
	m.batchObjects.Observe(float64(objects))
}

// Waiting implements sync.Observer.
func (m *Metrics) Waiting(objects int, since time.Time) {
	m.waiting.Store(int64(objects))
	if since.IsZero() {
		m.oldest.Store(0)
		return
	}
	m.oldest.Store(since.UnixNano())
}

// Acknowledged implements sync.Observer.
func (m *Metrics) Acknowledged(seen time.Time) { m.lag.Observe(time.Since(seen).Seconds()) }

// Retried implements sync.Observer.
func (m *Metrics) Retried() { m.retries.Inc() }
