package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
)

// post sends a body to a process.
func post(t *testing.T, p *process, path, contentType string, body []byte, header ...string) {
	t.Helper()
	w := p.get(t, http.MethodPost, path, bytes.NewReader(body), append([]string{"Content-Type", contentType}, header...)...)
	require.Equal(t, 2, w.Code/100, "%s: %s", path, w.Body)
}

func logLine(t *testing.T) []byte {
	ld := plog.NewLogs()
	ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty().Body().SetStr("line")
	raw, err := plogotlp.NewExportRequestFromLogs(ld).MarshalProto()
	require.NoError(t, err)
	return raw
}

func oneSample(t *testing.T) []byte {
	raw, err := (&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
		Labels: []prompb.Label{{Name: "__name__", Value: "up"}, {Name: "job", Value: "api"}}, Samples: []prompb.Sample{{Value: 1, Timestamp: 1_700_000_000_000}},
	}}}).Marshal()
	require.NoError(t, err)
	return snappy.Encode(nil, raw)
}

// A stream without a sink is kept in files of the embedded one, which takes its folder
// with the first write.
func TestStreamsWithoutASinkAreKeptInFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	p := testProcess(t, "", "")
	_, err := os.Stat("data")
	require.ErrorIs(t, err, os.ErrNotExist)
	post(t, p, "/v1/logs", "application/x-protobuf", logLine(t))
	paths, err := filepath.Glob("data/files/logs/*.jsonl")
	require.NoError(t, err)
	require.Len(t, paths, 1)
	text, err := os.ReadFile(paths[0])
	require.NoError(t, err)
	require.Contains(t, string(text), `"stringValue":"line"`)
}

// Headers that server.forward_headers lists reach the destination, and nothing else
// does; samples of remote write leave as OTLP.
func TestHeadersAreForwarded(t *testing.T) {
	type request struct {
		path, tenant, other string
		body                []byte
	}
	var got []request
	to := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, request{r.URL.Path, r.Header.Get("X-Scope-OrgID"), r.Header.Get("X-Other"), body})
	}))
	defer to.Close()
	path := testFiles(t, "sinks: {c: {otlp: {endpoints: ['"+to.URL+"'], compression: none}}}\nstreams: {metrics: {sink: c}, logs: {sink: c}, traces: {sink: c}, events: {sink: c}, rum: {sink: c}}\n", "")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(text), "server: {", "server: {forward_headers: [x-scope-orgid], ", 1)), 0o644))
	l, err := load(path, 0)
	require.NoError(t, err)
	p, err := newProcess(l, path)
	require.NoError(t, err)
	defer func() {
		p.server.HTTPServer.Close()
		require.NoError(t, p.sinks.close())
	}()
	post(t, p, "/v1/logs", "application/x-protobuf", logLine(t), "X-Scope-OrgID", "team-a", "X-Other", "1")
	post(t, p, "/api/v1/write", "application/x-protobuf", oneSample(t), "Content-Encoding", "snappy", "X-Scope-OrgID", "team-b", "X-Other", "1")
	require.Len(t, got, 2)
	require.Equal(t, request{"/v1/logs", "team-a", "", logLine(t)}, got[0])
	require.Equal(t, "team-b", got[1].tenant)
	md := pmetricotlp.NewExportRequest()
	require.NoError(t, md.UnmarshalProto(got[1].body))
	require.Equal(t, "up", md.Metrics().ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Name())
}

// check config names every problem of a sink, under its path in the file.
func TestSinkProblemsAreNamed(t *testing.T) {
	for config, want := range map[string]string{
		"sinks: {a: {otlp: {protocol: x}}}":                                         "sinks.a.otlp: endpoints is empty",
		"sinks: {a: {otlp: {endpoints: [http://c:4318], colour: red}}}":             "unknown field colour",
		"sinks: {a: {kafka: {brokers: [x]}}}":                                       `sinks.a.kafka: brokers[0] is "x"`,
		"sinks: {a: {kafka: {brokers: ['x:1'], topics: {log: y}}}}":                 "sinks.a.kafka: topics.log: there is no such stream",
		"sinks: {a: {kafka: {brokers: ['x:1'], sasl: {machine: plain}}}}":           "unknown field machine",
		"sinks: {a: {file: {path: x, max_bytes: 1}}}":                               "sinks.a.file: max_bytes is 1",
		"sinks: {a: {file: {path: x}, otlp: {endpoints: [http://c:4318]}}}":         "sinks.a: needs exactly one of tsdb, remote_write, otlp, kafka, file, discard, and has 2",
		"sinks: {a: {tsdb: {path: x}}}\nstreams: {logs: {sink: a}}":                 "stores metrics only",
		"sinks: {a: {otlp: {endpoints: [http://c:4318]}}}\nstreams: {x: {sink: a}}": "streams.x: is not one of",
	} {
		_, err := load(testFiles(t, config, ""), 0)
		require.ErrorContains(t, err, want, config)
	}
	_, err := load(testFiles(t, everySink, ""), 0)
	require.NoError(t, err)
}
