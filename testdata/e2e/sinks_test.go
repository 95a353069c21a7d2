//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
)

// TestFilesSurviveAKill: the process is killed in mid-traffic, several times. Files can
// be read at any time; a line may be torn only where the file ends, and a restart cuts
// it off. Every record that was acknowledged is there, once for each time it was sent.
func TestFilesSurviveAKill(t *testing.T) {
	dir, address := t.TempDir(), freeAddress(t)
	files := filepath.Join(dir, "files")
	config := quiet + "sinks: {files: {file: {path: '" + files + "', rotate_bytes: 100000}}}\nstreams: {metrics: {sink: files}, logs: {sink: files}}\n"
	s := startSpillway(t, dir, address, config, "")
	ship := newShipper(address)
	ctx, cancel := context.WithCancel(t.Context())
	senders := ship.run(ctx, t, 4)
	for range 3 {
		before := ship.stored()
		eventually(t, "records flow", func() bool { return ship.stored() >= before+1000 })
		readFiles(t, filepath.Join(files, "logs")) // while they are written
		s.kill()
		readFiles(t, filepath.Join(files, "logs"))
		s = startSpillway(t, dir, address, config, "")
	}
	cancel()
	senders.Wait()
	requireConservedIn(t, metrics(t, s.address), "logs")
	s.stop(t)
	found, torn := readFiles(t, filepath.Join(files, "logs"))
	require.Zero(t, torn, "a restart leaves no torn line")
	ship.requireStored(t, found)
}

// readFiles reads the records of all files, and counts the lines that are torn, which
// may only be at the end of a file that is not compressed.
func readFiles(t *testing.T, folder string) (found []logRecord, torn int) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.jsonl*"))
	require.NoError(t, err)
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if os.IsNotExist(err) || strings.HasSuffix(path, ".partial") {
			continue // compressed in this moment
		}
		require.NoError(t, err)
		if strings.HasSuffix(path, ".zst") {
			d, err := zstd.NewReader(nil)
			require.NoError(t, err)
			raw, err = d.DecodeAll(raw, nil)
			require.NoError(t, err)
			d.Close()
		} else if path+".zst" != path {
			if _, err := os.Stat(path + ".zst"); err == nil {
				continue // its compressed form is there already
			}
		}
		lines := bufio.NewReader(bytes.NewReader(raw))
		for {
			line, err := lines.ReadBytes('\n')
			if err == io.EOF {
				if len(line) > 0 {
					torn++
				}
				break
			}
			ld, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs(line)
			require.NoError(t, err, "%s: %s", path, line)
			found = append(found, recordsOf(ld)...)
		}
	}
	return found, torn
}

// TestOTLPMetricsAreStoredAsPrometheusStoresThem: the same requests to Spillway and to
// a real Prometheus' own OTLP endpoint make the same series and samples.
func TestOTLPMetricsAreStoredAsPrometheusStoresThem(t *testing.T) {
	dir := t.TempDir()
	s := startSpillway(t, dir, freeAddress(t), quiet+"sinks: {local: {tsdb: {path: '"+filepath.Join(dir, "data")+"'}}}\nstreams: {metrics: {sink: local}}\n", "")
	prom := startOTLPPrometheus(t)
	now := time.Now().Add(-time.Minute)
	for i := range 5 {
		body, err := pmetricotlp.NewExportRequestFromMetrics(everyKind(now.Add(time.Duration(i)*10*time.Second), i)).MarshalProto()
		require.NoError(t, err)
		for _, url := range []string{"http://" + s.address + "/v1/metrics", "http://" + prom + "/api/v1/otlp/v1/metrics"} {
			resp, err := http.Post(url, "application/x-protobuf", bytes.NewReader(body))
			require.NoError(t, err)
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			require.Equal(t, http.StatusOK, resp.StatusCode, "%s: %s", url, text)
		}
	}
	const selector = `{__name__!=""}`
	want, have := raw(t, prom, selector), raw(t, s.address, selector)
	require.Equal(t, want, have)
	require.True(t, reflect.DeepEqual(histograms(t, prom), histograms(t, s.address)))
	require.NotEmpty(t, histograms(t, prom))
	m := metrics(t, s.address)
	requireConserved(t, m)
	require.Zero(t, sum(m, "spillway_invalid_items_total"))
	t.Logf("%d series with %d float samples, the same in both stores", len(want), samplesIn(want))
	s.stop(t)
}

// startOTLPPrometheus runs a real Prometheus with its OTLP endpoint.
func startOTLPPrometheus(t *testing.T) (address string) {
	t.Helper()
	dir := t.TempDir()
	address = freeAddress(t)
	file := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(file, []byte("storage: {tsdb: {out_of_order_time_window: 2h}}\n"), 0o644))
	p := start(t, peer(t, "prometheus"), "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--web.enable-otlp-receiver")
	awaitReady(t, p, "http://"+address+"/-/ready")
	return address
}

// histograms are the native histograms that a query returns now, as text.
func histograms(t *testing.T, address string) map[string]string {
	t.Helper()
	var answer struct {
		Data struct {
			Result []struct {
				Metric    map[string]string
				Histogram any
			}
		}
	}
	query(t, address, `{__name__="rpc_duration_seconds"}`, &answer)
	out := map[string]string{}
	for _, r := range answer.Data.Result {
		if pair, ok := r.Histogram.([]any); ok {
			out[labelKey(r.Metric)] = fmt.Sprint(pair[1])
		}
	}
	return out
}

// everyKind is a request with every kind of data point, of two resources.
func everyKind(at time.Time, n int) pmetric.Metrics {
	md := pmetric.NewMetrics()
	when := pcommon.NewTimestampFromTime(at)
	for _, service := range []string{"api", "web"} {
		rm := md.ResourceMetrics().AppendEmpty()
		rm.Resource().Attributes().PutStr("service.name", service)
		rm.Resource().Attributes().PutStr("service.namespace", "shop")
		rm.Resource().Attributes().PutStr("service.instance.id", "i-1")
		rm.Resource().Attributes().PutStr("host.name", "h")
		ms := rm.ScopeMetrics().AppendEmpty().Metrics()
		add := func(name, unit string) pmetric.Metric {
			m := ms.AppendEmpty()
			m.SetName(name)
			m.SetUnit(unit)
			return m
		}
		for _, route := range []string{"/", "/api"} {
			g := add("room.temperature", "Cel").SetEmptyGauge().DataPoints().AppendEmpty()
			g.SetDoubleValue(20.5 + float64(n))
			g.SetTimestamp(when)
			g.Attributes().PutStr("http.route", route)
			g.Attributes().PutBool("ok", true)
		}
		sum := add("http.requests", "1").SetEmptySum()
		sum.SetIsMonotonic(true)
		sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		p := sum.DataPoints().AppendEmpty()
		p.SetIntValue(int64(10 * n))
		p.SetTimestamp(when)
		p.Attributes().PutInt("code", 200)
		h := add("http.duration", "s").SetEmptyHistogram()
		h.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		hp := h.DataPoints().AppendEmpty()
		hp.SetTimestamp(when)
		hp.SetCount(uint64(6 * n))
		hp.SetSum(12 * float64(n))
		hp.BucketCounts().FromRaw([]uint64{uint64(n), uint64(2 * n), uint64(3 * n)})
		hp.ExplicitBounds().FromRaw([]float64{0.1, 1})
		eh := add("rpc.duration", "s").SetEmptyExponentialHistogram()
		eh.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		ep := eh.DataPoints().AppendEmpty()
		ep.SetTimestamp(when)
		ep.SetScale(3)
		ep.SetCount(uint64(7 + n))
		ep.SetZeroCount(1)
		ep.SetSum(3)
		ep.Positive().SetOffset(2)
		ep.Positive().BucketCounts().FromRaw([]uint64{1, 0, 2, uint64(3 + n)})
		s := add("old.duration", "s").SetEmptySummary().DataPoints().AppendEmpty()
		s.SetTimestamp(when)
		s.SetCount(uint64(n))
		s.SetSum(1)
		q := s.QuantileValues().AppendEmpty()
		q.SetQuantile(0.5)
		q.SetValue(float64(n))
	}
	return md
}

// TestRemoteWriteLeavesAsOTLP: what Prometheus sends by remote write goes on as OTLP to
// another Prometheus, over HTTP, or over gRPC to another Spillway, and both store what
// the first one has. One of two endpoints is down.
func TestRemoteWriteLeavesAsOTLP(t *testing.T) {
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			var store, endpoint string
			if protocol == "grpc" {
				dir, grpc := t.TempDir(), freeAddress(t)
				store, endpoint = freeAddress(t), "http://"+grpc
				startSpillwayOTLP(t, dir, store, grpc)
			} else {
				store = startOTLPPrometheus(t)
				endpoint = "http://" + store + "/api/v1/otlp"
			}
			s := startSpillway(t, t.TempDir(), freeAddress(t), quiet+`
sinks: {next: {otlp: {protocol: `+protocol+`, endpoints: ["http://127.0.0.1:1", "`+endpoint+`"]}}}
streams: {metrics: {sink: next}, logs: {sink: next}, traces: {sink: next}, events: {sink: next}, rum: {sink: next}}
`, "")
			tg := startTarget(t, 100)
			prom, _ := startPrometheus(t, tg.address, "http://"+s.address+"/api/v1/write", message2)
			eventually(t, "some scrapes", func() bool { return tg.scrapes.Load() >= 5 })
			tg.closed.Store(true)
			requireSame(t, prom, store)
			m := metrics(t, s.address)
			requireConserved(t, m)
			require.Zero(t, sum(m, "spillway_invalid_items_total"))
			require.Zero(t, sum(m, "spillway_sink_endpoint_healthy", `endpoint="http://127.0.0.1:1"`))
			s.stop(t)
		})
	}
}

// startSpillwayOTLP starts a Spillway that receives OTLP over gRPC and stores metrics.
func startSpillwayOTLP(t *testing.T, dir, address, grpc string) {
	t.Helper()
	config := filepath.Join(dir, "spillway.yaml")
	require.NoError(t, os.WriteFile(config, []byte("server: {http_listen_address: '"+address+"', otlp_grpc_listen_address: '"+grpc+"', otlp_http_listen_address: ''}\n"+
		quiet+"sinks: {local: {tsdb: {path: '"+filepath.Join(dir, "data")+"'}}}\nstreams: {metrics: {sink: local}}\n"), 0o644))
	p := start(t, os.Getenv("SPILLWAY_BIN"), "serve", "--config.file="+config)
	awaitReady(t, p, "http://"+address+"/-/ready")
}
