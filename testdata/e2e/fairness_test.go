//go:build e2e

package e2e

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"
)

// The published fairness scenarios: four slots, 20 ms a batch.
const (
	fairSlots   = 4
	fairService = 20 * time.Millisecond
)

// fairBatch is one batch of a scenario.
type fairBatch struct {
	at    time.Duration
	key   string
	shard int // senders of the same key with series of their own
}

// fairScenario returns the batches, spread by less than a millisecond.
func fairScenario(name string) (batches []fairBatch) {
	rng := rand.New(rand.NewPCG(1, 7))
	add := func(key string, shard, n int, at, every time.Duration) {
		for i := range n {
			jitter := time.Duration(rng.Int64N(int64(time.Millisecond)))
			batches = append(batches, fairBatch{at + time.Duration(i)*every + jitter, key, shard})
		}
	}
	light := func(n int, at, every time.Duration) { add("light", 0, n, at, every) }
	switch name {
	case "one heavy flow":
		add("heavy", 0, 400, 0, 0)
		light(20, 50*time.Millisecond, 70*time.Millisecond)
	case "trickle":
		add("heavy", 0, 400, 0, 4*time.Millisecond)
		light(12, 0, 150*time.Millisecond)
	case "twenty shards of one tenant":
		for shard := range 20 {
			add("heavy", shard, 20, 0, 0)
		}
		light(20, 50*time.Millisecond, 70*time.Millisecond)
	case "heavy alone":
		add("heavy", 0, 250, 0, 0)
	}
	slices.SortFunc(batches, func(a, b fairBatch) int { return cmp.Compare(a.at, b.at) })
	return batches
}

// slowSink takes fairService for each batch, and counts those that it has begun.
type slowSink struct {
	*httptest.Server
	begun atomic.Int64
}

func startSlowSink(t *testing.T) *slowSink {
	s := &slowSink{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		s.begun.Add(1)
		time.Sleep(fairService)
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(s.Close)
	return s
}

// queueing is start-time fair queueing with unit cost as published, served by
// itself, to be measured with the same clients: a key's tag is max(its clock, the
// floor), serving adds 1, and the floor is the lowest tag of a key that waits.
type queueing struct {
	mu     sync.Mutex
	free   int
	floor  float64
	clock  map[string]float64
	queues map[string][]chan struct{}
}

func (q *queueing) acquire(key string) {
	turn := make(chan struct{})
	q.mu.Lock()
	q.queues[key] = append(q.queues[key], turn)
	q.dispatchLocked()
	q.mu.Unlock()
	<-turn
}

func (q *queueing) release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.free++
	q.dispatchLocked()
}

func (q *queueing) dispatchLocked() {
	for q.free > 0 {
		best, lowest := "", 0.0
		for key, waiting := range q.queues {
			if tag := max(q.clock[key], q.floor); len(waiting) > 0 && (best == "" || tag < lowest) {
				best, lowest = key, tag
			}
		}
		if best == "" {
			return
		}
		q.floor, q.clock[best] = max(q.floor, lowest), lowest+1
		close(q.queues[best][0])
		q.queues[best] = q.queues[best][1:]
		q.free--
	}
}

// startQueueing serves the reference, with the key in the header.
func startQueueing(t *testing.T, sink *slowSink) string {
	q := &queueing{free: fairSlots, clock: map[string]float64{}, queues: map[string][]chan struct{}{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q.acquire(r.Header.Get("Kf-Api-Key"))
		defer q.release()
		resp, err := http.Post(sink.URL, "application/x-protobuf", r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// startFairSpillway starts Spillway with two API keys and as many slots as the
// scenarios have; nothing but the order is measured.
func startFairSpillway(t *testing.T, sink *slowSink) string {
	dir := t.TempDir()
	keys := "keys:\n"
	for _, key := range []string{"heavy", "light"} {
		keys += fmt.Sprintf("  - {name: %s, sha256: %x}\n", key, sha256.Sum256([]byte(key)))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "keys.yaml"), []byte(keys), 0o600))
	s := startSpillway(t, dir, freeAddress(t), quiet+`
api_keys_file: keys.yaml
governor: {max_in_flight: 4, model: {enabled: false}, step: {enabled: false}, latency: {enabled: false},
  wait: {max_waiting: 4096, max_waiting_per_flow: 4096, max_wait: 1m, standing_after: 1h}}
sinks: {slow: {remote_write: {endpoints: ['`+sink.URL+`']}}}
streams: {metrics: {sink: slow}}
`, "")
	return "http://" + s.address + "/api/v1/write"
}

// fairResult is what became of a scenario.
type fairResult struct {
	wait      time.Duration // mean of the light flow, beyond what a batch takes alone
	overtaken int           // median number of batches that the sink began between sending a light batch and its answer
	makespan  time.Duration
}

// sendFair plays a scenario; as renames the keys.
func sendFair(t *testing.T, url string, sink *slowSink, batches []fairBatch, as func(string) string) (r fairResult) {
	t.Helper()
	clients := map[int]*http.Client{}
	for _, b := range batches {
		if clients[b.shard] == nil {
			clients[b.shard] = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 500}, Timeout: time.Minute}
			defer clients[b.shard].CloseIdleConnections()
		}
	}
	post := func(b fairBatch) (time.Duration, int64) {
		begun, before := time.Now(), sink.begun.Load()
		req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(fairBody(b.shard)))
		require.NoError(t, err)
		req.Header.Set("Kf-Api-Key", as(b.key))
		resp, err := clients[b.shard].Do(req)
		if err != nil {
			t.Error(err)
			return 0, 0
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusNoContent {
			t.Errorf("a batch of %s was answered %s", b.key, resp.Status)
		}
		return time.Since(begun), sink.begun.Load() - before
	}
	var alone []time.Duration
	for range 15 {
		took, _ := post(fairBatch{key: "light"})
		alone = append(alone, took)
	}
	slices.Sort(alone)

	var mu sync.Mutex
	var waits time.Duration
	var overtaken []int
	var done sync.WaitGroup
	begun := time.Now()
	for _, b := range batches {
		time.Sleep(time.Until(begun.Add(b.at)))
		done.Go(func() {
			took, passed := post(b)
			if b.key != "light" {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			waits += took - alone[len(alone)/2]
			overtaken = append(overtaken, int(passed))
		})
	}
	done.Wait()
	r.makespan = time.Since(begun)
	if n := len(overtaken); n > 0 {
		slices.Sort(overtaken)
		r.wait, r.overtaken = waits/time.Duration(n), overtaken[n/2]
	}
	return r
}

// fairBody is a batch of one sample, of a series of the sender's own.
func fairBody(shard int) []byte {
	req := prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
		Labels:  []prompb.Label{{Name: "__name__", Value: "fair"}, {Name: "shard", Value: fmt.Sprint(shard)}},
		Samples: []prompb.Sample{{Value: 1, Timestamp: time.Now().UnixMilli()}},
	}}}
	raw, err := req.Marshal()
	if err != nil {
		panic(err)
	}
	return snappy.Encode(nil, raw)
}

// TestGovernorFairness: the four published scenarios against the real binary with
// API keys, beside start-time fair queueing and beside the same traffic under one
// key, which is first come, first served. Where the lengths are those of the
// experiment, times are compared; else only how often a light batch is overtaken.
func TestGovernorFairness(t *testing.T) {
	sink := startSlowSink(t)
	spillway, reference := startFairSpillway(t, sink), startQueueing(t, sink)
	byKey := func(key string) string { return key }
	oneKey := func(string) string { return "heavy" }
	for _, name := range []string{"one heavy flow", "trickle", "twenty shards of one tenant", "heavy alone"} {
		batches := fairScenario(name)
		governed := sendFair(t, spillway, sink, batches, byKey)
		fifo := sendFair(t, spillway, sink, batches, oneKey)
		t.Logf("%-28s light flow's wait %6.1f ms, without an order %7.1f ms; makespan %4.0f ms and %4.0f ms; overtaken by %d and %d",
			name, ms(governed.wait), ms(fifo.wait), ms(governed.makespan), ms(fifo.makespan), governed.overtaken, fifo.overtaken)
		if name != "heavy alone" {
			// A few, since four batches begin while one takes its time, against hundreds.
			require.Less(t, 4*governed.overtaken, fifo.overtaken, name)
		}
		if thorough() {
			queued := sendFair(t, reference, sink, batches, byKey)
			for range 3 {
				governed.add(sendFair(t, spillway, sink, batches, byKey))
				fifo.add(sendFair(t, spillway, sink, batches, oneKey))
				queued.add(sendFair(t, reference, sink, batches, byKey))
			}
			compareFair(t, name, governed, fifo, queued)
		}
	}
}

// add makes a sum of two results.
func (r *fairResult) add(o fairResult) {
	r.wait += o.wait
	r.makespan += o.makespan
}

// compareFair compares the sums of four rounds.
func compareFair(t *testing.T, name string, governed, fifo, queued fairResult) {
	t.Helper()
	const rounds = 4
	const noise = 3 // ms, of two runs through HTTP and timers
	if name != "heavy alone" {
		bar(t, ms(governed.wait) <= ms(queued.wait)+noise*rounds, "%s: the light flow waits %.1f ms, under start-time fair queueing %.1f ms, without an order %.1f ms",
			name, ms(governed.wait)/rounds, ms(queued.wait)/rounds, ms(fifo.wait)/rounds)
	}
	bar(t, float64(governed.makespan) <= 1.05*float64(fifo.makespan), "%s: makespan %.2f s, without an order %.2f s", name, governed.makespan.Seconds()/rounds, fifo.makespan.Seconds()/rounds)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
