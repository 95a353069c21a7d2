package tsdb

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"
)

// mountSmall makes a file system of the given size and returns how to resize it.
func mountSmall(t *testing.T, size string) (dir string, resize func(size string)) {
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("skipped: filling a disk needs the right to mount a small one: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return dir, func(size string) {
		require.NoError(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size="+size))
	}
}

// The disk fills up in the middle of a write, in the log or in the one for
// samples out of order. What was acknowledged before is there, and so is what is
// written once there is room again, also after a crash.
func TestFullDiskLosesNothingAcknowledged(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			dir, resize := mountSmall(t, fmt.Sprintf("%dk", 4000+100*seed))
			o := testOptions(t)
			o.Path = dir
			o.WALSegmentBytes = 256 << 10
			s := openTest(t, o)
			rs := routes{}
			rnd := rand.New(rand.NewPCG(seed, 5))
			base := time.Now().Add(-30 * time.Minute).UnixMilli()
			stored := map[string]map[int64]float64{}
			write := func(i int64) error {
				req := write1()
				sent := map[string]prompb.Sample{}
				// Some 12 bytes a sample: from the third seed on, a record takes
				// more than one page of the log, and may fail between two.
				for range 200 + 1000*seed {
					name := fmt.Sprintf("m%d", rnd.IntN(4000))
					if _, ok := sent[name]; ok {
						continue
					}
					// Every third batch is out of order.
					sent[name] = sample(base+i*10-(i%3/2)*55, rnd.Float64())
					req.Timeseries = append(req.Timeseries, float1(name, sent[name]))
				}
				b := newTestBatch(t, rs, req)
				if err := s.Write(t.Context(), b); err != nil {
					return err
				}
				require.Zero(t, rejected(b))
				for name, smp := range sent {
					if stored[name] == nil {
						stored[name] = map[int64]float64{}
					}
					stored[name][smp.Timestamp] = smp.Value
				}
				return nil
			}
			var i int64
			for ; i < 20_000; i++ {
				if err := write(i); err != nil {
					require.ErrorIs(t, err, syscall.ENOSPC)
					break
				}
			}
			require.Less(t, i, int64(20_000), "the disk did not fill up")
			require.Error(t, write(i+1), "still full")
			resize("64m")
			s.retryAt.Store(0)
			for range 20 {
				i += 10
				require.NoError(t, write(i))
			}
			requireContains(t, stored, s)
			requireContains(t, stored, openCopy(t, o))
		})
	}
}

// requireContains is requireContent for a database that may also hold samples
// whose sender was told to send them again.
func requireContains(t *testing.T, want map[string]map[int64]float64, s *Sink) {
	t.Helper()
	got := content(t, s)
	for name, samples := range want {
		have := map[int64]float64{}
		for _, p := range got[fmt.Sprintf(`{__name__="%s", job="test"}`, name)] {
			have[p.t] = p.v
		}
		for at, v := range samples {
			require.Equal(t, v, have[at], "%s at %d is lost", name, at)
		}
	}
}

func TestNearlyFullDiskIsNotWrittenTo(t *testing.T) {
	dir, resize := mountSmall(t, "4m")
	o := testOptions(t)
	o.Path = dir
	o.WALSegmentBytes = 256 << 10
	o.MinFreeBytes = 8 << 20
	s := openTest(t, o)
	rs := routes{}
	b := newTestBatch(t, rs, write1(float1("m", sample(milli(), 1))))
	require.ErrorContains(t, s.Write(t.Context(), b), "min_free_bytes")
	require.NoError(t, s.Ready(), "nothing is broken")
	require.Empty(t, content(t, s))
	resize("32m")
	require.NoError(t, s.Write(t.Context(), b))
	require.Equal(t, 1, count(content(t, s)))
}
