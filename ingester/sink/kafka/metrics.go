package kafka

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are those of one sink.
type metrics struct {
	messages, bytes, errors *prometheus.CounterVec
	seconds                 *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer, topics []string, healthy func() bool) *metrics {
	f := promauto.With(reg)
	topic := []string{"topic"}
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_sink_kafka_healthy",
		Help: "1 while the cluster is in use, 0 while it is left alone after a failure.",
	}, func() float64 {
		if healthy() {
			return 1
		}
		return 0
	})
	m := &metrics{
		messages: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_sink_kafka_messages_total",
			Help: "Messages that all in-sync replicas have acknowledged.",
		}, topic),
		bytes: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_sink_kafka_message_bytes_total",
			Help: "Bytes of these messages, uncompressed.",
		}, topic),
		errors: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_sink_kafka_produce_errors_total",
			Help: "Produce requests that failed, those that were tried again included, by the name of Kafka's error, or network.",
		}, []string{"topic", "error"}),
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{
			Name:                           "spillway_sink_kafka_produce_duration_seconds",
			Help:                           "How long one message took until it was acknowledged or given up, tries included.",
			Buckets:                        []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
			NativeHistogramBucketFactor:    1.1,
			NativeHistogramMaxBucketNumber: 100,
			// At most one reset an hour, the value that Prometheus uses itself.
			NativeHistogramMinResetDuration: time.Hour,
		}, topic),
	}
	for _, name := range topics {
		m.messages.WithLabelValues(name)
		m.bytes.WithLabelValues(name)
		m.errors.WithLabelValues(name, networkError)
		m.seconds.WithLabelValues(name)
	}
	return m
}

// networkError is the name of an error that no broker answered.
const networkError = "network"
