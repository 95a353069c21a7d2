package translate

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/sink"
)

// ToOTLP gives metrics of remote write to a sink of OTLP batches. It is safe for
// concurrent use.
type ToOTLP struct{ next ingester.Sink }

// ToOTLP implements ingester.Sink.
var _ ingester.Sink = (*ToOTLP)(nil)

// ReasonUnsupported is given to ingester.Batch.Reject: OTLP cannot hold the item, or
// its bytes are not what its format says.
const ReasonUnsupported = "destination_unsupported"

// NewToOTLP makes a translation before next.
func NewToOTLP(next ingester.Sink) *ToOTLP { return &ToOTLP{next} }

// Write implements ingester.Sink.
func (t *ToOTLP) Write(ctx context.Context, b *ingester.Batch) error {
	if b.Format != ingester.RemoteWrite1 && b.Format != ingester.RemoteWrite2 {
		return t.next.Write(ctx, b)
	}
	m := newMetrics(b)
	for i := range b.Groups {
		if b.Groups[i].Admitted() {
			m.add(i)
		}
	}
	if m.points == 0 {
		m.refuse()
		return nil
	}
	raw, err := (&pmetric.ProtoMarshaler{}).MarshalMetrics(m.md)
	if err != nil {
		return &ingester.SinkError{Err: fmt.Errorf("translating remote write to OTLP: %w", err)}
	}
	out := &ingester.Batch{
		Stream: b.Stream, Format: ingester.OTLPMetrics, Origin: b.Origin, Headers: b.Headers, Received: b.Received, Whole: true,
	}
	if !sink.Describe(out, raw) {
		return &ingester.SinkError{Err: fmt.Errorf("translating remote write to OTLP: what was made cannot be read")}
	}
	if err := t.next.Write(ctx, out); err != nil {
		return err
	}
	m.settle(out)
	m.refuse()
	return nil
}

// metrics is what is made of a batch.
type metrics struct {
	from    *ingester.Batch
	md      pmetric.Metrics
	targets map[target]*targetMetrics
	order   []*targetMetrics // as they are in md
	points  int
	refused []refusal
}

// target is what a resource is made of.
type target struct{ job, instance string }

// targetMetrics are the metrics of a resource, by name and kind, as they are in it.
type targetMetrics struct {
	slice  pmetric.MetricSlice
	byName map[named]int
	order  [][]int // the groups of the data points of each metric
}

type named struct {
	name string
	kind pmetric.MetricType
}

// refusal says that n items of a group cannot be sent.
type refusal struct{ group, items int }

func newMetrics(b *ingester.Batch) *metrics {
	return &metrics{from: b, md: pmetric.NewMetrics(), targets: make(map[target]*targetMetrics)}
}

// add adds the samples and histograms of a group.
func (m *metrics) add(i int) {
	g := &m.from.Groups[i]
	ts, ok := decode(m.from, g)
	if !ok {
		m.refused = append(m.refused, refusal{i, int(g.Items())})
		return
	}
	ls := readLabels(m.from.Labels(g))
	name := ls.Get(model.MetricNameLabel)
	for _, s := range ts.samples {
		kind := pmetric.MetricTypeGauge
		if strings.HasSuffix(name, "_total") {
			kind = pmetric.MetricTypeSum
		}
		p := m.numberPoint(ls, named{name, kind}, i)
		p.SetTimestamp(nanos(s.at))
		p.SetStartTimestamp(nanos(s.start))
		if value.IsStaleNaN(s.value) {
			p.SetFlags(pmetric.DefaultDataPointFlags.WithNoRecordedValue(true))
		} else {
			p.SetDoubleValue(s.value)
		}
		attributes(p.Attributes(), ls)
		ts.exemplars = addExemplars(p.Exemplars(), ts.exemplars)
	}
	for _, h := range ts.histograms {
		if !m.addHistogram(ls, name, i, h, &ts) {
			m.refused = append(m.refused, refusal{i, 1})
		}
	}
}

// target finds the metrics of the resource that job and instance name.
func (m *metrics) target(ls labels.Labels) *targetMetrics {
	key := target{ls.Get("job"), ls.Get("instance")}
	if t, ok := m.targets[key]; ok {
		return t
	}
	rm := m.md.ResourceMetrics().AppendEmpty()
	if key.job != "" {
		name := key.job
		if space, rest, ok := strings.Cut(key.job, "/"); ok && space != "" && rest != "" {
			rm.Resource().Attributes().PutStr("service.namespace", space)
			name = rest
		}
		rm.Resource().Attributes().PutStr("service.name", name)
	}
	if key.instance != "" {
		rm.Resource().Attributes().PutStr("service.instance.id", key.instance)
	}
	t := &targetMetrics{slice: rm.ScopeMetrics().AppendEmpty().Metrics(), byName: make(map[named]int)}
	m.targets[key] = t
	m.order = append(m.order, t)
	return t
}

// metric finds the metric that takes another data point of a group.
func (m *metrics) metric(ls labels.Labels, n named, group int) pmetric.Metric {
	t := m.target(ls)
	at, ok := t.byName[n]
	if !ok {
		at = t.slice.Len()
		t.byName[n] = at
		t.order = append(t.order, nil)
		metric := t.slice.AppendEmpty()
		metric.SetName(n.name)
		switch n.kind {
		case pmetric.MetricTypeSum:
			metric.SetEmptySum().SetIsMonotonic(true)
			metric.Sum().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		case pmetric.MetricTypeExponentialHistogram:
			metric.SetEmptyExponentialHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		case pmetric.MetricTypeHistogram:
			metric.SetEmptyHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		default:
			metric.SetEmptyGauge()
		}
	}
	t.order[at] = append(t.order[at], group)
	m.points++
	return t.slice.At(at)
}

func (m *metrics) numberPoint(ls labels.Labels, n named, group int) pmetric.NumberDataPoint {
	metric := m.metric(ls, n, group)
	if n.kind == pmetric.MetricTypeSum {
		return metric.Sum().DataPoints().AppendEmpty()
	}
	return metric.Gauge().DataPoints().AppendEmpty()
}

// addHistogram adds a native histogram and reports whether OTLP can hold it.
func (m *metrics) addHistogram(ls labels.Labels, name string, group int, h nativeHistogram, ts *timeSeries) bool {
	counts, ok := h.whole()
	if !ok {
		return false
	}
	stale := value.IsStaleNaN(h.histogram.Sum)
	flags := pmetric.DefaultDataPointFlags.WithNoRecordedValue(stale)
	if histogram.IsCustomBucketsSchema(h.histogram.Schema) {
		p := m.metric(ls, named{name, pmetric.MetricTypeHistogram}, group).Histogram().DataPoints().AppendEmpty()
		p.SetTimestamp(nanos(h.at))
		p.SetStartTimestamp(nanos(h.start))
		p.SetFlags(flags)
		if !stale {
			p.SetCount(counts.count)
			p.SetSum(h.histogram.Sum)
			p.ExplicitBounds().FromRaw(h.histogram.CustomValues)
			p.BucketCounts().FromRaw(counts.positive.dense(0, len(h.histogram.CustomValues)+1))
		}
		attributes(p.Attributes(), ls)
		ts.exemplars = addExemplars(p.Exemplars(), ts.exemplars)
		return true
	}
	p := m.metric(ls, named{name, pmetric.MetricTypeExponentialHistogram}, group).ExponentialHistogram().DataPoints().AppendEmpty()
	p.SetTimestamp(nanos(h.at))
	p.SetStartTimestamp(nanos(h.start))
	p.SetFlags(flags)
	if !stale {
		p.SetCount(counts.count)
		p.SetSum(h.histogram.Sum)
		p.SetScale(h.histogram.Schema)
		p.SetZeroCount(counts.zero)
		p.SetZeroThreshold(h.histogram.ZeroThreshold)
		counts.positive.fill(p.Positive())
		counts.negative.fill(p.Negative())
	}
	attributes(p.Attributes(), ls)
	ts.exemplars = addExemplars(p.Exemplars(), ts.exemplars)
	return true
}

// nanos are the nanoseconds of a timestamp in milliseconds, 0 for none and for those
// that OTLP cannot hold.
func nanos(milliseconds int64) pcommon.Timestamp {
	if milliseconds <= 0 || milliseconds > math.MaxInt64/int64(time.Millisecond) {
		return 0
	}
	return pcommon.Timestamp(milliseconds * int64(time.Millisecond))
}

// attributes puts the labels that have no other place on a data point.
func attributes(m pcommon.Map, ls labels.Labels) {
	ls.Range(func(l labels.Label) {
		switch l.Name {
		case model.MetricNameLabel, "job", "instance":
		default:
			m.PutStr(l.Name, l.Value)
		}
	})
}

// addExemplars adds exemplars to a data point; none are left for the next.
func addExemplars(to pmetric.ExemplarSlice, exemplars []exemplarOf) []exemplarOf {
	for _, e := range exemplars {
		x := to.AppendEmpty()
		x.SetDoubleValue(e.value)
		x.SetTimestamp(nanos(e.at))
		e.labels.Range(func(l labels.Label) {
			var trace pcommon.TraceID
			var span pcommon.SpanID
			switch {
			case l.Name == "trace_id" && parseID(trace[:], l.Value):
				x.SetTraceID(trace)
			case l.Name == "span_id" && parseID(span[:], l.Value):
				x.SetSpanID(span)
			default:
				x.FilteredAttributes().PutStr(l.Name, l.Value)
			}
		})
	}
	return nil
}

func parseID(id []byte, text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && len(raw) == len(id) && copy(id, raw) > 0 && !bytes.Equal(id, make([]byte, len(id)))
}

// settle tells the batch that came in which of its items the sink rejected. The data
// points of out are those of md, in the same order.
func (m *metrics) settle(out *ingester.Batch) {
	reason, next := mainReason(out), 0
	for _, t := range m.order {
		for _, groups := range t.order {
			for _, g := range groups {
				if out.Groups[next].Rejected > 0 {
					m.reject(g, 1, reason)
				}
				next++
			}
		}
	}
}

// refuse rejects what could not be translated.
func (m *metrics) refuse() {
	for _, r := range m.refused {
		m.reject(r.group, r.items, ReasonUnsupported)
	}
}

func (m *metrics) reject(group, items int, reason string) {
	g := &m.from.Groups[group]
	if n := min(int64(items), g.Items()-int64(g.Rejected)); n > 0 {
		m.from.Reject(g, uint32(n), reason)
	}
}
