//go:build e2e

package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// linesOf reads the lines that the file sink has of a stream.
func linesOf(t *testing.T, dir, stream string) (lines [][]byte) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, stream, "*.jsonl"))
	require.NoError(t, err)
	for _, name := range files {
		f, err := os.Open(name)
		require.NoError(t, err)
		scanner := bufio.NewScanner(f)
		scanner.Buffer(nil, 16<<20)
		for scanner.Scan() {
			lines = append(lines, append([]byte(nil), scanner.Bytes()...))
		}
		require.NoError(t, scanner.Err())
		require.NoError(t, f.Close())
	}
	return lines
}

// startRelay runs a Collector that passes on all signals as it gets them, and answers
// when its destination has.
func startRelay(t *testing.T, destination string) (address string) {
	t.Helper()
	dir := t.TempDir()
	address = freeAddress(t)
	file := filepath.Join(dir, "otelcol.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
receivers: {otlp: {protocols: {http: {endpoint: '%s'}}}}
exporters: {otlp_http: {endpoint: http://%s, sending_queue: {enabled: false}, retry_on_failure: {enabled: false}}}
service:
  telemetry: {metrics: {level: none}, logs: {level: warn}}
  pipelines:
    logs: {receivers: [otlp], exporters: [otlp_http]}
    traces: {receivers: [otlp], exporters: [otlp_http]}
    metrics: {receivers: [otlp], exporters: [otlp_http]}
`, address, destination), 0o644))
	p := start(t, peer(t, "otelcol"), "--config=file:"+file)
	eventually(t, "the Collector listens", func() bool {
		select {
		case <-p.done:
			t.Fatalf("the Collector ended: %v\n%s", p.err, p.log)
		default:
		}
		resp, err := http.Get("http://" + address + "/v1/logs")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusMethodNotAllowed
	})
	return address
}

// TestJavaScriptAndCollector: an application with the OpenTelemetry SDK of JavaScript
// sends to a Spillway (spans over gRPC, log records as protobuf with gzip, data points as JSON), that
// one to a real Collector, which sends to a second Spillway with files. Every item is there once,
// with all that it was made with, and a rule of the first Spillway has changed each.
func TestJavaScriptAndCollector(t *testing.T) {
	sdk := peer(t, "javascript")
	if _, err := os.Stat(filepath.Join(sdk, "stamp")); err != nil {
		t.Skip("the SDK of JavaScript is not here: make peers says why npm could not install it")
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node on this machine, which runs the SDK of JavaScript")
	}
	const n = 1500
	kept := t.TempDir()
	last := startSpillway(t, t.TempDir(), freeAddress(t), quiet+"sinks: {files: {file: {path: '"+kept+"', compression: none}}}\n"+
		"streams: {logs: {sink: files}, traces: {sink: files}, metrics: {sink: files}}\n", "")
	collector := startRelay(t, last.address)
	rule := "{sink: collector, relabel_configs: [{target_label: region, replacement: eu}]}"
	first := startSpillway(t, t.TempDir(), freeAddress(t), quiet+"sinks: {collector: {otlp: {endpoints: ['http://"+collector+"']}}}\n"+
		"streams: {logs: "+rule+", traces: "+rule+", metrics: "+rule+"}\n", "")

	send := exec.CommandContext(t.Context(), node, filepath.Join(sdk, "send.mjs"), first.address, first.grpcOTLP, fmt.Sprint(n))
	out, err := send.CombinedOutput()
	require.NoError(t, err, "%s", out)

	for _, s := range []*spillway{first, last} {
		for _, stream := range []string{"logs", "traces", "metrics"} {
			requireStored(t, s.address, stream, n)
		}
	}
	requireLogs(t, kept, n)
	requireSpans(t, kept, n)
	requirePoints(t, kept, n)
}

func madeWith(n int) map[string]any {
	return map[string]any{"n": int64(n), "text": fmt.Sprintf("ü-%d", n), "list": []any{"a", "b"}, "good": n%2 == 0, "region": "eu"}
}

func requireLogs(t *testing.T, dir string, n int) {
	t.Helper()
	seen := map[int64]bool{}
	for _, r := range filed(t, dir, "logs") {
		i, _ := r.Attributes["n"].(int64)
		require.False(t, seen[i], "log record %d is there twice", i)
		seen[i] = true
		require.Equal(t, madeWith(int(i)), r.Attributes)
		require.Equal(t, fmt.Sprintf("log-%d", i), r.Body)
		require.Equal(t, "INFO", r.Level)
		require.Equal(t, "shop", r.Resource["service.name"])
	}
	require.Len(t, seen, n)
}

func requireSpans(t *testing.T, dir string, n int) {
	t.Helper()
	seen := map[int64]bool{}
	for _, line := range linesOf(t, dir, "traces") {
		traces, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(line)
		require.NoError(t, err)
		for _, rs := range traces.ResourceSpans().All() {
			require.Equal(t, "shop", rs.Resource().Attributes().AsRaw()["service.name"])
			for _, ss := range rs.ScopeSpans().All() {
				require.Equal(t, "checkout", ss.Scope().Name())
				for _, s := range ss.Spans().All() {
					a := s.Attributes().AsRaw()
					i, _ := a["n"].(int64)
					require.False(t, seen[i], "span %d is there twice", i)
					seen[i] = true
					require.Equal(t, madeWith(int(i)), a)
					require.Equal(t, fmt.Sprintf("span-%d", i), s.Name())
					require.False(t, s.TraceID().IsEmpty())
				}
			}
		}
	}
	require.Len(t, seen, n)
}

func requirePoints(t *testing.T, dir string, n int) {
	t.Helper()
	seen := map[int64]bool{}
	for _, line := range linesOf(t, dir, "metrics") {
		metrics, err := (&pmetric.JSONUnmarshaler{}).UnmarshalMetrics(line)
		require.NoError(t, err)
		for _, rm := range metrics.ResourceMetrics().All() {
			for _, sm := range rm.ScopeMetrics().All() {
				for _, m := range sm.Metrics().All() {
					require.True(t, strings.HasPrefix(m.Name(), "orders"), m.Name())
					for _, p := range m.Sum().DataPoints().All() {
						a := p.Attributes().AsRaw()
						i, _ := a["n"].(int64)
						require.False(t, seen[i], "data point %d is there twice", i)
						seen[i] = true
						require.Equal(t, map[string]any{"n": i, "region": "eu"}, a)
						require.EqualValues(t, i+1, p.DoubleValue()+float64(p.IntValue()))
					}
				}
			}
		}
	}
	require.Len(t, seen, n)
}
