package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"
)

const benchSeries = 2000 // in a request, as Prometheus sends them

// benchLabels are 12 labels of about 240 bytes.
func benchLabels(i int) []prompb.Label {
	pairs := []string{
		"__name__", fmt.Sprintf("http_request_duration_seconds_%03d", i%100), "cluster", "eu-west-1-prod", "container", "server",
		"env", "prod", "handler", fmt.Sprintf("/api/v1/item/%d", i%50), "instance", fmt.Sprintf("10.0.%d.%d:8080", i/250%250, i%250),
		"job", "checkout", "le", "0.25", "method", "GET", "namespace", "shop", "pod", fmt.Sprintf("checkout-7d9f8b6c5-%05d", i), "team", fmt.Sprintf("team-%02d", i%20),
	}
	ls := make([]prompb.Label, 0, 12)
	for j := 0; j < len(pairs); j += 2 {
		ls = append(ls, prompb.Label{Name: pairs[j], Value: pairs[j+1]})
	}
	return ls
}

// benchBodies are requests of the same series with times that move on.
func benchBodies(b *testing.B, v2 bool) (packed [][]byte, raw []byte) {
	for round := range 8 {
		req, table := &prompb.WriteRequest{}, writev2.NewSymbolTable()
		req2 := &writev2.Request{}
		for i := range benchSeries {
			ls, at := benchLabels(i), int64(1_700_000_000_000+15_000*round)
			req.Timeseries = append(req.Timeseries, prompb.TimeSeries{Labels: ls, Samples: []prompb.Sample{{Value: float64(i*round) / 3, Timestamp: at}}})
			ts := writev2.TimeSeries{Samples: []writev2.Sample{{Value: float64(i*round) / 3, Timestamp: at}}}
			for _, l := range ls {
				ts.LabelsRefs = append(ts.LabelsRefs, table.Symbolize(l.Name), table.Symbolize(l.Value))
			}
			req2.Timeseries = append(req2.Timeseries, ts)
		}
		req2.Symbols = table.Symbols()
		body, err := req.Marshal()
		if v2 {
			body, err = req2.Marshal()
		}
		require.NoError(b, err)
		raw = body
		packed = append(packed, snappy.Encode(nil, body))
	}
	return packed, raw
}

// benchPolicy has 20 classes; half of them drop everything if half is set.
func benchPolicy(half bool) string {
	var classes, rules strings.Builder
	for i := range 20 {
		rate := 1_000_000_000
		if half && i%2 == 1 {
			rate = 0
		}
		fmt.Fprintf(&classes, "      - {name: team-%02d, rate: %d}\n", i, rate)
		fmt.Fprintf(&rules, "      - {class: team-%02d, matchers: ['team=\"team-%02d\"']}\n", i, i)
	}
	return "streams:\n  metrics:\n    rate: 100000000000\n    burst: 100000000000\n    classes:\n" + classes.String() + "    rules:\n" + rules.String()
}

const benchRules = `
    relabel_configs:
      - {source_labels: [__name__], regex: 'debug_.*', action: drop}
      - {source_labels: [env], regex: 'test', action: drop}
      - {source_labels: [environment], regex: '(.+)', target_label: env}
      - {regex: 'tmp_.*', action: labeldrop}
      - {source_labels: [namespace, pod], regex: 'kube-system;x.*', target_label: system, replacement: 'yes'}
`

func benchProcess(b *testing.B, policy string) *process {
	dir := b.TempDir()
	path := filepath.Join(dir, "spillway.yaml")
	config := "server: {http_listen_address: '127.0.0.1:0', otlp_grpc_listen_address: '', otlp_http_listen_address: ''}\nlog: {level: error}\ntelemetry: {interval: 0s}\npolicy_file: policy.yaml\nsinks: {none: {discard: {}}}\nstreams:\n  metrics:\n    sink: none" + benchRules
	require.NoError(b, os.WriteFile(path, []byte(config), 0o644))
	require.NoError(b, os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(policy), 0o644))
	l, err := load(path, 0)
	require.NoError(b, err)
	p, err := newProcess(l, path)
	require.NoError(b, err)
	b.Cleanup(func() { p.server.HTTPServer.Close(); p.sinks.close() })
	return p
}

// answerOnly is a ResponseWriter that keeps the status.
type answerOnly struct {
	header http.Header
	status int
}

func (a *answerOnly) Header() http.Header         { return a.header }
func (a *answerOnly) Write(p []byte) (int, error) { return len(p), nil }
func (a *answerOnly) WriteHeader(status int)      { a.status = status }

// BenchmarkKnownSeries takes requests of known series through receive, decode,
// route, take and answer, beside the floor: snappy decode and encode of the same
// bytes. What the remote write sink adds for its encoding is its own benchmark.
func BenchmarkKnownSeries(b *testing.B) {
	for _, v2 := range []bool{false, true} {
		version := map[bool]string{false: "1.0", true: "2.0"}[v2]
		packed, raw := benchBodies(b, v2)
		for _, half := range []bool{false, true} {
			name := map[bool]string{false: "none dropped", true: "half dropped"}[half]
			b.Run(version+"/"+name, func(b *testing.B) {
				p := benchProcess(b, benchPolicy(half))
				handler := p.writeHandler()
				req := httptest.NewRequest("POST", "/api/v1/write", nil)
				req.Header.Set("Content-Encoding", "snappy")
				req.Header.Set("Content-Type", "application/x-protobuf")
				if v2 {
					req.Header.Set("Content-Type", "application/x-protobuf;proto=io.prometheus.write.v2.Request")
				}
				out := &answerOnly{header: http.Header{}}
				b.ReportAllocs()
				i := 0
				started := cpuTime()
				for b.Loop() {
					body := packed[i%len(packed)]
					req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
					handler.ServeHTTP(out, req)
					i++
				}
				perSeries(b, started)
				if want := map[bool]int{false: 204, true: 400}[half && v2]; out.status != want {
					b.Fatalf("answered %d", out.status)
				}
			})
		}
		b.Run(version+"/floor: snappy decode and encode", func(b *testing.B) {
			decoded := make([]byte, len(raw))
			encoded := make([]byte, snappy.MaxEncodedLen(len(raw)))
			started := cpuTime()
			for b.Loop() {
				out, err := snappy.Decode(decoded, packed[0])
				if err != nil {
					b.Fatal(err)
				}
				snappy.Encode(encoded, out)
			}
			perSeries(b, started)
		})
	}
}

// cpuTime is what the process has used, user and system. Unlike the clock it
// does not count what other programs take of the machine.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func perSeries(b *testing.B, started time.Duration) {
	b.ReportMetric(float64(cpuTime()-started)/float64(b.N)/benchSeries, "cpu-ns/series")
}
