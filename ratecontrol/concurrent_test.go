package ratecontrol

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// together runs n goroutines, started at the same moment, and waits for them.
func together(n int, do func(worker int, rnd *rand.Rand)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for w := range n {
		wg.Go(func() {
			<-start
			do(w, rand.New(rand.NewPCG(uint64(w), 6)))
		})
	}
	close(start)
	wg.Wait()
}

// Batches that overlap: each reads the clock once, then takes for 500 series
// while others, with later and earlier readings, do the same.
func TestB4ThirtyTwoBatchesAtOnce(t *testing.T) {
	const workers, batches, series = 32, 6, 500
	for _, rate := range []*big.Rat{big.NewRat(20_000, 1), big.NewRat(9875, 7), big.NewRat(999_999_937, 1)} {
		t.Run(rate.RatString(), func(t *testing.T) {
			const burst = 1 << 40 // never full again, so nothing spills
			b := newBucket(newTerms(rate, burst), 0)
			require.EqualValues(t, burst, drain(b, 0))
			// A batch mints a fourteenth of what it asks for.
			step, _ := new(big.Rat).Quo(big.NewRat(series*second, 14), rate).Float64()
			var clock, admitted atomic.Int64
			together(workers, func(_ int, rnd *rand.Rand) {
				for range batches {
					now := clock.Add(1+int64(step)) - rnd.Int64N(1+int64(step))
					for range series {
						if b.take(1, now) {
							admitted.Add(1)
						}
						if rnd.IntN(8) == 0 {
							runtime.Gosched()
						}
					}
				}
			})
			end := clock.Load()
			minted, _ := over(rate, uint64(end)).Float64()
			require.LessOrEqual(t, float64(admitted.Load()), minted)
			require.InDelta(t, minted, float64(admitted.Load()+drain(b, end)), 1, "tokens were lost")
			require.Greater(t, float64(admitted.Load()), minted/2)
		})
	}
}

// Takes and returns from all sides lose no token and make none.
func TestB6Contention(t *testing.T) {
	for _, burst := range []int64{1, 7, 1000} {
		t.Run(fmt.Sprint("burst ", burst), func(t *testing.T) {
			b := bucketOf(9875, 7, burst, 0)
			now := 12_345*second + 6789
			var kept, took atomic.Int64
			together(8, func(_ int, rnd *rand.Rand) {
				held := int64(0)
				for range 20_000 {
					n := 1 + rnd.Int64N(min(burst, 5))
					if b.take(uint64(n), now) {
						held += n
						took.Add(1)
					}
					if held > 0 && rnd.IntN(3) > 0 {
						b.giveBack(uint64(held))
						held = 0
					}
				}
				kept.Add(held)
			})
			require.Positive(t, took.Load())
			require.Equal(t, burst, kept.Load()+drain(b, now))
		})
	}
}

// Nobody sets the latest reading back.
func TestB4TheLatestReadingOnlyGrows(t *testing.T) {
	b := bucketOf(1, 1, 1, 0)
	var fell atomic.Int64
	together(3, func(w int, _ *rand.Rand) {
		for now := int64(w); now < 100_000; now += 3 {
			b.take(5, now) // above the burst, all the same a reading
			if b.seen.Load() < now {
				fell.Add(1)
			}
		}
	})
	require.Zero(t, fell.Load())
	require.EqualValues(t, 99_999, b.seen.Load())
}

// Every reading refills the bucket, and hardly anything is asked for: whoever
// is refused was misled by a take with a later reading than its own.
func TestB6NoTakeIsRefusedBecauseOfALaterOne(t *testing.T) {
	b := bucketOf(9875, 7, 1000, 0)
	var clock, refused atomic.Int64
	together(3, func(int, *rand.Rand) {
		for range 30_000 {
			if !b.take(1, clock.Add(second)) {
				refused.Add(1)
			}
		}
	})
	require.Zero(t, refused.Load())
}

func TestB6NoAllocation(t *testing.T) {
	b := bucketOf(9875, 7, 100, 0)
	now := int64(0)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		now += 1_000_000
		b.take(1, now)
		b.take(1000, now)
		b.giveBack(1)
		b.tokens(now)
	}))
	other := b.move(newTerms(big.NewRat(5, 1), 50), now)
	require.NotSame(t, b, other)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		b.take(1, now)
		b.giveBack(1)
	}), "through a bucket that has moved")
}

func TestB6ATakeTouchesOneCacheLine(t *testing.T) {
	var b bucket
	require.EqualValues(t, 64, unsafe.Offsetof(b.next))
	require.EqualValues(t, 128, unsafe.Sizeof(b))
}

// Reloads under load, with the clock standing still: every token of the first
// bucket is spent once, through whichever generation, and none is lost but for
// the fractions that a change of units rounds away.
func TestP11ReloadsSpendNoTokenTwice(t *testing.T) {
	const full, reloads = 20_000, 300
	var generations [reloads + 1]atomic.Pointer[bucket]
	generations[0].Store(newBucket(newTerms(big.NewRat(1000, 3), full), 0))
	var newest, kept, takes atomic.Int64
	together(4, func(worker int, rnd *rand.Rand) {
		pick := func() *bucket {
			n := newest.Load()
			if rnd.IntN(10) == 0 {
				n = rnd.Int64N(n + 1)
			}
			return generations[n].Load()
		}
		if worker == 0 {
			for i := int64(1); i <= reloads; i++ {
				next := pick().move(newTerms(big.NewRat(1+rnd.Int64N(1e9), 7), full+rnd.Int64N(1000)), 0)
				generations[i].Store(next)
				for before := takes.Load(); takes.Load() < before+50; {
					runtime.Gosched()
				}
				newest.Store(i)
			}
			return
		}
		held := int64(0)
		for i := 0; newest.Load() < reloads; i++ {
			if n := 1 + rnd.Int64N(20); pick().take(uint64(n), 0) {
				held += n
			}
			if held > 100 {
				pick().giveBack(uint64(held))
				held = 0
			}
			takes.Add(1)
			if i%50 == 0 {
				runtime.Gosched()
			}
		}
		kept.Add(held)
	})
	left := drain(generations[0].Load(), 0)
	require.LessOrEqual(t, kept.Load()+left, int64(full))
	require.GreaterOrEqual(t, kept.Load()+left, int64(full-1))
	for i := range generations {
		require.Zero(t, drain(generations[i].Load(), 0), "generation %d holds tokens of its own", i)
	}
}

// Reloads under load and with a moving clock: old and new buckets together
// admit no more than one bucket of the larger burst and rate.
func TestP11ReloadsMintNoTokenTwice(t *testing.T) {
	slow, fast := newTerms(big.NewRat(125, 4), 90), newTerms(big.NewRat(100, 3), 100)
	for round := range 8 {
		first := newBucket(fast, 0)
		var newest atomic.Pointer[bucket]
		newest.Store(first)
		var clock, admitted, batches atomic.Int64
		var done atomic.Bool
		together(4, func(worker int, rnd *rand.Rand) {
			if worker == 0 {
				for i := range 40 {
					next := newest.Load().move([]terms{slow, fast}[i%2], clock.Load()-rnd.Int64N(second))
					newest.Store(next)
					for before := batches.Load(); batches.Load() < before+5; {
						runtime.Gosched()
					}
				}
				done.Store(true)
				return
			}
			for !done.Load() {
				now := clock.Add(rnd.Int64N(second/50)) - rnd.Int64N(second/50)
				b := first
				for range 10 {
					if b.take(1, now) {
						admitted.Add(1)
					}
					b = newest.Load()
					runtime.Gosched()
				}
				batches.Add(1)
			}
		})
		most, _ := over(big.NewRat(100, 3), uint64(clock.Load())).Float64()
		got := float64(admitted.Load() + drain(first, clock.Load()))
		require.LessOrEqual(t, got, 100+most, "round %d", round)
		require.Greater(t, got, most/4, "round %d", round)
	}
}
