package tsdb

import (
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester"
)

func testOptions(t testing.TB) Options {
	o := DefaultOptions(t.TempDir())
	o.Registerer = prometheus.NewRegistry()
	o.MinFreeBytes = 0
	o.WALSegmentBytes = 1 << 20
	return o
}

func openTest(t testing.TB, o Options) *Sink {
	t.Helper()
	s, err := Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// openCopy opens what a process would find that was started after this one had
// been killed: a copy of the files as they are now.
func openCopy(t testing.TB, o Options) *Sink {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(o.Path)))
	o.Path = dir
	o.Registerer = nil
	return openTest(t, o)
}

// content reads all samples of the database, by the text of their label set.
func content(t testing.TB, s *Sink) map[string][]point {
	t.Helper()
	s.reads.RLock()
	defer s.reads.RUnlock()
	q, err := s.db.Querier(math.MinInt64, math.MaxInt64)
	require.NoError(t, err)
	defer q.Close()
	out := map[string][]point{}
	set := q.Select(t.Context(), true, nil, labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".*"))
	for set.Next() {
		name := set.At().Labels().String()
		it := set.At().Iterator(nil)
		for typ := it.Next(); typ != chunkenc.ValNone; typ = it.Next() {
			var p point
			switch typ {
			case chunkenc.ValFloat:
				p.t, p.v = it.At()
			case chunkenc.ValHistogram:
				p.t, p.h = it.AtHistogram(nil)
			case chunkenc.ValFloatHistogram:
				p.t, p.fh = it.AtFloatHistogram(nil)
			}
			p.st = it.AtST()
			out[name] = append(out[name], p)
		}
		require.NoError(t, it.Err())
	}
	require.NoError(t, set.Err())
	return out
}

func count(c map[string][]point) (n int) {
	for _, ps := range c {
		n += len(ps)
	}
	return n
}

func rejected(b *ingester.Batch) (n int) {
	for i := range b.Groups {
		n += int(b.Groups[i].Rejected)
	}
	return n
}

// reasons collects what a sink rejects: the batch itself keeps only numbers.
func reasons(w *staged) map[string]int {
	out := map[string]int{}
	for _, r := range w.rejected {
		out[r.reason]++
	}
	return out
}

// float1 is a request of one float series per label set, each with the samples.
func float1(name string, samples ...prompb.Sample) prompb.TimeSeries {
	return prompb.TimeSeries{
		Labels:  []prompb.Label{{Name: "__name__", Value: name}, {Name: "job", Value: "test"}},
		Samples: samples,
	}
}

func write1(ts ...prompb.TimeSeries) *prompb.WriteRequest {
	return &prompb.WriteRequest{Timeseries: ts}
}

// symbols collects the strings of a remote write 2.0 request.
type symbols struct{ writev2.SymbolsTable }

func newSymbols() *symbols { return &symbols{writev2.NewSymbolTable()} }

func (s *symbols) refs(pairs ...string) (out []uint32) {
	for _, p := range pairs {
		out = append(out, s.Symbolize(p))
	}
	return out
}

// milli is now in the unit of all timestamps here.
func milli() int64 { return time.Now().UnixMilli() }

func window(d time.Duration) func(*Options) {
	return func(o *Options) { o.OutOfOrderWindow = model.Duration(d) }
}

// series1 makes n counters with ten labels, as a node exporter has them.
func series1(n int, t int64, v float64) *prompb.WriteRequest {
	req := &prompb.WriteRequest{}
	for i := range n {
		req.Timeseries = append(req.Timeseries, prompb.TimeSeries{
			Labels: []prompb.Label{
				{Name: "__name__", Value: fmt.Sprintf("node_cpu_seconds_%d_total", i%50)},
				{Name: "cluster", Value: "eu-west-1"},
				{Name: "container", Value: "node-exporter"},
				{Name: "cpu", Value: fmt.Sprint(i / 50)},
				{Name: "instance", Value: "10.0.17.23:9100"},
				{Name: "job", Value: "node"},
				{Name: "mode", Value: "idle"},
				{Name: "namespace", Value: "monitoring"},
				{Name: "pod", Value: "node-exporter-5x7zk"},
				{Name: "team", Value: "platform"},
			},
			Samples: []prompb.Sample{{Timestamp: t, Value: v + float64(i)}},
		})
	}
	return req
}

// exemplars reads the exemplars of a metric.
func exemplars(t testing.TB, s *Sink, name string) []exemplar.Exemplar {
	t.Helper()
	q, err := s.db.ExemplarQuerier(t.Context())
	require.NoError(t, err)
	res, err := q.Select(math.MinInt64, math.MaxInt64, []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "__name__", name)})
	require.NoError(t, err)
	var out []exemplar.Exemplar
	for _, r := range res {
		out = append(out, r.Exemplars...)
	}
	return out
}
