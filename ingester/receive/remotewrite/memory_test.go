package remotewrite

import (
	"testing"
	"testing/synctest"

	"github.com/klauspost/compress/snappy"
	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/governor"
	"github.com/spillway-telemetry/spillway/ingester"
)

// TestWaitingBatchHoldsItsBodyOnly: what is decompressed, and what is built for it,
// takes memory only once the batch has its slot; afterwards nothing is held.
func TestWaitingBatchHoldsItsBodyOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, "", "")
		require.Equal(t, 204, s.postV1(bulk(2000)).Code) // leaves its buffers for the next ones
		require.Zero(t, s.gauge("spillway_request_bytes"))

		var slots []*governor.Slot
		for range governor.Defaults().MaxInFlight {
			slot, err := s.ingester.Slot(t.Context(), nil, ingester.Metrics)
			require.NoError(t, err)
			slots = append(slots, slot)
		}
		const waiting = 5
		codes := make(chan int, waiting)
		for range waiting {
			go func() { codes <- s.postV1(bulk(2000)).Code }()
		}
		synctest.Wait()
		require.Empty(t, codes)
		held := s.gauge("spillway_request_bytes") / waiting
		for _, slot := range slots {
			slot.Release()
		}
		body, err := bulk(2000).Marshal()
		require.NoError(t, err)
		packed := len(snappy.Encode(nil, body))
		require.Less(t, 5*packed/4, len(body), "this body is too short to tell")
		require.LessOrEqual(t, held, float64(5*packed/4))
		require.GreaterOrEqual(t, held, float64(packed))
		for range waiting {
			require.Equal(t, 204, <-codes)
		}
		synctest.Wait()
		require.Zero(t, s.gauge("spillway_request_bytes"))
		s.requireConserved()
	})
}
