//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// startCollector runs an OpenTelemetry Collector that sends what it receives to a
// Spillway, request by request, and keeps what is not taken.
func startCollector(t *testing.T, spillway string) (address string) {
	t.Helper()
	dir := t.TempDir()
	address = freeAddress(t)
	file := filepath.Join(dir, "otelcol.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
receivers: {otlp: {protocols: {http: {endpoint: '%s'}}}}
exporters:
  otlp_http:
    endpoint: http://%s
    sending_queue: {enabled: true, queue_size: 1000000, num_consumers: 32}
    retry_on_failure: {enabled: true, initial_interval: 50ms, max_interval: 1s, max_elapsed_time: 0}
service:
  telemetry: {metrics: {level: none}, logs: {level: warn}}
  pipelines: {logs: {receivers: [otlp], exporters: [otlp_http]}}
`, address, spillway), 0o644))
	p := start(t, peer(t, "otelcol"), "--config=file:"+file)
	eventually(t, "the Collector listens", func() bool {
		select {
		case <-p.done:
			t.Fatalf("the Collector ended: %v\n%s", p.err, p.log)
		default:
		}
		resp, err := http.Post("http://"+address+"/v1/logs", "application/json", bytes.NewReader([]byte("{}")))
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return address
}

// linesPerRequest is how many log lines the generator puts into one request.
const linesPerRequest = 10

// lines sends numbered log lines at a rate that can be changed.
type lines struct {
	rate atomic.Int64 // a second
	sent atomic.Int64 // lines that the Collector took
	lost atomic.Int64 // lines that it did not
}

// run sends until ctx ends.
func (l *lines) run(ctx context.Context, address string) {
	const tick = 20 * time.Millisecond
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var requests sync.WaitGroup
	defer requests.Wait()
	next, due := int64(0), 0.0
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for due += float64(l.rate.Load()) * tick.Seconds() / linesPerRequest; due >= 1; due-- {
			first := next
			next += linesPerRequest
			requests.Go(func() { l.post(address, first) })
		}
	}
}

func (l *lines) post(address string, first int64) {
	body := []byte(`{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"overload"}}]},"scopeLogs":[{"logRecords":[`)
	for i := range int64(linesPerRequest) {
		if i > 0 {
			body = append(body, ',')
		}
		body = fmt.Appendf(body, `{"timeUnixNano":"%d","severityText":"INFO","body":{"stringValue":"line-%d"}}`, time.Now().UnixNano(), first+i)
	}
	resp, err := http.Post("http://"+address+"/v1/logs", "application/json", bytes.NewReader(append(body, `]}]}]}`...)))
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	if err != nil || resp.StatusCode != http.StatusOK {
		l.lost.Add(linesPerRequest)
		return
	}
	l.sent.Add(linesPerRequest)
}

// storedLines counts the different lines in the files of a sink, and all of them.
func storedLines(t *testing.T, dir string) (different, all int64) {
	t.Helper()
	line := regexp.MustCompile(`"line-(\d+)"`)
	seen := map[int64]bool{}
	files, err := filepath.Glob(filepath.Join(dir, "logs", "*.jsonl"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range line.FindAllSubmatch(text, -1) {
			n, err := strconv.ParseInt(string(m[1]), 10, 64)
			require.NoError(t, err)
			seen[n] = true
			all++
		}
	}
	return int64(len(seen)), all
}

// logRate is how many log lines a second were stored over some time.
func logRate(t *testing.T, address string, d time.Duration) float64 {
	t.Helper()
	begun, before := time.Now(), admittedLogs(t, address)
	time.Sleep(d)
	return (admittedLogs(t, address) - before) / time.Since(begun).Seconds()
}

func admittedLogs(t *testing.T, address string) float64 {
	t.Helper()
	return sum(metrics(t, address), "spillway_admitted_items_total", `stream="logs"`)
}

// TestGovernorCollector: a real OpenTelemetry Collector sends three times what the
// CPU limit carries over OTLP/HTTP, then half of it. When it has caught up, the files
// behind Spillway hold every line that the Collector took, at least once.
func TestGovernorCollector(t *testing.T) {
	if _, err := os.Stat(peer(t, "otelcol")); err != nil {
		t.Skip("skipped: the OpenTelemetry Collector is not built; `make governor-experiment` builds it")
	}
	group := newCgroup(t, 0.05)
	dir, address := t.TempDir(), freeAddress(t)
	s := startSpillwayIn(t, group, dir, address, quiet+`
governor: {model: {min_cpu_limit: 0.05}, wait: {max_waiting_per_flow: 8}}
sinks: {files: {file: {path: '`+filepath.Join(dir, "files")+`', compression: none}}, none: {discard: {}}}
streams: {logs: {sink: files}, metrics: {sink: none}}
`, "")
	collector := startCollector(t, s.address)
	var l lines
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.run(ctx, collector)
	}()
	l.rate.Store(10_000)
	eventually(t, "lines arrive and batches wait", func() bool { return governorOf(t, s.address).Waiting > 0 })
	carries := logRate(t, s.address, whole(10*time.Second, 4*time.Second))
	require.Positive(t, carries)

	l.rate.Store(int64(3 * carries))
	overload := logRate(t, s.address, whole(120*time.Second, 8*time.Second))
	m := metrics(t, s.address)
	refused := sum(m, "spillway_refused_batches_total", `reason="capacity"`, `stream="logs"`)
	require.Positive(t, refused, "nothing was turned away, so this was no overload")
	l.rate.Store(int64(carries / 2))
	half := logRate(t, s.address, whole(60*time.Second, 4*time.Second))
	stop()
	<-done
	group.limit(t, 0) // what is left of the backlog says nothing new

	require.Zero(t, l.lost.Load(), "the Collector did not take what was sent to it")
	for before := -1.0; ; { // as long as the backlog shrinks
		stored := admittedLogs(t, s.address)
		if stored == before || stored >= float64(l.sent.Load()) {
			break
		}
		before = stored
		time.Sleep(5 * time.Second)
	}
	different, all := storedLines(t, filepath.Join(dir, "files"))
	t.Logf("the limit carries %.0f lines/s; at three times as many %.0f/s were stored and %.0f batches turned away; at half of it %.0f/s", carries, overload, refused, half)
	rateBar(t, overload, carries, "under three times the load of a Collector %.0f%% of what the limit carries is stored")
	bar(t, different == l.sent.Load(), "all of %d lines that the Collector took are stored, %d of them twice", different, all-different)
	m = metrics(t, s.address)
	received := sum(m, "spillway_received_items_total", `stream="logs"`)
	require.Equal(t, received, sum(m, "spillway_admitted_items_total", `stream="logs"`)+sum(m, "spillway_refused_items_total", `stream="logs"`)+
		sum(m, "spillway_invalid_items_total", `stream="logs"`)+sum(m, "spillway_dropped_items_total", `stream="logs"`)+sum(m, "spillway_exempt_items_total", `stream="logs"`))
}
