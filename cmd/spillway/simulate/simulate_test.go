package simulate

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/spillway-telemetry/spillway/policy"
)

func load(t *testing.T, text string, n int) *policy.Set {
	t.Helper()
	set, err := policy.Load([]byte(text), "policy.yaml", n)
	require.NoError(t, err)
	return set
}

func run(t *testing.T, set *policy.Set, n int, traffic *Traffic) *Report {
	t.Helper()
	traffic.Complete()
	require.NoError(t, traffic.Validate(n))
	r, err := Run(set, n, traffic, func(float64) {})
	require.NoError(t, err)
	return r
}

func traffic(t *testing.T, text string) *Traffic {
	t.Helper()
	tr := &Traffic{}
	dec := yaml.NewDecoder(strings.NewReader(text))
	dec.KnownFields(true)
	require.NoError(t, dec.Decode(tr))
	return tr
}

// TestProperties holds random traffic against what must be true of any: sums
// conserve, no ingester admits more than burst + rate x t, reasons fit the class,
// and the smallest burst drops nothing while one less drops something, asked of the
// real bucket and of one in exact rational arithmetic.
func TestProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	helped, dropped := 0, 0
	for round := range 100 {
		n := 1 + r.IntN(4)
		rate := 1 + r.IntN(3000)
		set := load(t, fmt.Sprintf("streams: {logs: {rate: %d, burst: %d, default: {rate: %d}, classes: [{name: a, rate: %d.%d}]}}",
			2*rate+1, 1+r.IntN(20_000), r.IntN(2)*r.IntN(rate+1), rate-1, r.IntN(100)), n)
		tr := &Traffic{Stream: "logs", Duration: time.Duration(1+r.IntN(300)) * time.Second, Classes: map[string]Source{
			"a": randomSource(r, rate, n), "default": randomSource(r, rate, n),
		}}
		report := run(t, set, n, tr)
		for _, c := range report.Classes {
			requireConserved(t, &c)
			source := tr.Classes[c.Name]
			for i, x := range c.ByIngester {
				admitted := new(big.Rat).SetInt64(x.Offered - x.Dropped)
				bound := new(big.Rat).Mul(exactRate(set, c.Name), new(big.Rat).SetFloat64(tr.Duration.Seconds()))
				bound.Add(bound, new(big.Rat).SetInt64(c.BurstPerIngester))
				require.LessOrEqual(t, admitted.Cmp(bound), 0, "round %d: ingester %d admits more than burst + rate x t", round, i)
			}
			if c.Dropped.Total > 0 {
				dropped++
			}
			if c.Rate == 0 {
				require.Equal(t, c.Offered, c.Dropped.NoBudget)
				continue
			}
			require.Equal(t, source.ItemsPerGroup > c.BurstPerIngester, c.Dropped.GroupLarge > 0 || c.Offered == 0 && source.ItemsPerGroup > c.BurstPerIngester)
			require.Positive(t, c.SmallestBurst)
			requireSmallest(t, exactRate(set, c.Name), &source, n, tr.Duration, c.SmallestBurst)
			require.Equal(t, c.Dropped.Total == 0, c.BurstPerIngester >= c.SmallestBurst)
			if c.SmallestCapBurst > 1 {
				helped++
				requireCap(t, set, n, c)
			}
		}
	}
	require.Greater(t, helped, 30)
	require.Greater(t, dropped, 30)
}

func exactRate(set *policy.Set, name string) *big.Rat {
	for _, c := range set.Stream("logs").Classes() {
		if c.Name == name {
			return c.RatePerIngester
		}
	}
	return nil
}

func randomSource(r *rand.Rand, rate, n int) Source {
	s := Source{ItemsPerGroup: int64(1 + r.IntN(20)), Every: time.Duration(1+r.IntN(15_000)) * time.Millisecond}
	for at := time.Duration(0); r.IntN(4) > 0 || s.Rate == nil; at += time.Duration(r.IntN(3)*r.IntN(50_000)) * time.Millisecond {
		s.Rate = append(s.Rate, Point{at, float64(r.IntN(2 * rate))})
	}
	if r.IntN(2) == 0 {
		for range n {
			s.Skew = append(s.Skew, r.Float64()+0.01)
		}
	}
	return s
}

func requireConserved(t *testing.T, c *ClassReport) {
	t.Helper()
	d := c.Dropped
	require.Equal(t, c.Offered, c.Admitted+d.Total)
	require.Equal(t, d.Total, d.NoBudget+d.GroupLarge+d.Rate+d.Burst)
	var offered, dropped int64
	for _, x := range c.ByIngester {
		offered, dropped = offered+x.Offered, dropped+x.Dropped
	}
	require.Equal(t, []int64{c.Offered, d.Total}, []int64{offered, dropped})
}

// requireSmallest replays the sends through a bucket in exact rational arithmetic:
// no ingester drops with the burst, and one does with a burst of one less.
func requireSmallest(t *testing.T, rate *big.Rat, s *Source, n int, duration time.Duration, burst int64) {
	t.Helper()
	fits := func(burst int64) bool {
		for i := range n {
			level, last := big.NewRat(burst, 1), time.Duration(0)
			for _, x := range s.sends(i, n, duration) {
				level.Add(level, new(big.Rat).Mul(rate, big.NewRat(int64(x.at-last), int64(time.Second))))
				if full := big.NewRat(burst, 1); level.Cmp(full) > 0 {
					level = full
				}
				last = x.at
				if level.Sub(level, big.NewRat(x.groups*s.ItemsPerGroup, 1)).Sign() < 0 {
					return false
				}
			}
		}
		return true
	}
	require.True(t, fits(burst), "%d drops", burst)
	real := simulation{class: policy.Class{Rate: new(big.Rat).Mul(rate, big.NewRat(int64(n), 1))}, source: *s, ingesters: n, stream: "logs"}
	realFits := func(burst int64) bool {
		for i := range n {
			ok, err := real.dropsNothing(burst, s.sends(i, n, duration))
			require.NoError(t, err)
			if !ok {
				return false
			}
		}
		return true
	}
	require.True(t, realFits(burst), "%d drops in the real bucket", burst)
	if burst > 1 {
		require.False(t, realFits(burst-1), "%d drops nothing in the real bucket either", burst-1)
	}
	if burst > 2 {
		require.False(t, fits(burst-2), "the real bucket may take one token more, by its rounding, not two")
	}
}

// requireCap loads the policy with the reported burst, and with one less: only the
// first gives the class what it needs.
func requireCap(t *testing.T, set *policy.Set, n int, c ClassReport) {
	t.Helper()
	p := set.Stream("logs")
	given := func(burst int64) int64 {
		text := fmt.Sprintf("streams: {logs: {rate: %s, burst: %d, default: {rate: 0}, classes: [{name: a, rate: %s}]}}", p.Rate().FloatString(3), burst, fmt.Sprint(c.Rate))
		return load(t, text, n).Stream("logs").Classes()[0].BurstPerIngester
	}
	require.GreaterOrEqual(t, given(c.SmallestCapBurst), c.SmallestBurst)
	require.Less(t, given(c.SmallestCapBurst-1), c.SmallestBurst)
}

// TestKnownCases are worked out by hand.
func TestKnownCases(t *testing.T) {
	const text = `
streams:
  logs:
    rate: 1000
    burst: 1000
    default: {rate: 500}
    classes: [{name: a, rate: 400}, {name: tiny, rate: 5}, {name: none, rate: 0}]
    rules: [{class: ghost, matchers: ['a="b"']}]
`
	for name, c := range map[string]struct {
		class, source    string
		offered, dropped int64
		reason           func(Drops) int64
		smallest, cap    int64
		why              string
	}{
		"within its rate":     {"a", "{rate: 400}", 24_000, 0, nil, 400, 1000, ""},
		"bunched every 15 s":  {"a", "{rate: 100, every: 15s}", 6000, 4400, func(d Drops) int64 { return d.Burst }, 1500, 3750, ""},
		"twice its rate":      {"a", "{rate: 800}", 48_000, 24_000, nil, 400*60 + 400, 61_000, ""},
		"group bigger":        {"a", "{rate: 500, items_per_group: 500, every: 2s}", 30_000, 30_000, func(d Drops) int64 { return d.GroupLarge }, 0, 0, ""},
		"rate 0":              {"none", "{rate: 1}", 60, 60, func(d Drops) int64 { return d.NoBudget }, 0, 0, "its rate is 0"},
		"unconfigured":        {"ghost", "{rate: 1}", 60, 60, func(d Drops) int64 { return d.NoBudget }, 0, 0, "does not define"},
		"share 0":             {"tiny", "{rate: 4}", 240, 180, func(d Drops) int64 { return d.Burst }, 4, 0, "share of the cap is 0 %"},
		"nothing sent":        {"a", "{rate: 0}", 0, 0, nil, 1, 1, ""},
		"a third of an item":  {"a", "{rate: 0.3333333333}", 20, 0, nil, 1, 1, ""},
		"a step in the curve": {"a", "{rate: [{at: 0s, rate: 0}, {at: 30s, rate: 0}, {at: 30s, rate: 100}]}", 3000, 0, nil, 100, 250, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, load(t, text, 1), 1, traffic(t, "{stream: logs, duration: 1m, classes: {"+c.class+": "+c.source+"}}"))
			got := r.Classes[0]
			requireConserved(t, &got)
			require.Equal(t, c.offered, got.Offered)
			if c.reason != nil {
				require.Equal(t, got.Dropped.Total, c.reason(got.Dropped))
			}
			if c.smallest > 0 {
				require.Equal(t, c.smallest, got.SmallestBurst)
				require.Equal(t, c.cap, got.SmallestCapBurst)
			}
			require.Contains(t, got.Why, c.why)
			if name != "twice its rate" {
				require.Equal(t, c.dropped, got.Dropped.Total)
				return
			}
			require.InDelta(t, c.dropped, got.Dropped.Total, 400, "but for the first burst")
			require.Greater(t, got.Dropped.Rate, got.Dropped.Burst)
		})
	}
}

// TestSmallestAgainstCounting compares the search with trying every number.
func TestSmallestAgainstCounting(t *testing.T) {
	for limit := int64(1); limit <= 40; limit++ {
		for want := int64(1); want <= limit+1; want++ {
			for guess := int64(-1); guess <= limit+3; guess++ {
				trials := 0
				got, err := smallest(guess, limit, func(b int64) (bool, error) {
					trials++
					require.True(t, b >= 1 && b <= limit)
					return b >= want, nil
				})
				require.NoError(t, err)
				if want > limit {
					require.Zero(t, got)
				} else {
					require.Equal(t, want, got)
				}
				require.LessOrEqual(t, trials, 14)
				if guess == want && want > 1 && want <= limit {
					require.Equal(t, 2, trials)
				}
			}
		}
	}
	_, err := smallest(5, 10, func(int64) (bool, error) { return false, errors.New("broken") })
	require.ErrorContains(t, err, "broken")
}

// TestCurveAgainstSums compares the area under random curves with a sum of many
// narrow strips.
func TestCurveAgainstSums(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 100 {
		s := randomSource(r, 1000, 1)
		from := time.Duration(r.IntN(100_000)) * time.Millisecond
		to := from + time.Duration(1+r.IntN(100_000))*time.Millisecond
		const strips = 20_000
		sum, width := 0.0, (to-from).Seconds()/strips
		for i := range strips {
			sum += width * s.Rate.at(from+time.Duration((float64(i)+0.5)*width*1e9))
		}
		require.InDelta(t, sum, s.Rate.items(from, to), math.Max(1, sum)*1e-3)
	}
}

func TestBadTraffic(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing":   {"{}", "duration: must be above 0"},
		"no rate":   {"{duration: 1m, classes: {a: {}}}", "classes.a.rate: is missing"},
		"negative":  {"{duration: 1m, classes: {a: {rate: -1}}}", "classes.a.rate[0]: -1"},
		"backwards": {"{duration: 1m, classes: {a: {rate: [{at: 9s, rate: 1}, {at: 8s, rate: 1}]}}}", "comes before"},
		"too fine":  {"{duration: 2400h, classes: {a: {rate: 1, every: 1ms}}}", "raise it"},
		"skew":      {"{duration: 1m, classes: {a: {rate: 1, skew: [1, 2, 3]}}}", "each of the 2 ingesters"},
		"group":     {"{duration: 1m, classes: {a: {rate: 1, items_per_group: -1}}}", "items_per_group"},
	} {
		tr := traffic(t, c.text)
		tr.Complete()
		require.ErrorContains(t, tr.Validate(2), c.want, name)
	}
	_, err := Run(load(t, "streams: {logs: {rate: 1, burst: 1}}", 1), 1, &Traffic{Stream: "logs", Classes: map[string]Source{"x": {}}}, nil)
	require.ErrorContains(t, err, "has no class x; it has: default")
	_, err = Run(load(t, "streams: {logs: {rate: 1, burst: 1}}", 1), 1, &Traffic{Stream: "rum"}, nil)
	require.ErrorContains(t, err, "does not limit the stream rum")
}

// TestPlots: the picture is well-formed, and the text names every class.
func TestPlots(t *testing.T) {
	r := run(t, load(t, "streams: {logs: {rate: 10, burst: 10}}", 2), 2, traffic(t, "{stream: logs, duration: 5m, classes: {default: {rate: 20, skew: [3, 1]}}}"))
	var svg, text bytes.Buffer
	require.NoError(t, r.WriteSVG(&svg))
	dec := xml.NewDecoder(&svg)
	rects := 0
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
			rects++
		}
	}
	require.Greater(t, rects, 60)
	require.NoError(t, r.WriteText(&text, func(s, kind string) string { return "<" + kind + ">" + s }))
	for _, part := range []string{"default  <bad>drops", "ingester 0 drops most", "smallest burst that drops nothing"} {
		require.Contains(t, text.String(), part)
	}
}
