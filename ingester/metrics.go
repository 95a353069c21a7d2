package ingester

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// counter counts items and the bytes that they came in.
type counter struct{ items, bytes atomic.Int64 }

func (c *counter) add(a amount) {
	if a.items != 0 {
		c.items.Add(a.items)
	}
	if a.bytes != 0 {
		c.bytes.Add(a.bytes)
	}
}

// streamCounters counts what became of a stream's items since the start. It
// outlives every reload: a class that left keeps its counters.
type streamCounters struct {
	stream                        Stream
	received, invalid, relabelled counter
	batches                       atomic.Int64 // stored
	malformed                     atomic.Int64 // batches that could not be read
	refusedSink, refusedCapacity  atomic.Int64 // batches
	routeHits, routeMisses        atomic.Int64
	routesEvicted                 atomic.Int64

	mu      sync.Mutex
	classes map[string]*classCounters
	reasons map[string]int64
}

// classCounters counts the outcomes of a class. For exempt telemetry admitted
// is what was let through.
type classCounters struct {
	admitted, dropped, refused counter
}

func newStreamCounters(s Stream) *streamCounters {
	return &streamCounters{stream: s, classes: map[string]*classCounters{}, reasons: map[string]int64{}}
}

// class finds the counters of a class by its name, or makes them.
func (c *streamCounters) class(name string) *classCounters {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.classes[name] == nil {
		c.classes[name] = &classCounters{}
	}
	return c.classes[name]
}

func (c *streamCounters) reason(name string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reasons[name] += n
}

func (c *streamCounters) copyClasses() map[string]*classCounters {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.classes)
}

func (c *streamCounters) copyReasons() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.reasons)
}

// metric describes one metric of the ingester. The whole list stands in
// metricList, and METRICS.md is made from it.
type metric struct {
	name   string
	kind   prometheus.ValueType
	help   string
	labels []string
	desc   *prometheus.Desc
}

func define(kind prometheus.ValueType, name, help string, labels ...string) *metric {
	return &metric{name: name, kind: kind, help: help, labels: labels, desc: prometheus.NewDesc(name, help, labels, nil)}
}

// metricSet is every metric that the ingester exports.
type metricSet struct {
	received, receivedBytes, admitted, admittedBytes, exempt, exemptBytes  *metric
	dropped, droppedBytes, invalid, invalidBytes, reasons, refused         *metric
	refusedBytes, refusedBatches, malformed, batches                       *metric
	rate, burst, tokens, configured, routeHits, routeMisses, routes, bytes *metric
	evicted, memory, memoryLimit                                           *metric
}

func newMetricSet() *metricSet {
	const c, g = prometheus.CounterValue, prometheus.GaugeValue
	return &metricSet{
		received:       define(c, "spillway_received_items_total", "Items of batches that could be read.", "stream"),
		receivedBytes:  define(c, "spillway_received_bytes_total", "Bytes of these items, decompressed.", "stream"),
		admitted:       define(c, "spillway_admitted_items_total", "Items that their class's bucket had tokens for and that the sink acknowledged.", "stream", "class"),
		admittedBytes:  define(c, "spillway_admitted_bytes_total", "Bytes of admitted items, decompressed.", "stream", "class"),
		exempt:         define(c, "spillway_exempt_items_total", "Items with the exempt label that the sink acknowledged.", "stream", "class"),
		exemptBytes:    define(c, "spillway_exempt_bytes_total", "Bytes of exempt items, decompressed.", "stream", "class"),
		dropped:        define(c, "spillway_dropped_items_total", "Items dropped for good: by a relabel rule (class is empty then), or because the class's bucket had too few tokens.", "stream", "class", "reason"),
		droppedBytes:   define(c, "spillway_dropped_bytes_total", "Bytes of dropped items, decompressed.", "stream", "class", "reason"),
		invalid:        define(c, "spillway_invalid_items_total", "Items that cannot be stored: their labels or values break the protocol or the sink's rules.", "stream"),
		invalidBytes:   define(c, "spillway_invalid_bytes_total", "Bytes of items that were found invalid before the sink, decompressed.", "stream"),
		reasons:        define(c, "spillway_invalid_reasons_total", "Invalid items by reason. A series without an item counts as one.", "stream", "reason"),
		refused:        define(c, "spillway_refused_items_total", "Admitted or exempt items that the sink did not take; their senders were asked to send them again.", "stream", "class", "reason"),
		refusedBytes:   define(c, "spillway_refused_bytes_total", "Bytes of refused items, decompressed.", "stream", "class", "reason"),
		refusedBatches: define(c, "spillway_refused_batches_total", "Batches whose senders were asked to send them again: no capacity, or the sink did not take them.", "stream", "reason"),
		malformed:      define(c, "spillway_invalid_batches_total", "Batches that could not be read at all. Their items are not known and count nowhere.", "stream"),
		batches:        define(c, "spillway_batches_total", "Batches that were answered with nothing left to send again.", "stream"),
		rate:           define(g, "spillway_class_rate_limit", "Items per second that the class may spend on this ingester.", "stream", "class"),
		burst:          define(g, "spillway_class_burst", "Items that the class may spend at once on this ingester.", "stream", "class"),
		tokens:         define(g, "spillway_class_tokens", "Tokens in the class's bucket now.", "stream", "class"),
		configured:     define(g, "spillway_class_configured", "1 if the policy defines the class, 0 if only a rule names it.", "stream", "class"),
		routeHits:      define(c, "spillway_route_hits_total", "Groups whose route was remembered.", "stream"),
		routeMisses:    define(c, "spillway_route_misses_total", "Groups whose labels had to be read.", "stream"),
		routes:         define(g, "spillway_routes", "Routes that are remembered.", "stream"),
		bytes:          define(g, "spillway_route_bytes", "Bytes that remembered routes take.", "stream"),
		evicted:        define(c, "spillway_routes_evicted_total", "Routes that were forgotten to keep the bound.", "stream"),
		memory:         define(g, "spillway_request_bytes", "Bytes of requests in memory, compressed and decompressed."),
		memoryLimit:    define(g, "spillway_request_bytes_limit", "Bytes of requests that may be in memory."),
	}
}

// all lists the set in the order in which it is documented.
func (m *metricSet) all() []*metric {
	return []*metric{
		m.received, m.receivedBytes, m.admitted, m.admittedBytes, m.exempt, m.exemptBytes,
		m.dropped, m.droppedBytes, m.invalid, m.invalidBytes, m.reasons, m.refused, m.refusedBytes,
		m.batches, m.refusedBatches, m.malformed, m.rate, m.burst, m.tokens, m.configured,
		m.routeHits, m.routeMisses, m.routes, m.bytes, m.evicted, m.memory, m.memoryLimit,
	}
}

// Describe implements prometheus.Collector.
func (in *Ingester) Describe(out chan<- *prometheus.Desc) {
	for _, m := range in.metrics.all() {
		out <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (in *Ingester) Collect(out chan<- prometheus.Metric) {
	e := exposition{out}
	m := in.metrics
	for _, st := range in.generation.Load().streams {
		e.stream(m, st.counters)
		e.limits(m, st, in.now())
		e.routes(m, st)
	}
	e.send(m.memory, float64(in.budget.inUse()))
	e.send(m.memoryLimit, float64(in.budget.limit))
}

// exposition writes metrics to a collector's channel.
type exposition struct{ out chan<- prometheus.Metric }

func (e exposition) send(m *metric, v float64, labels ...string) {
	e.out <- prometheus.MustNewConstMetric(m.desc, m.kind, v, labels...)
}

func (e exposition) pair(items, bytes *metric, c *counter, labels ...string) {
	e.send(items, float64(c.items.Load()), labels...)
	e.send(bytes, float64(c.bytes.Load()), labels...)
}

func (e exposition) stream(m *metricSet, c *streamCounters) {
	name := c.stream.String()
	e.pair(m.received, m.receivedBytes, &c.received, name)
	e.pair(m.invalid, m.invalidBytes, &c.invalid, name)
	e.pair(m.dropped, m.droppedBytes, &c.relabelled, name, "", "relabel")
	e.send(m.batches, float64(c.batches.Load()), name)
	e.send(m.malformed, float64(c.malformed.Load()), name)
	e.send(m.refusedBatches, float64(c.refusedSink.Load()), name, "sink")
	e.send(m.refusedBatches, float64(c.refusedCapacity.Load()), name, "capacity")
	e.send(m.routeHits, float64(c.routeHits.Load()), name)
	e.send(m.routeMisses, float64(c.routeMisses.Load()), name)
	for reason, n := range c.copyReasons() {
		e.send(m.reasons, float64(n), name, reason)
	}
	classes := c.copyClasses()
	for _, class := range slices.Sorted(maps.Keys(classes)) {
		counts := classes[class]
		e.pair(m.refused, m.refusedBytes, &counts.refused, name, class, "sink")
		if class == ExemptClass {
			e.pair(m.exempt, m.exemptBytes, &counts.admitted, name, class)
			continue
		}
		e.pair(m.admitted, m.admittedBytes, &counts.admitted, name, class)
		e.pair(m.dropped, m.droppedBytes, &counts.dropped, name, class, "ratelimit")
	}
}

func (e exposition) limits(m *metricSet, st *streamRules, now int64) {
	if st.Policy == nil {
		return
	}
	name := st.stream.String()
	for id, c := range st.budgets {
		rate, _ := c.RatePerIngester.Float64()
		e.send(m.rate, rate, name, c.Name)
		e.send(m.burst, float64(c.BurstPerIngester), name, c.Name)
		e.send(m.tokens, st.limiter.Tokens(id, now), name, c.Name)
		e.send(m.configured, oneIf(c.Configured), name, c.Name)
	}
}

func (e exposition) routes(m *metricSet, st *streamRules) {
	name := st.stream.String()
	e.send(m.routes, float64(st.routes.count.Load()), name)
	e.send(m.bytes, float64(st.routes.size()), name)
	e.send(m.evicted, float64(st.counters.routesEvicted.Load()), name)
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
