package tsdb

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	batches         prometheus.Counter
	commits         prometheus.Counter
	failedCommits   prometheus.Counter
	rejected        *prometheus.CounterVec
	lostExemplars   prometheus.Counter
	staleRefs       prometheus.Counter
	families        prometheus.Gauge
	refusedFamilies prometheus.Counter
	open            prometheus.Gauge
	queryPanics     prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	return &metrics{
		batches: f.NewCounter(prometheus.CounterOpts{
			Name: "spillway_tsdb_batches_total",
			Help: "Batches that were committed.",
		}),
		commits: f.NewCounter(prometheus.CounterOpts{
			Name: "spillway_tsdb_commits_total",
			Help: "Commits, each of one or more batches.",
		}),
		failedCommits: f.NewCounter(prometheus.CounterOpts{
			Name: "spillway_tsdb_failed_commits_total",
			Help: "Commits that stored nothing. Their senders were told to send again.",
		}),
		rejected: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_tsdb_rejected_items_total",
			Help: "Items of admitted groups that the database refused for good, by reason.",
		}, []string{"reason"}),
		lostExemplars: f.NewCounter(prometheus.CounterOpts{
			Name: "spillway_tsdb_rejected_exemplars_total",
			Help: "Exemplars that the database refused. They cost no tokens and reject no items.",
		}),
		staleRefs: f.NewCounter(prometheus.CounterOpts{
			Name: "spillway_tsdb_stale_refs_total",
			Help: "Groups whose route remembered a series that had left memory.",
		}),
		families: f.NewGauge(prometheus.GaugeOpts{
			Name: "spillway_tsdb_metric_families",
			Help: "Metric families whose type, help and unit are kept.",
		}),
		refusedFamilies: f.NewCounter(prometheus.CounterOpts{
			Name: "spillway_tsdb_refused_metadata_total",
			Help: "Type, help and unit that were not kept because max_families, or the limit per family, was reached.",
		}),
		open: f.NewGauge(prometheus.GaugeOpts{
			Name: "spillway_tsdb_open",
			Help: "1 while the database takes writes and answers queries, else 0.",
		}),
		queryPanics: f.NewCounter(prometheus.CounterOpts{
			Name: "spillway_tsdb_query_panics_total",
			Help: "Requests of the query API that panicked and were answered with 500.",
		}),
	}
}

// databaseMetrics passes on the metrics of whichever database is open. A
// database registers its collectors for good, so each one gets a registry of
// its own, which goes when it closes.
type databaseMetrics struct {
	current atomic.Pointer[prometheus.Registry]
}

// Describe names nothing: what a database offers is known when it is open.
func (*databaseMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (d *databaseMetrics) Collect(ch chan<- prometheus.Metric) {
	if r := d.current.Load(); r != nil {
		r.Collect(ch)
	}
}
