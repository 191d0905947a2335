package main

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/crmirror/crmirror/sync"
)

// collector tells Prometheus what the last cycle found.
type collector struct {
	health    *sync.Health
	conflicts *prometheus.Desc
	refused   *prometheus.Desc
	held      *prometheus.Desc
	waiting   *prometheus.Desc
}

// metricsHandler serves /metrics.
func metricsHandler(health *sync.Health) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(&collector{
		health: health,
		conflicts: prometheus.NewDesc("crmirror_conflicts", "Fields and objects that git and the cluster have differently, "+
			"by resource; they are written on neither side.", []string{"resource"}, nil),
		refused: prometheus.NewDesc("crmirror_refused_objects", "Objects whose change in git is not applied: the server refused it, "+
			"or it cannot be judged now.", nil, nil),
		held:    prometheus.NewDesc("crmirror_held_deletes", "Deletions that wait for approval.", nil, nil),
		waiting: prometheus.NewDesc("crmirror_backlog_objects", "Objects whose push is not acknowledged.", nil, nil),
	})
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

// Describe implements prometheus.Collector.
func (m *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.conflicts, m.refused, m.held, m.waiting} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *collector) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value int, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	state := m.health.State()
	for resource, n := range state.Conflicts {
		gauge(m.conflicts, n, resource)
	}
	gauge(m.refused, state.Refused)
	gauge(m.held, state.Held)
	gauge(m.waiting, state.Waiting)
}
