package tsdb

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester"
)

// writeFor is Write with the reasons of what was rejected.
func writeFor(t *testing.T, s *Sink, b *ingester.Batch) map[string]int {
	t.Helper()
	w := new(staged)
	require.NoError(t, w.read(b))
	require.NoError(t, s.rounds.join(w, &s.lane, s.commit))
	return reasons(w)
}

func sample(t int64, v float64) prompb.Sample { return prompb.Sample{Timestamp: t, Value: v} }

func TestEachReasonIsGiven(t *testing.T) {
	now := milli()
	hour := time.Hour.Milliseconds()
	stale := math.Float64frombits(value.StaleNaN)
	cases := []struct {
		name    string
		window  time.Duration
		samples []prompb.Sample // one batch each
		want    []string
	}{
		{"in order", 0, []prompb.Sample{sample(now, 1), sample(now+1, 1)}, []string{"", ""}},
		{"out of order", 0, []prompb.Sample{sample(now, 1), sample(now-1, 1)}, []string{"", ReasonOutOfOrder}},
		{"out of order within the window", time.Hour, []prompb.Sample{sample(now, 1), sample(now-1, 1)}, []string{"", ""}},
		{"repeated", 0, []prompb.Sample{sample(now, 1), sample(now, 1)}, []string{"", ""}},
		{"repeated stale marker", 0, []prompb.Sample{sample(now, stale), sample(now, stale)}, []string{"", ""}},
		{"another NaN", 0, []prompb.Sample{sample(now, stale), sample(now, math.NaN())}, []string{"", ReasonDuplicate}},
		{"other value", 0, []prompb.Sample{sample(now, 1), sample(now, 2)}, []string{"", ReasonDuplicate}},
		{"out of bounds", 0, []prompb.Sample{sample(now, 1), sample(now-2*hour, 1)}, []string{"", ReasonOutOfBounds}},
		{"too old", time.Hour, []prompb.Sample{sample(now, 1), sample(now-hour-1, 1)}, []string{"", ReasonTooOld}},
		{"as old as the window", time.Hour, []prompb.Sample{sample(now, 1), sample(now-hour, 1)}, []string{"", ""}},
		{"far ahead", 0, []prompb.Sample{sample(now+11*60_000, 1), sample(now, 1)}, []string{ReasonTooFarAhead, ""}},
		{"a little ahead", 0, []prompb.Sample{sample(now+9*60_000, 1)}, []string{""}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := testOptions(t)
			window(c.window)(&o)
			s := openTest(t, o)
			rs := routes{}
			for i, smp := range c.samples {
				b := newTestBatch(t, rs, write1(float1("m", smp), float1(fmt.Sprintf("neighbour%d", i), sample(now, 1))))
				got := writeFor(t, s, b)
				want := map[string]int{}
				if c.want[i] != "" {
					want[c.want[i]] = 1
				}
				require.Equal(t, want, got, "sample %d", i)
				require.Equal(t, len(want), int(b.Groups[0].Rejected))
				require.Zero(t, b.Groups[1].Rejected, "a neighbour of sample %d", i)
			}
		})
	}
}

// What the database would only find while committing, and drop without a word,
// is found before: several points of a series in one batch.
func TestOrderWithinABatch(t *testing.T) {
	now := milli()
	hour := time.Hour.Milliseconds()
	cases := []struct {
		name    string
		window  time.Duration
		samples []prompb.Sample
		want    map[string]int
		stored  int
	}{
		{"rising", 0, []prompb.Sample{sample(now, 1), sample(now+1, 2), sample(now+2, 3)}, map[string]int{}, 3},
		{"falling", 0, []prompb.Sample{sample(now+2, 1), sample(now+1, 2), sample(now, 3)}, map[string]int{ReasonOutOfOrder: 2}, 1},
		{"falling within the window", time.Hour, []prompb.Sample{sample(now+2, 1), sample(now+1, 2), sample(now, 3)}, map[string]int{}, 3},
		{"twice", 0, []prompb.Sample{sample(now, 1), sample(now, 1)}, map[string]int{}, 1},
		{"twice, other value", 0, []prompb.Sample{sample(now, 1), sample(now, 2)}, map[string]int{ReasonDuplicate: 1}, 1},
		{"back and again, other value", time.Hour, []prompb.Sample{sample(now+2, 1), sample(now, 2), sample(now+2, 3)}, map[string]int{ReasonDuplicate: 1}, 2},
		{"twice, other value, with a window", time.Hour, []prompb.Sample{sample(now, 1), sample(now, 2)}, map[string]int{ReasonDuplicate: 1}, 1},
	}
	for _, c := range cases {
		for _, groups := range []string{"one group", "a group each"} {
			t.Run(c.name+", "+groups, func(t *testing.T) {
				o := testOptions(t)
				window(c.window)(&o)
				s := openTest(t, o)
				// So that the head has a time from which the window counts back.
				writeFor(t, s, newTestBatch(t, routes{}, write1(float1("other", sample(now, 1)))))
				req := write1(float1("m", c.samples...))
				if groups == "a group each" {
					req = write1()
					for _, smp := range c.samples {
						req.Timeseries = append(req.Timeseries, float1("m", smp))
					}
				}
				b := newTestBatch(t, routes{}, req)
				require.Equal(t, c.want, writeFor(t, s, b))
				require.Len(t, content(t, s)[`{__name__="m", job="test"}`], c.stored)
			})
		}
	}
	t.Run("older than the window", func(t *testing.T) {
		o := testOptions(t)
		window(time.Hour)(&o)
		s := openTest(t, o)
		writeFor(t, s, newTestBatch(t, routes{}, write1(float1("other", sample(now, 1)))))
		b := newTestBatch(t, routes{}, write1(float1("m", sample(now-1, 1), sample(now-hour-1, 1))))
		require.Equal(t, map[string]int{ReasonTooOld: 1}, writeFor(t, s, b))
	})
}

// The database drops a second value for an older time without a word, and so it counts
// as stored, and the first is there, also after a crash. If this test fails
// since the library says more, the package's documentation promises too little.
func TestASecondValueOutOfOrderCountsAsStored(t *testing.T) {
	now := milli()
	o := testOptions(t)
	window(time.Hour)(&o)
	s := openTest(t, o)
	rs := routes{}
	for _, batch := range [][]prompb.Sample{
		{sample(now, 1)},
		{sample(now-1000, 5)},
		{sample(now-1000, 6)},
		{sample(now-1000, 7)},
	} {
		require.Empty(t, writeFor(t, s, newTestBatch(t, rs, write1(float1("m", batch...)))))
	}
	for _, batch := range [][]prompb.Sample{{sample(now, 2)}, {sample(now-1000, 5), sample(now-1000, 8)}} {
		require.Equal(t, map[string]int{ReasonDuplicate: 1}, writeFor(t, s, newTestBatch(t, rs, write1(float1("m", batch...)))))
	}
	for _, db := range []*Sink{s, openCopy(t, o)} {
		var values []float64
		for _, p := range content(t, db)[`{__name__="m", job="test"}`] {
			values = append(values, p.v)
		}
		require.Equal(t, []float64{5, 1}, values)
	}
}

// A sender repeats what it got no answer for: histograms and the float that
// marks a histogram series as stale, too.
func TestRepeatedBatchIsStored(t *testing.T) {
	for name, p := range testHistograms() {
		t.Run(name, func(t *testing.T) {
			s := openTest(t, testOptions(t))
			rs := routes{}
			p.t = milli()
			stale := point{t: p.t + 1, v: math.Float64frombits(value.StaleNaN)}
			for range 3 {
				require.Empty(t, writeFor(t, s, newTestBatch(t, rs, p.encode(ingester.RemoteWrite1, "h"))))
			}
			for range 3 {
				require.Empty(t, writeFor(t, s, newTestBatch(t, rs, stale.encode(ingester.RemoteWrite1, "h"))))
			}
			require.Equal(t, 2, count(content(t, s)))
		})
	}
	t.Run("another histogram", func(t *testing.T) {
		s := openTest(t, testOptions(t))
		rs := routes{}
		p, other := testHistograms()["integer"], testHistograms()["integer gauge"]
		p.t, other.t = milli(), milli()
		other.t = p.t
		require.Empty(t, writeFor(t, s, newTestBatch(t, rs, p.encode(ingester.RemoteWrite2, "h"))))
		for _, second := range []point{other, {t: p.t, v: 1}, {t: p.t, v: math.Float64frombits(value.StaleNaN)}} {
			got := writeFor(t, s, newTestBatch(t, rs, second.encode(ingester.RemoteWrite2, "h")))
			require.Equal(t, map[string]int{ReasonDuplicate: 1}, got)
		}
	})
}

// oracle says what a database has to do with a sample, in the plainest way.
type oracle struct {
	window int64 // ms, 0 is none
	maxt   int64 // of everything committed
	series map[string]map[int64]float64
	newest map[string]int64
}

// apply returns the reason to reject the sample, and what is stored if there is
// none. batchMaxt is maxt when the batch began.
func (m *oracle) apply(name string, t int64, v float64, batchMaxt int64) string {
	newest, known := m.newest[name]
	switch {
	case !known || t > newest:
	case t == newest && m.series[name][t] == v:
		return ""
	case t == newest:
		return ReasonDuplicate
	case m.window == 0:
		return ReasonOutOfOrder
	case t < batchMaxt-m.window:
		return ReasonTooOld
	}
	if m.series[name] == nil {
		m.series[name] = map[int64]float64{}
	}
	m.series[name][t] = v
	m.newest[name] = max(t, m.newest[name])
	m.maxt = max(m.maxt, t)
	return ""
}

// For each batch, items = stored + rejected; and what is stored is what was
// sent and not rejected, sample by sample, and again after a crash.
func TestConservation(t *testing.T) {
	for _, w := range []time.Duration{0, 5 * time.Minute} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("window %s, seed %d", w, seed), func(t *testing.T) {
				o := testOptions(t)
				window(w)(&o)
				testConservation(t, o, rand.New(rand.NewPCG(seed, 11)))
			})
		}
	}
}

func testConservation(t *testing.T, o Options, rnd *rand.Rand) {
	s := openTest(t, o)
	m := &oracle{window: time.Duration(o.OutOfOrderWindow).Milliseconds(), series: map[string]map[int64]float64{}, newest: map[string]int64{}}
	rs := routes{}
	clock := time.Now().Add(-30 * time.Minute).UnixMilli()
	require.Empty(t, m.apply("m0", clock, float64(clock), 0))
	require.Empty(t, writeFor(t, s, newTestBatch(t, rs, write1(float1("m0", sample(clock, float64(clock)))))))
	for range 60 {
		batchMaxt := m.maxt
		req := write1()
		want := map[string]int{}
		items := 0
		for range 1 + rnd.IntN(20) {
			name := fmt.Sprintf("m%d", rnd.IntN(8))
			ts := float1(name)
			for range 1 + rnd.IntN(4) {
				at := clock + rnd.Int64N(60_000) - rnd.Int64N(2)*rnd.Int64N(8*60_000)
				// The value follows from the time, but for the newest sample:
				// out of order, the database keeps any one of two values.
				v := float64(at)
				if m.newest[name] == at && rnd.IntN(2) == 0 {
					v++
				}
				ts.Samples = append(ts.Samples, sample(at, v))
				if reason := m.apply(name, at, v, batchMaxt); reason != "" {
					want[reason]++
				}
				items++
			}
			req.Timeseries = append(req.Timeseries, ts)
		}
		clock += rnd.Int64N(60_000)
		b := newTestBatch(t, rs, req)
		require.Equal(t, want, writeFor(t, s, b))
		sum := 0
		for _, n := range want {
			sum += n
		}
		require.Equal(t, sum, rejected(b))
		require.LessOrEqual(t, sum, items)
	}
	requireContent(t, m.series, s)
	requireContent(t, m.series, openCopy(t, o))
}

func requireContent(t *testing.T, want map[string]map[int64]float64, s *Sink) {
	t.Helper()
	got := content(t, s)
	require.Len(t, got, len(want))
	for name, samples := range want {
		have := got[fmt.Sprintf(`{__name__="%s", job="test"}`, name)]
		require.Len(t, have, len(samples), name)
		for _, p := range have {
			v, ok := samples[p.t]
			require.True(t, ok, "%s has a sample at %d that was not sent", name, p.t)
			require.Equal(t, v, p.v, "%s at %d", name, p.t)
		}
		require.True(t, slices.IsSortedFunc(have, func(a, b point) int { return cmp.Compare(a.t, b.t) }))
	}
}

// Many writers race for the same series. Whatever a write was told is stored is
// there, with that writer's value: no order of commits may drop one silently.
func TestConcurrentWritersAreToldTheTruth(t *testing.T) {
	o := testOptions(t)
	o.OutOfOrderWindow = 0
	s := openTest(t, o)
	const writers, rounds, shared = 8, 60, 5
	rs := routes{}
	base := time.Now().Add(-30 * time.Minute).UnixMilli()
	newTestBatch(t, rs, request(0, 0, shared, base)) // so that nobody writes to the map
	var mu sync.Mutex
	accepted := map[string]map[int64]float64{}
	var wg sync.WaitGroup
	for w := range writers {
		b := make([]*ingester.Batch, rounds)
		for r := range rounds {
			b[r] = newTestBatch(t, rs, request(w, r, shared, base))
		}
		wg.Go(func() {
			for r := range rounds {
				if err := s.Write(t.Context(), b[r]); err != nil {
					t.Error(err)
				}
				mu.Lock()
				for i := range b[r].Groups {
					if b[r].Groups[i].Rejected == 0 {
						name := fmt.Sprintf("shared%d", i)
						if accepted[name] == nil {
							accepted[name] = map[int64]float64{}
						}
						ts := request(w, r, shared, base).Timeseries[i]
						accepted[name][ts.Samples[0].Timestamp] = ts.Samples[0].Value
					}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.NotEmpty(t, accepted)
	requireContent(t, accepted, s)
	requireContent(t, accepted, openCopy(t, o))
}

// request has a time of its own for every writer and round, so that no two
// writers send the same sample.
func request(writer, round, series int, base int64) *prompb.WriteRequest {
	req := write1()
	for i := range series {
		at := base + int64(round*100+writer)
		req.Timeseries = append(req.Timeseries, float1(fmt.Sprintf("shared%d", i), sample(at, float64(writer*1000+i))))
	}
	return req
}

func TestStaleHistogramMarkerIsNotTakenForAnother(t *testing.T) {
	s := openTest(t, testOptions(t))
	rs := routes{}
	h := point{t: milli(), h: &histogram.Histogram{Sum: math.Float64frombits(value.StaleNaN)}}
	require.Empty(t, writeFor(t, s, newTestBatch(t, rs, h.encode(ingester.RemoteWrite1, "h"))))
	float := point{t: h.t, v: math.NaN()}
	require.Equal(t, map[string]int{ReasonDuplicate: 1}, writeFor(t, s, newTestBatch(t, rs, float.encode(ingester.RemoteWrite1, "h"))))
}
