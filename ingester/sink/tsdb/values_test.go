package tsdb

import (
	"math"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-telemetry/spillway/ingester"
)

// hardFloats are values that a careless path changes. Minus zero is not among
// them: the encoder that the tests use leaves it out of the message.
func hardFloats() []float64 {
	return []float64{
		0, 1, -1.5, math.Pi, math.MaxFloat64, math.SmallestNonzeroFloat64,
		math.Inf(1), math.Inf(-1), math.NaN(),
		math.Float64frombits(value.StaleNaN), math.Float64frombits(value.NormalNaN),
		math.Float64frombits(0x7ff8dead_beef0001),
	}
}

func TestFloatsKeepEveryBit(t *testing.T) {
	for _, format := range []ingester.Format{ingester.RemoteWrite1, ingester.RemoteWrite2} {
		o := testOptions(t)
		s := openTest(t, o)
		base := milli()
		var samples1 []prompb.Sample
		var samples2 []writev2.Sample
		for i, v := range hardFloats() {
			samples1 = append(samples1, prompb.Sample{Timestamp: base + int64(i), Value: v})
			samples2 = append(samples2, writev2.Sample{Timestamp: base + int64(i), Value: v})
		}
		var req any = write1(float1("m", samples1...))
		if format == ingester.RemoteWrite2 {
			sy := newSymbols()
			series := []writev2.TimeSeries{{LabelsRefs: sy.refs("__name__", "m", "job", "test"), Samples: samples2}}
			req = &writev2.Request{Symbols: sy.Symbols(), Timeseries: series}
		}
		b := newTestBatch(t, routes{}, req)
		require.NoError(t, s.Write(t.Context(), b))
		require.Zero(t, rejected(b))
		for _, s := range []*Sink{s, openCopy(t, o)} {
			got := content(t, s)[`{__name__="m", job="test"}`]
			require.Len(t, got, len(hardFloats()))
			for i, v := range hardFloats() {
				require.Equal(t, math.Float64bits(v), math.Float64bits(got[i].v), "format %d, value %d", format, i)
				require.Equal(t, base+int64(i), got[i].t)
			}
		}
	}
}

// testHistograms are one of each kind, valid, with every field in use.
func testHistograms() map[string]point {
	return map[string]point{
		"integer": {h: &histogram.Histogram{
			Schema: 3, ZeroThreshold: 1e-9, ZeroCount: 2, Count: 21, Sum: -4.25,
			PositiveSpans: []histogram.Span{{Offset: -2, Length: 2}, {Offset: 3, Length: 1}}, PositiveBuckets: []int64{3, 1, 2},
			NegativeSpans: []histogram.Span{{Offset: 5, Length: 2}}, NegativeBuckets: []int64{4, -4 + 2},
		}},
		"integer gauge": {h: &histogram.Histogram{
			CounterResetHint: histogram.GaugeType, Schema: 0, Count: 1, Sum: 1,
			PositiveSpans: []histogram.Span{{Offset: 0, Length: 1}}, PositiveBuckets: []int64{1},
		}},
		"float": {fh: &histogram.FloatHistogram{
			Schema: -2, ZeroThreshold: 0.5, ZeroCount: 0.25, Count: 5.75, Sum: math.Inf(1),
			PositiveSpans: []histogram.Span{{Offset: 1, Length: 2}}, PositiveBuckets: []float64{1.5, 3},
			NegativeSpans: []histogram.Span{{Offset: -1, Length: 1}}, NegativeBuckets: []float64{1},
		}},
		"custom integer": {h: &histogram.Histogram{
			Schema: histogram.CustomBucketsSchema, Count: 6, Sum: 12.5, CustomValues: []float64{-1, 0.25, 10},
			PositiveSpans: []histogram.Span{{Offset: 0, Length: 2}, {Offset: 1, Length: 1}}, PositiveBuckets: []int64{1, 1, 1},
		}},
		"custom float": {fh: &histogram.FloatHistogram{
			Schema: histogram.CustomBucketsSchema, Count: 4.5, Sum: 3, CustomValues: []float64{1, 2},
			PositiveSpans: []histogram.Span{{Offset: 1, Length: 2}}, PositiveBuckets: []float64{2, 2.5},
		}},
		"stale integer": {h: &histogram.Histogram{Sum: math.Float64frombits(value.StaleNaN)}},
		"stale float":   {fh: &histogram.FloatHistogram{Sum: math.Float64frombits(value.StaleNaN)}},
	}
}

// encode makes the request that carries the point, in either format.
func (p point) encode(format ingester.Format, name string) any {
	if format == ingester.RemoteWrite1 {
		ts := float1(name)
		switch {
		case p.h != nil:
			ts.Histograms = []prompb.Histogram{prompb.FromIntHistogram(p.t, p.h)}
		case p.fh != nil:
			ts.Histograms = []prompb.Histogram{prompb.FromFloatHistogram(p.t, p.fh)}
		default:
			ts.Samples = []prompb.Sample{{Timestamp: p.t, Value: p.v}}
		}
		return write1(ts)
	}
	sy := newSymbols()
	ts := writev2.TimeSeries{LabelsRefs: sy.refs("__name__", name, "job", "test")}
	switch {
	case p.h != nil:
		ts.Histograms = []writev2.Histogram{writev2.FromIntHistogram(p.st, p.t, p.h)}
	case p.fh != nil:
		ts.Histograms = []writev2.Histogram{writev2.FromFloatHistogram(p.st, p.t, p.fh)}
	default:
		ts.Samples = []writev2.Sample{{StartTimestamp: p.st, Timestamp: p.t, Value: p.v}}
	}
	return &writev2.Request{Symbols: sy.Symbols(), Timeseries: []writev2.TimeSeries{ts}}
}

func TestHistogramsKeepEveryField(t *testing.T) {
	for _, format := range []ingester.Format{ingester.RemoteWrite1, ingester.RemoteWrite2} {
		o := testOptions(t)
		s := openTest(t, o)
		base := milli()
		for name, sent := range testHistograms() {
			sent.t = base
			b := newTestBatch(t, routes{}, sent.encode(format, name))
			require.NoError(t, s.Write(t.Context(), b))
			require.Zero(t, rejected(b), name)
		}
		for _, s := range []*Sink{s, openCopy(t, o)} {
			c := content(t, s)
			for name, sent := range testHistograms() {
				got := c[`{__name__="`+name+`", job="test"}`]
				require.Len(t, got, 1, name)
				require.Equal(t, base, got[0].t)
				requireSameHistogram(t, name, sent, got[0])
			}
		}
	}
}

func requireSameHistogram(t *testing.T, name string, sent, got point) {
	t.Helper()
	sameBits := func(a, b float64) { require.Equal(t, math.Float64bits(a), math.Float64bits(b), name) }
	if sent.h != nil {
		require.NotNil(t, got.h, name)
		require.True(t, sent.h.Equals(got.h), "%s: sent %v, got %v", name, sent.h, got.h)
		sameBits(sent.h.Sum, got.h.Sum)
		require.Equal(t, sent.h.CounterResetHint == histogram.GaugeType, got.h.CounterResetHint == histogram.GaugeType, name)
		return
	}
	require.NotNil(t, got.fh, name)
	require.True(t, sent.fh.Equals(got.fh), "%s: sent %v, got %v", name, sent.fh, got.fh)
	sameBits(sent.fh.Sum, got.fh.Sum)
}

// A schema finer than the database has is made coarser, as Prometheus does.
func TestHistogramWithReservedSchemaIsReduced(t *testing.T) {
	s := openTest(t, testOptions(t))
	fine := point{t: milli(), h: &histogram.Histogram{
		Schema: 9, Count: 3, Sum: 3, PositiveSpans: []histogram.Span{{Offset: 1, Length: 2}}, PositiveBuckets: []int64{1, 1},
	}}
	b := newTestBatch(t, routes{}, fine.encode(ingester.RemoteWrite2, "fine"))
	require.NoError(t, s.Write(t.Context(), b))
	require.Zero(t, rejected(b))
	got := content(t, s)[`{__name__="fine", job="test"}`]
	require.Len(t, got, 1)
	require.EqualValues(t, 8, got[0].h.Schema)
	require.EqualValues(t, []int64{3}, got[0].h.PositiveBuckets)
}

func TestInvalidHistogramIsRejectedAndNeighboursStay(t *testing.T) {
	for _, format := range []ingester.Format{ingester.RemoteWrite1, ingester.RemoteWrite2} {
		s := openTest(t, testOptions(t))
		good := testHistograms()["integer"]
		bad := good.h.Copy()
		bad.Count++ // not what the buckets hold
		tooCoarse := good.h.Copy()
		tooCoarse.Schema = -5
		rs := routes{}
		for i, h := range []*histogram.Histogram{good.h, bad, tooCoarse, good.h} {
			b := newTestBatch(t, rs, point{t: milli() + int64(i), h: h}.encode(format, "h"))
			require.NoError(t, s.Write(t.Context(), b))
			want := 0
			if i == 1 || i == 2 {
				want = 1
			}
			require.Equal(t, want, rejected(b), "histogram %d", i)
		}
		require.Equal(t, 2, count(content(t, s)))
	}
}

// A histogram message that is no protobuf costs that item, not its batch.
func TestUnreadableHistogramIsRejected(t *testing.T) {
	s := openTest(t, testOptions(t))
	req := write1(float1("before", prompb.Sample{Timestamp: milli(), Value: 1}))
	body, err := req.Marshal()
	require.NoError(t, err)
	series := protowire.AppendTag(nil, 1, protowire.BytesType)
	series = protowire.AppendBytes(series, []byte("\x0a\x08__name__\x12\x01x"))
	series = protowire.AppendTag(series, 4, protowire.BytesType)
	series = protowire.AppendBytes(series, []byte{0xff, 0xff})
	body = protowire.AppendTag(body, 1, protowire.BytesType)
	body = protowire.AppendBytes(body, series)
	b := newRawBatch(t, ingester.RemoteWrite1, body)
	require.NoError(t, s.Write(t.Context(), b))
	require.Equal(t, 1, rejected(b))
	require.Equal(t, 1, count(content(t, s)))
}

func TestStartTimestampsOfFloatsAreKept(t *testing.T) {
	o := testOptions(t)
	o.MinBlockDuration = model.Duration(time.Minute)
	s := openTest(t, o)
	base := time.Now().Add(-10 * time.Minute).Truncate(time.Minute).UnixMilli()
	rs := routes{}
	for i := range int64(40) {
		p := point{st: base - 5000 + i/10, t: base + i*10_000, v: float64(i)}
		require.NoError(t, s.Write(t.Context(), newTestBatch(t, rs, p.encode(ingester.RemoteWrite2, "c_total"))))
	}
	check := func(s *Sink) {
		got := content(t, s)[`{__name__="c_total", job="test"}`]
		require.Len(t, got, 40)
		for i, p := range got {
			require.Equal(t, base-5000+int64(i)/10, p.st)
		}
	}
	check(s)
	check(openCopy(t, o)) // from the log
	require.NoError(t, s.db.Compact(t.Context()))
	require.NotEmpty(t, s.db.Blocks())
	check(s) // from blocks
}

func TestStartTimestampsOfHistogramsAreAnOption(t *testing.T) {
	for _, on := range []bool{false, true} {
		o := testOptions(t)
		o.HistogramStartTimestamps = on
		s := openTest(t, o)
		p := testHistograms()["float"]
		p.st, p.t = milli()-1000, milli()
		require.NoError(t, s.Write(t.Context(), newTestBatch(t, routes{}, p.encode(ingester.RemoteWrite2, "h"))))
		got := content(t, s)[`{__name__="h", job="test"}`]
		require.Len(t, got, 1)
		requireSameHistogram(t, "float", p, got[0])
		if on {
			require.Equal(t, p.st, got[0].st)
		} else {
			require.Zero(t, got[0].st)
		}
	}
}

func TestUTF8NamesAndRelabelledLabels(t *testing.T) {
	s := openTest(t, testOptions(t))
	sy := newSymbols()
	req := &writev2.Request{Timeseries: []writev2.TimeSeries{
		{LabelsRefs: sy.refs("__name__", "http.server.duración", "équipe", "плата"), Samples: []writev2.Sample{{Timestamp: milli(), Value: 1}}},
		{LabelsRefs: sy.refs("__name__", "old", "a", "b", "gone", "", "z", "1"), Samples: []writev2.Sample{{Timestamp: milli(), Value: 2}}},
	}}
	req.Symbols = sy.Symbols()
	b := newTestBatch(t, routes{}, req)
	// A rule renamed the second series and added a label out of order.
	var changed []byte
	for _, pair := range [][2]string{{"z", "1"}, {"__name__", "new"}, {"empty", ""}} {
		m := protowire.AppendTag(nil, 1, protowire.BytesType)
		m = protowire.AppendString(m, pair[0])
		m = protowire.AppendTag(m, 2, protowire.BytesType)
		m = protowire.AppendString(m, pair[1])
		changed = protowire.AppendTag(changed, 1, protowire.BytesType)
		changed = protowire.AppendBytes(changed, m)
	}
	b.Groups[1].Route = ingester.NewRoute(b.Groups[1].Route.Sent(), changed)
	require.NoError(t, s.Write(t.Context(), b))
	c := content(t, s)
	require.Len(t, c, 2)
	require.Contains(t, c, `{__name__="http.server.duración", "équipe"="плата"}`)
	require.Contains(t, c, `{__name__="new", z="1"}`)
}

func TestInvalidLabelsAreRejected(t *testing.T) {
	s := openTest(t, testOptions(t))
	now := []prompb.Sample{{Timestamp: milli(), Value: 1}, {Timestamp: milli() + 1, Value: 2}}
	req := write1(
		prompb.TimeSeries{Labels: []prompb.Label{{Name: "job", Value: "no name"}}, Samples: now},
		prompb.TimeSeries{Labels: []prompb.Label{{Name: "__name__", Value: "a"}, {Name: "x", Value: "1"}, {Name: "x", Value: "2"}}, Samples: now},
		prompb.TimeSeries{Labels: []prompb.Label{{Name: "__name__", Value: "a"}, {Name: "x", Value: "\xff"}}, Samples: now},
		float1("good", now...),
	)
	b := newTestBatch(t, routes{}, req)
	require.NoError(t, s.Write(t.Context(), b))
	require.Equal(t, 6, rejected(b))
	require.Equal(t, 2, count(content(t, s)))
}
