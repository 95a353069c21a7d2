package sink

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are those of one destination's endpoints.
type metrics struct {
	factory   promauto.Factory
	requests  *prometheus.CounterVec
	inFlight  *prometheus.GaugeVec
	seconds   *prometheus.HistogramVec
	sentBytes *prometheus.CounterVec
	retries   *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	endpoint := []string{"endpoint"}
	return &metrics{
		factory: f,
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_sink_requests_total",
			Help: "Requests to the destination, by endpoint and the code of the answer: an HTTP status, timeout, abandoned (the sender left first) or error (no answer).",
		}, []string{"endpoint", "code"}),
		inFlight: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "spillway_sink_requests_in_flight",
			Help: "Requests to the destination that wait for their answer.",
		}, endpoint),
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{
			Name:                           "spillway_sink_request_duration_seconds",
			Help:                           "How long a request to the destination took, from sending to the end of the answer or the failure.",
			Buckets:                        []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
			NativeHistogramBucketFactor:    1.1,
			NativeHistogramMaxBucketNumber: 100,
			// At most one reset an hour, the value that Prometheus uses itself.
			NativeHistogramMinResetDuration: time.Hour,
		}, endpoint),
		sentBytes: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_sink_sent_bytes_total",
			Help: "Compressed bytes of the requests to the destination, those that failed included.",
		}, endpoint),
		retries: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_sink_retries_total",
			Help: "Batches that were given to this endpoint because another one failed to take them.",
		}, endpoint),
	}
}

// endpointMetrics are the metrics of one endpoint.
type endpointMetrics struct {
	requests  *prometheus.CounterVec
	inFlight  prometheus.Gauge
	seconds   prometheus.Observer
	sentBytes prometheus.Counter
	retries   prometheus.Counter
}

// endpoint makes the metrics of an endpoint. healthy is asked when metrics are
// collected.
func (m *metrics) endpoint(name string, healthy func() bool) endpointMetrics {
	m.factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "spillway_sink_endpoint_healthy",
		Help:        "1 while the endpoint is in use, 0 while it is left out after a failure.",
		ConstLabels: prometheus.Labels{"endpoint": name},
	}, func() float64 {
		if healthy() {
			return 1
		}
		return 0
	})
	return endpointMetrics{
		requests:  m.requests.MustCurryWith(prometheus.Labels{"endpoint": name}),
		inFlight:  m.inFlight.WithLabelValues(name),
		seconds:   m.seconds.WithLabelValues(name),
		sentBytes: m.sentBytes.WithLabelValues(name),
		retries:   m.retries.WithLabelValues(name),
	}
}
