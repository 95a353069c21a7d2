//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shards is into how many parts the series of a load are divided, so that the
// stores can be compared part by part.
const shards = 20

// loadTarget serves as many series to scrape as it is told to.
type loadTarget struct {
	address string
	series  atomic.Int64
}

func startLoadTarget(t *testing.T) *loadTarget {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	tg := &loadTarget{address: l.Addr().String()}
	var scrapes atomic.Int64
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		series := tg.series.Load()
		if series == 0 {
			http.Error(w, "nothing to scrape", http.StatusServiceUnavailable)
			return
		}
		n, page := scrapes.Add(1), []byte("# TYPE overload gauge\n")
		for i := range series {
			page = fmt.Appendf(page, "overload{shard=\"%02d\",id=\"%d\"} %d\n", i%shards, i, n)
		}
		_, _ = w.Write(page)
	})}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return tg
}

// startSmallSender runs a Prometheus that sends what it scrapes in requests of
// few samples, so that a small CPU limit is much for it.
func startSmallSender(t *testing.T, target, url string) (address string) {
	t.Helper()
	dir := t.TempDir()
	address = freeAddress(t)
	config := fmt.Sprintf(`
global: {scrape_interval: 1s}
scrape_configs: [{job_name: target, static_configs: [{targets: ['%s']}]}]
remote_write: [{url: '%s', queue_config: {max_samples_per_send: 20, capacity: 500, min_shards: 16, max_shards: 50, batch_send_deadline: 300ms, min_backoff: 30ms, max_backoff: 1s}, send_exemplars: false, metadata_config: {send: false}}]
`, target, url)
	file := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o644))
	p := start(t, peer(t, "prometheus"), "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	awaitReady(t, p, "http://"+address+"/-/ready")
	return address
}

// admitted is how many items were stored so far.
func admitted(t *testing.T, address string) float64 {
	return sum(metrics(t, address), "spillway_admitted_items_total", `stream="metrics"`)
}

// rateOver is how many items a second were stored over some time.
func rateOver(t *testing.T, address string, d time.Duration) float64 {
	begun, before := time.Now(), admitted(t, address)
	time.Sleep(d)
	return (admitted(t, address) - before) / time.Since(begun).Seconds()
}

// TestGovernorNothingLost: a real Prometheus sends three times what the CPU limit
// carries, then half of it. When it has caught up, the store behind Spillway holds
// every sample that Prometheus scraped, once.
func TestGovernorNothingLost(t *testing.T) {
	group := newCgroup(t, 0.1)
	dir, address := t.TempDir(), freeAddress(t)
	s := startSpillwayIn(t, group, dir, address, quiet+`
governor: {model: {min_cpu_limit: 0.1}, wait: {max_waiting_per_flow: 16}}
sinks: {local: {tsdb: {path: '`+filepath.Join(dir, "data")+`'}}}
streams: {metrics: {sink: local}}
`, "")
	tg := startLoadTarget(t)
	// Every series is known before it is measured what the limit carries.
	tg.series.Store(40000)
	prom := startSmallSender(t, tg.address, "http://"+s.address+"/api/v1/write")
	eventually(t, "batches wait", func() bool { return governorOf(t, s.address).Waiting > 0 })
	eventually(t, "every series is known", func() bool { return admitted(t, s.address) > whole(100_000.0, 45_000) })
	carries := rateOver(t, s.address, whole(15*time.Second, 4*time.Second))

	tg.series.Store(int64(3 * carries))
	overload := rateOver(t, s.address, whole(120*time.Second, 8*time.Second))
	m := metrics(t, s.address)
	requireConserved(t, m)
	require.Positive(t, sum(m, "spillway_refused_batches_total", `reason="capacity"`), "nothing was turned away, so this was no overload")
	g := governorOf(t, s.address)
	t.Logf("the limit carries %.0f samples/s; at three times as many %.0f/s were stored, %.0f batches turned away, capacity %.1f, %d cuts",
		carries, overload, sum(m, "spillway_refused_batches_total", `reason="capacity"`), g.Mean, g.Cuts)

	tg.series.Store(int64(carries / 2))
	half := rateOver(t, s.address, whole(60*time.Second, 5*time.Second))
	tg.series.Store(0)
	group.limit(t, 0) // what is left of the backlog says nothing new
	awaitDrained(t, prom)
	samples := requireSameShards(t, prom, s.address)
	t.Logf("at half of it %.0f/s were stored, the rest afterwards: %d samples, the same in both stores", half, samples)
	m = metrics(t, s.address)
	requireConserved(t, m)
	sent := metrics(t, prom)
	require.Zero(t, sum(sent, "prometheus_remote_storage_samples_failed_total"))
	require.Zero(t, sum(sent, "prometheus_remote_storage_samples_dropped_total"))
	rateBar(t, overload, carries, "under three times the load %.0f%% of what the limit carries is stored")
}

// awaitDrained waits until Prometheus has sent all that it scraped, however long
// its backlog is, as long as it shrinks.
func awaitDrained(t *testing.T, prometheus string) {
	t.Helper()
	last, since := -1.0, time.Now()
	for !drained(t, prometheus) {
		sent := sum(metrics(t, prometheus), "prometheus_remote_storage_samples_total")
		if sent != last {
			last, since = sent, time.Now()
		}
		if time.Since(since) > patience {
			t.Fatalf("Prometheus has sent nothing for %v and still has a backlog", patience)
		}
		time.Sleep(time.Second)
	}
}

// requireSameShards compares what both stores hold, part by part, and returns the
// number of samples.
func requireSameShards(t *testing.T, prometheus, spillway string) (samples int64) {
	t.Helper()
	for i := range shards {
		selector := fmt.Sprintf(`overload{shard="%02d"}`, i)
		var want map[string][]string
		eventually(t, "both stores hold the same of "+selector, func() bool {
			want = raw(t, prometheus, selector)
			return reflect.DeepEqual(want, raw(t, spillway, selector))
		})
		samples += samplesIn(want)
	}
	require.Positive(t, samples)
	return samples
}

// rateBar compares two measured rates where they were measured for long enough; else
// it says them.
func rateBar(t *testing.T, overload, carries float64, format string) {
	t.Helper()
	if !thorough() {
		t.Logf(format, 100*overload/carries)
		return
	}
	bar(t, overload >= 0.8*carries, format, 100*overload/carries)
}
