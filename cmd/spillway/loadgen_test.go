package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"
)

// loadSample is a sample as a receiver reads it with the library.
type loadSample struct {
	labels string
	at     int64
	value  float64
}

// readLoad decodes a generated request with the library.
func readLoad(t testing.TB, message string, body []byte) []loadSample {
	raw, err := snappy.Decode(nil, body)
	require.NoError(t, err)
	var samples []loadSample
	if message == loadMessage1 {
		var req prompb.WriteRequest
		require.NoError(t, req.Unmarshal(raw))
		for _, ts := range req.Timeseries {
			b := labels.NewScratchBuilder(0)
			require.Len(t, ts.Samples, 1)
			samples = append(samples, loadSample{ts.ToLabels(&b, nil).String(), ts.Samples[0].Timestamp, ts.Samples[0].Value})
		}
		return samples
	}
	var req writev2.Request
	require.NoError(t, req.Unmarshal(raw))
	for _, ts := range req.Timeseries {
		b := labels.NewScratchBuilder(0)
		ls, err := ts.ToLabels(&b, req.Symbols)
		require.NoError(t, err)
		require.Len(t, ts.Samples, 1)
		samples = append(samples, loadSample{ls.String(), ts.Samples[0].Timestamp, ts.Samples[0].Value})
	}
	return samples
}

func eachLoadMessage(t *testing.T, run func(t *testing.T, message string)) {
	for _, message := range []string{loadMessage1, loadMessage2} {
		t.Run(message, func(t *testing.T) { run(t, message) })
	}
}

// loadAt is a time whose milliseconds are easy to read.
var loadAt = time.UnixMilli(1_700_000_000_000)

func noChurn() int64 { panic("no series may be new") }

// TestLoadSeries: what the patched bytes say is what the labels are meant to be.
func TestLoadSeries(t *testing.T) {
	eachLoadMessage(t, func(t *testing.T, message string) {
		p := newLoadPart(message, 4990, 5500)
		samples := readLoad(t, message, p.next(nil, loadAt, 0, noChurn))
		require.Len(t, samples, 510)
		size := 0
		for i, s := range samples {
			pairs := loadLabels(4990 + i)
			require.Len(t, pairs, 12)
			require.True(t, slices.IsSortedFunc(pairs, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) }))
			var flat []string
			for _, l := range pairs {
				flat = append(flat, l[0], l[1])
				size += len(l[0]) + len(l[1])
			}
			require.Equal(t, loadSample{labels.FromStrings(flat...).String(), loadAt.UnixMilli(), loadValue(i, 1)}, s)
		}
		require.InDelta(t, 240, float64(size)/510, 5)
	})
}

// TestLoadTimesMove: whatever the clock does, the next sample of a series is
// later than the last.
func TestLoadTimesMove(t *testing.T) {
	eachLoadMessage(t, func(t *testing.T, message string) {
		p := newLoadPart(message, 0, 3)
		last := int64(0)
		for _, ms := range []int64{0, 0, -5000, 1, 2, 2, 100_000, 99_000} {
			samples := readLoad(t, message, p.next(nil, loadAt.Add(time.Duration(ms)*time.Millisecond), 0, noChurn))
			require.Greater(t, samples[0].at, last)
			require.GreaterOrEqual(t, samples[0].at, loadAt.UnixMilli()+ms)
			last = samples[0].at
		}
	})
}

// TestLoadChurn: the stated fraction of series is new, over many requests
// exactly, each position takes its turn, and no series comes back.
func TestLoadChurn(t *testing.T) {
	eachLoadMessage(t, func(t *testing.T, message string) {
		for _, churn := range []float64{0.0004, 0.01, 0.333, 1} {
			const width, rounds = 100, 300
			p := newLoadPart(message, 0, width)
			unborn := int64(width)
			seen, active := map[string]bool{}, map[string]bool{}
			for _, s := range readLoad(t, message, p.next(nil, loadAt, 0, noChurn)) {
				seen[s.labels], active[s.labels] = true, true
			}
			for range rounds {
				now := map[string]bool{}
				for _, s := range readLoad(t, message, p.next(nil, loadAt, churn, func() int64 { unborn++; return unborn - 1 })) {
					require.True(t, active[s.labels] || !seen[s.labels], "a series that ended came back")
					now[s.labels], seen[s.labels] = true, true
				}
				require.Len(t, now, width)
				active = now
			}
			require.InDelta(t, churn*width*rounds, len(seen)-width, 1)
		}
	})
}

// TestLoadPrepared: the rotation holds every series equally often, with times a
// step apart of which the last is now, and what is kept is not overwritten.
func TestLoadPrepared(t *testing.T) {
	eachLoadMessage(t, func(t *testing.T, message string) {
		o := &loadOptions{url: "http://x", message: message, series: 1000, perRequest: 300, concurrency: 3, prepared: 8, timeout: time.Second}
		require.NoError(t, o.validate())
		before := time.Now().UnixMilli()
		g, err := newLoad(o)
		require.NoError(t, err)
		times := map[string][]int64{}
		now := int64(0)
		for _, s := range g.senders {
			for _, r := range s.prepared {
				samples := readLoad(t, message, r.body)
				require.Len(t, samples, r.items)
				for _, sample := range samples {
					times[sample.labels] = append(times[sample.labels], sample.at)
					now = max(now, sample.at)
				}
			}
		}
		require.GreaterOrEqual(t, now, before)
		require.LessOrEqual(t, now, time.Now().UnixMilli())
		require.Len(t, times, 1000)
		for _, at := range times {
			require.Equal(t, []int64{now - preparedStep.Milliseconds(), now}, at)
		}
	})
}

// loadReceiver counts what arrives and checks that every series' times grow.
type loadReceiver struct {
	*httptest.Server
	mu       sync.Mutex
	requests int
	items    int
	last     map[string]int64
	disorder int
	answer   func(n int, w http.ResponseWriter)
}

func startLoadReceiver(t *testing.T, message string, answer func(n int, w http.ResponseWriter)) *loadReceiver {
	r := &loadReceiver{last: map[string]int64{}, answer: answer}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		samples := readLoad(t, message, body)
		r.mu.Lock()
		r.requests++
		n := r.requests
		r.items += len(samples)
		for _, s := range samples {
			if s.at <= r.last[s.labels] {
				r.disorder++
			}
			r.last[s.labels] = s.at
		}
		r.mu.Unlock()
		r.answer(n, w)
	}))
	t.Cleanup(r.Close)
	return r
}

// TestLoadCounts: the summary says what the receiver saw and answered, whatever
// the number of senders, and exactly the given number of requests is sent.
func TestLoadCounts(t *testing.T) {
	eachLoadMessage(t, func(t *testing.T, message string) {
		r := startLoadReceiver(t, message, func(n int, w http.ResponseWriter) {
			w.Header().Set("X-Prometheus-Remote-Write-Samples-Written", "7")
			switch n % 4 {
			case 0:
				http.Error(w, "over budget\nmore", 400)
			case 1:
				http.Error(w, "busy", http.StatusServiceUnavailable)
			default:
				w.WriteHeader(204)
			}
		})
		code, stdout, stderr := runLine("load", "--url="+r.URL, "--protobuf-message="+message, "--series=950", "--series-per-request=100",
			"--concurrency=4", "--requests=100", "--churn=5", "--format=json")
		require.Zero(t, code, stderr)
		var s loadSummary
		require.NoError(t, json.Unmarshal([]byte(stdout), &s))
		require.EqualValues(t, 100, s.Requests)
		require.Equal(t, 100, r.requests)
		require.EqualValues(t, r.items, s.Items)
		require.Zero(t, r.disorder, "a series was sent by two senders at once")
		pods := map[string]bool{}
		for series := range r.last {
			_, pod, _ := strings.Cut(series, "pod=")
			pods[strings.SplitN(pod, `"`, 3)[1]] = true
		}
		require.Greater(t, len(pods), 950)
		require.Len(t, pods, len(r.last), "a new series took the number of another one")
		require.Equal(t, map[int]*loadAnswers{204: {Requests: 50}, 400: {Requests: 25, First: "over budget"}, 503: {Requests: 25, First: "busy"}}, s.Answers)
		require.Empty(t, s.Failures)
		require.Positive(t, s.Bytes)
		require.LessOrEqual(t, s.P50, s.P99)
		require.LessOrEqual(t, s.P99, s.Max)
		if message == loadMessage2 {
			require.EqualValues(t, 700, s.Accepted, "what the headers say, beside errors too")
		}
	})
}

// TestLoadAccepted: in 1.0 a success takes all of the request.
func TestLoadAccepted(t *testing.T) {
	r := startLoadReceiver(t, loadMessage1, func(n int, w http.ResponseWriter) {
		w.WriteHeader(map[bool]int{true: 204, false: 503}[n%2 == 0])
	})
	code, stdout, stderr := runLine("load", "--url="+r.URL, "--series=100", "--series-per-request=10", "--requests=20")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "200 items in 20 requests")
	require.Len(t, r.last, 100, "the requests hold all series in turn")
	require.Regexp(t, `accepted +100 items`, stdout)
	require.Regexp(t, `answer 503 +10 requests`, stdout)
}

// TestLoadPace: nothing is sent before it is due, and due is items / rate.
func TestLoadPace(t *testing.T) {
	g := &generator{options: &loadOptions{rate: 200}}
	require.Equal(t, time.Duration(0), g.due(0))
	require.Equal(t, 500*time.Millisecond, g.due(100))
	require.Zero(t, (&generator{options: &loadOptions{}}).due(1e9))

	o := &loadOptions{message: loadMessage1, series: 40, perRequest: 10, concurrency: 2, rate: 1000, requests: 20, timeout: time.Minute}
	var arrived []time.Time
	var mu sync.Mutex
	r := startLoadReceiver(t, loadMessage1, func(n int, w http.ResponseWriter) {
		mu.Lock()
		defer mu.Unlock()
		arrived = append(arrived, time.Now())
	})
	o.url = r.URL
	g, err := newLoad(o)
	require.NoError(t, err)
	s := g.send(t.Context())
	require.EqualValues(t, 20, s.Requests)
	slices.SortFunc(arrived, time.Time.Compare)
	for k, at := range arrived {
		// The two senders may swap neighbours.
		require.GreaterOrEqual(t, at.Sub(g.started), g.due(int64(max(0, k-1)*10)))
	}
}

// TestLoadInterrupted: what is on its way when the end comes is still counted by
// its answer.
func TestLoadInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	r := startLoadReceiver(t, loadMessage1, func(n int, w http.ResponseWriter) {
		if n == 6 {
			cancel()
			close(release)
		}
		if n >= 5 {
			<-release
		}
		w.WriteHeader(204)
	})
	o := &loadOptions{url: r.URL, message: loadMessage1, series: 40, perRequest: 10, concurrency: 2, timeout: time.Minute}
	g, err := newLoad(o)
	require.NoError(t, err)
	s := g.send(ctx)
	require.EqualValues(t, r.requests, s.Requests)
	require.EqualValues(t, r.requests, s.Answers[204].Requests)
	require.Empty(t, s.Failures)
}

// TestLoadFailures: requests without an answer are counted by reason, and a
// receiver that never answers is an error.
func TestLoadFailures(t *testing.T) {
	r := startLoadReceiver(t, loadMessage1, func(int, http.ResponseWriter) {})
	address := r.URL
	r.Close()
	code, stdout, stderr := runLine("load", "--url="+address, "--requests=2", "--series=10")
	require.Equal(t, 1, code)
	require.Contains(t, stdout, "2 requests: dial: connect: connection refused")
	require.Contains(t, stderr, "no request was answered")

	held := make(chan struct{})
	slow := startLoadReceiver(t, loadMessage1, func(int, http.ResponseWriter) { <-held })
	defer close(held)
	code, stdout, _ = runLine("load", "--url="+slow.URL, "--requests=1", "--series=10", "--timeout=20ms")
	require.Equal(t, 1, code)
	require.Contains(t, stdout, "no answer within 20ms")

	require.Equal(t, 100*time.Millisecond, nextPause(0))
	require.Equal(t, 400*time.Millisecond, nextPause(200*time.Millisecond))
	require.Equal(t, time.Second, nextPause(900*time.Millisecond))
}

// TestLoadHeaders: each version says what it is, and the user's headers go along.
func TestLoadHeaders(t *testing.T) {
	eachLoadMessage(t, func(t *testing.T, message string) {
		var got http.Header
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
		defer server.Close()
		code, _, stderr := runLine("load", "--url="+server.URL, "--requests=1", "--series=1", "--protobuf-message="+message, "--header=Kf-Api-Key: abc")
		require.Zero(t, code, stderr)
		require.Equal(t, "abc", got.Get("Kf-Api-Key"))
		require.Equal(t, "snappy", got.Get("Content-Encoding"))
		require.Equal(t, map[string]string{loadMessage1: "0.1.0", loadMessage2: "2.0.0"}[message], got.Get("X-Prometheus-Remote-Write-Version"))
		require.Equal(t, message == loadMessage2, strings.Contains(got.Get("Content-Type"), "proto="+loadMessage2))
	})
}

// TestLoadFlags: what cannot be done is said by the name of the flag.
func TestLoadFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"--url":                            {"--url=nowhere"},
		"--series":                         {"--series=0"},
		"lower --series-per-request to 12": {"--series=100", "--concurrency=8"},
		"it takes 5":                       {"--series=10000", "--prepared=4"},
		"--rate and --churn":               {"--churn=101"},
		"--duration":                       {"--duration=-1s"},
		"--header":                         {"--header=nothing"},
		"prometheus.WriteRequest":          {"--protobuf-message=3.0"},
	} {
		code, stdout, stderr := runLine(append([]string{"load"}, args...)...)
		require.Equal(t, 1, code, want)
		require.Contains(t, stderr, want)
		require.Empty(t, stdout)
	}
}

// TestLoadLatencies: quantiles against the sorted durations: never below, at most
// 1/32 above.
func TestLoadLatencies(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 100, 5000} {
		l := &latencies{}
		all := make([]time.Duration, n)
		for i := range all {
			all[i] = time.Duration(r.Uint64() >> (1 + r.IntN(63)))
			l.add(all[i])
		}
		slices.Sort(all)
		for _, q := range []float64{0, 0.5, 0.9, 0.99, 1} {
			want, got := all[int(q*float64(n-1))], l.quantile(q)
			require.GreaterOrEqual(t, got, want, "%v of %d", q, n)
			require.LessOrEqual(t, got-want, want/32, "%v of %d", q, n)
		}
		require.Equal(t, all[n-1], l.max)
	}
	require.Zero(t, (&latencies{}).quantile(0.5))
}

// TestLoadProgress: the line shows the rate since the last one, and only a
// terminal gets it.
func TestLoadProgress(t *testing.T) {
	last := &loadSummary{Seconds: 1, Items: 1000}
	s := &loadSummary{Seconds: 3, Items: 5000, Requests: 6, Accepted: 4000, Answers: map[int]*loadAnswers{204: {Requests: 4}, 503: {Requests: 1}}}
	require.Equal(t, "3 s  2000 items/s  5000 sent  4000 accepted  p99 0s  204: 4  503: 1  no answer: 1", s.progress(last))
	require.False(t, isTerminal(&bytes.Buffer{}))
	file, err := http.Dir(t.TempDir()).Open(".")
	require.NoError(t, err)
	defer file.Close()
	require.False(t, isTerminal(file.(io.Writer)), fmt.Sprintf("%T", file))
}
