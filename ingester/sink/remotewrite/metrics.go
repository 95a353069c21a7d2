package remotewrite

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are those of one sink, beside those of its endpoints.
type metrics struct {
	unsentFamilies, unsentStarts, unsentExemplars prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	unsent := promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "spillway_sink_unsent_parts_total",
		Help: "Parts of admitted batches that cost no token and are not stored at the destination: metric metadata (family) and start timestamps (start_timestamp) that the configured message cannot hold, and exemplars (exemplar) that the destination did not count as written.",
	}, []string{"part"})
	return &metrics{
		unsentFamilies:  unsent.WithLabelValues("family"),
		unsentStarts:    unsent.WithLabelValues("start_timestamp"),
		unsentExemplars: unsent.WithLabelValues("exemplar"),
	}
}
