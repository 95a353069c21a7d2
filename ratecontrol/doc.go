// Package ratecontrol spends tokens: one bucket per class, on this ingester.
//
// # The bucket
//
// A bucket holds at most burst tokens, starts full and gains rate tokens per
// second. It is kept as a count of what has left it, not of what is in it. A
// token is divided into scale units; then, in units,
//
//	minted(t)  = rate·t, what has poured in since the bucket's birth
//	used       = what has left: taken, or spilled over the brim
//	level(t)   = burst + minted(t) - used
//	full       ⇔ used ≤ minted(t): more would spill, so used counts as minted(t)
//
//	take n     : used' = max(used, minted(t)) + n, if that leaves level' ≥ 0
//	give n back: used' = max(used - n, minted(t))
//
// For a bucket of burst 3 that gains one token per second, with one unit per
// token:
//
//	t = 0   used 0           level 3
//	t = 0   take 2: used 2   level 1
//	t = 1   minted 1         level 2
//	t = 9   minted 9         level 3   six tokens have spilled
//	t = 9   take 3: used 12  level 0
//	t = 10  take 2: refused  level 1   used 12 + 2 would leave -1
//
// This is the generic cell rate algorithm, counted in tokens where its authors
// count in time. One word holds the whole state, so a take is one
// compare-and-swap, and time passing writes nothing.
//
// # Properties
//
//	B1 over any interval of length t, admitted cost ≤ burst + rate·t
//	B2 a take that does not fit takes nothing
//	B3 a cost above the burst never fits
//	B4 only elapsed time mints: a reading older than one already seen counts as
//	   that one
//	B5 no drift: under constant demand, admitted = rate·t within one token
//	B6 all of it holds under contention; no lock, no allocation
//	B7 tokens given back never lift the level above the burst
//	B8 a bucket starts full
//
// # Rounding
//
// The rate per nanosecond is a binary fraction, rounded down; minted(t) is
// rounded down where it allows a take and up where it counts as spilled. All of
// it is against the sender, so B1 holds exactly. It costs the sender less than
// three units, which do not add up over time: the state is exact between two
// moments at which the bucket is full. At the very reading at which it was full
// nothing is lost either: the burst fits as a whole and in parts.
//
// The unit is as fine as one word allows. One nanosecond mints up to ten units,
// and a bucket lasts 10^18 ns (31 years), after which it gains nothing more.
// Where a nanosecond can mint a whole number of units (rates such as 1/3, 125
// or 15,000 per second) nothing is rounded at all. Only a burst that takes more
// than 14 years to fill has coarser units: it is never more than 2^62 of them.
//
// Rates above 10^10 per second work as 10^10, bursts above 2^53 as 2^53.
//
// # Time
//
// Nothing here reads a clock. now is in nanoseconds of a monotonic clock since
// an instant that stays the same for the life of the process. A batch reads the
// clock once and passes the same now to all its takes, so readings arrive out
// of order; a bucket remembers the latest (B4).
//
// A take for the sum of several groups fits just when a take for each of them
// in turn would, at the same now and undisturbed. A batch that asks for the sum
// first, and group by group only if that is refused, gets the same answer with
// one take per class: processors that share a bucket then hardly ever wait for
// its cache line.
//
// # Reload
//
// A reload makes a new Limiter from the old one. A class that stays (has the
// same name) keeps its tokens, the fraction too, clipped to the new burst
// (P11). Batches in flight hold the old Limiter and spend the same tokens: the
// old bucket is closed by one compare-and-swap on the very state from which its
// successor was computed, and whoever finds it closed goes on to the successor.
//
//	Next:  successor ← level(used);  CAS used → moved, else compute again
//	Take:  used = moved?  continue with the successor
package ratecontrol
