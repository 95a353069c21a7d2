//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	message1 = "prometheus.WriteRequest"
	message2 = "io.prometheus.write.v2.Request"
)

// quiet keeps own telemetry out of the way of counting.
const quiet = "telemetry: {interval: 0s}\n"

// drained says that Prometheus has sent all that it scraped of a closed target.
func drained(t *testing.T, prometheus string) bool {
	m := metrics(t, prometheus)
	return sum(m, "prometheus_remote_storage_samples_pending") == 0 &&
		sum(m, "prometheus_remote_storage_samples_in_total") > 0 &&
		sum(m, "prometheus_remote_storage_queue_highest_sent_timestamp_seconds") >= sum(m, "prometheus_remote_storage_highest_timestamp_in_seconds")-2
}

// TestEverySampleArrivesOnce: without a policy, the store behind Spillway holds
// exactly what Prometheus' own store holds.
func TestEverySampleArrivesOnce(t *testing.T) {
	for _, message := range []string{message1, message2} {
		t.Run(message, func(t *testing.T) {
			dir := t.TempDir()
			s := startSpillway(t, dir, freeAddress(t), quiet+"sinks: {local: {tsdb: {path: '"+filepath.Join(dir, "data")+"'}}}\nstreams: {metrics: {sink: local}}\n", "")
			tg := startTarget(t, 500)
			prom, _ := startPrometheus(t, tg.address, "http://"+s.address+"/api/v1/write", message)
			eventually(t, "some scrapes", func() bool { return tg.scrapes.Load() >= 8 })
			tg.closed.Store(true)
			requireSame(t, prom, s.address)

			m := metrics(t, s.address)
			requireConserved(t, m)
			require.Zero(t, sum(m, "spillway_invalid_items_total"))
			sent := metrics(t, prom)
			require.Zero(t, sum(sent, "prometheus_remote_storage_samples_failed_total"))
			require.GreaterOrEqual(t, sum(m, "spillway_admitted_items_total"), float64(8*500))
			s.stop(t)
		})
	}
}

// requireSame waits until both hold the same samples of the target's series.
func requireSame(t *testing.T, prometheus, spillway string) {
	t.Helper()
	const selector = `{__name__=~"e2e.*"}`
	var have, want map[string][]string
	eventually(t, "both stores hold the same", func() bool {
		want, have = raw(t, prometheus, selector), raw(t, spillway, selector)
		return samplesIn(want) > 0 && reflect.DeepEqual(want, have)
	})
	t.Logf("%d series, %d samples, the same in both stores", len(want), samplesIn(want))
}

// TestPolicyHolds: with a class that may spend a quarter of what is sent, its
// budget and no more is stored, the other class is untouched, and every sample
// is accounted for.
func TestPolicyHolds(t *testing.T) {
	for _, message := range []string{message1, message2} {
		t.Run(message, func(t *testing.T) {
			const rate, burst = 50, 100 // 200 a second are sent for team a
			policy := fmt.Sprintf(`
streams:
  metrics:
    rate: 1000
    burst: %d
    default: {rate: 950}
    classes: [{name: a, rate: %d}]
    rules: [{class: a, matchers: ['team="a"']}]
`, burst*1000/rate, rate)
			dir := t.TempDir()
			s := startSpillway(t, dir, freeAddress(t), quiet+"sinks: {local: {tsdb: {path: '"+filepath.Join(dir, "data")+"'}}}\nstreams: {metrics: {sink: local}}\n", policy)
			started := time.Now()
			tg := startTarget(t, 400)
			prom, _ := startPrometheus(t, tg.address, "http://"+s.address+"/api/v1/write", message)
			eventually(t, "some scrapes", func() bool { return tg.scrapes.Load() >= 12 })
			tg.closed.Store(true)
			eventually(t, "Prometheus has sent everything", func() bool { return drained(t, prom) })
			want := raw(t, prom, `{__name__="e2e",team="b"}`)
			eventually(t, "team b is whole", func() bool { return reflect.DeepEqual(want, raw(t, s.address, `{__name__="e2e",team="b"}`)) })

			m := metrics(t, s.address)
			elapsed := time.Since(started).Seconds()
			requireConserved(t, m)
			admitted := sum(m, "spillway_admitted_items_total", `class="a"`)
			dropped := sum(m, "spillway_dropped_items_total", `class="a"`, `reason="ratelimit"`)
			require.LessOrEqual(t, admitted, burst+rate*elapsed)
			require.Positive(t, dropped)
			require.Zero(t, sum(m, "spillway_dropped_items_total", `class="default"`))
			offered := samplesIn(raw(t, prom, `{__name__="e2e",team="a"}`))
			stored := samplesIn(raw(t, s.address, `{__name__="e2e",team="a"}`))
			// Stale markers are samples that no query returns.
			require.GreaterOrEqual(t, admitted+dropped, float64(offered))
			require.LessOrEqual(t, float64(stored), admitted)
			t.Logf("class a: %v offered, %v admitted of at most %.0f, %v dropped, %v to be queried", offered, admitted, burst+rate*elapsed, dropped, stored)
		})
	}
}

// TestKilledInMidTraffic: what was acknowledged before a SIGKILL is there after
// the restart, and Prometheus sends the rest again.
func TestKilledInMidTraffic(t *testing.T) {
	for _, message := range []string{message1, message2} {
		t.Run(message, func(t *testing.T) {
			dir, address := t.TempDir(), freeAddress(t)
			config := quiet + "sinks: {local: {tsdb: {path: '" + filepath.Join(dir, "data") + "'}}}\nstreams: {metrics: {sink: local}}\n"
			s := startSpillway(t, dir, address, config, "")
			tg := startTarget(t, 1000)
			prom, _ := startPrometheus(t, tg.address, "http://"+address+"/api/v1/write", message)
			for round := range int64(3) {
				eventually(t, "traffic", func() bool { return tg.scrapes.Load() >= 3*(round+1) })
				s.kill()
				s = startSpillway(t, dir, address, config, "")
			}
			eventually(t, "traffic after the last start", func() bool { return tg.scrapes.Load() >= 12 })
			tg.closed.Store(true)
			requireSame(t, prom, address)
			requireConserved(t, metrics(t, address))
		})
	}
}

// TestForwarding: Prometheus to Spillway to a real Prometheus receiver, in all
// four pairs of versions, with a relabel rule on the way.
func TestForwarding(t *testing.T) {
	for _, in := range []string{message1, message2} {
		for _, out := range []string{message1, message2} {
			t.Run(in+" to "+out, func(t *testing.T) {
				receiver, _ := startPrometheus(t, "", "", "")
				dir := t.TempDir()
				s := startSpillway(t, dir, freeAddress(t), quiet+fmt.Sprintf(`
sinks: {prom: {remote_write: {endpoints: ['http://%s/api/v1/write'], protobuf_message: %s}}}
streams: {metrics: {sink: prom, relabel_configs: [{source_labels: [team], regex: b, target_label: moved, replacement: 'yes'}]}}
`, receiver, out), "")
				tg := startTarget(t, 200)
				prom, _ := startPrometheus(t, tg.address, "http://"+s.address+"/api/v1/write", in)
				eventually(t, "some scrapes", func() bool { return tg.scrapes.Load() >= 4 })
				tg.closed.Store(true)
				var have, want map[string][]string
				eventually(t, "the receiver holds the same", func() bool {
					want = raw(t, prom, `e2e{team="a"}`)
					have = raw(t, receiver, `e2e{team="a"}`)
					return len(want) == 100 && reflect.DeepEqual(want, have)
				})
				moved := raw(t, receiver, `e2e{team="b",moved="yes"}`)
				require.Equal(t, samplesIn(raw(t, prom, `e2e{team="b"}`)), samplesIn(moved))
				m := metrics(t, s.address)
				requireConserved(t, m)
				require.Zero(t, sum(m, "spillway_refused_items_total")+sum(m, "spillway_invalid_items_total"), s.log)
			})
		}
	}
}

// TestVmagent: a sender that tries zstd first is led to snappy and loses nothing.
func TestVmagent(t *testing.T) {
	dir := t.TempDir()
	s := startSpillway(t, dir, freeAddress(t), quiet+"sinks: {local: {tsdb: {path: '"+filepath.Join(dir, "data")+"'}}}\nstreams: {metrics: {sink: local}}\n", "")
	tg := startTarget(t, 300)
	scrape := filepath.Join(dir, "scrape.yaml")
	require.NoError(t, os.WriteFile(scrape, []byte("global: {scrape_interval: 1s}\nscrape_configs: [{job_name: target, static_configs: [{targets: ['"+tg.address+"']}]}]\n"), 0o644))
	start(t, peer(t, "vmagent"), "-httpListenAddr="+freeAddress(t), "-promscrape.config="+scrape,
		"-remoteWrite.url=http://"+s.address+"/api/v1/write", "-remoteWrite.tmpDataPath="+filepath.Join(dir, "vmagent"), "-remoteWrite.flushInterval=300ms")
	const scrapes = 6
	eventually(t, "scrapes in the store", func() bool {
		series := raw(t, s.address, "e2e_scrapes_total")
		return samplesIn(series) >= scrapes
	})
	for _, samples := range raw(t, s.address, "e2e_scrapes_total") {
		for i, sample := range samples {
			require.True(t, strings.HasSuffix(sample, fmt.Sprintf(" %d", i+1)), "scrape %d is missing: %v", i+1, samples)
		}
	}
	require.Len(t, raw(t, s.address, "e2e"), 300)
	m := metrics(t, s.address)
	requireConserved(t, m)
	require.Zero(t, sum(m, "spillway_invalid_items_total"), "labels that vmagent does not sort are sorted, not refused")
	require.Positive(t, sum(m, "spillway_http_requests_total", `code="415"`), "vmagent tries zstd first")
}

// TestOwnTelemetry: Spillway's history is in its own store, exempt from a policy
// that drops everything else.
func TestOwnTelemetry(t *testing.T) {
	dir := t.TempDir()
	s := startSpillway(t, dir, freeAddress(t), "telemetry: {interval: 200ms, labels: {zone: z1}}\nsinks: {local: {tsdb: {path: '"+filepath.Join(dir, "data")+"'}}}\nstreams: {metrics: {sink: local}}\n",
		"streams: {metrics: {rate: 0, burst: 1}}")
	eventually(t, "own metrics in the store", func() bool {
		return samplesIn(raw(t, s.address, `spillway_received_items_total{kfuse="true",job="spillway",zone="z1",stream="metrics"}`)) >= 3
	})
	m := metrics(t, s.address)
	requireConserved(t, m)
	require.Positive(t, sum(m, "spillway_exempt_items_total"))
	require.Zero(t, sum(m, "spillway_dropped_items_total"))
}

// TestPolicyEdit: an edited policy is in force without a restart; a bad one is
// refused, named in the log, and the last good one stays. The swap of symbolic
// links that Kubernetes makes is an edit, too.
func TestPolicyEdit(t *testing.T) {
	dir := t.TempDir()
	s := startSpillway(t, dir, freeAddress(t), quiet+"sinks: {none: {discard: {}}}\nstreams: {metrics: {sink: none}}\n", "streams: {metrics: {rate: 100, burst: 100}}")
	rate := func() float64 { return sum(metrics(t, s.address), "spillway_class_rate_limit", `class="default"`) }
	require.EqualValues(t, 100, rate())
	file := filepath.Join(dir, "policy.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o644)) }

	write("streams: {metrics: {rate: 200, burst: 100}}")
	eventually(t, "the new rate", func() bool { return rate() == 200 })

	write("streams: {metrics: {rate: 200, burst: 0.5, classes: [{name: a, rate: 300}], rate_limit: 3}}")
	eventually(t, "the refusal", func() bool { return sum(metrics(t, s.address), "spillway_config_reload_failures_total") == 1 })
	require.EqualValues(t, 200, rate())
	require.Zero(t, sum(metrics(t, s.address), "spillway_config_last_reload_successful"))
	for _, problem := range []string{"streams.metrics.burst", "streams.metrics.rate_limit", "300"} {
		require.Contains(t, s.log.String(), problem)
	}

	for i, name := range []string{"..2026_1", "..2026_2"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name, "policy.yaml"), fmt.Appendf(nil, "streams: {metrics: {rate: %d, burst: 100}}", 300+i), 0o644))
		require.NoError(t, os.Symlink(name, filepath.Join(dir, "..tmp")))
		require.NoError(t, os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")))
		if i == 0 {
			require.NoError(t, os.Remove(file))
			require.NoError(t, os.Symlink(filepath.Join("..data", "policy.yaml"), file))
		}
		eventually(t, "the swapped policy", func() bool { return rate() == float64(300+i) })
	}
	require.EqualValues(t, 1, sum(metrics(t, s.address), "spillway_config_last_reload_successful"))
	s.stop(t)
}
