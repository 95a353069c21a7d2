package main

import (
	"math/bits"
	"time"
)

// latencies counts durations in buckets that are each 1/32 of a power of two
// wide, so that a quantile is at most 3.2% too high and memory does not grow
// with the requests.
type latencies struct {
	buckets [latencyOctaves * latencySteps]int64
	count   int64
	max     time.Duration
}

const (
	latencySteps   = 32
	latencyOctaves = 64 - 5
)

func (l *latencies) add(d time.Duration) {
	d = max(0, d)
	l.buckets[latencyBucket(uint64(d))]++
	l.count++
	l.max = max(l.max, d)
}

// latencyBucket numbers the bucket of n: below 64 each has its own, above n lies in
// [(32+step) << octave, (33+step) << octave).
func latencyBucket(n uint64) int {
	octave := max(0, bits.Len64(n)-6)
	return octave*latencySteps + int(n>>octave)
}

// latencyUpper is the largest duration in a bucket.
func latencyUpper(bucket int) time.Duration {
	if bucket < 2*latencySteps {
		return time.Duration(bucket)
	}
	octave := bucket/latencySteps - 1
	step := uint64(bucket - octave*latencySteps)
	return time.Duration((step+1)<<octave - 1)
}

// quantile returns a duration that the fraction q of all do not exceed; 0 if
// there are none.
func (l *latencies) quantile(q float64) time.Duration {
	rank, seen := int64(q*float64(l.count-1))+1, int64(0)
	for bucket, n := range l.buckets {
		if seen += n; n > 0 && seen >= rank {
			return min(l.max, latencyUpper(bucket))
		}
	}
	return 0
}
