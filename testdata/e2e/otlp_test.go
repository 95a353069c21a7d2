//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
)

// TestTelemetrygen lets telemetrygen send a known number of each signal over gRPC and
// over HTTP, half of it beyond a class's budget, and finds every item in /metrics
// under its one outcome.
func TestTelemetrygen(t *testing.T) {
	const policy = `
streams:
  logs: {rate: 0.001, burst: 200, default: {rate: 0}, classes: [{name: a, percent: 25}, {name: b, percent: 75}],
    rules: [{class: a, matchers: ['team="a"', 'service_name="gen"', 'severity="Info"']}, {class: b, matchers: ['team="b"']}]}
  traces: {rate: 0.001, burst: 200, default: {rate: 0}, classes: [{name: a, percent: 25}, {name: b, percent: 75}],
    rules: [{class: a, matchers: ['team="a"', 'span_name=~"lets-go|okey-dokey-0"']}, {class: b, matchers: ['team="b"']}]}
  metrics: {rate: 0.001, burst: 200, default: {rate: 0}, classes: [{name: a, percent: 25}, {name: b, percent: 75}],
    rules: [{class: a, matchers: ['team="a"', 'job="gen"']}, {class: b, matchers: ['team="b"']}]}
`
	s := startSpillway(t, t.TempDir(), freeAddress(t), "telemetry: {interval: 0s}\nsinks: {none: {discard: {}}}\nstreams: {metrics: {sink: none}, logs: {sink: none}, traces: {sink: none}}\n", policy)
	send := func(team, signal, amount string, args ...string) {
		attributes := fmt.Sprintf("--telemetry-attributes=team=%q", team)
		p := start(t, peer(t, "telemetrygen"), append([]string{signal, "--otlp-insecure", "--workers=1", "--service=gen", "--rate=0", attributes, amount}, args...)...)
		<-p.done
		if team == "a" && strings.Contains(p.log.String(), "class a: 50 items dropped (ratelimit)") {
			return // it heard the partial success, and some of its commands end for it
		}
		require.NoError(t, p.err, p.log)
	}
	overGRPC, overHTTP := "--otlp-endpoint="+s.grpcOTLP, "--otlp-endpoint="+s.httpOTLP
	for signal, amount := range map[string]string{"logs": "--logs=100", "traces": "--traces=50", "metrics": "--metrics=100"} {
		send("a", signal, amount, overGRPC)
		send("b", signal, amount, "--otlp-http", overHTTP)
	}
	for _, stream := range []string{"logs", "traces", "metrics"} {
		require.EqualValues(t, 200, s.items(t, "spillway_received_items_total", stream, ""), stream)
		require.EqualValues(t, 50, s.items(t, "spillway_admitted_items_total", stream, "a"), stream)
		require.EqualValues(t, 50, s.items(t, "spillway_dropped_items_total", stream, "a"), stream)
		require.EqualValues(t, 100, s.items(t, "spillway_admitted_items_total", stream, "b"), stream)
	}
	s.stop(t)
}

// items sums a counter of a stream, of one class if it is named.
func (s *spillway) items(t *testing.T, name, stream, class string) (sum float64) {
	t.Helper()
	resp, err := http.Get("http://" + s.address + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	require.NoError(t, err)
	for _, m := range families[name].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["stream"] == stream && (class == "" || labels["class"] == class) {
			sum += m.GetCounter().GetValue()
		}
	}
	return sum
}
