package translate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand"
	"sort"
	"testing"
	"time"

	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote/otlptranslator/prometheusremotewrite"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/goleak"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/sink"
)

// TestMain fails when a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// usual are the options that nobody changed.
func usual() Options {
	return Options{Translation: config.DefaultOTLPConfig, MaxBuckets: DefaultMaxBuckets}
}

// recorder is a sink that reads what it gets with Prometheus' own code.
type recorder struct {
	t       *testing.T
	batches int
	lines   []string
	last    *ingester.Batch
	reject  func(b *ingester.Batch)
	err     error
}

func (r *recorder) Write(_ context.Context, b *ingester.Batch) error {
	r.batches++
	r.last = b
	if r.err != nil {
		return r.err
	}
	if b.Format == ingester.RemoteWrite2 {
		r.read2(b)
	}
	if r.reject != nil {
		r.reject(b)
	}
	return nil
}

// read2 reads the whole body, and holds what the groups say of it against that.
func (r *recorder) read2(b *ingester.Batch) {
	var req writev2.Request
	require.NoError(r.t, req.Unmarshal(b.Body[:b.Size]))
	require.Len(r.t, b.Groups, len(req.Timeseries))
	require.Len(r.t, b.Symbols, len(req.Symbols))
	for i, s := range b.Symbols {
		require.Equal(r.t, req.Symbols[i], string(b.Bytes(s)))
	}
	builder := labels.NewScratchBuilder(0)
	for i, ts := range req.Timeseries {
		g := &b.Groups[i]
		raw, err := ts.Marshal()
		require.NoError(r.t, err)
		require.Equal(r.t, raw, b.Message(g))
		ls, err := ts.ToLabels(&builder, req.Symbols)
		require.NoError(r.t, err)
		require.Equal(r.t, ls, readLabels(b.Labels(g)))
		require.EqualValues(r.t, len(ts.Samples), g.Floats)
		require.EqualValues(r.t, len(ts.Histograms), g.Histograms)
		require.EqualValues(r.t, len(ts.Exemplars), g.Exemplars)
		var refs []uint32
		for raw := b.Bytes(g.Key); len(raw) > 0; {
			n, at := uint32(0), 0
			for shift := 0; ; shift += 7 {
				n |= uint32(raw[at]&0x7f) << shift
				at++
				if raw[at-1] < 0x80 {
					break
				}
			}
			refs, raw = append(refs, n), raw[at:]
		}
		require.Equal(r.t, ts.LabelsRefs, refs)
		for _, s := range ts.Samples {
			r.lines = append(r.lines, fmt.Sprintf("%s %d %x %d", ls, s.Timestamp, math.Float64bits(s.Value), len(ts.Exemplars)))
		}
		for _, h := range ts.Histograms {
			r.lines = append(r.lines, fmt.Sprintf("%s %d %s %d", ls, h.Timestamp, h.ToFloatHistogram(), len(ts.Exemplars)))
		}
	}
}

// library collects what the translation appends when it is called as Prometheus does.
type library struct{ lines []string }

func (l *library) Append(_ storage.SeriesRef, ls labels.Labels, _, at int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram, o storage.AppendV2Options) (storage.SeriesRef, error) {
	switch {
	case fh != nil:
		l.lines = append(l.lines, fmt.Sprintf("%s %d %s %d", ls, at, fh, len(o.Exemplars)))
	case h != nil:
		l.lines = append(l.lines, fmt.Sprintf("%s %d %s %d", ls, at, h.ToFloat(nil), len(o.Exemplars)))
	default:
		l.lines = append(l.lines, fmt.Sprintf("%s %d %x %d", ls, at, math.Float64bits(v), len(o.Exemplars)))
	}
	return 0, nil
}
func (l *library) Commit() error   { return nil }
func (l *library) Rollback() error { return nil }

func translated(t *testing.T, md pmetric.Metrics) []string {
	var l library
	o := config.DefaultOTLPConfig
	_, _ = prometheusremotewrite.NewPrometheusConverter(&l).FromMetrics(t.Context(), md, prometheusremotewrite.Settings{
		AddMetricSuffixes: o.TranslationStrategy.ShouldAddSuffixes(), AllowUTF8: !o.TranslationStrategy.ShouldEscape(),
		LabelNameUnderscoreSanitization: o.LabelNameUnderscoreSanitization, LookbackDelta: 5 * time.Minute,
		LabelNamePreserveMultipleUnderscores: o.LabelNamePreserveMultipleUnderscores,
	})
	sort.Strings(l.lines)
	return l.lines
}

// everyKind is a request with every kind of data point.
func everyKind(rnd *rand.Rand, resources int) pmetric.Metrics {
	md := pmetric.NewMetrics()
	at := pcommon.NewTimestampFromTime(time.Unix(1_700_000_000, 0))
	attributes := func(m pcommon.Map) { m.PutStr("http.route", fmt.Sprint("/", rnd.Intn(1000))) }
	for r := range resources {
		rm := md.ResourceMetrics().AppendEmpty()
		rm.Resource().Attributes().PutStr("service.name", fmt.Sprint("s", r))
		rm.Resource().Attributes().PutStr("service.instance.id", "i")
		rm.Resource().Attributes().PutStr("host.name", "h")
		ms := rm.ScopeMetrics().AppendEmpty().Metrics()
		metric := func(name, unit string) pmetric.Metric {
			m := ms.AppendEmpty()
			m.SetName(name)
			m.SetUnit(unit)
			m.SetDescription("what it is")
			return m
		}
		for range 2 {
			p := metric("temperature", "Cel").SetEmptyGauge().DataPoints().AppendEmpty()
			p.SetDoubleValue(rnd.Float64())
			p.SetTimestamp(at)
			attributes(p.Attributes())
		}
		sum := metric("http.requests", "1").SetEmptySum()
		sum.SetIsMonotonic(true)
		sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		for range 3 {
			p := sum.DataPoints().AppendEmpty()
			p.SetIntValue(rnd.Int63n(1000))
			p.SetTimestamp(at)
			p.SetStartTimestamp(at - 1e9)
			e := p.Exemplars().AppendEmpty()
			e.SetIntValue(1)
			e.SetTimestamp(at)
			attributes(p.Attributes())
		}
		h := metric("http.duration", "s").SetEmptyHistogram()
		h.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		for range 2 {
			p := h.DataPoints().AppendEmpty()
			p.SetTimestamp(at)
			p.SetCount(6)
			p.SetSum(12)
			p.BucketCounts().FromRaw([]uint64{1, 2, 3})
			p.ExplicitBounds().FromRaw([]float64{0.1, 1})
			attributes(p.Attributes())
		}
		eh := metric("rpc.duration", "s").SetEmptyExponentialHistogram()
		eh.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		p := eh.DataPoints().AppendEmpty()
		p.SetTimestamp(at)
		p.SetScale(3)
		p.SetCount(7)
		p.SetZeroCount(1)
		p.SetSum(3)
		p.Positive().SetOffset(2)
		p.Positive().BucketCounts().FromRaw([]uint64{1, 0, 2, 3})
		attributes(p.Attributes())
		s := metric("old.duration", "s").SetEmptySummary().DataPoints().AppendEmpty()
		s.SetTimestamp(at)
		s.SetCount(2)
		q := s.QuantileValues().AppendEmpty()
		q.SetQuantile(0.5)
		q.SetValue(1)
		attributes(s.Attributes())
	}
	return md
}

func otlpBatch(t *testing.T, md pmetric.Metrics) *ingester.Batch {
	t.Helper()
	raw, err := (&pmetric.ProtoMarshaler{}).MarshalMetrics(md)
	require.NoError(t, err)
	b := &ingester.Batch{Format: ingester.OTLPMetrics, Whole: true}
	require.True(t, sink.Describe(b, raw))
	return b
}

func route(sent, now labels.Labels) ingester.Route {
	return ingester.NewRoute(ingester.AppendLabels(nil, sent), ingester.AppendLabels([]byte{}, now))
}

// A whole batch becomes what Prometheus makes of the same request.
func TestOTLPBecomesWhatPrometheusMakesOfIt(t *testing.T) {
	md := everyKind(rand.New(rand.NewSource(1)), 3)
	r := &recorder{t: t}
	require.NoError(t, NewToRemoteWrite(r, usual()).Write(t.Context(), otlpBatch(t, md)))
	sort.Strings(r.lines)
	require.Equal(t, translated(t, md), r.lines)
	require.Len(t, r.lines, 60)
}

// Of what is left, it is what Prometheus makes of a request with only that.
func TestOTLPThatWasDroppedIsNotTranslated(t *testing.T) {
	for seed := range int64(50) {
		rnd := rand.New(rand.NewSource(seed))
		md := everyKind(rnd, 2)
		b := otlpBatch(t, md)
		b.Whole = false
		n, left := -1, map[int]bool{}
		for i := range b.Groups {
			if left[i] = rnd.Intn(2) == 0; !left[i] {
				b.Groups[i].Verdict = ingester.DroppedRatelimit
			}
		}
		gone := func() bool { n++; return !left[n] }
		for _, rm := range md.ResourceMetrics().All() {
			for _, sm := range rm.ScopeMetrics().All() {
				for _, m := range sm.Metrics().All() {
					switch m.Type() {
					case pmetric.MetricTypeGauge:
						m.Gauge().DataPoints().RemoveIf(func(pmetric.NumberDataPoint) bool { return gone() })
					case pmetric.MetricTypeSum:
						m.Sum().DataPoints().RemoveIf(func(pmetric.NumberDataPoint) bool { return gone() })
					case pmetric.MetricTypeHistogram:
						m.Histogram().DataPoints().RemoveIf(func(pmetric.HistogramDataPoint) bool { return gone() })
					case pmetric.MetricTypeExponentialHistogram:
						m.ExponentialHistogram().DataPoints().RemoveIf(func(pmetric.ExponentialHistogramDataPoint) bool { return gone() })
					default:
						m.Summary().DataPoints().RemoveIf(func(pmetric.SummaryDataPoint) bool { return gone() })
					}
				}
			}
		}
		r := &recorder{t: t}
		require.NoError(t, NewToRemoteWrite(r, usual()).Write(t.Context(), b))
		sort.Strings(r.lines)
		require.Equal(t, translated(t, md), r.lines)
	}
}

// What the rules changed of a data point's labels is done to each of its series, with
// the suffixes that the translation gave them.
func TestRulesChangeEverySeriesOfADataPoint(t *testing.T) {
	md := pmetric.NewMetrics()
	h := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	h.SetName("http.duration")
	h.SetUnit("s")
	h.SetEmptyHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	p := h.Histogram().DataPoints().AppendEmpty()
	p.SetTimestamp(1e18)
	p.SetCount(1)
	p.SetSum(2)
	p.BucketCounts().FromRaw([]uint64{1, 0})
	p.ExplicitBounds().FromRaw([]float64{1})
	p.Attributes().PutStr("route", "/")
	p.Attributes().PutStr("pod", "a")
	b := otlpBatch(t, md)
	b.Groups[0].Route = route(
		labels.FromStrings("__name__", "http_duration_seconds", "route", "/", "pod", "a"),
		labels.FromStrings("__name__", "latency", "route", "root", "team", "b"))
	r := &recorder{t: t}
	require.NoError(t, NewToRemoteWrite(r, usual()).Write(t.Context(), b))
	var got []string
	for i := range r.last.Groups {
		got = append(got, readLabels(r.last.Labels(&r.last.Groups[i])).String())
	}
	sort.Strings(got)
	require.Equal(t, []string{
		`{__name__="latency_bucket", le="+Inf", route="root", team="b"}`, `{__name__="latency_bucket", le="1", route="root", team="b"}`,
		`{__name__="latency_count", route="root", team="b"}`, `{__name__="latency_sum", route="root", team="b"}`,
	}, got)
}

// A rejected series rejects its data point, once, for the sink's reason.
func TestRejectedSeriesRejectTheirDataPoint(t *testing.T) {
	b := otlpBatch(t, everyKind(rand.New(rand.NewSource(1)), 1))
	r := &recorder{t: t, reject: func(b *ingester.Batch) {
		for i := range b.Groups {
			switch readLabels(b.Labels(&b.Groups[i])).Get("__name__") {
			case "http_duration_seconds_bucket", "http_duration_seconds_sum":
				b.Reject(&b.Groups[i], 1, "out_of_order")
			}
		}
	}}
	require.NoError(t, NewToRemoteWrite(r, usual()).Write(t.Context(), b))
	require.Equal(t, map[string]int64{"out_of_order": 2}, b.Rejections())
	require.Equal(t, []uint32{0, 0, 0, 0, 0, 1, 1, 0, 0}, rejectedOf(b))
}

func rejectedOf(b *ingester.Batch) (n []uint32) {
	for i := range b.Groups {
		n = append(n, b.Groups[i].Rejected)
	}
	return n
}

func TestWhatCannotBeTranslatedIsRejected(t *testing.T) {
	md := everyKind(rand.New(rand.NewSource(1)), 1)
	sum := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(2).Sum()
	sum.SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
	b := otlpBatch(t, md)
	r := &recorder{t: t}
	require.NoError(t, NewToRemoteWrite(r, usual()).Write(t.Context(), b))
	require.Equal(t, map[string]int64{ReasonNotTranslatable: 3}, b.Rejections())
	require.Equal(t, []uint32{0, 0, 1, 1, 1, 0, 0, 0, 0}, rejectedOf(b))
}

// A failed write is the sender's to repeat, and nothing is rejected for good.
func TestAFailedWriteRejectsNothing(t *testing.T) {
	md := everyKind(rand.New(rand.NewSource(1)), 1)
	md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(2).Sum().SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
	b := otlpBatch(t, md)
	down := errors.New("down")
	require.ErrorIs(t, NewToRemoteWrite(&recorder{t: t, err: down}, usual()).Write(t.Context(), b), down)
	require.Empty(t, b.Rejections())
}

// What a sink remembers of a series is there the next time.
func TestSeriesKeepTheirRoute(t *testing.T) {
	r := &recorder{t: t}
	to := NewToRemoteWrite(r, usual())
	md := everyKind(rand.New(rand.NewSource(1)), 1)
	require.NoError(t, to.Write(t.Context(), otlpBatch(t, md)))
	for i := range r.last.Groups {
		r.last.Groups[i].Route.SetRef(uint64(i) + 1)
	}
	require.NoError(t, to.Write(t.Context(), otlpBatch(t, md)))
	for i := range r.last.Groups {
		require.EqualValues(t, i+1, r.last.Groups[i].Route.Ref())
	}
}

func TestOtherBatchesPass(t *testing.T) {
	r := &recorder{t: t}
	b := &ingester.Batch{Format: ingester.RemoteWrite1}
	require.NoError(t, NewToRemoteWrite(r, usual()).Write(t.Context(), b))
	require.Same(t, b, r.last)
	b = &ingester.Batch{Format: ingester.OTLPLogs}
	require.NoError(t, NewToOTLP(r).Write(t.Context(), b))
	require.Same(t, b, r.last)
}
