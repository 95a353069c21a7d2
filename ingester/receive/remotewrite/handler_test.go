package remotewrite

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester"
)

func one(pairs ...string) *prompb.WriteRequest {
	return &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{series(1, 1000, pairs...)}}
}

// TestNegotiation covers every answer that a request gets for its method and its
// headers alone.
func TestNegotiation(t *testing.T) {
	s := newSystem(t, "", "")
	body, err := one("__name__", "up").Marshal()
	require.NoError(t, err)
	packed := snappy.Encode(nil, body)
	header := func(name, v string) func(*http.Request) {
		return func(r *http.Request) {
			if v == "" {
				r.Header.Del(name)
				return
			}
			r.Header.Set(name, v)
		}
	}
	for _, c := range []struct {
		name   string
		change func(*http.Request)
		status int
	}{
		{"as Prometheus sends it", func(*http.Request) {}, 204},
		{"no content type", header("Content-Type", ""), 204},
		{"1.0 named", header("Content-Type", "application/x-protobuf;proto=prometheus.WriteRequest"), 204},
		{"no encoding", header("Content-Encoding", ""), 204},
		{"JSON", header("Content-Type", "application/json"), 415},
		{"another message", header("Content-Type", "application/x-protobuf;proto=io.prometheus.write.v3.Request"), 415},
		{"broken content type", header("Content-Type", ";;"), 415},
		{"zstd", header("Content-Encoding", "zstd"), 415},
		{"gzip", header("Content-Encoding", "gzip"), 415},
		{"GET", func(r *http.Request) { r.Method = http.MethodGet }, 405},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := s.post(contentTypeV1, packed, c.change)
			require.Equal(t, c.status, rec.Code, rec.Body)
			if c.status == 405 {
				require.Equal(t, "POST", rec.Header().Get("Allow"))
			}
		})
	}
	s.requireConserved()
}

// TestScatteredFields sends what protobuf allows and no known sender does:
// labels behind samples, references one by one and in two runs, fields in any
// order, unknown fields. The series is the same.
func TestScatteredFields(t *testing.T) {
	label := func(name, v string) []byte {
		return ingester.AppendLabel(nil, name, v)
	}
	sample := []byte{0x12, 0x0b, 0x10, 0x05, 0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f}
	unknown := []byte{0x7a, 0x02, 'h', 'i'}
	message := func(parts ...[]byte) []byte {
		body := bytes.Join(parts, nil)
		return append([]byte{0x0a, byte(len(body))}, body...)
	}
	s := newSystem(t, "", "")
	scattered := bytes.Join([][]byte{
		message(label("__name__", "up"), sample, unknown, label("job", "x")),
		unknown,
		message(sample, label("__name__", "up"), label("job", "x")),
		message(label("__name__", "up"), label("job", "x"), sample),
	}, nil)
	require.Equal(t, 204, s.post(contentTypeV1, snappy.Encode(nil, scattered)).Code)
	require.Len(t, s.sink.series, 3)
	for _, got := range s.sink.series {
		require.Equal(t, `"__name__"="up","job"="x",`, got.labels)
	}

	refs := [][]byte{{0x08, 1, 0x08, 2, 0x08, 3, 0x08, 4}, {0x0a, 2, 1, 2, 0x0a, 2, 3, 4}, {0x0a, 4, 1, 2, 3, 4}}
	var body []byte
	for _, r := range refs {
		msg := append(append([]byte{}, sample...), r...)
		body = append(append(body, 0x2a, byte(len(msg))), msg...)
	}
	for _, symbol := range []string{"", "__name__", "up", "job", "x"} { // behind the series
		body = append(append(body, 0x22, byte(len(symbol))), symbol...)
	}
	s.sink.series = nil
	rec := s.post(contentTypeV2, snappy.Encode(nil, body))
	require.Equal(t, 204, rec.Code, rec.Body)
	require.Len(t, s.sink.series, 3)
	for _, got := range s.sink.series {
		require.Equal(t, `"__name__"="up","job"="x",`, got.labels)
	}
}

// richV1 has one of everything that remote write 1.0 can hold.
func richV1() *prompb.WriteRequest {
	ints := prompb.FromIntHistogram(5, &histogram.Histogram{Schema: 2, Count: 4, Sum: 7, ZeroThreshold: .1, ZeroCount: 1,
		PositiveSpans: []histogram.Span{{Offset: 1, Length: 2}}, PositiveBuckets: []int64{1, 1}})
	floats := prompb.FromFloatHistogram(6, &histogram.FloatHistogram{Schema: 0, Count: 3.5, Sum: 1,
		NegativeSpans: []histogram.Span{{Offset: 0, Length: 1}}, NegativeBuckets: []float64{3.5}})
	custom := prompb.FromFloatHistogram(7, &histogram.FloatHistogram{Schema: histogram.CustomBucketsSchema, Count: 2, Sum: 3,
		PositiveSpans: []histogram.Span{{Length: 1}}, PositiveBuckets: []float64{2}, CustomValues: []float64{1, 5}})
	exemplar := prompb.Exemplar{Labels: []prompb.Label{{Name: "trace_id", Value: "abc"}}, Value: 2, Timestamp: 4}
	req := &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{
		series(math.Float64frombits(value.StaleNaN), 1000, "__name__", "stale"),
		series(0, 0, "__name__", "zero"),
		series(1, -5, "__name__", "before 1970", "naïve.label", "ü"),
	}}
	for i, h := range []prompb.Histogram{ints, floats, custom} {
		ts := series(0, 0, "__name__", fmt.Sprintf("h%d", i))
		ts.Samples, ts.Histograms, ts.Exemplars = nil, []prompb.Histogram{h}, []prompb.Exemplar{exemplar, exemplar}
		req.Timeseries = append(req.Timeseries, ts)
	}
	return req
}

// TestEverythingArrives compares every field that the sink gets with what was
// sent, in both versions, and what it costs: a token a sample and a histogram,
// none for exemplars.
func TestEverythingArrives(t *testing.T) {
	s := newSystem(t, "", "")
	req := richV1()
	require.Equal(t, 204, s.postV1(req).Code)
	require.Len(t, s.sink.series, len(req.Timeseries))
	for i, ts := range req.Timeseries {
		require.Equal(t, stored{labelString(ts.Labels), contentV1(ts)}, s.sink.series[i])
	}
	require.EqualValues(t, 6, s.requireConserved()["admitted_items"])

	s.sink.series = nil
	table := writev2.NewSymbolTable()
	v2 := &writev2.Request{}
	for _, ts := range req.Timeseries {
		out := writev2.TimeSeries{Metadata: writev2.Metadata{Type: writev2.Metadata_METRIC_TYPE_GAUGE, HelpRef: table.Symbolize("help"), UnitRef: table.Symbolize("s")}}
		for _, l := range ts.Labels {
			out.LabelsRefs = append(out.LabelsRefs, table.Symbolize(l.Name), table.Symbolize(l.Value))
		}
		for _, smp := range ts.Samples {
			out.Samples = append(out.Samples, writev2.Sample{Value: smp.Value, Timestamp: smp.Timestamp, StartTimestamp: 3})
		}
		for _, h := range ts.Histograms {
			ih := h.ToIntHistogram()
			if h.IsFloatHistogram() {
				out.Histograms = append(out.Histograms, writev2.FromFloatHistogram(2, h.Timestamp, h.ToFloatHistogram()))
			} else {
				out.Histograms = append(out.Histograms, writev2.FromIntHistogram(2, h.Timestamp, ih))
			}
			out.Exemplars = append(out.Exemplars, writev2.Exemplar{LabelsRefs: []uint32{table.Symbolize("trace_id"), table.Symbolize("abc")}, Value: 1, Timestamp: 2})
		}
		v2.Timeseries = append(v2.Timeseries, out)
	}
	v2.Symbols = table.Symbols()
	rec := s.postV2(v2)
	require.Equal(t, 204, rec.Code, rec.Body)
	require.Equal(t, []string{"3", "3", "3"}, []string{rec.Header().Get(samplesWritten), rec.Header().Get(histogramsWritten), rec.Header().Get(exemplarsWritten)})
	for i, ts := range v2.Timeseries {
		require.Equal(t, contentV2(ts), s.sink.series[i].message)
	}
	require.EqualValues(t, 12, s.requireConserved()["admitted_items"])
}

// TestAnswersWhenTheSinkFails: nothing is stored, the sender is asked to come
// back, the tokens are back (B7).
func TestAnswersWhenTheSinkFails(t *testing.T) {
	s := newSystem(t, "streams: {metrics: {rate: 0.0001, burst: 1}}", "")
	for name, fail := range map[string]func() error{
		"error": func() error { return errors.New("no space left") },
		"asked to wait": func() error {
			return &ingester.SinkError{Err: errors.New("busy"), RetryAfter: 20 * time.Second}
		},
		"panic": func() error { panic("a bug") },
	} {
		t.Run(name, func(t *testing.T) {
			s.sink.fail = fail
			for _, rec := range []*httptest.ResponseRecorder{s.postV1(one("__name__", "up")), s.postV2(toV2(one("__name__", "up")))} {
				require.Equal(t, 503, rec.Code)
				require.NotEqual(t, "0", rec.Header().Get("Retry-After"))
				if name == "asked to wait" {
					require.Regexp(t, "^(2[0-9]|3[0-2])$", rec.Header().Get("Retry-After"))
				}
			}
			s.requireConserved()
		})
	}
	s.sink.fail = nil
	require.Equal(t, 204, s.postV2(toV2(one("__name__", "up"))).Code, "the one token must be back")
	require.Equal(t, 400, s.postV2(toV2(one("__name__", "up"))).Code)
	counts := s.requireConserved()
	require.EqualValues(t, 6, counts["refused_items/sink"])
	require.EqualValues(t, 6, counts["refused_batches/sink"])
}

// TestFinalRefusal: a destination that calls a batch invalid is believed.
func TestFinalRefusal(t *testing.T) {
	s := newSystem(t, "", "")
	s.sink.fail = func() error { return &ingester.SinkError{Err: errors.New("out of order"), Final: true} }
	rec := s.postV2(toV2(one("__name__", "up")))
	require.Equal(t, 400, rec.Code)
	require.Contains(t, rec.Body.String(), "out of order")
	counts := s.requireConserved()
	require.EqualValues(t, 1, counts["invalid_items"])
	require.Zero(t, counts["refused_items/sink"])
}

// TestSinkRejectsItems: what a sink cannot store is invalid, its neighbours are
// admitted.
func TestSinkRejectsItems(t *testing.T) {
	s := newSystem(t, "", "")
	s.sink.reject = func(b *ingester.Batch) { b.Reject(&b.Groups[0], 1, "out_of_order") }
	req := one("__name__", "up")
	req.Timeseries[0].Samples = append(req.Timeseries[0].Samples, prompb.Sample{Timestamp: 1})
	rec := s.postV2(toV2(req))
	require.Equal(t, 400, rec.Code)
	require.Contains(t, rec.Body.String(), "out_of_order")
	require.Equal(t, "1", rec.Header().Get(samplesWritten))
	counts := s.requireConserved()
	require.EqualValues(t, 1, counts["invalid_items"])
	require.EqualValues(t, 1, counts["invalid_reasons/out_of_order"])
	require.EqualValues(t, 1, counts["admitted_items"])
	require.Equal(t, 400, s.postV1(one("__name__", "up")).Code, "nothing of it was stored")
}

// TestLostExemplars: the header is exact, and the answer is what it was.
func TestLostExemplars(t *testing.T) {
	s := newSystem(t, "", "")
	s.sink.reject = func(b *ingester.Batch) { b.LoseExemplars(1) }
	req := toV2(one("__name__", "up"))
	req.Timeseries[0].Exemplars = []writev2.Exemplar{{Value: 1, Timestamp: 1}, {Value: 2, Timestamp: 2}}
	rec := s.postV2(req)
	require.Equal(t, 204, rec.Code, rec.Body)
	require.Equal(t, "1", rec.Header().Get(exemplarsWritten))
	require.Equal(t, "1", rec.Header().Get(samplesWritten))
}

// TestSilent answers drops with 204, but never what is invalid.
func TestSilent(t *testing.T) {
	s := newSystem(t, "streams: {metrics: {rate: 0, burst: 1}}", "")
	s.settings.Streams[ingester.Metrics].Silent = true
	require.NoError(t, s.ingester.Reload(s.settings))
	rec := s.postV2(toV2(one("__name__", "up")))
	require.Equal(t, 204, rec.Code)
	require.Equal(t, "1", rec.Header().Get(samplesWritten), "or the sender logs an error")
	require.Equal(t, 400, s.postV2(toV2(one("job", "x"))).Code)
	require.EqualValues(t, 1, s.requireConserved()["dropped_items/ratelimit"])
}

// TestDropText names the classes and their limits.
func TestDropText(t *testing.T) {
	s := newSystem(t, oraclePolicy, oracleRules)
	req := one("__name__", "up", "team", "zero")
	req.Timeseries = append(req.Timeseries, series(1, 1, "__name__", "up", "team", "gone"), series(1, 1, "__name__", "drop_me"))
	body := s.postV2(toV2(req)).Body.String()
	for _, want := range []string{"class nothing: 1 items", "rate is 0", "class gone: 1 items", "does not define", "1 items dropped (relabel)"} {
		require.Contains(t, body, want)
	}
}

// TestExemplarsShareTheirSeriesFate: in a class that drops everything they are
// dropped as well, and the answer says so although they cost nothing.
func TestExemplarsShareTheirSeriesFate(t *testing.T) {
	s := newSystem(t, "streams: {metrics: {rate: 0, burst: 1}}", "")
	rec := s.postV2(&writev2.Request{Symbols: []string{"", "__name__", "up"}, Timeseries: []writev2.TimeSeries{
		{LabelsRefs: []uint32{1, 2}, Exemplars: []writev2.Exemplar{{Value: 1, Timestamp: 1}}},
	}})
	require.Equal(t, 400, rec.Code)
	require.Contains(t, rec.Body.String(), "class default: 0 items")
	require.Empty(t, s.sink.series)
}

// TestMemoryBudget refuses what does not fit, and takes it when there is room.
func TestMemoryBudget(t *testing.T) {
	s := newSystem(t, "", "")
	m := s.ingester.Memory()
	require.True(t, m.Grow(64<<20))
	rec := s.postV1(one("__name__", "up"))
	require.Equal(t, 503, rec.Code)
	require.NotEmpty(t, rec.Header().Get("Retry-After"))
	m.Release()
	require.Equal(t, 204, s.postV1(one("__name__", "up")).Code)
	require.EqualValues(t, 1, s.requireConserved()["refused_batches/capacity"])
}

// TestRetryAfterSpreads: senders that were refused together do not come back
// together.
func TestRetryAfterSpreads(t *testing.T) {
	s := newSystem(t, "", "")
	s.sink.fail = func() error { return errors.New("down") }
	seen := map[string]bool{}
	for range 100 {
		seen[s.postV1(one("__name__", "up")).Header().Get("Retry-After")] = true
	}
	require.Greater(t, len(seen), 1)
}

// TestDocumentedNumbers replays the documented cases of the reference product in
// virtual time, through the whole data path.
func TestDocumentedNumbers(t *testing.T) {
	t.Run("spike", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newSystem(t, "streams: {metrics: {rate: 10000, burst: 20000}}", "")
			want := []int64{5000, 5000, 5000, 5000, 20000, 20000, 10000, 10000, 5000, 5000, 5000, 5000}
			for second, offered := range []int{5000, 5000, 5000, 5000, 20000, 20000, 20000, 20000, 5000, 5000, 5000, 5000} {
				before := s.counts()["admitted_items"]
				for range 20 { // evenly spaced
					s.postV1(bulk(offered / 20))
					time.Sleep(50 * time.Millisecond)
				}
				require.InDelta(t, want[second], s.counts()["admitted_items"]-before, 500, "second %d", second)
			}
			s.requireConserved()
		})
	})
	t.Run("a series of ten samples takes ten tokens or none", func(t *testing.T) {
		for burst, admitted := range map[int]int64{9: 0, 10: 10, 19: 10, 20: 10} {
			s := newSystem(t, fmt.Sprintf("streams: {metrics: {rate: 0.0001, burst: %d}}", burst), "")
			req := one("__name__", "up")
			for i := range 9 {
				req.Timeseries[0].Samples = append(req.Timeseries[0].Samples, prompb.Sample{Timestamp: int64(2000 + i)})
			}
			s.postV1(req)
			require.Equal(t, admitted, s.requireConserved()["admitted_items"], "burst %d", burst)
		}
	})
	t.Run("a burst of 1 lets a steady trickle through, and drops bunches", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newSystem(t, "streams: {metrics: {rate: 125, burst: 1}}", "")
			for range 1200 { // 120 a second for 10 s
				s.postV1(one("__name__", "up"))
				time.Sleep(time.Second / 120)
			}
			require.EqualValues(t, 1200, s.requireConserved()["admitted_items"])
		})
		synctest.Test(t, func(t *testing.T) {
			s := newSystem(t, "streams: {metrics: {rate: 125, burst: 1}}", "")
			for range 100 { // 50 a second in bunches of 5
				s.postV1(bulk(5))
				time.Sleep(100 * time.Millisecond)
			}
			counts := s.requireConserved()
			require.EqualValues(t, 100, counts["admitted_items"])
			require.EqualValues(t, 400, counts["dropped_items/ratelimit"])
		})
	})
	t.Run("rate 0 drops the first item too", func(t *testing.T) {
		s := newSystem(t, "streams: {metrics: {rate: 0, burst: 100}}", "")
		s.postV1(one("__name__", "up"))
		require.Zero(t, s.requireConserved()["admitted_items"])
	})
}

// bulk is a request of n different series with one sample each.
func bulk(n int) *prompb.WriteRequest {
	req := &prompb.WriteRequest{}
	for i := range n {
		req.Timeseries = append(req.Timeseries, series(float64(i), 1000, "__name__", "up", "id", fmt.Sprint(i)))
	}
	return req
}
