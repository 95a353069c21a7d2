package ratecontrol

import (
	"math/big"

	"github.com/spillway-telemetry/spillway/policy"
)

// Limiter holds the buckets of one stream's classes. A class is named by its
// index in policy.Policy.Classes; another index panics. All methods may be
// called at the same time; none blocks on another but Next on Next.
//
// now is in nanoseconds of a monotonic clock since an instant that is the same
// for all calls.
type Limiter struct {
	classes []class
}

// class is a class's name and its bucket: nil where it has rate 0 (P6) or is
// not configured (P7).
type class struct {
	name   string
	bucket *bucket
}

// NewLimiter gives every class of p a full bucket (B8). A stream without a
// policy has no Limiter (P1).
func NewLimiter(p *policy.Policy, now int64) *Limiter {
	return new(Limiter).Next(p, now)
}

// Next is the Limiter for a new policy. A class that stays, by name, keeps its
// tokens and their fraction, clipped to its new burst; another one starts full
// (P11). So does a class whose rate was 0: it had no tokens to keep.
//
// l stays valid for the batches that hold it. They spend and give back the same
// tokens as those that hold the result, under the new rate and burst. Only a
// class that lost its bucket keeps it in l, for as long as those batches last.
func (l *Limiter) Next(p *policy.Policy, now int64) *Limiter {
	old := make(map[string]*bucket, len(l.classes))
	for _, c := range l.classes {
		old[c.name] = c.bucket
	}
	classes := p.Classes()
	next := &Limiter{classes: make([]class, len(classes))}
	for i, c := range classes {
		next.classes[i].name = c.Name
		if !c.Configured || c.RatePerIngester.Sign() <= 0 {
			continue
		}
		next.classes[i].bucket = follow(old[c.Name], c.RatePerIngester, c.BurstPerIngester, now)
	}
	return next
}

// follow is the bucket that comes after old, nil for none, with a new rate in
// tokens per second and a new burst in tokens.
func follow(old *bucket, rate *big.Rat, burst, now int64) *bucket {
	m := newTerms(rate, burst)
	if old == nil {
		return newBucket(m, now)
	}
	return old.move(m, now)
}

// Take spends n tokens of a class at now and says whether they were there. It
// takes all or none. A class without a bucket has nothing to give, not even for
// a group that costs 0; elsewhere n = 0 is true and takes nothing. A negative n
// is false.
func (l *Limiter) Take(class int, n, now int64) bool {
	b := l.classes[class].bucket
	if b == nil {
		return false
	}
	if n == 0 {
		return true
	}
	return b.take(uint64(n), now) // a negative n is above any burst
}

// Return puts back n tokens that Take gave, because what they paid for was not
// stored and the sender will try again (B7). The level never exceeds the burst.
func (l *Limiter) Return(class int, n int64) {
	if b := l.classes[class].bucket; b != nil && n > 0 {
		b.giveBack(uint64(n))
	}
}

// Tokens is a class's level at now, for display: 0 to its burst, and 0 where it
// has no bucket.
func (l *Limiter) Tokens(class int, now int64) float64 {
	b := l.classes[class].bucket
	if b == nil {
		return 0
	}
	return b.tokens(now)
}
