package ratecontrol

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/policy"
)

// logs is the policy of the stream logs, by its YAML.
func logs(t testing.TB, ingesters int, yaml string) *policy.Policy {
	set, err := policy.Load([]byte("streams:\n  logs: "+yaml+"\n"), "policy.yaml", ingesters)
	require.NoError(t, err)
	return set.Stream("logs")
}

// id is a class's index.
func id(t testing.TB, p *policy.Policy, name string) int {
	for i, c := range p.Classes() {
		if c.Name == name {
			return i
		}
	}
	require.Fail(t, "no such class", name)
	return -1
}

const example = `{rate: 100000, burst: 200000, default: {rate: 60000},
    classes: [{name: team-a, rate: 39500}, {name: debug, rate: 500}],
    rules: [{class: team-a, matchers: ['team="a"']}]}`

func TestB8EveryClassStartsFullWithItsPart(t *testing.T) {
	p := logs(t, 4, example)
	l := NewLimiter(p, 5)
	for name, burst := range map[string]int64{"team-a": 19_500, "debug": 1, "default": 30_000} {
		c := id(t, p, name)
		require.Equal(t, float64(burst), l.Tokens(c, 5), name)
		require.False(t, l.Take(c, burst+1, 5), name)
		require.True(t, l.Take(c, burst, 5), name)
		require.False(t, l.Take(c, 1, 5), name)
	}
	require.InDelta(t, 9875, l.Tokens(id(t, p, "team-a"), 5+second), 1e-6)
	require.Equal(t, 15_000.0, l.Tokens(id(t, p, "default"), 5+second))
}

func TestP6RateZeroHasNoBucket(t *testing.T) {
	p := logs(t, 1, `{rate: 100, burst: 200, default: {rate: 0}}`)
	requireNothing(t, NewLimiter(p, 0), id(t, p, "default"))
}

func TestP7UnconfiguredHasNoBucket(t *testing.T) {
	p := logs(t, 1, `{rate: 100, burst: 200, default: {rate: 50}, rules: [{class: lost, matchers: ['a="b"']}]}`)
	requireNothing(t, NewLimiter(p, 0), id(t, p, "lost"))
}

func requireNothing(t *testing.T, l *Limiter, class int) {
	l.Return(class, 5)
	for _, now := range []int64{0, second, math.MaxInt64} {
		require.Zero(t, l.Tokens(class, now))
		for _, n := range []int64{-1, 0, 1, 100} {
			require.False(t, l.Take(class, n, now))
		}
	}
}

func TestTakeOfNothingAndLess(t *testing.T) {
	p := logs(t, 1, `{rate: 1, burst: 3, default: {rate: 1}}`)
	l := NewLimiter(p, 0)
	require.True(t, l.Take(0, 3, 0))
	require.True(t, l.Take(0, 0, 0), "an empty bucket has nothing for nothing")
	for _, n := range []int64{-1, -3, math.MinInt64} {
		require.False(t, l.Take(0, n, 0))
		l.Return(0, n)
	}
	l.Return(0, 0)
	require.Zero(t, l.Tokens(0, 0))

	coarse := logs(t, 1, `{rate: 0.000001, burst: 9007199254740992, default: {rate: 0.000001}}`)
	l = NewLimiter(coarse, 0)
	require.True(t, l.Take(0, 1<<53, 5))
	require.True(t, l.Take(0, 0, 6), "between two units")
}

func TestB7ReturnThroughTheLimiter(t *testing.T) {
	p := logs(t, 1, `{rate: 1, burst: 3, default: {rate: 1}}`)
	l := NewLimiter(p, 0)
	require.True(t, l.Take(0, 3, 0))
	l.Return(0, 2)
	require.Equal(t, 2.0, l.Tokens(0, 0))
	l.Return(0, math.MaxInt64)
	require.Equal(t, 3.0, l.Tokens(0, 0))
}

func TestP11AClassThatStaysKeepsItsTokens(t *testing.T) {
	const class = "a"
	of := func(rate string, burst int) *policy.Policy {
		return logs(t, 3, fmt.Sprintf(`{rate: %s, burst: %d, default: {rate: 0}, classes: [{name: a, rate: %s}]}`, rate, 3*burst, rate))
	}
	for _, c := range []struct {
		what        string
		rate        string  // over three ingesters; before: 1, so 1/3 per second
		burst       int     // before: 10
		left, later float64 // after 4.5 s and the reload, and 3 s later
	}{
		{"nothing changes", "1", 10, 1.5, 2.5},
		{"faster", "2", 10, 1.5, 3.5},
		{"slower, odd", "0.7", 10, 1.5, 2.2},
		{"larger", "1", 100, 1.5, 2.5},
		{"clipped", "6", 1, 1, 1},
		{"other units", "3000000", 1_000_000, 1.5, 1_000_000},
	} {
		t.Run(c.what, func(t *testing.T) {
			before, after := of("1", 10), of(c.rate, c.burst)
			l := NewLimiter(before, 0)
			require.True(t, l.Take(id(t, before, class), 10, 0))
			now := 4*second + second/2
			next := l.Next(after, now)
			require.InDelta(t, c.left, next.Tokens(id(t, after, class), now), 1e-9)
			require.InDelta(t, c.later, next.Tokens(id(t, after, class), now+3*second), 1e-9)
			require.Equal(t, next.Tokens(id(t, after, class), now), l.Tokens(id(t, before, class), now), "the old Limiter shows the same")

			require.True(t, l.Take(id(t, before, class), 1, now), "and spends the same")
			require.InDelta(t, c.left-1, next.Tokens(id(t, after, class), now), 1e-9)
			l.Return(id(t, before, class), 1)
			require.InDelta(t, c.left, next.Tokens(id(t, after, class), now), 1e-9)
		})
	}
}

func TestP11ABucketWithTheSameNumbersGoesOn(t *testing.T) {
	p := logs(t, 4, example)
	l := NewLimiter(p, 0)
	q := logs(t, 4, strings.Replace(example, "name: debug, rate: 500", "name: debug, rate: 400", 1))
	next := l.Next(q, 5)
	for name, same := range map[string]bool{"team-a": true, "default": true, "debug": false} {
		require.Equal(t, same, l.classes[id(t, p, name)].bucket == next.classes[id(t, q, name)].bucket, name)
	}
}

// The reading at which the bucket was full is the reload's: no rounding.
func TestP11WholeTokensStayWhole(t *testing.T) {
	b := bucketOf(9875, 7, 10, 0)
	now := 1234*second + 567
	require.True(t, b.take(3, now))
	next := b.move(newTerms(tokens(7), 20), now)
	require.EqualValues(t, 7, drain(next, now))
}

// A reload that reads its clock before a batch that has already spent counts
// from that batch's reading.
func TestP11AReloadWithAnOlderReading(t *testing.T) {
	b := bucketOf(10, 1, 10, 0)
	require.True(t, b.take(10, 100*second))
	next := b.move(newTerms(tokens(20), 10), 50*second)
	require.Zero(t, next.tokens(99*second))
	require.Zero(t, drain(next, 100*second))
	require.EqualValues(t, 2, drain(next, 100*second+second/10))
}

func TestP11NewClassesStartFull(t *testing.T) {
	p := logs(t, 1, `{rate: 100, burst: 100, default: {rate: 10}, classes: [{name: a, rate: 50}, {name: b, rate: 20}]}`)
	l := NewLimiter(p, 0)
	for _, c := range []string{"a", "b", "default"} {
		require.True(t, l.Take(id(t, p, c), 10, 0))
	}
	// a was renamed, b and default change places, b's rate becomes 0.
	q := logs(t, 1, `{rate: 100, burst: 100, default: {rate: 10}, classes: [{name: b, rate: 0}, {name: c, rate: 50}]}`)
	m := l.Next(q, 0)
	require.Equal(t, 50.0, m.Tokens(id(t, q, "c"), 0), "new")
	require.Equal(t, 0.0, m.Tokens(id(t, q, "default"), 0), "stays")
	require.False(t, m.Take(id(t, q, "b"), 1, 0), "has rate 0")
	require.True(t, l.Take(id(t, p, "b"), 10, 0), "the batches of the old policy still have it")
	require.True(t, l.Take(id(t, p, "a"), 40, 0), "and the class that is gone")

	n := m.Next(p, 0)
	require.Equal(t, 20.0, n.Tokens(id(t, p, "b"), 0), "had no tokens to keep")
	require.Equal(t, 50.0, n.Tokens(id(t, p, "a"), 0), "is new again")
}

// Many reloads in a row: the oldest Limiter and the newest are one bucket.
func TestP11AChainOfReloads(t *testing.T) {
	p := logs(t, 1, `{rate: 10, burst: 10, default: {rate: 10}}`)
	first := NewLimiter(p, 0)
	l := first
	for i := range 50 {
		q := logs(t, 1, fmt.Sprintf(`{rate: %d, burst: 10, default: {rate: %d}}`, 11+i, 11+i))
		from := l
		if i%7 == 3 {
			from = first // a Limiter that has a successor already
		}
		l = from.Next(q, 0)
	}
	require.True(t, first.Take(0, 4, 0))
	require.True(t, l.Take(0, 6, 0))
	require.False(t, first.Take(0, 1, 0))
	first.Return(0, 3)
	require.Equal(t, 3.0, l.Tokens(0, 0))
	require.Equal(t, 3.0, first.Tokens(0, 0))
}
