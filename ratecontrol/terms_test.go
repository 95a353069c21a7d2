package ratecontrol

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// The unit leaves room for a whole life, is never faster than the rate, and is
// as fine as that allows.
func TestUnits(t *testing.T) {
	rnd := rand.New(rand.NewPCG(4, 1))
	for range 20_000 {
		rate, burst := randomRate(rnd), randomBurst(rnd)
		m := newTerms(rate, burst)
		if rate.Cmp(big.NewRat(maxRate, 1)) > 0 {
			rate = big.NewRat(maxRate, 1)
		}
		perNano := new(big.Rat).Mul(rate, new(big.Rat).SetFrac(new(big.Int).SetUint64(m.scale), big.NewInt(1e9)))
		mint := new(big.Rat).SetFrac(new(big.Int).SetUint64(m.part), new(big.Int).Lsh(big.NewInt(1), 64))
		mint.Add(mint, new(big.Rat).SetInt64(int64(m.whole)))

		short := new(big.Rat).Sub(perNano, mint)
		require.True(t, short.Sign() >= 0, "faster than the rate")
		require.True(t, short.Cmp(big.NewRat(1, 1<<62)) < 0, "much slower than the rate")

		life := new(big.Rat).Mul(perNano, tokens(horizon))
		life.Add(life, new(big.Rat).SetInt(new(big.Int).SetUint64(m.burst*m.scale+2)))
		require.True(t, life.Cmp(new(big.Rat).SetInt(new(big.Int).SetUint64(math.MaxUint64))) < 0, "runs over")
		require.LessOrEqual(t, m.burst*m.scale, uint64(maxUnits))
		require.Equal(t, m.burst, m.burst*m.scale/m.scale)

		if m.burst*m.scale < maxUnits/4 {
			require.True(t, perNano.Cmp(big.NewRat(5, 2)) >= 0, "coarser than need be: %s units per ns", perNano.FloatString(3))
		}
	}
}

func TestLimitsOfTerms(t *testing.T) {
	require.Equal(t, newTerms(big.NewRat(maxRate, 1), maxBurst), newTerms(big.NewRat(math.MaxInt64, 1), math.MaxInt64))
	require.Equal(t, newTerms(big.NewRat(5, 1), 1), newTerms(big.NewRat(5, 1), 0))
	tiny := new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).Lsh(big.NewInt(1), 2000))
	b := newBucket(newTerms(tiny, 3), 0)
	require.EqualValues(t, 3, drain(b, 0))
	require.Zero(t, drain(b, horizon))
}
