package tsdb

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester"
)

func testOptions(t testing.TB) Options {
	o := DefaultOptions(t.TempDir())
	o.Registerer = prometheus.NewRegistry()
	o.MinFreeBytes = 0
	return o
}

func openTest(t testing.TB, o Options) *Sink {
	t.Helper()
	s, err := Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
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

func rejected(b *ingester.Batch) (n int) {
	for i := range b.Groups {
		n += int(b.Groups[i].Rejected)
	}
	return n
}

func TestSmoke(t *testing.T) {
	s := openTest(t, testOptions(t))
	now := time.Now().UnixMilli()
	rs := routes{}
	b := newTestBatch(t, rs, series1(10, now, 1))
	require.NoError(t, s.Write(t.Context(), b))
	require.Zero(t, rejected(b))
	require.EqualValues(t, 10, s.db.Head().NumSeries())
}
