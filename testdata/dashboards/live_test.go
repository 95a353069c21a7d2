//go:build e2e

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"
)

// TestUnitTestsOfRules runs promtool on the rules.
func TestUnitTestsOfRules(t *testing.T) {
	tests, err := filepath.Glob("promtool/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, tests)
	rules, err := filepath.Glob(folder + "/rules/*.yaml")
	require.NoError(t, err)
	for _, args := range [][]string{append([]string{"check", "rules", "--lint=all", "--lint-fatal"}, rules...), append([]string{"test", "rules"}, tests...)} {
		out, err := exec.Command(peer(t, "promtool"), args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

// The policy of the installation in trouble, for N = 2. Each of 20 teams sends
// as much as the others; what the rules say about teams 07 and 08 differs.
func troubledPolicy(skewed string) string {
	return `
streams:
  metrics:
    rate: 1000
    burst: 2000
    default: {rate: 600}
    classes:
      - {name: tight, rate: 10}
      - {name: filter, rate: 0}
      - {name: skewed, rate: 60}
    rules:
      - {class: tight, matchers: ['team=~"team-0[1-4]"']}
      - {class: filter, matchers: ['team="team-05"']}
      - {class: ghost, matchers: ['team="team-06"']}
` + skewed + `
  logs: {rate: 100, burst: 6000, default: {rate: 100}}
`
}

const (
	skewedRule  = `      - {class: skewed, matchers: ['team=~"team-0[78]"']}`
	relabelDrop = `streams: {metrics: {sink: SINK, relabel_configs: [{source_labels: [team], regex: team-00, action: drop}]}}` + "\n"
)

// scenario is what the queries see: three ingesters that divide by two and have
// every fault that an alert is about, and one ingester that is well.
//
//	slow    forwards to the Prometheus, slowly, and to an endpoint that is not there; its
//	        governor takes every batch for too slow, so that batches wait and are shed
//	store   has the embedded store, half a core if cgroups can be made, and gets all of a class
//	broken  forwards to nobody, and then refuses its policy
//	well    has room for all that it gets: metrics for its store, logs for Kafka, spans and
//	        events for files
type scenario struct {
	prometheus                string
	slow, store, broken, well *process
	limited                   bool // store has a CPU limit
	begun                     time.Time
	loads                     []*running
}

func startScenario(t *testing.T) *scenario {
	in := &scenario{begun: time.Now()}
	addresses := []string{freeAddress(t), freeAddress(t), freeAddress(t), freeAddress(t)}
	in.prometheus = startPrometheus(t, addresses)
	// Long enough for the load to find no slot, at any capacity that the governor may choose.
	slowed, nobody := slowly(t, in.prometheus, 100*time.Millisecond), freeAddress(t)
	in.slow = startSpillway(t, addresses[0], `
ingester: {replica_count: 2}
governor: {max_in_flight: 4, latency: {min_in_flight: 1, unhealthy: 1ms}, wait: {max_waiting: 2, max_waiting_per_flow: 2}}
sinks: {away: {remote_write: {endpoints: ['http://`+slowed+`/api/v1/write', 'http://`+nobody+`/api/v1/write']}}}
`+sink("away"), troubledPolicy(""))
	in.store = startSpillway(t, addresses[1], "ingester: {replica_count: 2, route_cache_bytes: 32KiB}\nsinks: {local: {tsdb: {path: '"+t.TempDir()+"'}}}\n"+sink("local"), troubledPolicy(skewedRule))
	in.limited = limitCPU(t, in.store.running)
	in.broken = startSpillway(t, addresses[2], "ingester: {replica_count: 2}\nsinks: {away: {remote_write: {endpoints: ['http://"+nobody+"/api/v1/write']}}}\n"+sink("away"), troubledPolicy(""))
	in.well = startSpillway(t, addresses[3], `
sinks:
  local: {tsdb: {path: '`+t.TempDir()+`'}}
  files: {file: {path: '`+t.TempDir()+`', rotate_bytes: 4096, rotate_age: 5s, max_bytes: 16384}}
  queue: {kafka: {brokers: [`+startKafka(t)+`], create_topics: {partitions: 1}}}
streams:
  metrics: {sink: local, relabel_configs: [{source_labels: [team], regex: team-00, action: drop}]}
  logs: {sink: queue}
  traces: {sink: files}
  events: {sink: files}
`, `
streams:
  metrics:
    rate: 2000
    burst: 4000
    default: {rate: 1000}
    classes: [{name: most, rate: 1000}]
    rules: [{class: most, matchers: ['team=~"team-0.|team-1[0-4]"']}]
`)
	in.loads = append(in.loads,
		in.slow.load(t, 2000, 20, 12),
		in.store.load(t, 500, 50, 2),
		in.broken.load(t, 50, 50, 1),
		in.well.load(t, 200, 50, 2))
	return in
}

func sink(name string) string {
	return string(bytes.ReplaceAll([]byte(relabelDrop), []byte("SINK"), []byte(name)))
}

// startPrometheus runs a Prometheus that scrapes the four every second, has the rules, and
// takes what is forwarded to it. The last of the four is the one that is well.
func startPrometheus(t *testing.T, scraped []string) (address string) {
	address = freeAddress(t)
	rules, err := filepath.Abs(folder + "/rules")
	require.NoError(t, err)
	config := fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: ['%s/*.yaml']
scrape_configs:
  - job_name: spillway
    static_configs:
      - {targets: ['%s', '%s', '%s'], labels: {cluster: e2e, namespace: troubled}}
      - {targets: ['%s'], labels: {cluster: e2e, namespace: well}}
`, rules, scraped[0], scraped[1], scraped[2], scraped[3])
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o644))
	r := start(t, peer(t, "prometheus"), "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--web.enable-remote-write-receiver")
	awaitReady(t, r, address)
	return address
}

// breakThings puts one policy in force, and lets another one be refused.
func (in *scenario) breakThings(t *testing.T) {
	in.store.writePolicy(t, troubledPolicy(skewedRule)+"# edited\n")
	in.broken.writePolicy(t, "streams: {metrics: {rate: 1, burst: 1, default: {rate: 2}}}")
}

// sendBad sends what is invalid: a label without a name, a sample that is too old for the
// store, a body that is no message. It does so again and again, since a counter that
// appears with its first value shows no rate.
func (in *scenario) sendBad(t *testing.T) {
	now := time.Now()
	series := func(label string, at time.Time) prompb.TimeSeries {
		return prompb.TimeSeries{
			Labels:  []prompb.Label{{Name: "__name__", Value: "bad"}, {Name: label, Value: "x"}},
			Samples: []prompb.Sample{{Value: 1, Timestamp: at.UnixMilli()}},
		}
	}
	bad := prompb.WriteRequest{Timeseries: []prompb.TimeSeries{series("", now), series("old", now.Add(-12*time.Hour))}}
	raw, err := bad.Marshal()
	require.NoError(t, err)
	for _, body := range [][]byte{snappy.Encode(nil, raw), []byte("no snappy")} {
		req, err := http.NewRequest(http.MethodPost, in.store.url(), bytes.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/x-protobuf")
		req.Header.Set("Content-Encoding", "snappy")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		resp.Body.Close()
	}
}

// sendOthers sends log records, spans and events to the ingester that is well, as
// OpenTelemetry's SDKs do.
func (in *scenario) sendOthers(t *testing.T) {
	now := time.Now().UnixNano()
	record := fmt.Sprintf(`{"timeUnixNano":"%d","body":{"stringValue":"paid"}}`, now)
	span := fmt.Sprintf(`{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","name":"pay","kind":1,"startTimeUnixNano":"%d","endTimeUnixNano":"%d"}`, now, now+1000)
	const resource = `"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}}]}`
	many := func(one string) string { return strings.TrimSuffix(strings.Repeat(one+",", 20), ",") }
	logs := `{"resourceLogs":[{` + resource + `,"scopeLogs":[{"logRecords":[` + many(record) + `]}]}]}`
	spans := `{"resourceSpans":[{` + resource + `,"scopeSpans":[{"spans":[` + many(span) + `]}]}]}`
	for path, body := range map[string]string{"/v1/logs": logs, "/v1/traces": spans, "/ingester/otlp/k8s_events": logs} {
		resp, err := http.Post("http://"+in.well.address+path, "application/json", strings.NewReader(body))
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, http.StatusOK, resp.StatusCode, "%s: %s", path, text)
	}
}

// TestEveryQueryReturnsData runs every query of every panel and rule on a real
// Prometheus. It has to return a number other than zero, unless an argument beside
// it in the code says why it may not. Every alert's expression returns something
// for the installation in trouble, and nothing for the one that is well.
func TestEveryQueryReturnsData(t *testing.T) {
	in := startScenario(t)
	in.breakThings(t)
	argued, asked := map[string]string{}, 0
	eventually(t, func() (missing []string) {
		for range 5 {
			in.sendBad(t)
			in.sendOthers(t)
		}
		clear(argued)
		asked = 0
		note := func(m, argument string) {
			asked++
			if in.limited && argument == noLimit {
				argument = ""
			}
			if m != "" && argument == "" {
				missing = append(missing, m)
			}
			if m != "" && argument != "" {
				argued[m] = argument
			}
		}
		for _, b := range boards() {
			note(in.missing(t, b.file+" annotation", interpolate(reloadsQuery().expr, scraped), reloadsQuery(), in.begun))
			for _, r := range b.rows {
				for _, p := range r.panels {
					since := in.begun
					if p.instant() {
						since = time.Time{}
					}
					for i, q := range p.queries {
						note(in.missing(t, fmt.Sprintf("%s, %q %s", b.file, p.title, refID(i)), interpolate(q.expr, scraped), q, since))
					}
				}
			}
		}
		for _, f := range ruleFiles() {
			for _, g := range f.groups {
				for _, r := range g.rules {
					missing = append(missing, in.missingRule(t, f.name, r)...)
				}
			}
		}
		return missing
	})
	in.requireVariables(t)
	in.requireStreams(t)
	in.requireRulesHealthy(t)
	in.requireOwnTelemetry(t)
	t.Logf("%d queries of panels, %d of them without data", asked, len(argued))
	for where, argument := range argued {
		t.Logf("argued: %s: %s", where, argument)
	}
	for _, l := range in.loads {
		l.stop()
	}
	for _, s := range []*process{in.slow, in.store, in.broken, in.well} {
		eventually(t, func() []string { return conserved(t, s) })
	}
}

// missing runs a query and says what is missing from its answer, and the
// argument of the query for that, if it has one.
func (in *scenario) missing(t *testing.T, where, expr string, q query, since time.Time) (problem, argument string) {
	t.Helper()
	answer := evaluate(t, in.prometheus, expr, since)
	for _, s := range answer {
		for _, v := range s.numbers(t) {
			if v != 0 && !math.IsNaN(v) && !math.IsInf(v, 0) {
				return "", ""
			}
		}
	}
	if len(answer) == 0 {
		return where + " returns nothing: " + expr, q.empty
	}
	if q.zero != "" {
		return where + " returns zeros only: " + expr, q.zero
	}
	return where + " returns zeros only: " + expr, q.empty
}

// missingRule checks a rule where it is: its expression, and what the Prometheus made of it.
func (in *scenario) missingRule(t *testing.T, file string, r rule) (missing []string) {
	t.Helper()
	where := file + ", " + r.record + r.alert
	q := query{zero: r.zero, empty: r.empty}
	if r.alert != "" && q.zero == "" {
		q.zero = "an alert says that something is so; how much is 0 of some"
	}
	if problem, argument := in.missing(t, where, withInstallation(r.expr), q, time.Time{}); problem != "" && argument == "" {
		return []string{problem}
	}
	if r.record != "" {
		if problem, _ := in.missing(t, where+" as recorded", r.record, q, time.Time{}); problem != "" {
			return []string{problem}
		}
		return nil
	}
	for _, s := range evaluate(t, in.prometheus, withInstallation(r.expr), time.Time{}) {
		if s.Metric["namespace"] == "well" {
			missing = append(missing, fmt.Sprintf("%s is about the installation that is well: %v", where, s))
		}
	}
	if r.empty == "" && len(evaluate(t, in.prometheus, `ALERTS{alertname="`+r.alert+`", namespace="troubled"}`, time.Time{})) == 0 {
		missing = append(missing, where+" is not pending")
	}
	return missing
}

// requireVariables: every variable has something to choose from.
func (in *scenario) requireVariables(t *testing.T) {
	t.Helper()
	for _, b := range boards() {
		for _, v := range b.variables {
			if v.query == "" {
				continue
			}
			inner := strings.TrimSuffix(strings.TrimPrefix(v.query, "label_values("), ")")
			comma := strings.LastIndex(inner, ", ")
			var answer struct{ Data []string }
			ask(t, in.prometheus, "label/"+inner[comma+2:]+"/values", url.Values{"match[]": {interpolate(inner[:comma], scraped)}}, &answer)
			require.NotEmpty(t, answer.Data, "%s, variable %s: %s", b.file, v.name, v.query)
		}
	}
}

// requireStreams: the variable stream finds every stream, and the panels show those that
// something was sent to.
func (in *scenario) requireStreams(t *testing.T) {
	t.Helper()
	values := func(expr string) (names []string) {
		for _, s := range evaluate(t, in.prometheus, expr, time.Time{}) {
			names = append(names, s.Metric["stream"])
		}
		return names
	}
	require.ElementsMatch(t, []string{"metrics", "logs", "traces", "events", "rum"}, values(`count by (stream) (spillway_received_items_total)`))
	require.ElementsMatch(t, []string{"metrics", "logs", "traces", "events"}, values(`sum by (stream) (rate(spillway_admitted_items_total[1m])) > 0`))
}

// requireOwnTelemetry: the dashboards work without any Prometheus, too, on what a
// Spillway writes about itself into its own store. The store forwards to nobody, so
// only the dashboard that it has all of must be full.
func (in *scenario) requireOwnTelemetry(t *testing.T) {
	t.Helper()
	for _, b := range boards() {
		for _, r := range b.rows {
			for _, p := range r.panels {
				for i, q := range p.queries {
					answer := evaluate(t, in.store.address, interpolate(q.expr, own), time.Time{})
					if b.uid == rateControlUID {
						require.NotEmpty(t, answer, "%s, %q %s, of a Spillway's own telemetry", b.file, p.title, refID(i))
					}
				}
			}
		}
	}
}

// requireRulesHealthy: the Prometheus evaluates every rule without an error or a warning.
func (in *scenario) requireRulesHealthy(t *testing.T) {
	t.Helper()
	var answer struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	resp, err := http.Get("http://" + in.prometheus + "/api/v1/rules")
	require.NoError(t, err)
	defer resp.Body.Close()
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&answer))
	n := 0
	for _, g := range answer.Data.Groups {
		for _, r := range g.Rules {
			require.Equal(t, "ok", r.Health, "%s: %s", r.Name, r.LastError)
			n++
		}
	}
	require.Equal(t, len(alerts())+7, n, "the Prometheus has loaded other rules than those in the code")
}
