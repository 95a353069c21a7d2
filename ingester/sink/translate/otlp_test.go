package translate

import (
	"fmt"
	"math"
	"math/rand"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-telemetry/spillway/ingester"
)

// batch1 describes a request of remote write 1.0 as a receiver does.
func batch1(t *testing.T, series ...prompb.TimeSeries) *ingester.Batch {
	t.Helper()
	b := &ingester.Batch{Format: ingester.RemoteWrite1, Whole: true}
	for _, ts := range series {
		raw, err := ts.Marshal()
		require.NoError(t, err)
		start := uint32(len(b.Body))
		b.Body = protowire.AppendBytes(protowire.AppendTag(b.Body, 1, protowire.BytesType), raw)
		end := uint32(len(b.Body))
		ls := labels.NewScratchBuilder(0)
		for _, l := range ts.Labels {
			ls.Add(l.Name, l.Value)
		}
		b.Groups = append(b.Groups, ingester.Group{
			Field: ingester.Span{Start: start, End: end}, Message: end - uint32(len(raw)),
			Floats: uint32(len(ts.Samples)), Histograms: uint32(len(ts.Histograms)), Exemplars: uint32(len(ts.Exemplars)),
			Route: ingester.NewRoute(ingester.AppendLabels(nil, ls.Labels()), nil),
		})
	}
	b.Size = len(b.Body)
	return b
}

// batch2 describes a request of remote write 2.0.
func batch2(t *testing.T, symbols []string, series ...writev2.TimeSeries) *ingester.Batch {
	t.Helper()
	b := &ingester.Batch{Format: ingester.RemoteWrite2, Whole: true}
	for _, s := range symbols {
		b.Body = protowire.AppendString(protowire.AppendTag(b.Body, 4, protowire.BytesType), s)
		b.Symbols = append(b.Symbols, ingester.Span{Start: uint32(len(b.Body) - len(s)), End: uint32(len(b.Body))})
	}
	for _, ts := range series {
		raw, err := ts.Marshal()
		require.NoError(t, err)
		start := uint32(len(b.Body))
		b.Body = protowire.AppendBytes(protowire.AppendTag(b.Body, 5, protowire.BytesType), raw)
		end := uint32(len(b.Body))
		builder := labels.NewScratchBuilder(0)
		ls, err := ts.ToLabels(&builder, symbols)
		require.NoError(t, err)
		b.Groups = append(b.Groups, ingester.Group{
			Field: ingester.Span{Start: start, End: end}, Message: end - uint32(len(raw)),
			Floats: uint32(len(ts.Samples)), Histograms: uint32(len(ts.Histograms)), Exemplars: uint32(len(ts.Exemplars)),
			Route: ingester.NewRoute(ingester.AppendLabels(nil, ls), nil),
		})
	}
	b.Size = len(b.Body)
	return b
}

func promLabels(pairs ...string) (ls []prompb.Label) {
	for i := 0; i < len(pairs); i += 2 {
		ls = append(ls, prompb.Label{Name: pairs[i], Value: pairs[i+1]})
	}
	return ls
}

// back translates OTLP to series by Prometheus' own code, without changes of names.
func back(t *testing.T, md pmetric.Metrics) []string {
	t.Helper()
	r := &recorder{t: t}
	require.NoError(t, NewToRemoteWrite(r, usual()).Write(t.Context(), otlpBatch(t, md)))
	var lines []string
	for i := range r.last.Groups {
		if ls := readLabels(r.last.Labels(&r.last.Groups[i])); ls.Get("__name__") != "target_info" {
			lines = append(lines, r.lines[i])
		}
	}
	return lines
}

func received(t *testing.T, r *recorder) pmetric.Metrics {
	t.Helper()
	require.Equal(t, ingester.OTLPMetrics, r.last.Format)
	md, err := (&pmetric.ProtoUnmarshaler{}).UnmarshalMetrics(r.last.Body[:r.last.Size])
	require.NoError(t, err)
	return md
}

// What goes out as OTLP and is read by a Prometheus is what came in.
func TestRemoteWriteComesBackAsItWas(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	var series []prompb.TimeSeries
	var want []string
	for i := range 100 {
		name := []string{"http_requests_total", "temperature_celsius", "http_duration_seconds_bucket", "up"}[rnd.Intn(4)]
		ls := promLabels("__name__", name, "instance", fmt.Sprint("host:", rnd.Intn(3)), "job", []string{"api", "ns/api"}[rnd.Intn(2)], "le", "1", "n", fmt.Sprint(i))
		ts := prompb.TimeSeries{Labels: ls}
		for range 1 + rnd.Intn(3) {
			v := rnd.NormFloat64()
			if rnd.Intn(5) == 0 {
				v = math.Float64frombits(value.StaleNaN)
			}
			ts.Samples = append(ts.Samples, prompb.Sample{Value: v, Timestamp: 1_700_000_000_000 + int64(rnd.Intn(1000))})
		}
		set := labels.FromStrings("__name__", name, "instance", ls[1].Value, "job", ls[2].Value, "le", "1", "n", fmt.Sprint(i))
		for _, s := range ts.Samples {
			want = append(want, fmt.Sprintf("%s %d %x 0", set, s.Timestamp, math.Float64bits(s.Value)))
		}
		series = append(series, ts)
	}
	r := &recorder{t: t}
	require.NoError(t, NewToOTLP(r).Write(t.Context(), batch1(t, series...)))
	require.ElementsMatch(t, want, back(t, received(t, r)))
}

func TestNativeHistogramsComeBackAsTheyWere(t *testing.T) {
	for _, h := range []*histogram.Histogram{
		{Schema: 3, Count: 21, Sum: 1.5, ZeroCount: 2, ZeroThreshold: 0.001,
			PositiveSpans: []histogram.Span{{Offset: -2, Length: 2}, {Offset: 3, Length: 1}}, PositiveBuckets: []int64{4, -1, 2},
			NegativeSpans: []histogram.Span{{Offset: 1, Length: 1}}, NegativeBuckets: []int64{7}},
		{Schema: 0, Count: 1, Sum: 1, PositiveSpans: []histogram.Span{{Offset: 0, Length: 1}}, PositiveBuckets: []int64{1}},
		{Schema: 8, Count: 0, Sum: 0},
	} {
		r := &recorder{t: t}
		require.NoError(t, NewToOTLP(r).Write(t.Context(), batch1(t, prompb.TimeSeries{
			Labels: promLabels("__name__", "latency", "job", "a"), Histograms: []prompb.Histogram{prompb.FromIntHistogram(1_700_000_000_000, h)},
		})))
		dp := received(t, r).ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).ExponentialHistogram().DataPoints().At(0)
		require.Equal(t, h.Schema, dp.Scale())
		require.Equal(t, h.Count, dp.Count())
		require.Equal(t, h.Sum, dp.Sum())
		require.Equal(t, h.ZeroThreshold, dp.ZeroThreshold())
		lines := back(t, received(t, r))
		require.Len(t, lines, 1)
		// Prometheus has a zero threshold of its own for OTLP.
		h.ZeroThreshold = 1e-128
		require.Contains(t, lines[0], h.ToFloat(nil).Compact(0).String())
	}
}

func TestCustomBucketsBecomeAHistogram(t *testing.T) {
	h := &histogram.Histogram{Schema: histogram.CustomBucketsSchema, Count: 6, Sum: 3, CustomValues: []float64{1, 2, 5},
		PositiveSpans: []histogram.Span{{Offset: 1, Length: 1}, {Offset: 1, Length: 1}}, PositiveBuckets: []int64{4, -2}}
	symbols := []string{"", "__name__", "latency", "trace_id", "0102030405060708090a0b0c0d0e0f10", "k", "v"}
	r := &recorder{t: t}
	require.NoError(t, NewToOTLP(r).Write(t.Context(), batch2(t, symbols, writev2.TimeSeries{
		LabelsRefs: []uint32{1, 2}, Histograms: []writev2.Histogram{writev2.FromIntHistogram(1000, 2000, h)},
		Exemplars: []writev2.Exemplar{{LabelsRefs: []uint32{3, 4, 5, 6}, Value: 1.5, Timestamp: 1500}},
	})))
	dp := received(t, r).ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Histogram().DataPoints().At(0)
	require.Equal(t, []float64{1, 2, 5}, dp.ExplicitBounds().AsRaw())
	require.Equal(t, []uint64{0, 4, 0, 2}, dp.BucketCounts().AsRaw())
	require.EqualValues(t, 6, dp.Count())
	require.EqualValues(t, 1_000_000_000, dp.StartTimestamp())
	require.EqualValues(t, 2_000_000_000, dp.Timestamp())
	e := dp.Exemplars().At(0)
	require.Equal(t, "0102030405060708090a0b0c0d0e0f10", e.TraceID().String())
	require.Equal(t, map[string]any{"k": "v"}, e.FilteredAttributes().AsRaw())
}

// Items are told apart by group, whatever order the metrics have inside.
func TestRejectedDataPointsRejectTheirItems(t *testing.T) {
	sample := func(n int) (s []prompb.Sample) {
		for i := range n {
			s = append(s, prompb.Sample{Value: 1, Timestamp: int64(1000 + i)})
		}
		return s
	}
	half := prompb.FromFloatHistogram(1000, &histogram.FloatHistogram{Schema: 0, Count: 1.5, Sum: 1, ZeroCount: 1.5})
	b := batch1(t,
		prompb.TimeSeries{Labels: promLabels("__name__", "a", "job", "x"), Samples: sample(2)},
		prompb.TimeSeries{Labels: promLabels("__name__", "b", "job", "y"), Samples: sample(1)},
		prompb.TimeSeries{Labels: promLabels("__name__", "a", "job", "x", "k", "v"), Samples: sample(3)},
		prompb.TimeSeries{Labels: promLabels("__name__", "c", "job", "x"), Samples: sample(1), Histograms: []prompb.Histogram{half}},
		prompb.TimeSeries{Labels: promLabels("__name__", "d", "job", "x"), Samples: sample(9)},
	)
	b.Groups[4].Verdict = ingester.DroppedRatelimit
	r := &recorder{t: t, reject: func(out *ingester.Batch) {
		require.Len(t, out.Groups, 7)
		for _, i := range []int{1, 4, 6} { // a of x: 2+3 data points, c of x: 1, then b of y
			out.Reject(&out.Groups[i], 1, "too_old")
		}
	}}
	require.NoError(t, NewToOTLP(r).Write(t.Context(), b))
	require.Equal(t, []uint32{1, 1, 1, 1, 0}, rejectedOf(b))
	require.Equal(t, map[string]int64{"too_old": 3, ReasonUnsupported: 1}, b.Rejections())
}

func TestNothingLeftSendsNothing(t *testing.T) {
	r := &recorder{t: t}
	b := batch1(t, prompb.TimeSeries{Labels: promLabels("__name__", "a"), Samples: []prompb.Sample{{Value: 1, Timestamp: 1}}})
	b.Groups[0].Verdict = ingester.DroppedRelabel
	require.NoError(t, NewToOTLP(r).Write(t.Context(), b))
	require.Zero(t, r.batches)
}

// Spans may ask for any gap; a few bytes must not ask for gigabytes.
func FuzzHistograms(f *testing.F) {
	f.Add(int32(1<<30), uint32(3), int32(-5), uint32(1<<31), []byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, o1 int32, l1 uint32, o2 int32, l2 uint32, counts []byte) {
		var fs []float64
		for _, c := range counts {
			fs = append(fs, float64(c)/2)
		}
		b, ok := bucketsOf([]histogram.Span{{Offset: o1, Length: l1}, {Offset: o2, Length: l2}}, fs)
		if ok {
			sum := uint64(0)
			for _, n := range b.counts {
				sum += n
			}
			want := 0.0
			for _, c := range fs {
				want += c
			}
			if float64(sum) != want || len(b.counts) > mostBuckets {
				t.Errorf("%v of %v is %v", b, fs, sum)
			}
		}
	})
}

// A stale marker has no value in OTLP.
func TestStaleMarkersHaveNoValue(t *testing.T) {
	r := &recorder{t: t}
	require.NoError(t, NewToOTLP(r).Write(t.Context(), batch1(t, prompb.TimeSeries{
		Labels:  promLabels("__name__", "up"),
		Samples: []prompb.Sample{{Value: math.Float64frombits(value.StaleNaN), Timestamp: 1000}, {Value: math.NaN(), Timestamp: 2000}},
	})))
	dps := received(t, r).ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Gauge().DataPoints()
	require.True(t, dps.At(0).Flags().NoRecordedValue())
	require.Equal(t, pmetric.NumberDataPointValueTypeEmpty, dps.At(0).ValueType())
	require.False(t, dps.At(1).Flags().NoRecordedValue())
	require.True(t, math.IsNaN(dps.At(1).DoubleValue()))
}
