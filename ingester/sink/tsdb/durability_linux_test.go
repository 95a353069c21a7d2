package tsdb

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// mountSmall makes dir a file system of the given size and returns how to resize
// it.
func mountSmall(t *testing.T, dir, size string) (resize func(size string)) {
	require.NoError(t, os.MkdirAll(dir, 0o700))
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("skipped: filling a disk needs the right to mount a small one: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return func(size string) {
		require.NoError(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size="+size))
	}
}

// The disk fills up in the middle of a write: of the log, of the one for what
// comes out of order, or of either. What was acknowledged before is there, and
// so is what is written once there is room again, also after a crash.
func TestFullDiskLosesNothingAcknowledged(t *testing.T) {
	for _, folder := range []string{"", "wal", "wbl"} {
		for _, series := range []int{200, 5_000} { // a record is a part of a page of the log, and more than one
			t.Run(fmt.Sprintf("small disk at /%s, %d series", folder, series), func(t *testing.T) {
				t.Parallel()
				o := testOptions(t)
				resize := mountSmall(t, filepath.Join(o.Path, folder), "512k")
				fillDisk(t, o, series, resize)
			})
		}
	}
}

func fillDisk(t *testing.T, o Options, series int, resize func(size string)) {
	s := openTest(t, o)
	rs := routes{}
	rnd := rand.New(rand.NewPCG(uint64(series), 5))
	base := time.Now().Add(-30 * time.Minute).UnixMilli()
	stored := map[string]map[int64]float64{}
	write := func(i int64) error {
		req := write1()
		for n := range series {
			if rnd.IntN(2) == 0 {
				continue
			}
			// Every third batch is out of order.
			smp := sample(base+i*10-(i%3/2)*55, rnd.Float64())
			req.Timeseries = append(req.Timeseries, float1(fmt.Sprintf("m%d", n), smp))
		}
		b := newTestBatch(t, rs, req)
		if err := s.Write(t.Context(), b); err != nil {
			return err
		}
		require.Zero(t, rejected(b))
		for _, ts := range req.Timeseries {
			name := ts.Labels[0].Value
			if stored[name] == nil {
				stored[name] = map[int64]float64{}
			}
			stored[name][ts.Samples[0].Timestamp] = ts.Samples[0].Value
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
	resize("64m")
	for range 20 {
		i += 10
		require.NoError(t, write(i))
	}
	requireContains(t, stored, s)
	requireContains(t, stored, openCopy(t, o))
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
	o := testOptions(t)
	resize := mountSmall(t, o.Path, "4m")
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
