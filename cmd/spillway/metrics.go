package main

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// reloadMetrics say whether the configuration on disk is the one in force.
type reloadMetrics struct {
	success  prometheus.Gauge
	when     prometheus.Gauge
	failures prometheus.Counter
}

func newReloadMetrics(reg prometheus.Registerer) *reloadMetrics {
	f := promauto.With(reg)
	return &reloadMetrics{
		success:  f.NewGauge(prometheus.GaugeOpts{Name: "spillway_config_last_reload_successful", Help: "1 if the last reload of configuration, policy and keys was put in force, 0 if it was refused and the one before stays."}),
		when:     f.NewGauge(prometheus.GaugeOpts{Name: "spillway_config_last_reload_success_timestamp_seconds", Help: "When a configuration was last put in force."}),
		failures: f.NewCounter(prometheus.CounterOpts{Name: "spillway_config_reload_failures_total", Help: "Reloads that were refused."}),
	}
}

func (m *reloadMetrics) succeeded(now time.Time) {
	m.success.Set(1)
	m.when.Set(float64(now.Unix()))
}

func (m *reloadMetrics) failed() {
	m.success.Set(0)
	m.failures.Inc()
}

// newBuildInfo says what runs.
func newBuildInfo(reg prometheus.Registerer, version string, ingesters int) {
	f := promauto.With(reg)
	f.NewGauge(prometheus.GaugeOpts{Name: "spillway_build_info", Help: "1, with the version.", ConstLabels: prometheus.Labels{"version": version}}).Set(1)
	f.NewGauge(prometheus.GaugeOpts{Name: "spillway_policy_ingesters", Help: "N, the number of ingesters that every policy is divided by."}).Set(float64(ingesters))
}

// metricsOf counts and times the requests of a handler.
func (p *process) metricsOf(handler string, next http.Handler) http.Handler {
	reg := prometheus.WrapRegistererWith(prometheus.Labels{"handler": handler}, p.registry)
	f := promauto.With(reg)
	total := f.NewCounterVec(prometheus.CounterOpts{Name: "spillway_http_requests_total", Help: "Requests by answer."}, []string{"code"})
	seconds := f.NewHistogramVec(prometheus.HistogramOpts{Name: "spillway_http_request_duration_seconds", Help: "Time from the header of a request to the end of its answer.", Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}}, nil)
	inFlight := f.NewGauge(prometheus.GaugeOpts{Name: "spillway_http_requests_in_flight", Help: "Requests being answered."})
	return promhttp.InstrumentHandlerInFlight(inFlight, promhttp.InstrumentHandlerCounter(total, promhttp.InstrumentHandlerDuration(seconds, next)))
}
