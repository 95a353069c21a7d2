//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/governor"
)

// thorough says that this is `make governor-experiment`: the published lengths
// instead of those that show that it works.
func thorough() bool { return os.Getenv("SPILLWAY_EXPERIMENT") != "" }

// whole chooses between the length of the experiment and that of `make e2e`.
func whole[T any](experiment, short T) T {
	if thorough() {
		return experiment
	}
	return short
}

// bar prints what was to be reached and whether it was, and fails the test if not.
func bar(t *testing.T, met bool, format string, args ...any) {
	t.Helper()
	word := "met"
	if !met {
		word = "MISSED"
	}
	line := fmt.Sprintf("%-7s %s", word, fmt.Sprintf(format, args...))
	switch {
	case !met:
		t.Error(line)
	case thorough():
		fmt.Println(line)
	default:
		t.Log(line)
	}
}

// governorOf reads /api/v1/governor.
func governorOf(t *testing.T, address string) (s governor.Snapshot) {
	t.Helper()
	resp, err := http.Get("http://" + address + "/api/v1/governor")
	require.NoError(t, err)
	defer resp.Body.Close()
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&s))
	return s
}

// loadSummary is what `spillway load --format=json` says.
type loadSummary struct {
	Requests int64   `json:"requests"`
	Items    int64   `json:"items"`
	Accepted int64   `json:"accepted_items"`
	Seconds  float64 `json:"seconds"`
}

// load runs `spillway load` against a Spillway.
func load(t *testing.T, address string, args ...string) (s loadSummary) {
	t.Helper()
	args = append([]string{"load", "--format=json", "--url=http://" + address + "/api/v1/write"}, args...)
	cmd := exec.Command(os.Getenv("SPILLWAY_BIN"), args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &s), "%s", out)
	return s
}

// TestGovernorMemory: at ten times the load that the limit carries, over a thousand
// connections, resident memory stays within the configured budget plus a fifth. The
// sink answers slowly and a rule changes every series, so that each batch in work
// holds what came in and what goes out.
func TestGovernorMemory(t *testing.T) {
	group := newCgroup(t, 0.5)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(20 * time.Millisecond)
		w.WriteHeader(http.StatusNoContent)
	}))
	defer receiver.Close()
	const requests, routes, program = 64 << 20, 32 << 20, 96 << 20
	dir, address := t.TempDir(), freeAddress(t)
	s := startSpillwayIn(t, group, dir, address, quiet+fmt.Sprintf(`
server: {http_listen_address: '%s', otlp_grpc_listen_address: '', otlp_http_listen_address: '', max_body_bytes: 4MiB, max_decoded_bytes: 8MiB, max_request_bytes: %d}
ingester: {route_cache_bytes: %d}
sinks: {slow: {remote_write: {endpoints: ['%s']}}}
streams: {metrics: {sink: slow, relabel_configs: [{target_label: added, replacement: value}]}}
`, address, requests, routes, receiver.URL), "")

	series, connections := whole(2000, 1000), whole(1000, 300)
	common := []string{fmt.Sprint("--series=", series*connections), fmt.Sprint("--series-per-request=", series), "--timeout=60s"}
	sustained := load(t, s.address, append(common, "--concurrency=8", "--duration="+whole("10s", "3s"))...)
	rate := float64(sustained.Accepted) / sustained.Seconds
	offered := load(t, s.address, append(common, fmt.Sprint("--concurrency=", connections), fmt.Sprintf("--rate=%.0f", 10*rate),
		fmt.Sprint("--prepared=", connections), "--duration="+whole("40s", "6s"))...)
	peak, budget := s.peakMemory(t), int64(requests+routes+program)
	t.Logf("carries %.0f items/s; offered %.0f/s over %d connections, accepted %.0f/s; peak of resident memory %d MiB, budget %d MiB",
		rate, float64(offered.Items)/offered.Seconds, connections, float64(offered.Accepted)/offered.Seconds, peak>>20, budget>>20)
	bar(t, float64(peak) <= 1.2*float64(budget), "resident memory peaked at %d MiB, %.0f%% of the budget of %d MiB (%d connections, %.1f times the accepted load offered)",
		peak>>20, 100*float64(peak)/float64(budget), budget>>20, connections, float64(offered.Items)/float64(max(1, offered.Accepted)))
	m := metrics(t, s.address)
	requireConserved(t, m)
	require.EqualValues(t, requests, sum(m, "spillway_request_bytes_limit"))
	require.Positive(t, sum(m, "spillway_governor_shed_total"), "nothing was shed, so this was no overload")
}
