package ratecontrol

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"testing"

	"github.com/spillway-telemetry/spillway/policy"
)

// takesPerReading is a batch of 500 series under one clock reading.
const takesPerReading = 500

// benchLimiter has one class that is never short of tokens.
func benchLimiter(b *testing.B) *Limiter {
	set, err := policy.Load([]byte(`
streams:
  logs: {rate: 4000000000, burst: 9000000000000000, default: {rate: 4000000000}}
`), "bench.yaml", 3)
	if err != nil {
		b.Fatal(err)
	}
	return NewLimiter(set.Stream("logs"), 0)
}

func BenchmarkTake(b *testing.B) {
	for _, per := range []int{takesPerReading, 1} {
		b.Run(fmt.Sprintf("admitted,takes per reading=%d", per), func(b *testing.B) {
			l := benchLimiter(b)
			b.ReportAllocs()
			now, left := int64(0), 0
			for b.Loop() {
				if left == 0 {
					now, left = now+1000, per
				}
				left--
				if !l.Take(0, 10, now) {
					b.Fatal("refused")
				}
			}
		})
	}
	b.Run("refused", func(b *testing.B) {
		l := benchLimiter(b)
		l.Take(0, 3_000_000_000_000_000, 0)
		b.ReportAllocs()
		for b.Loop() {
			if l.Take(0, 10, 0) {
				b.Fatal("admitted")
			}
		}
	})
}

// BenchmarkTakeParallel shares one bucket among all processors. An op is a
// series, its ns/op the wall time divided by the series of all processors: what
// two lose nothing by takes them half the time of one (-cpu 1,2). The work is
// about what finding a series' route costs.
func BenchmarkTakeParallel(b *testing.B) {
	for _, c := range []struct {
		name string
		work int // bytes hashed per series
		per  int // series per take
	}{
		{"a take per series,no work", 0, 1},
		{"a take per series,work", 500, 1},
		{"a take per batch,work", 500, takesPerReading},
	} {
		b.Run(c.name, func(b *testing.B) {
			l := benchLimiter(b)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				seed, key := maphash.MakeSeed(), make([]byte, c.work)
				now := int64(0)
				for i := 0; pb.Next(); i++ {
					if i%takesPerReading == 0 {
						now += 1000
					}
					if c.work > 0 {
						binary.LittleEndian.PutUint64(key, maphash.Bytes(seed, key))
					}
					if i%c.per == 0 && !l.Take(0, int64(c.per), now) {
						b.Error("refused")
						return
					}
				}
			})
		})
	}
}

// BenchmarkReturn is a take whose write failed.
func BenchmarkReturn(b *testing.B) {
	l := benchLimiter(b)
	b.ReportAllocs()
	for b.Loop() {
		l.Take(0, 10, 0)
		l.Return(0, 10)
	}
}
