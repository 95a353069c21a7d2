package tsdb

import (
	"math"
	"math/bits"
)

// pending remembers the newest point that the running commit holds of each
// series. The database checks a point against what it has committed only; what
// comes twice in one commit it would drop without a word while committing.
//
// It is an open hash table that is never emptied: an entry counts if it is of
// the current generation.
type pending struct {
	slots      []slot
	shift      uint8
	generation uint64
}

type slot struct {
	ref        uint64
	generation uint64
	newest     *point
}

// begin forgets everything and makes room for n series.
func (p *pending) begin(n int) {
	p.generation++
	size := 64
	for size < 2*n {
		size *= 2
	}
	if size > len(p.slots) {
		p.slots = make([]slot, size)
		p.shift = uint8(64 - bits.TrailingZeros(uint(size)))
	}
}

// slot returns the series' entry, or the free one where it belongs.
func (p *pending) slot(ref uint64) *slot {
	// Fibonacci hashing (Knuth, The Art of Computer Programming, vol. 3, 6.4):
	// references count up, and this spreads neighbours over the table.
	i := ref * 0x9E3779B97F4A7C15 >> p.shift
	for {
		s := &p.slots[i]
		if s.generation != p.generation || s.ref == ref {
			return s
		}
		i = (i + 1) & uint64(len(p.slots)-1)
	}
}

// newest is the point that the commit holds of the series, or nil.
func (p *pending) newest(ref uint64) *point {
	if s := p.slot(ref); s.generation == p.generation {
		return s.newest
	}
	return nil
}

// hold notes a point that the commit has taken.
func (p *pending) hold(ref uint64, pt *point) {
	s := p.slot(ref)
	if s.generation != p.generation || pt.t > s.newest.t {
		*s = slot{ref: ref, generation: p.generation, newest: pt}
	}
}

// same reports whether two points of one series and time are one item sent
// twice. Floats are compared bit by bit: a stale marker is a NaN.
func same(a, b *point) bool {
	if a.h != nil || b.h != nil {
		return a.h != nil && a.h.Equals(b.h)
	}
	if a.fh != nil || b.fh != nil {
		return a.fh != nil && a.fh.Equals(b.fh)
	}
	return math.Float64bits(a.v) == math.Float64bits(b.v)
}
