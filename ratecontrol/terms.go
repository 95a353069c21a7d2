package ratecontrol

import (
	"math/big"
	"math/bits"
)

const (
	// maxRate in tokens per second: beyond it a nanosecond would mint more
	// than mintMax units even with one unit per token.
	maxRate = 10_000_000_000
	// maxBurst in tokens: 2^53, the largest range in which float64 shows every
	// whole number of tokens.
	maxBurst = 1 << 53

	nanosPerSecond = 1_000_000_000
	// mintMax is how many units one nanosecond mints at most. With horizon it
	// bounds minted to 10^19, with maxUnits used to 1.5·10^19 < 2^64 - 1.
	mintMax = 10
	// horizon is how many nanoseconds of its life a bucket counts.
	horizon = 1_000_000_000_000_000_000
	// maxUnits is the largest burst in units.
	maxUnits = 1 << 62
)

// terms are the numbers that a bucket works with. They never change: a new rate
// or burst is a new bucket.
type terms struct {
	burst uint64 // tokens, 1 to maxBurst
	scale uint64 // units per token
	// One nanosecond mints whole + part/2^64 units.
	whole, part uint64
}

// newTerms chooses the unit for a rate above 0, in tokens per second, and a
// burst in tokens.
func newTerms(rate *big.Rat, burst int64) terms {
	if limit := big.NewRat(maxRate, 1); rate.Cmp(limit) > 0 {
		rate = limit
	}
	burst = min(max(burst, 1), maxBurst)
	num := rate.Num()
	den := new(big.Int).Mul(rate.Denom(), big.NewInt(nanosPerSecond)) // tokens per nanosecond = num/den

	scale := new(big.Int).Mul(big.NewInt(mintMax), den)
	scale.Quo(scale, num)
	if room := big.NewInt(maxUnits / burst); scale.Cmp(room) > 0 {
		scale = room
	}
	// Multiples of even units per token make num/den·scale a whole number.
	even := new(big.Int).Quo(den, new(big.Int).GCD(nil, nil, num, den))
	if scale.Cmp(even) >= 0 {
		scale.Sub(scale, new(big.Int).Mod(scale, even))
	}

	perNano := new(big.Int).Mul(scale, num)
	perNano.Lsh(perNano, 64).Quo(perNano, den)
	return terms{
		burst: uint64(burst),
		scale: scale.Uint64(),
		whole: new(big.Int).Rsh(perNano, 64).Uint64(),
		part:  new(big.Int).And(perNano, new(big.Int).SetUint64(1<<64-1)).Uint64(),
	}
}

// mint is how many units have been minted since a bucket's birth, rounded down
// and rounded up.
type mint struct{ floor, ceil uint64 }

// minted is what the first elapsed nanoseconds mint; elapsed is at most horizon.
func (m *terms) minted(elapsed uint64) mint {
	hi, lo := bits.Mul64(elapsed, m.part)
	floor := elapsed*m.whole + hi
	if lo != 0 {
		return mint{floor, floor + 1}
	}
	return mint{floor, floor}
}

// take is the count of used units after a take of n tokens, and whether the
// take fits.
func (m *terms) take(used, n uint64, minted mint) (after uint64, fits bool) {
	if n > m.burst {
		return used, false
	}
	if used <= minted.floor {
		// Full, whatever the rounding: any n up to the burst fits.
		return minted.ceil + n*m.scale, true
	}
	return used + n*m.scale, used-minted.floor <= (m.burst-n)*m.scale
}

// giveBack is the count of used units after n tokens came back.
func (m *terms) giveBack(used, n uint64, minted mint) uint64 {
	if used <= minted.floor {
		return used
	}
	return used - min(used-minted.floor, min(n, m.burst)*m.scale)
}

// level is the content in units. It may be -1, by rounding, when it is 0.
func (m *terms) level(used uint64, minted mint) int64 {
	full := int64(m.burst * m.scale)
	if used <= minted.floor {
		return full
	}
	return full - int64(used-minted.floor)
}

// usedAtBirth is the state of a newborn bucket that holds what is left of
// another one's level, rounded down and clipped to the burst.
func (m *terms) usedAtBirth(from *terms, level int64) uint64 {
	units := new(big.Int).Mul(big.NewInt(level), new(big.Int).SetUint64(m.scale))
	units.Div(units, new(big.Int).SetUint64(from.scale)) // Div rounds down for -1, too
	full := new(big.Int).SetUint64(m.burst * m.scale)
	if units.Cmp(full) >= 0 {
		return 0
	}
	return full.Sub(full, units).Uint64()
}
