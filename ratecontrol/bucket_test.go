package ratecontrol

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

const second = int64(1e9)

func bucketOf(num, den, burst, now int64) *bucket {
	return newBucket(newTerms(big.NewRat(num, den), burst), now)
}

// Random traces, shuffled and stale readings, tokens that come back: what is
// admitted was there, what is refused lacked at most three units, and no
// interval holds more than burst + rate·t.
func TestB1AgainstExactArithmetic(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	admitted, refused, edge, returned := 0, 0, 0, 0
	for range 150 {
		rate, burst := randomRate(rnd), randomBurst(rnd)
		birth := rnd.Int64() - 1<<62
		r := newTrial(t, rate, burst, birth)
		outstanding := int64(0)
		last := birth
		for range 200 {
			if outstanding > 0 && rnd.IntN(6) == 0 {
				n := 1 + rnd.Int64N(outstanding)
				outstanding -= n
				r.run(step{n: n, back: true})
				returned++
				continue
			}
			s := step{now: r.randomNow(rnd, last), n: r.randomCost(rnd)}
			last = max(last, s.now)
			before := r.admitted
			r.run(s)
			if r.admitted > before {
				outstanding += s.n
			}
		}
		r.checkB1()
		admitted, refused, edge = admitted+r.admitted, refused+r.refused, edge+r.atTheEdge
	}
	t.Logf("%d admitted, %d refused, %d of them for less than three units; %d returns", admitted, refused, edge, returned)
	require.Greater(t, admitted, 10_000)
	require.Greater(t, refused, 4000)
	require.Less(t, edge*20, refused, "hardly a take is refused for the rounding")
}

// The rates that the unit divides evenly are not rounded at all: the bucket
// decides as the oracle does, every time.
func TestB1RoundRatesAreExact(t *testing.T) {
	rnd := rand.New(rand.NewPCG(2, 1))
	for _, rate := range []*big.Rat{
		big.NewRat(1, 3), big.NewRat(125, 4), big.NewRat(125, 1), big.NewRat(15_000, 1),
		big.NewRat(10_000, 1), big.NewRat(100, 3), big.NewRat(1e9, 1), big.NewRat(maxRate, 1),
	} {
		r := newTrial(t, rate, 1000, 0)
		require.Zero(t, r.terms.part)
		last := int64(0)
		for range 2000 {
			s := step{now: r.randomNow(rnd, last), n: r.randomCost(rnd)}
			last = max(last, s.now)
			r.run(s)
		}
		require.Zero(t, r.atTheEdge, "rate %s", rate)
		require.Positive(t, r.admitted)
		require.Positive(t, r.refused)
	}
}

// A bucket of burst 1 whose items come exactly when the next token is complete
// admits every one; a nanosecond sooner, none of them.
func TestB1TheInstantATokenIsComplete(t *testing.T) {
	b := bucketOf(125, 1, 1, 7)
	require.True(t, b.take(1, 7))
	for i := int64(1); i <= 1000; i++ {
		due := 7 + i*second/125
		require.False(t, b.take(1, due-1))
		require.True(t, b.take(1, due))
	}
}

// The same where tokens are complete between two nanoseconds and two units: the
// reading 0, before the birth of no bucket here, is a reading like any other.
func TestB1TheInstantBeforeATokenIsComplete(t *testing.T) {
	rate := big.NewRat(9875, 7)
	closest := big.NewRat(1, 1)
	for k := int64(1); k <= 500; k++ {
		age := (k*7*second - 1) / 9875
		e := newExact(rate, 1000, -age)
		e.add(-1000)
		e.see(0)
		require.False(t, e.holds(k))
		if lack := new(big.Rat).Sub(tokens(k), e.level); lack.Cmp(closest) < 0 {
			closest = lack
		}
		b := newBucket(newTerms(rate, 1000), -age)
		require.True(t, b.take(1000, -age))
		require.False(t, b.take(uint64(k), 0))
		require.True(t, b.take(uint64(k), 2))
	}
	unit := new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).SetUint64(newTerms(rate, 1000).scale))
	require.Negative(t, closest.Cmp(unit), "some token lacks less than a unit")
}

func TestB2ATakeThatDoesNotFitTakesNothing(t *testing.T) {
	b := bucketOf(10, 1, 100, 0)
	require.True(t, b.take(60, 0))
	for n := uint64(41); n <= 101; n++ {
		require.False(t, b.take(n, 0))
	}
	require.Equal(t, 40.0, b.tokens(0))
	require.True(t, b.take(40, 0))
}

func TestB3ACostAboveTheBurstNeverFits(t *testing.T) {
	for _, burst := range []int64{1, 10, maxBurst} {
		b := bucketOf(1e9, 1, burst, 0)
		for _, over := range []uint64{1, 2, 1 << 40, math.MaxInt64 - maxBurst, math.MaxUint64 - maxBurst} {
			for _, now := range []int64{0, second, 1 << 60} {
				require.False(t, b.take(uint64(burst)+over, now))
			}
		}
		require.True(t, b.take(uint64(burst), 1<<60))
	}
}

// A bucket that is full to the brim gives its whole burst, wherever between two
// units the instant lies.
func TestB3TheWholeBurstFitsAFullBucket(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 1))
	for range 5000 {
		burst := randomBurst(rnd)
		b := newBucket(newTerms(randomRate(rnd), burst), 0)
		now := rnd.Int64N(horizon)
		require.True(t, b.take(uint64(burst), now))
		require.False(t, b.take(uint64(burst), now))
		require.GreaterOrEqual(t, b.tokens(now), 0.0)
	}
}

func TestB4AnOlderReadingCountsAsTheLatest(t *testing.T) {
	b := bucketOf(1, 1, 100, 0)
	require.True(t, b.take(100, 50*second))
	require.False(t, b.take(1, 0))
	require.False(t, b.take(1, 51*second-1))
	require.True(t, b.take(1, 51*second))
	require.False(t, b.take(5, 55*second))
	require.False(t, b.take(5, 0))
	require.True(t, b.take(4, 0), "the refused take had seen 55 s")
	require.False(t, b.take(1, 0))
}

// A reading that only a hopeless take brought counts as seen: the tokens that
// spilled until then are gone.
func TestB4ATakeAboveTheBurstBringsItsReading(t *testing.T) {
	b := bucketOf(1, 1, 10, 0)
	require.False(t, b.take(11, 5*second))
	require.True(t, b.take(10, 0))
	require.False(t, b.take(1, 5*second), "nothing was minted since")
}

func TestB4AlternatingReadingsMintOnce(t *testing.T) {
	b := bucketOf(100, 1, 100, 0)
	admitted := 0
	for range 1000 {
		for _, now := range []int64{second, -second} {
			if b.take(1, now) {
				admitted++
			}
		}
	}
	require.Equal(t, 100, admitted, "full at 0, full at one second")
}

// A day of more demand than rate, in uneven steps.
func TestB5NoDrift(t *testing.T) {
	day := 24 * 3600 * second
	for _, rate := range []*big.Rat{
		big.NewRat(1, 3), big.NewRat(125, 4), big.NewRat(9875, 1), big.NewRat(1_234_567, 7),
		big.NewRat(126_000_001, 1), big.NewRat(999_999_937, 1), big.NewRat(maxRate-1, 1), big.NewRat(maxRate, 1),
	} {
		t.Run(rate.RatString(), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(5, 1))
			const steps = 4000
			burst := new(big.Rat).Quo(over(rate, uint64(day)), big.NewRat(steps/4, 1)) // four steps' worth
			whole := new(big.Int).Quo(burst.Num(), burst.Denom()).Int64() + 4
			b := newBucket(newTerms(rate, whole), 0)
			require.True(t, b.take(uint64(whole), 0))
			admitted := int64(0)
			for now := int64(0); now < day; {
				now = min(day, now+rnd.Int64N(2*day/steps))
				admitted += drain(b, now)
				lag := new(big.Rat).Sub(over(rate, uint64(now)), tokens(admitted))
				require.True(t, lag.Sign() >= 0, "%s tokens too many at %d ns", lag.FloatString(9), now)
				require.True(t, lag.Cmp(tokens(1)) <= 0, "%s tokens behind at %d ns", lag.FloatString(9), now)
			}
		})
	}
}

// drain takes all whole tokens, largest power of two first, and counts them.
func drain(b *bucket, now int64) (n int64) {
	for k := int64(maxBurst); k > 0; k >>= 1 {
		for b.take(uint64(k), now) {
			n += k
		}
	}
	return n
}

func TestB7TokensComeBackUpToTheBurst(t *testing.T) {
	b := bucketOf(1, 1, 10, 0)
	require.True(t, b.take(6, 0))
	b.giveBack(4)
	require.Equal(t, 8.0, b.tokens(0))
	b.giveBack(4)
	require.Equal(t, 10.0, b.tokens(0))
	for _, more := range []uint64{math.MaxInt64, 1 << 54, 1 << 62} {
		require.EqualValues(t, 10, drain(b, 0))
		b.giveBack(more)
		require.Equal(t, 10.0, b.tokens(0))
	}
	require.EqualValues(t, 10, drain(b, 0))

	b.giveBack(3)
	require.Equal(t, 3.0, b.tokens(0))
	require.Equal(t, 10.0, b.tokens(7*second), "three, and seven minted")
	b.giveBack(5)
	require.Equal(t, 10.0, b.tokens(7*second))
	require.EqualValues(t, 10, drain(b, 7*second))
}

func TestB8StartsFull(t *testing.T) {
	for _, burst := range []int64{1, 9, maxBurst} {
		for _, now := range []int64{math.MinInt64, -5, 0, math.MaxInt64} {
			b := bucketOf(1, 1_000_000, burst, now)
			require.Equal(t, float64(burst), b.tokens(now))
			require.EqualValues(t, burst, drain(b, now))
			require.Zero(t, b.tokens(now))
		}
	}
}

// A series of ten samples asks for ten tokens together.
func TestB3ASeriesOfTenSamples(t *testing.T) {
	for _, c := range []struct {
		burst    int64
		admitted int
	}{{9, 0}, {10, 6}} {
		t.Run(fmt.Sprint("burst ", c.burst), func(t *testing.T) {
			b := bucketOf(10, 1, c.burst, 0)
			admitted := 0
			for s := range int64(6) {
				if b.take(10, s*second) {
					admitted++
				}
			}
			require.Equal(t, c.admitted, admitted)
		})
	}
}

// A batch may ask for the sum of its groups first: it fits just when they all
// fit one after the other.
func TestB2TheSumFitsWhenEachFitsInTurn(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 1))
	fitted := 0
	for range 3000 {
		m := newTerms(randomRate(rnd), 1+rnd.Int64N(200))
		whole, single := newBucket(m, 0), newBucket(m, 0)
		first, now := uint64(rnd.Int64N(200)), rnd.Int64N(1<<rnd.IntN(60))
		require.Equal(t, whole.take(first, 0), single.take(first, 0))
		sum, each := uint64(0), true
		for range 1 + rnd.IntN(20) {
			n := uint64(1 + rnd.Int64N(10))
			sum += n
			each = each && single.take(n, now)
		}
		require.Equal(t, each, whole.take(sum, now))
		if each {
			fitted++
		}
	}
	require.Greater(t, fitted, 300)
	require.Less(t, fitted, 2700)
}

// Past the horizon nothing is minted: the count must not run over.
func TestHorizon(t *testing.T) {
	b := bucketOf(maxRate, 1, maxBurst, math.MinInt64)
	end := int64(math.MinInt64 + horizon)
	require.EqualValues(t, maxBurst, drain(b, end-1))
	require.EqualValues(t, 10, drain(b, end))
	require.Zero(t, drain(b, math.MaxInt64))
}
