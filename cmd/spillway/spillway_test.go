package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester"
)

// testFiles writes a configuration and a policy into a fresh folder and returns
// the configuration's path. The server gets a port of its own, data stays in the
// folder.
func testFiles(t *testing.T, config, policy string) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	if config == "" {
		config = "sinks: {local: {tsdb: {path: '" + filepath.Join(dir, "data") + "'}}}\nstreams: {metrics: {sink: local}}\n"
	}
	write("spillway.yaml", "server: {http_listen_address: '127.0.0.1:0', otlp_grpc_listen_address: '', otlp_http_listen_address: ''}\ntelemetry: {interval: 0s}\npolicy_file: policy.yaml\n"+config)
	write("policy.yaml", cmp.Or(policy, "streams: {}"))
	return filepath.Join(dir, "spillway.yaml")
}

// testProcess wires a whole process. It listens and does not serve: requests go
// straight to its router.
func testProcess(t *testing.T, config, policy string) *process {
	t.Helper()
	path := testFiles(t, config, policy)
	l, err := load(path, 0)
	require.NoError(t, err)
	p, err := newProcess(l, path)
	require.NoError(t, err)
	t.Cleanup(func() {
		p.server.HTTPServer.Close()
		require.NoError(t, p.sinks.close())
	})
	return p
}

func (p *process) get(t *testing.T, method, path string, body io.Reader, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequest(method, path, body)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	p.server.HTTP.ServeHTTP(rec, req)
	return rec
}

// packed is a 1.0 request of n series of a team, with the time now.
func packed(t *testing.T, team string, n int) io.Reader {
	t.Helper()
	req := &prompb.WriteRequest{}
	for i := range n {
		req.Timeseries = append(req.Timeseries, prompb.TimeSeries{
			Labels:  []prompb.Label{{Name: "__name__", Value: "walk"}, {Name: "id", Value: fmt.Sprint(i)}, {Name: "team", Value: team}},
			Samples: []prompb.Sample{{Value: 1, Timestamp: time.Now().UnixMilli()}},
		})
	}
	body, err := req.Marshal()
	require.NoError(t, err)
	return bytes.NewReader(snappy.Encode(nil, body))
}

// TestFiveMinuteWalk is what the README promises: four times the budget is sent,
// the budget is stored, PromQL, /metrics and the API say so, and an edited
// policy is put in force.
func TestFiveMinuteWalk(t *testing.T) {
	const policy = "streams: {metrics: {rate: 0.01, burst: %d, classes: [{name: team-a, percent: 50}], rules: [{class: team-a, matchers: ['team=\"a\"']}]}}"
	p := testProcess(t, "", fmt.Sprintf(policy, 200))
	require.Equal(t, 204, p.get(t, "POST", "/api/v1/write", packed(t, "a", 400)).Code)
	require.Equal(t, 204, p.get(t, "POST", "/ingester/write", packed(t, "b", 10)).Code)

	var answer struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	query := url.Values{"query": {`count(walk{team="a"})`}}
	rec := p.get(t, "POST", "/api/v1/query", strings.NewReader(query.Encode()), "Content-Type", "application/x-www-form-urlencoded")
	require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &answer), rec.Body)
	require.Equal(t, "100", answer.Data.Result[0].Value[1], "exactly the burst is stored")

	text := p.get(t, "GET", "/metrics", nil).Body.String()
	require.Contains(t, text, `spillway_dropped_items_total{class="team-a",reason="ratelimit",stream="metrics"} 300`)
	require.Contains(t, text, `spillway_admitted_items_total{class="team-a",stream="metrics"} 100`)
	require.Contains(t, text, `spillway_admitted_items_total{class="default",stream="metrics"} 10`)

	var status ingester.RateControl
	require.NoError(t, json.Unmarshal(p.get(t, "GET", "/api/v1/ratecontrol", nil).Body.Bytes(), &status))
	class := status.Streams["metrics"].Classes[0]
	require.Equal(t, "team-a", class.Name)
	require.EqualValues(t, 100, class.LocalBurst)
	require.EqualValues(t, 50, class.Share)
	require.Less(t, *class.Tokens, 1.0)

	var e ingester.Explanation
	rec = p.get(t, "GET", "/api/v1/explain?stream=metrics&labels="+url.QueryEscape(`{__name__="walk",team="a"}`), nil)
	require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &e))
	require.Equal(t, "dropped (ratelimit)", e.Outcome)

	edited := filepath.Join(filepath.Dir(p.reloader.path), "policy.yaml")
	require.NoError(t, os.WriteFile(edited, []byte("streams: {metrics: {rate: 1000000000, burst: 1000000}}"), 0o644))
	require.Equal(t, 200, p.get(t, "POST", "/-/reload", nil).Code)
	require.Equal(t, 204, p.get(t, "POST", "/write", packed(t, "a", 400)).Code)
	require.Contains(t, p.get(t, "GET", "/metrics", nil).Body.String(), `spillway_admitted_items_total{class="default",stream="metrics"} 410`)
}

// TestRefusedReload keeps the last good configuration, and says every problem.
func TestRefusedReload(t *testing.T) {
	p := testProcess(t, "", "streams: {metrics: {rate: 100, burst: 100}}")
	file := filepath.Join(filepath.Dir(p.reloader.path), "policy.yaml")
	require.NoError(t, os.WriteFile(file, []byte("streams: {metrics: {rate: -1, burst: 0}}"), 0o644))
	rec := p.get(t, "POST", "/-/reload", nil)
	require.Equal(t, 500, rec.Code)
	require.Contains(t, rec.Body.String(), "streams.metrics.rate")
	require.Contains(t, rec.Body.String(), "streams.metrics.burst")
	text := p.get(t, "GET", "/metrics", nil).Body.String()
	require.Contains(t, text, "spillway_config_last_reload_successful 0")
	require.Contains(t, text, `spillway_class_rate_limit{class="default",stream="metrics"} 100`)
	require.Equal(t, 405, p.get(t, "GET", "/-/reload", nil).Code)
}

// TestLookWaitsForRest takes a change up at the second look, and a broken file
// once.
func TestLookWaitsForRest(t *testing.T) {
	p := testProcess(t, "", "streams: {metrics: {rate: 100, burst: 100}}")
	file := filepath.Join(filepath.Dir(p.reloader.path), "policy.yaml")
	rate := func() float64 { return p.ingester.RateControl().Streams["metrics"].Rate }
	require.NoError(t, os.WriteFile(file, []byte("streams: {metrics: {rate: 2000, burst: 100}}"), 0o644))
	p.reloader.look()
	require.EqualValues(t, 100, rate(), "the file may still be written")
	p.reloader.look()
	require.EqualValues(t, 2000, rate())

	require.NoError(t, os.WriteFile(file, []byte("nonsense"), 0o644))
	for range 5 {
		p.reloader.look()
	}
	require.EqualValues(t, 2000, rate())
	require.Contains(t, p.get(t, "GET", "/metrics", nil).Body.String(), "spillway_config_reload_failures_total 1\n")
	require.NoError(t, os.Remove(file))
	p.reloader.look()
	p.reloader.look()
	require.EqualValues(t, 2000, rate())
}

// TestReplicaCountIsReadAtStart (P12): a change waits for a restart, and the
// policy goes on being divided by the old number.
func TestReplicaCountIsReadAtStart(t *testing.T) {
	p := testProcess(t, "", "streams: {metrics: {rate: 100, burst: 100}}")
	text, err := os.ReadFile(p.reloader.path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(p.reloader.path, append(text, "ingester: {replica_count: 4}\n"...), 0o644))
	require.NoError(t, p.reloader.reload("test"))
	status := p.ingester.RateControl().Streams["metrics"]
	require.Equal(t, 1, status.Ingesters)
	require.EqualValues(t, 100, status.Classes[0].LocalRate)
}

// TestMendedFileIsNoticed: a refused configuration that names another policy is
// put in force once that policy is mended.
func TestMendedFileIsNoticed(t *testing.T) {
	p := testProcess(t, "", "streams: {metrics: {rate: 100, burst: 100}}")
	text, err := os.ReadFile(p.reloader.path)
	require.NoError(t, err)
	other := filepath.Join(filepath.Dir(p.reloader.path), "other.yaml")
	require.NoError(t, os.WriteFile(p.reloader.path, bytes.Replace(text, []byte("policy.yaml"), []byte("other.yaml"), 1), 0o644))
	require.Error(t, p.reloader.reload("test"))
	require.NoError(t, os.WriteFile(other, []byte("streams: {metrics: {rate: 300, burst: 100}}"), 0o644))
	p.reloader.look()
	p.reloader.look()
	require.EqualValues(t, 300, p.ingester.RateControl().Streams["metrics"].Rate)
}

// TestStopping refuses new batches and says that it is not ready.
func TestStopping(t *testing.T) {
	p := testProcess(t, "", "")
	require.Equal(t, 200, p.get(t, "GET", "/-/ready", nil).Code)
	close(p.stopping)
	require.Equal(t, 503, p.get(t, "GET", "/-/ready", nil).Code)
	require.Equal(t, 200, p.get(t, "GET", "/-/healthy", nil).Code)
	rec := p.get(t, "POST", "/api/v1/write", packed(t, "a", 1))
	require.Equal(t, 503, rec.Code)
	require.NotEmpty(t, rec.Header().Get("Retry-After"))
}

// runLine runs the command line.
func runLine(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(args, &out, &errs)
	return code, out.String(), errs.String()
}

// TestBadConfiguration: one line for each problem that says what and where, and
// exit code 1.
func TestBadConfiguration(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	notAFolder := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(notAFolder, nil, 0o644))
	empty := notAFolder
	for name, c := range map[string]struct{ config, want string }{
		"unknown key":        {"sreams: {}", "unknown field sreams"},
		"unknown sink key":   {"sinks: {a: {tsdb: {path: x, colour: red}}}", "unknown field colour"},
		"wrong type":         {"ingester: {replica_count: many}", "cannot unmarshal"},
		"bad size":           {"ingester: {route_cache_bytes: 1XB}", `"1XB" is not a size`},
		"no ingesters":       {"ingester: {replica_count: 0}", "ingester.replica_count"},
		"two kinds of sink":  {"sinks: {a: {tsdb: {path: x}, discard: {}}}", "sinks.a: needs exactly one"},
		"no kind of sink":    {"sinks: {a: {}}", "sinks.a: needs exactly one"},
		"missing sink":       {"streams: {metrics: {sink: nowhere}}", `there is no sink "nowhere"`},
		"unknown stream":     {"streams: {spans: {}}", "streams.spans"},
		"logs into a tsdb":   {"sinks: {a: {tsdb: {path: x}}}\nstreams: {logs: {sink: a}}", "stores metrics only"},
		"bad regex":          {"streams: {metrics: {relabel_configs: [{source_labels: [a], regex: '(', target_label: b}]}}", "streams.metrics.relabel_configs"},
		"bad response":       {"streams: {metrics: {rate_limit_response: loud}}", "rate_limit_response"},
		"bad address":        {"server: {http_listen_address: '9900'}", "server.http_listen_address"},
		"port in use":        {"server: {http_listen_address: '" + taken.Addr().String() + "'}\nsinks: {none: {discard: {}}}\nstreams: {metrics: {sink: none}}", "cannot listen on " + taken.Addr().String()},
		"missing policy":     {"policy_file: nowhere.yaml", "nowhere.yaml"},
		"no keys":            {"api_keys_file: " + empty, "names no key"},
		"empty policy":       {"policy_file: " + empty, "is empty"},
		"endless policy":     {"policy_file: /dev/zero", "larger than 64MiB"},
		"missing keys":       {"api_keys_file: nokeys.yaml", "nokeys.yaml"},
		"unwritable folder":  {"sinks: {a: {tsdb: {path: '" + notAFolder + "'}}}\nstreams: {metrics: {sink: a}}", notAFolder},
		"memory for nothing": {"server: {max_request_bytes: 1MiB}", "cannot hold one request"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "spillway.yaml")
			require.NoError(t, os.WriteFile(path, []byte(c.config), 0o644))
			code, _, stderr := runLine("serve", "--config.file="+path)
			require.Equal(t, 1, code)
			require.Contains(t, stderr, c.want)
			require.Equal(t, 1, strings.Count(stderr, "\n"), "one line: %s", stderr)
		})
	}
	code, _, stderr := runLine("serve", "--config.file=/nowhere/spillway.yaml")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "/nowhere/spillway.yaml")
}

func TestCommandLine(t *testing.T) {
	policy := filepath.Join("..", "..", "testdata", "quickstart", "policy.yaml")
	config := filepath.Join("..", "..", "testdata", "quickstart", "spillway.yaml")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--help"}, 0, "serve"},
		{[]string{"version"}, 0, "spillway dev"},
		{[]string{"nonsense"}, 1, ""},
		{[]string{"serve"}, 1, ""},
		{[]string{"check", "policy", policy, "--ingesters", "2"}, 0, "team-a"},
		{[]string{"check", "policy", policy, "--ingesters", "0"}, 1, ""},
		{[]string{"check", "policy", policy, "--format=json"}, 0, `"rate_per_ingester": 250`},
		{[]string{"check", "policy", "nowhere.yaml"}, 1, ""},
		{[]string{"check", "config", config}, 0, "max_body_bytes: 16MiB"},
		{[]string{"check", "config", config, "--format=json"}, 0, `"max_body_bytes": "16MiB"`},
		{[]string{"explain", "--config.file=" + config, `{__name__="up", team="a"}`}, 0, "Admitted: rule 0"},
		{[]string{"explain", "--config.file=" + config, `debug_x`}, 0, "Dropped (relabel)"},
		{[]string{"explain", "--config.file=" + config, "--format=json", `up`}, 0, `"class": "default"`},
		{[]string{"explain", `up`}, 1, ""},
		{[]string{"explain", "--config.file=" + config, `{`}, 1, ""},
	} {
		code, stdout, stderr := runLine(c.args...)
		require.Equal(t, c.code, code, "%v: %s", c.args, stderr)
		require.Contains(t, stdout, c.want, "%v", c.args)
		require.Equal(t, c.code == 1, stderr != "", "%v: %s", c.args, stderr)
	}
}

// TestExplainAsksARunningSpillway compares the two ways to ask.
func TestExplainAsksARunningSpillway(t *testing.T) {
	p := testProcess(t, "", "streams: {metrics: {rate: 0, burst: 1}}")
	server := httptest.NewServer(http.HandlerFunc(p.server.HTTP.ServeHTTP))
	defer server.Close()
	code, stdout, stderr := runLine("explain", "--url="+server.URL, "up")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "rate 0")
	_, same, _ := runLine("explain", "--config.file="+p.reloader.path, "up")
	require.Equal(t, same, stdout)
	code, _, stderr = runLine("explain", "--url="+server.URL, "{")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "400")
}
