package sink

import "github.com/spillway-telemetry/spillway/ingester"

// ReasonRejected is given to ingester.Batch.Reject: the destination did not store
// the item and calls that final.
const ReasonRejected = "destination_rejected"

// RejectLast rejects n items of the admitted groups, for a destination that says how
// many it did not take and not which. The last ones are taken: a receiver that
// stops at a limit stops there, and elsewhere only the sum is meant.
func RejectLast(b *ingester.Batch, n int64) {
	for i := len(b.Groups) - 1; i >= 0 && n > 0; i-- {
		g := &b.Groups[i]
		left := g.Items() - int64(g.Rejected)
		if !g.Admitted() || left <= 0 {
			continue
		}
		b.Reject(g, uint32(min(n, left)), ReasonRejected)
		n -= left
	}
}
