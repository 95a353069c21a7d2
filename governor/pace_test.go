package governor

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The pace wakes who waits for it, without any arrival or return.
func TestG4PaceWakesByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := testGovernor(t, Defaults())
		g.setPlan(wholePlan(8))
		for range 100 {
			s, err := g.Acquire(t.Context(), "a")
			require.NoError(t, err)
			time.Sleep(800 * time.Millisecond)
			s.Release()
		}
		g.setPlan(pacedPlan(8)) // 6 slots open, the others every 100 ms
		begun := time.Now()
		var starts []time.Duration
		var mu sync.Mutex
		var senders sync.WaitGroup
		for range 9 {
			senders.Go(func() {
				s, err := g.Acquire(t.Context(), "a")
				require.NoError(t, err)
				mu.Lock()
				starts = append(starts, time.Since(begun).Round(time.Millisecond))
				mu.Unlock()
				time.Sleep(10 * time.Second)
				s.Release()
			})
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		mu.Lock()
		require.Len(t, starts, 9, "six are open at once, the peak is nine")
		require.Equal(t, []time.Duration{0, 0, 0, 0, 0, 0}, starts[:6])
		for i, at := range starts[6:] {
			require.InDelta(t, time.Duration(i+1)*100*time.Millisecond, at, float64(50*time.Millisecond))
		}
		mu.Unlock()
		senders.Wait()
	})
}

// A slot that comes back while the pace holds the next start back is granted when
// that is due, although nothing else happens.
func TestG4ReturnedSlotIsGrantedWhenDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := testGovernor(t, Defaults())
		g.setPlan(wholePlan(8))
		for range 100 {
			s, err := g.Acquire(t.Context(), "a")
			require.NoError(t, err)
			time.Sleep(800 * time.Millisecond)
			s.Release()
		}
		g.setPlan(pacedPlan(8)) // 6 slots open, the others every 100 ms, 9 at the peak
		var held []*Slot
		for range 9 {
			s, err := g.Acquire(t.Context(), "a")
			require.NoError(t, err)
			held = append(held, s)
		}
		granted := make(chan *Slot)
		go func() {
			s, err := g.Acquire(t.Context(), "a")
			require.NoError(t, err)
			granted <- s
		}()
		synctest.Wait()
		held[0].Release() // right after the ninth start
		begun := time.Now()
		select {
		case s := <-granted:
			require.Positive(t, time.Since(begun), "the pace was to hold it back")
			s.Release()
		case <-time.After(time.Second):
			t.Fatal("nobody woke the batch")
		}
		for _, s := range held[1:] {
			s.Release()
		}
	})
}
