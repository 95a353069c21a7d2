package remotewrite

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester"
)

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		o := testOptions(t, ingester.RemoteWrite2, "http://a", "http://b", "http://c")
		s, err := New(o, slog.New(slog.DiscardHandler), prometheus.WrapRegistererWith(prometheus.Labels{"sink": "mimir"}, reg))
		require.NoError(t, err)
		other, err := New(o, slog.New(slog.DiscardHandler), prometheus.WrapRegistererWith(prometheus.Labels{"sink": "other"}, reg))
		require.NoError(t, err, "two sinks share a registry")
		for i, rt := range []transport{refusing, hanging, answering(200, samplesWrittenHeader, "1")} {
			s.to.Endpoints[i].Client.Transport = rt
		}
		b := newTestBatch(t, &prompb.WriteRequest{
			Timeseries: []prompb.TimeSeries{{
				Labels: []prompb.Label{{Name: "__name__", Value: "up"}}, Samples: []prompb.Sample{{Value: 1}}, Exemplars: []prompb.Exemplar{{Value: 1}, {Value: 2}},
			}},
			Metadata: []prompb.MetricMetadata{{MetricFamilyName: "down"}},
		})
		require.NoError(t, s.Write(t.Context(), b))
		require.NoError(t, s.Write(t.Context(), b))
		require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP spillway_sink_endpoint_healthy 1 while the endpoint is in use, 0 while it is left out after a failure.
# TYPE spillway_sink_endpoint_healthy gauge
spillway_sink_endpoint_healthy{endpoint="http://a",sink="mimir"} 0
spillway_sink_endpoint_healthy{endpoint="http://a",sink="other"} 1
spillway_sink_endpoint_healthy{endpoint="http://b",sink="mimir"} 0
spillway_sink_endpoint_healthy{endpoint="http://b",sink="other"} 1
spillway_sink_endpoint_healthy{endpoint="http://c",sink="mimir"} 1
spillway_sink_endpoint_healthy{endpoint="http://c",sink="other"} 1
# HELP spillway_sink_requests_total Requests to the destination, by endpoint and the code of the answer: an HTTP status, timeout, abandoned (the sender left first) or error (no answer).
# TYPE spillway_sink_requests_total counter
spillway_sink_requests_total{code="200",endpoint="http://c",sink="mimir"} 2
spillway_sink_requests_total{code="error",endpoint="http://a",sink="mimir"} 2
spillway_sink_requests_total{code="timeout",endpoint="http://b",sink="mimir"} 1
# HELP spillway_sink_retries_total Batches that were given to this endpoint because another one failed to take them.
# TYPE spillway_sink_retries_total counter
spillway_sink_retries_total{endpoint="http://a",sink="mimir"} 0
spillway_sink_retries_total{endpoint="http://a",sink="other"} 0
spillway_sink_retries_total{endpoint="http://b",sink="mimir"} 1
spillway_sink_retries_total{endpoint="http://b",sink="other"} 0
spillway_sink_retries_total{endpoint="http://c",sink="mimir"} 2
spillway_sink_retries_total{endpoint="http://c",sink="other"} 0
# HELP spillway_sink_unsent_parts_total Parts of admitted batches that cost no token and are not stored at the destination: metric metadata (family) and start timestamps (start_timestamp) that the configured message cannot hold, and exemplars (exemplar) that the destination did not count as written.
# TYPE spillway_sink_unsent_parts_total counter
spillway_sink_unsent_parts_total{part="exemplar",sink="mimir"} 4
spillway_sink_unsent_parts_total{part="exemplar",sink="other"} 0
spillway_sink_unsent_parts_total{part="family",sink="mimir"} 2
spillway_sink_unsent_parts_total{part="family",sink="other"} 0
spillway_sink_unsent_parts_total{part="start_timestamp",sink="mimir"} 0
spillway_sink_unsent_parts_total{part="start_timestamp",sink="other"} 0
`), "spillway_sink_endpoint_healthy", "spillway_sink_requests_total", "spillway_sink_retries_total", "spillway_sink_unsent_parts_total"))
		require.NoError(t, other.Close())
	})
}

// Refusals are told only once the destination has the rest: a write that fails
// will come again.
func TestRefusalsWaitForTheAnswer(t *testing.T) {
	b := newTestBatch(t, &writev2.Request{Symbols: []string{"", "__name__", "up"}, Timeseries: []writev2.TimeSeries{
		{LabelsRefs: []uint32{1, 2}, Samples: []writev2.Sample{{Value: 1, Timestamp: 2}}},
		{LabelsRefs: []uint32{1, 2}, Histograms: []writev2.Histogram{{Schema: -53, Timestamp: 2}, {Schema: 3, Timestamp: 3}}},
	}})
	s := offline(t, ingester.RemoteWrite1, answering(500))
	require.Error(t, s.Write(t.Context(), b))
	require.Zero(t, b.Groups[1].Rejected)
	s.to.Endpoints[0].Client.Transport = answering(204)
	// Its first probe is due within half a second.
	require.Eventually(t, func() bool { return s.Write(t.Context(), b) == nil }, time.Minute, 10*time.Millisecond)
	require.EqualValues(t, 1, b.Groups[1].Rejected)
	require.Zero(t, b.Groups[0].Rejected)
}
