package governor

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics is all that the governor exposes. Gauges are taken from one snapshot
// at each scrape, so that they fit together and an Acquire pays nothing for them.
type metrics struct {
	snapshot func() Snapshot

	waited        prometheus.Histogram
	shedTotal     *prometheus.CounterVec
	verdictsTotal *prometheus.CounterVec
	// One counter per reason and verdict, looked up once.
	shed     map[string]prometheus.Counter
	verdicts map[Verdict]prometheus.Counter

	capacity, signal, inFlight, waiting, flows, guaranteed   *prometheus.Desc
	arrivals, completions, cuts                              *prometheus.Desc
	limit, used, background, perBatch, required, throttled   *prometheus.Desc
	stalled, ratio, modelVerdict, regime, batchTime, ceiling *prometheus.Desc
}

func newMetrics(snapshot func() Snapshot) *metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("spillway_governor_"+name, help, labels, nil)
	}
	m := &metrics{
		snapshot: snapshot,
		waited: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "spillway_governor_wait_seconds",
			Help:    "How long batches waited that got a slot, but not at once.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
		shedTotal: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_governor_shed_total",
			Help: "Batches that were told to come back later, by reason.",
		}, []string{"reason"}),
		verdictsTotal: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_governor_model_verdicts_total",
			Help: "Samples by what the model did with them and why.",
		}, []string{"verdict"}),
		shed:     make(map[string]prometheus.Counter),
		verdicts: make(map[Verdict]prometheus.Counter),

		capacity:     desc("capacity", "Slots that may be in use, on average over time."),
		signal:       desc("signal_capacity", "Slots that each signal would allow; the lowest is the capacity.", "source"),
		inFlight:     desc("in_flight", "Batches that hold a slot."),
		waiting:      desc("waiting", "Batches that wait for a slot."),
		flows:        desc("flows", "Flows with a batch in flight or waiting (at most 100 are counted)."),
		guaranteed:   desc("guaranteed", "Slots that each flow with work is owed."),
		arrivals:     desc("arrivals_total", "Batches that asked for a slot."),
		completions:  desc("completions_total", "Batches that gave their slot back."),
		cuts:         desc("step_cuts_total", "Times that the pressure step halved the capacity."),
		limit:        desc("cpu_limit_cores", "CPU limit, 0 if none is known."),
		used:         desc("cpu_used_cores", "CPU used in the last window that the model judged."),
		background:   desc("cpu_background_cores", "CPU used when nothing is in flight, estimated."),
		perBatch:     desc("cpu_per_batch_seconds", "CPU time of one batch in the last window that the model judged."),
		required:     desc("cpu_required_cores", "CPU limit at which the arrivals would use the target; a lower bound while batches wait or are shed."),
		throttled:    desc("cpu_throttled_seconds_total", "Time for which the cgroup that owns the limit was throttled, over all processors."),
		stalled:      desc("cpu_stalled_seconds_total", "Time for which the container stood still for CPU."),
		ratio:        desc("model_ratio", "CPU target over CPU use, both without the background, in the last window; 0 if the CPU was barely used."),
		modelVerdict: desc("model_verdict", "Why the model last moved or did not: 1 for the verdict on the last whole window, growing before the first.", "verdict"),
		regime:       desc("regime", "1 for the signals that can govern.", "regime"),
		batchTime:    desc("batch_seconds", "Time for which batches hold a slot: mean of late, and best mean known.", "kind"),
		ceiling:      desc("max_in_flight", "The configured ceiling of the capacity."),
	}
	for _, reason := range reasons() {
		m.shed[reason] = m.shedTotal.WithLabelValues(reason)
	}
	for _, verdict := range verdicts() {
		m.verdicts[verdict] = m.verdictsTotal.WithLabelValues(string(verdict))
	}
	return m
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, c := range []prometheus.Collector{m.waited, m.shedTotal, m.verdictsTotal} {
		c.Describe(out)
	}
	for _, d := range []*prometheus.Desc{
		m.capacity, m.signal, m.inFlight, m.waiting, m.flows, m.guaranteed, m.arrivals, m.completions, m.cuts,
		m.limit, m.used, m.background, m.perBatch, m.required, m.throttled, m.stalled, m.ratio, m.modelVerdict,
		m.regime, m.batchTime, m.ceiling,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{m.waited, m.shedTotal, m.verdictsTotal} {
		c.Collect(out)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v)
	}
	s := m.snapshot()
	gauge(m.capacity, s.Mean)
	gauge(m.signal, s.Model, "model")
	gauge(m.signal, s.Step, "step")
	gauge(m.signal, s.Latency, "latency")
	gauge(m.ceiling, float64(s.Ceiling))
	gauge(m.inFlight, float64(s.InFlight))
	gauge(m.waiting, float64(s.Waiting))
	gauge(m.flows, float64(len(s.Flows)))
	gauge(m.guaranteed, float64(s.Guaranteed))
	counter(m.arrivals, float64(s.Arrivals))
	counter(m.completions, float64(s.Completions))
	counter(m.cuts, float64(s.Cuts))
	gauge(m.limit, s.CPU.Limit)
	gauge(m.used, s.CPU.Used)
	gauge(m.background, s.CPU.Background)
	gauge(m.perBatch, s.CPU.PerBatch)
	gauge(m.required, s.CPU.Required)
	counter(m.throttled, s.CPU.Throttled)
	counter(m.stalled, s.CPU.Stalled)
	gauge(m.ratio, s.Decision.Ratio)
	gauge(m.batchTime, s.Batch.Mean, "mean")
	gauge(m.batchTime, s.Batch.Best, "best")
	gauge(m.modelVerdict, 1, string(cmp.Or(s.Decision.Judged, VerdictGrowing)))
	gauge(m.regime, 1, string(s.Regime))
}
