package ratecontrol

import (
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// exact is the bucket of the package comment in rational numbers: the plainest
// thing that has the properties. Tests compare the real one with it.
type exact struct {
	rate, burst, level *big.Rat // tokens per second, tokens, tokens
	seen               int64    // ns
}

func newExact(rate *big.Rat, burst, now int64) *exact {
	if limit := big.NewRat(maxRate, 1); rate.Cmp(limit) > 0 {
		rate = limit
	}
	full := tokens(min(burst, maxBurst))
	return &exact{rate: rate, burst: full, level: full, seen: now}
}

func tokens(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

// over is what a rate mints in ns nanoseconds.
func over(rate *big.Rat, ns uint64) *big.Rat {
	t := new(big.Rat).SetFrac(new(big.Int).SetUint64(ns), big.NewInt(1e9))
	return t.Mul(t, rate)
}

func (e *exact) see(now int64) {
	if now > e.seen {
		e.level = new(big.Rat).Add(e.level, over(e.rate, uint64(now)-uint64(e.seen)))
		e.seen = now
	}
	e.clip()
}

func (e *exact) clip() {
	if e.level.Cmp(e.burst) > 0 {
		e.level = e.burst
	}
}

func (e *exact) holds(n int64) bool { return e.level.Cmp(tokens(n)) >= 0 }

func (e *exact) add(n int64) {
	e.level = new(big.Rat).Add(e.level, tokens(n))
	e.clip()
}

// step is one call. A Return says how much of what was taken comes back.
type step struct {
	now  int64
	n    int64
	back bool
}

// trial runs the same steps through a bucket and the oracle.
type trial struct {
	t      testing.TB
	terms  terms
	real   *bucket
	exact  *exact
	birth  int64
	slack  *big.Rat // B1's room: how far the real bucket may lag, in tokens
	events []event

	admitted, refused, atTheEdge int
}

// event is a change of what is admitted, for B1: negative for a Return.
type event struct{ at, n int64 }

func newTrial(t testing.TB, rate *big.Rat, burst, birth int64) *trial {
	m := newTerms(rate, burst)
	return &trial{
		t: t, terms: m, birth: birth,
		real:  newBucket(m, birth),
		exact: newExact(rate, burst, birth),
		slack: new(big.Rat).SetFrac(big.NewInt(3), new(big.Int).SetUint64(m.scale)),
	}
}

func (r *trial) run(s step) {
	if s.back {
		r.real.giveBack(uint64(s.n))
		r.exact.add(s.n)
		r.events = append(r.events, event{r.exact.seen, -s.n})
		return
	}
	r.exact.see(s.now)
	holds := r.exact.holds(s.n)
	if r.real.take(uint64(s.n), s.now) {
		require.Truef(r.t, holds, "B1: admitted %d at %d with %s tokens", s.n, s.now, r.exact.level.FloatString(12))
		r.exact.add(-s.n)
		r.events = append(r.events, event{r.exact.seen, s.n})
		r.admitted++
		return
	}
	r.refused++
	if holds {
		r.atTheEdge++
	}
	if uint64(r.exact.seen)-uint64(r.birth) <= horizon && s.n <= int64(r.terms.burst) {
		lag := new(big.Rat).Sub(r.exact.level, tokens(s.n))
		require.Truef(r.t, lag.Cmp(r.slack) < 0, "refused %d at %d with %s tokens", s.n, s.now, r.exact.level.FloatString(12))
	}
}

// checkB1 checks every interval that begins and ends with an event: the most
// that was admitted since some instant, less what that instant allows.
func (r *trial) checkB1() {
	sum, lowest := new(big.Rat), new(big.Rat)
	for i, e := range r.events {
		minted := over(r.exact.rate, uint64(e.at)-uint64(r.birth))
		before := new(big.Rat).Sub(sum, minted)
		if i == 0 || before.Cmp(lowest) < 0 {
			lowest = before
		}
		sum = new(big.Rat).Add(sum, tokens(e.n))
		most := new(big.Rat).Sub(new(big.Rat).Sub(sum, minted), lowest)
		require.Truef(r.t, most.Cmp(r.exact.burst) <= 0,
			"B1: %s tokens admitted above rate·t, burst %s", most.FloatString(12), r.exact.burst.RatString())
	}
}

// randomRates cover slow, fractional, round, odd, fast and too fast.
func randomRate(rnd *rand.Rand) *big.Rat {
	fixed := []*big.Rat{
		big.NewRat(1, 3), big.NewRat(125, 4), big.NewRat(125, 1), big.NewRat(100, 3),
		big.NewRat(9875, 1), big.NewRat(1_234_567, 7), big.NewRat(1_000_000_000, 1),
		big.NewRat(999_999_937, 1), big.NewRat(9_500_000_000, 1), big.NewRat(maxRate, 1),
		big.NewRat(maxRate, 1), big.NewRat(1, 1_000_000_007), big.NewRat(2*maxRate, 1),
	}
	if i := rnd.IntN(2 * len(fixed)); i < len(fixed) {
		return fixed[i]
	}
	return big.NewRat(1+rnd.Int64N(1<<rnd.IntN(33)), 1+rnd.Int64N(1<<rnd.IntN(31)))
}

// randomBurst is 1 to 2^53, every order of magnitude as likely.
func randomBurst(rnd *rand.Rand) int64 {
	return 1 + rnd.Int64N(1<<rnd.IntN(54))
}

// randomNow moves on by a step that mints something between a sliver of a token
// and several bursts, or goes back.
func (r *trial) randomNow(rnd *rand.Rand, last int64) int64 {
	perToken, _ := new(big.Rat).Quo(big.NewRat(1e9, 1), r.exact.rate).Float64()
	reach := perToken * float64(r.terms.burst) * 3
	step := perToken / 8
	for range rnd.IntN(60) {
		step = min(step*2, reach)
	}
	step *= rnd.Float64()
	now := last
	if room := float64(horizon) - float64(uint64(last)-uint64(r.birth)); step < room {
		now += int64(step)
	}
	if rnd.IntN(4) == 0 {
		now -= rnd.Int64N(1 << rnd.IntN(50)) // stale
	}
	return now
}

// randomCost is near what the bucket holds, or anything.
func (r *trial) randomCost(rnd *rand.Rand) int64 {
	held := new(big.Int).Quo(r.exact.level.Num(), r.exact.level.Denom()).Int64()
	switch rnd.IntN(4) {
	case 0:
		return max(1, held+rnd.Int64N(3)-1)
	case 1:
		return 1 + rnd.Int64N(int64(r.terms.burst)+1)
	default:
		return 1 + rnd.Int64N(1+held/int64(1+rnd.IntN(8)))
	}
}
