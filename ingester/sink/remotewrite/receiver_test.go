package remotewrite

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	remoteapi "github.com/prometheus/client_golang/exp/api/remote"
	"github.com/prometheus/client_golang/prometheus"
	promexemplar "github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester"
)

// recorder is a storage that writes down what Prometheus's receiver gives it.
type recorder struct {
	mu      sync.Mutex
	lines   []string
	refuse  func(l labels.Labels) error
	commits int
}

func (r *recorder) AppenderV2(context.Context) storage.AppenderV2 { return &appender{r: r} }

type appender struct {
	r     *recorder
	lines []string
}

func (a *appender) Append(_ storage.SeriesRef, l labels.Labels, st, at int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram, o storage.AppendV2Options) (storage.SeriesRef, error) {
	if a.r.refuse != nil {
		if err := a.r.refuse(l); err != nil {
			return 0, err
		}
	}
	line := fmt.Sprintf("%s start %d at %d", l, st, at)
	switch {
	case h != nil:
		line += " int " + intText(h)
	case fh != nil:
		line += " float " + floatText(fh)
	default:
		line += fmt.Sprintf(" value %016x", math.Float64bits(v))
	}
	m := o.Metadata
	a.lines = append(a.lines, line+fmt.Sprintf(" type %q help %q unit %q", m.Type, m.Help, m.Unit))
	return 1, nil
}

func (a *appender) AppendExemplars(_ storage.SeriesRef, l labels.Labels, all []promexemplar.Exemplar) (storage.SeriesRef, error) {
	for _, e := range all {
		a.lines = append(a.lines, fmt.Sprintf("%s exemplar %s value %016x at %d", l, e.Labels, math.Float64bits(e.Value), e.Ts))
	}
	return 1, nil
}

func (a *appender) Commit() error {
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	a.r.commits++
	a.r.lines = append(a.r.lines, a.lines...)
	return nil
}

func (*appender) Rollback() error { return nil }

// The texts hold every field, floats as bits.
func intText(h *histogram.Histogram) string {
	return fmt.Sprint(h.CounterResetHint, h.Schema, math.Float64bits(h.ZeroThreshold), h.ZeroCount, h.Count, math.Float64bits(h.Sum),
		h.PositiveSpans, h.NegativeSpans, h.PositiveBuckets, h.NegativeBuckets, h.CustomValues)
}

func floatText(h *histogram.FloatHistogram) string {
	bits := func(fs []float64) (out []uint64) {
		for _, f := range fs {
			out = append(out, math.Float64bits(f))
		}
		return out
	}
	return fmt.Sprint(h.CounterResetHint, h.Schema, math.Float64bits(h.ZeroThreshold), math.Float64bits(h.ZeroCount), math.Float64bits(h.Count), math.Float64bits(h.Sum),
		h.PositiveSpans, h.NegativeSpans, bits(h.PositiveBuckets), bits(h.NegativeBuckets), h.CustomValues)
}

// newReceiver is Prometheus's own remote write receiver over a storage.
func newReceiver(t *testing.T, to storage.AppendableV2) *httptest.Server {
	accepted := remoteapi.MessageTypes{remoteapi.WriteV1MessageType, remoteapi.WriteV2MessageType}
	h := remote.NewWriteHandler(slog.New(slog.DiscardHandler), prometheus.NewRegistry(), to, accepted, false, true)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server
}

// storable makes a random request of what Prometheus stores without complaint: it
// has names, no doubled labels, and no exemplars on their own.
func (g generator) storable(f ingester.Format, n int) interface{ Marshal() ([]byte, error) } {
	ok := func(name string, points int) bool { return name != "" && points > 0 }
	if f == ingester.RemoteWrite1 {
		r := g.v1(n)
		r.Timeseries = slices.DeleteFunc(r.Timeseries, func(ts prompb.TimeSeries) bool {
			return !ok(nameOf(plainLabels(ts.Labels)), len(ts.Samples)+len(ts.Histograms))
		})
		return r
	}
	r := g.v2(n)
	r.Timeseries = slices.DeleteFunc(r.Timeseries, func(ts writev2.TimeSeries) bool {
		labels, _ := refLabels(ts.LabelsRefs, r.Symbols)
		return !ok(nameOf(labels), len(ts.Samples)+len(ts.Histograms))
	})
	return r
}

// What arrives in the storage behind Prometheus's receiver is what arrives there
// when the expected request is sent by Prometheus's own encoder.
func TestPrometheusReceivesEveryFieldUnchanged(t *testing.T) {
	eachCombination(t, func(t *testing.T, from, to ingester.Format) {
		var got, want recorder
		sink := newTestSink(t, to, newReceiver(t, &got).URL)
		reference := newTestSink(t, to, newReceiver(t, &want).URL)
		for seed := range int64(60) {
			g := generator{rand.New(rand.NewSource(seed))}
			b := newTestBatch(t, g.storable(from, 1+g.Intn(25)))
			n := len(b.Groups)
			plans := make([]plan, n)
			if seed%4 > 0 {
				plans = g.plans(n, 0.4, 0.3)
			}
			for i := range b.Groups {
				if plans[i].labels != nil && nameOf(plainLabels(plans[i].labels)) == "" {
					plans[i].labels = append([]prompb.Label{{Name: "__name__", Value: "renamed"}}, plans[i].labels...)
				}
				plans[i].apply(&b.Groups[i])
			}
			b.Whole = seed%4 == 0

			in, err := decode(from, b.Body[:b.Size])
			require.NoError(t, err)
			out, lost := expected(in, plans, from, to, nil)
			require.NoError(t, sink.Write(t.Context(), b), "seed %d", seed)
			require.NoError(t, reference.Write(t.Context(), wholeBatch(t, to, out)), "seed %d", seed)
			require.Equal(t, want.lines, got.lines, "seed %d", seed)

			var rejected int
			for i := range b.Groups {
				rejected += int(b.Groups[i].Rejected)
			}
			require.Equal(t, lost, rejected, "seed %d", seed)
			got.lines, want.lines = nil, nil
		}
		require.NotZero(t, got.commits)
	})
}

// wholeBatch is a request with the given content, encoded by Prometheus.
func wholeBatch(t *testing.T, format ingester.Format, w write) *ingester.Batch {
	v1, v2, table := &prompb.WriteRequest{}, &writev2.Request{}, writev2.NewSymbolTable()
	for _, s := range w.Series {
		var a prompb.TimeSeries
		var c writev2.TimeSeries
		for _, l := range s.Labels {
			a.Labels = append(a.Labels, prompb.Label{Name: l.name, Value: l.value})
			c.LabelsRefs = append(c.LabelsRefs, table.Symbolize(l.name), table.Symbolize(l.value))
		}
		for _, p := range s.Samples {
			a.Samples = append(a.Samples, prompb.Sample{Value: math.Float64frombits(p.bits), Timestamp: p.at})
			c.Samples = append(c.Samples, writev2.Sample{Value: math.Float64frombits(p.bits), Timestamp: p.at, StartTimestamp: p.start})
		}
		for _, raw := range s.Histograms {
			var h1 prompb.Histogram
			var h2 writev2.Histogram
			require.NoError(t, h1.Unmarshal([]byte(raw)))
			require.NoError(t, h2.Unmarshal([]byte(raw)))
			a.Histograms, c.Histograms = append(a.Histograms, h1), append(c.Histograms, h2)
		}
		for _, x := range s.Exemplars {
			e1 := prompb.Exemplar{Value: math.Float64frombits(x.bits), Timestamp: x.at}
			e2 := writev2.Exemplar{Value: math.Float64frombits(x.bits), Timestamp: x.at}
			for _, l := range x.labels {
				e1.Labels = append(e1.Labels, prompb.Label{Name: l.name, Value: l.value})
				e2.LabelsRefs = append(e2.LabelsRefs, table.Symbolize(l.name), table.Symbolize(l.value))
			}
			a.Exemplars, c.Exemplars = append(a.Exemplars, e1), append(c.Exemplars, e2)
		}
		m := s.Metadata
		c.Metadata = writev2.Metadata{Type: writev2.Metadata_MetricType(m.typ), HelpRef: table.Symbolize(m.help), UnitRef: table.Symbolize(m.unit)}
		v1.Timeseries, v2.Timeseries = append(v1.Timeseries, a), append(v2.Timeseries, c)
	}
	v2.Symbols = table.Symbols()
	var b *ingester.Batch
	if format == ingester.RemoteWrite1 {
		b = newTestBatch(t, v1)
	} else {
		b = newTestBatch(t, v2)
	}
	b.Whole = true
	return b
}

// A 2.0 receiver that refuses some samples says how many; as many items are
// rejected, from the last series on.
func TestPartialWritesRejectWhatWasNotWritten(t *testing.T) {
	store := recorder{refuse: func(l labels.Labels) error {
		if l.Get("job") == "late" {
			return storage.ErrOutOfOrderSample
		}
		return nil
	}}
	sink := newTestSink(t, ingester.RemoteWrite2, newReceiver(t, &store).URL)
	series := func(job string, samples int) (ts writev2.TimeSeries) {
		ts.LabelsRefs = []uint32{1, 2, 3, map[string]uint32{"good": 4, "late": 5}[job]}
		for i := range samples {
			ts.Samples = append(ts.Samples, writev2.Sample{Value: 1, Timestamp: int64(i)})
		}
		return ts
	}
	b := newTestBatch(t, &writev2.Request{
		Symbols:    []string{"", "__name__", "up", "job", "good", "late"},
		Timeseries: []writev2.TimeSeries{series("good", 1), series("late", 3), series("good", 2), series("late", 9), series("good", 1)},
	})
	b.Groups[3].Verdict = ingester.DroppedRatelimit
	require.NoError(t, sink.Write(t.Context(), b))
	require.Len(t, store.lines, 4)
	var rejected []uint32
	for i := range b.Groups {
		rejected = append(rejected, b.Groups[i].Rejected)
	}
	require.Equal(t, []uint32{0, 0, 2, 0, 1}, rejected)

	// Everything refused is a final error with the receiver's text.
	b = newTestBatch(t, &writev2.Request{Symbols: []string{"", "__name__", "up", "job", "good", "late"}, Timeseries: []writev2.TimeSeries{series("late", 2)}})
	var e *ingester.SinkError
	require.ErrorAs(t, sink.Write(t.Context(), b), &e)
	require.True(t, e.Final)
	require.ErrorContains(t, e, "out of order sample")
	require.Zero(t, b.Groups[0].Rejected)
}

// What was never sent cannot be what the destination did not write.
func TestUnsentSeriesAreNotRejectedTwice(t *testing.T) {
	s := offline(t, ingester.RemoteWrite2, answering(200, samplesWrittenHeader, "1"))
	series := prompb.TimeSeries{Labels: []prompb.Label{{Name: "__name__", Value: "up"}}, Samples: []prompb.Sample{{Value: 1, Timestamp: 300}, {Value: 2, Timestamp: 301}}}
	b := newTestBatch(t, &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{series, series, series}})
	b.Groups[2].Field.End-- // it ends within a sample
	require.NoError(t, s.Write(t.Context(), b))
	require.Equal(t, []uint32{1, 2, 2}, []uint32{b.Groups[0].Rejected, b.Groups[1].Rejected, b.Groups[2].Rejected})
}
